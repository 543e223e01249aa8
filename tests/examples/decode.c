/* Decoding with a key/value cache: token by token, the outputs are those of one causal pass over the whole sequence. */
#include <math.h>
#include <mha/mha.h>
#include <stdio.h>

enum { TOKENS = 12, WIDTH = 64 };

static float x[TOKENS * WIDTH], whole[TOKENS * WIDTH], steps[TOKENS * WIDTH];

/* One pass over all tokens, then one call for each token, which appends its key and value to the cache. */
static mha_status decode(const mha_layer *layer, mha_cache *cache, mha_error *error)
{
    const mha_semantics semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_HALF_SPLIT};
    mha_call call = {
        .query = mha_rows(x, 1, TOKENS, WIDTH), .output = mha_rows(whole, 1, TOKENS, WIDTH), .semantics = semantics};
    mha_status status = mha_run(layer, &call, error);
    for (size_t t = 0; t < TOKENS && status == MHA_OK; t++) {
        call.query = mha_rows(x + t * WIDTH, 1, 1, WIDTH);
        call.output = mha_rows(steps + t * WIDTH, 1, 1, WIDTH);
        call.cache = cache;
        status = mha_run(layer, &call, error);
    }
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
