/* The shortest use of the library: a layer with random weights, one forward, its parameters. */
#include <mha/mha.h>
#include <stdio.h>

static float x[10 * 512], y[10 * 512]; /* 10 tokens, 512 features each */

int main(void)
{
    mha_layer *layer;
    mha_layer_create(&(mha_config){.d_model = 512, .n_heads = 8}, NULL, NULL, &layer, NULL);
    mha_layer_init(layer, 7);
    mha_run(layer, &(mha_call){.query = mha_rows(x, 1, 10, 512), .output = mha_rows(y, 1, 10, 512)}, NULL);
    printf("%zu parameters\n", mha_params_totals(mha_layer_params(layer), NULL).parameters);
    mha_layer_destroy(layer);
    return 0;
}
