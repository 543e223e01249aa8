/* A layer with random weights runs on random inputs: the example of README. */
#include <mha/mha.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    mha_params *table;
    mha_layer *layer;
    mha_config config = {.d_model = 64, .n_heads = 4};
    if (mha_params_create(NULL, &table) || mha_layer_create(&config, table, "", &layer, NULL))
        return 1;
    mha_layer_init(layer, 7);

    static float x[2 * 10 * 64], y[2 * 10 * 64]; /* (B, T, d_model) */
    mha_call call = {.query = mha_view_rows(x, MHA_F32, MHA_BTE, 2, 10, 64), .semantics = {.causal = true}};
    call.stages[MHA_STAGE_OUTPUT] = mha_view_rows(y, MHA_F32, MHA_BTE, 2, 10, 64);
    mha_random_fill(&call.query, 7, 100, -1.0f, 1.0f);

    mha_plan plan;
    mha_error error;
    if (mha_plan_call(layer, &call, &plan, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    void *workspace = malloc(plan.workspace_bytes);
    mha_status status = mha_forward(layer, &call, workspace, plan.workspace_bytes, &error);
    printf("%s: %zu parameters, y[0] = %g\n", mha_status_name(status), mha_params_totals(table, NULL).parameters, (double)y[0]);
    free(workspace);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
    return status != MHA_OK;
}
