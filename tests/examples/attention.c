/* The example at the top of mha/attention.h, in a program that is C11 and C++17. */
#include <mha/mha.h>
#include <stdio.h>

static float x[10 * 512], y[10 * 512];

int main(void)
{
    mha_error error;
    mha_layer *layer = NULL;
    mha_config config = {0};
    mha_call call = {0}; // x and y: 10 rows of 512 floats
    config.d_model = 512, config.n_heads = 8;
    call.query = mha_rows(x, 1, 10, 512), call.output = mha_rows(y, 1, 10, 512);
    call.semantics.visible.causal = true;
    mha_status status = mha_layer_create(&config, NULL, NULL, &layer, &error);
    if (status == MHA_OK)
        mha_layer_init(layer, 7), status = mha_run(layer, &call, &error);
    mha_layer_destroy(layer);
    if (status != MHA_OK)
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    return status != MHA_OK;
}
