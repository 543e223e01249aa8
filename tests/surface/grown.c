/* A program of the core, compiled with the headers of one version and run with the library of another: attention
 * without a layer, with sinks, a softcap and a kept stage; a layer, its table and a cache. Prints what it computes, and
 * fails where the library writes past a struct of this program. With GROWN it sets what only a later version has. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mha/attention.h"
#include "mha/params.h"
#include "mha/random.h"

static int fail(const char *where, const mha_error *error)
{
    printf("%s: %s: %s\n", where, error->name, error->message);
    return 1;
}

static int run_heads(void)
{
    enum { T = 5, H = 2, D = 4 };
    static float x[T * H * D];
    double out[T * H * D], lse[H * T];
    float sinks[H] = {0.5f, -1.0f};
    mha_view rows = mha_heads(x, 1, T, H, D), weights[MHA_WEIGHT_COUNT] = {{0}};
    mha_random_fill(&rows, 1, 0, -1, 1);
    weights[MHA_SINKS] = mha_view_of(sinks, MHA_F32, 1, (size_t[]){H});
    mha_keep keep = {MHA_STAGE_LSE, mha_view_of(lse, MHA_F64, 3, (size_t[]){1, H, T}), 0};
    mha_error error;
    mha_call call = {.query = rows, .key = rows, .value = rows, .weights = weights, .weight_count = MHA_WEIGHT_COUNT,
                     .output = mha_view_of(out, MHA_F64, 4, (size_t[]){1, T, H, D}), .keep = &keep, .keep_count = 1,
                     .path = MHA_PATH_EXACT,
                     .semantics = {.visible.causal = true,
                                   .softmax = {.softcap = 2, .hidden_values = MHA_HIDDEN_PROPAGATE}}};
#ifdef GROWN
    call.semantics.softmax.grown = 3;
#endif
    struct {
        mha_plan plan;
        unsigned char behind[64];
    } made;
    memset(&made, 0xAB, sizeof made);
    if (mha_plan_call(NULL, &call, &made.plan, &error) != MHA_OK || mha_run(NULL, &call, &error) != MHA_OK)
        return fail("heads", &error);
    for (int i = 0; i < T * H; i++)
        printf("%.17g %.17g\n", lse[i], out[i * D]);
    return made.behind[0] != 0xAB;
}

static int run_layer(void)
{
    struct {
        mha_totals totals;
        unsigned char behind[64];
    } sum;
    struct {
        mha_tensor_info info;
        unsigned char behind[64];
    } row;
    static float x[3 * 8], y[3 * 8];
    mha_view rows = mha_rows(x, 1, 3, 8);
    mha_layer *layer = NULL;
    mha_cache *cache = NULL;
    mha_error error;
    const mha_config config = {.d_model = 8, .n_heads = 2, .bias_q = true};
    const mha_cache_spec spec = {.batch = 1, .kv_heads = 2, .d_k = 4, .d_v = 4, .capacity = 3};
    memset(&sum, 0xAB, sizeof sum);
    memset(&row, 0xAB, sizeof row);
    mha_random_fill(&rows, 2, 0, -1, 1);
    if (mha_layer_create(&config, NULL, NULL, &layer, &error) != MHA_OK ||
        mha_cache_create(&spec, NULL, &cache, &error) != MHA_OK)
        return fail("layer", &error);
    mha_layer_init(layer, 3);
    sum.totals = mha_params_totals(mha_layer_params(layer), NULL);
    row.info = mha_tensor_info_of(mha_layer_weight(layer, MHA_B_Q));
    mha_call call = {.query = rows, .output = mha_rows(y, 1, 3, 8), .cache = cache, .semantics.visible.causal = true};
    if (mha_run(layer, &call, &error) != MHA_OK)
        return fail("layer", &error);
    printf("%zu parameters, %s of %zu, %zu cached rows, %.7g\n", sum.totals.parameters, row.info.name,
           row.info.elements, mha_cache_length(cache), (double)y[23]);
    mha_cache_destroy(cache);
    mha_layer_destroy(layer);
    return sum.behind[0] != 0xAB || row.behind[0] != 0xAB;
}

int main(void)
{
    return run_heads() || run_layer();
}
