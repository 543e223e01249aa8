/* Decoding with a key/value cache: token by token, the outputs are those of one causal pass over the whole sequence. */
#include <math.h>
#include <mha/mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 12, WIDTH = 64 };

static float x[TOKENS * WIDTH], whole[TOKENS * WIDTH], steps[TOKENS * WIDTH];

/* Runs the plan. Its workspace grows now and then, as the cache does. */
static mha_status forward(const mha_plan *plan, void **workspace, size_t *bytes, mha_error *error)
{
    if (plan->workspace_bytes > *bytes) {
        free(*workspace);
        *bytes = 2 * plan->workspace_bytes;
        *workspace = malloc(*bytes);
    }
    return *workspace ? mha_forward(plan, *workspace, *bytes, error) : MHA_NO_MEMORY;
}

/* One pass over all tokens, then one forward for each token, which appends its key and value to the cache. The call of
 * one token is planned once: each later token advances the plan. */
static mha_status decode(const mha_layer *layer, mha_cache *cache, mha_error *error)
{
    mha_plan plan;
    void *workspace = NULL;
    size_t bytes = 0;
    mha_call call = {.query = mha_rows(x, 1, TOKENS, WIDTH), .output = mha_rows(whole, 1, TOKENS, WIDTH),
                     .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT}};
    mha_status status = mha_run(layer, &call, error);
    call.query = mha_rows(x, 1, 1, WIDTH), call.output = mha_rows(steps, 1, 1, WIDTH), call.cache = cache;
    if (status == MHA_OK)
        status = mha_plan_call(layer, &call, &plan, error);
    for (size_t t = 0; t < TOKENS && status == MHA_OK; t++) {
        if (t > 0)
            status = mha_plan_advance(&plan, error);
        if (status == MHA_OK)
            status = mha_plan_move(&plan, x + t * WIDTH, NULL, NULL, steps + t * WIDTH, error);
        if (status == MHA_OK)
            status = forward(&plan, &workspace, &bytes, error);
    }
    free(workspace);
    return status;
}

int main(void)
{
    mha_layer *layer = NULL;
    mha_cache *cache = NULL;
    mha_error error;
    const mha_config config = {
        .d_model = WIDTH, .n_heads = 8, .kv_heads = 2}; /* four query heads share a key/value head */
    mha_status status = mha_layer_create(&config, NULL, NULL, &layer, &error);
    if (status == MHA_OK) {
        const mha_config *c = mha_layer_config(layer); /* with its defaults filled in */
        const mha_cache_spec spec = {
            .batch = 1, .kv_heads = c->kv_heads, .d_k = c->d_k, .d_v = c->d_v, .capacity = TOKENS};
        status = mha_cache_create(&spec, NULL, &cache, &error);
    }
    if (status == MHA_OK) {
        mha_layer_init(layer, 7);
        mha_view inputs = mha_rows(x, 1, TOKENS, WIDTH);
        mha_random_fill(&inputs, 7, 100, -1.0f, 1.0f);
        status = decode(layer, cache, &error);
    }
    double farthest = 0;
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        farthest = fmax(farthest, fabs((double)steps[i] - (double)whole[i]));
    if (status == MHA_OK)
        printf("%zu rows in the cache; token by token and at once differ by %g at most\n", mha_cache_length(cache),
               farthest);
    else
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    mha_cache_destroy(cache);
    mha_layer_destroy(layer);
    return status != MHA_OK || farthest > 1e-5;
}
