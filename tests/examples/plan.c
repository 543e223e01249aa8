/* A call is planned once and run many times: no forward allocates anything at all. */
#include <mha/mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 16, WIDTH = 64, FORWARDS = 1000 };

static float x[TOKENS * WIDTH], y[TOKENS * WIDTH];

/* Plans the call, takes the workspace that the plan asks for, and runs the plan on new inputs again and again. */
static mha_status run_many(const mha_layer *layer, mha_error *error)
{
    mha_call call = {.query = mha_rows(x, 1, TOKENS, WIDTH),
                     .output = mha_rows(y, 1, TOKENS, WIDTH),
                     .semantics = {.visible = {.causal = true}}};
    mha_plan plan;
    mha_status status = mha_plan_call(layer, &call, &plan, error); /* all that can be wrong with it is said here */
    if (status != MHA_OK)
        return status;
    void *workspace = malloc(plan.workspace_bytes);
    if (!workspace)
        return MHA_NO_MEMORY;
    for (size_t i = 0; i < FORWARDS && status == MHA_OK; i++) {
        mha_random_fill(&call.query, i, 100, -1.0f, 1.0f); /* the plan reads x and writes y where they were */
        status = mha_forward(&plan, workspace, plan.workspace_bytes, error);
    }
    free(workspace);
    if (status == MHA_OK)
        printf("%d forwards on path %s in %zu bytes\n", FORWARDS, mha_path_name(plan.path), plan.workspace_bytes);
    return status;
}

int main(void)
{
    mha_layer *layer;
    mha_error error = {0};
    const mha_config config = {.d_model = WIDTH, .n_heads = 4};
    mha_status status = mha_layer_create(&config, NULL, NULL, &layer, &error);
    if (status == MHA_OK) {
        mha_layer_init(layer, 7);
        status = run_many(layer, &error);
        mha_layer_destroy(layer);
    }
    if (status != MHA_OK)
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    return status != MHA_OK;
}
