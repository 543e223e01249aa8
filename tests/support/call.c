/* A forward with exactly the memory it asks for. */
#include "support/call.h"
#include "support/guard.h"
#include "support/unit.h"

mha_plan run_call(const mha_layer *layer, mha_call *call)
{
    mha_plan plan;
    mha_error error;
    assert_ok(mha_plan_call(layer, call, &plan, &error), error);
    void *workspace = guard_allocate(plan.workspace_bytes, GUARD_AFTER, 0xFF);
    assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
    guard_release(workspace);
    return plan;
}
