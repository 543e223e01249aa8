/* A forward with the memory it asks for. */
#include <stdlib.h>

#include "support/call.h"
#include "support/unit.h"

mha_plan run_call(const mha_layer *layer, mha_call *call)
{
    mha_plan plan;
    mha_error error;
    assert_ok(mha_plan_call(layer, call, &plan, &error), error);
    void *workspace = malloc(plan.workspace_bytes + 1);
    assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
    free(workspace);
    return plan;
}
