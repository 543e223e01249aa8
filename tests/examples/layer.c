/* A layer with random weights runs on random inputs, with every error looked at. */
#include <mha/mha.h>
#include <stdio.h>

static float x[2 * 10 * 64], y[2 * 10 * 64]; /* 2 batch rows of 10 tokens, 64 features each */

int main(void)
{
    mha_layer *layer;
    mha_error error;
    mha_config config = {.d_model = 64, .n_heads = 4}; /* no biases; Python's layer and mha forward have all four */
    mha_status status = mha_layer_create(&config, NULL, NULL, &layer, &error);
    if (status == MHA_OK) {
        mha_layer_init(layer, 7); /* random weights; mha_model_load_layer reads those of a checkpoint */
        mha_call call = {.query = mha_rows(x, 2, 10, 64),
                         .output = mha_rows(y, 2, 10, 64),
                         .semantics = {.visible = {.causal = true}}};
        mha_random_fill(&call.query, 7, 100, -1.0f, 1.0f);
        status = mha_run(layer, &call, &error);
        mha_totals totals = mha_params_totals(mha_layer_params(layer), NULL); /* counted from what was allocated */
        printf("%zu parameters, y[0] = %g\n", totals.parameters, (double)y[0]);
        mha_layer_destroy(layer);
    }
    if (status != MHA_OK)
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    return status != MHA_OK;
}
