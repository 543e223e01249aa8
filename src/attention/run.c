/* A call planned and run once, with a workspace of its own. */
#include "base/base.h"
#include "mha/attention.h"

mha_status mha_run(const mha_layer *layer, const mha_call *call, mha_error *error)
{
    const mha_allocator allocator = layer ? *mha_params_allocator(mha_layer_params(layer)) : mha__allocator_default();
    mha_plan plan;
    TRY(mha_plan_call(layer, call, &plan, error));
    void *workspace = mha__allocate(&allocator, plan.workspace_bytes);
    if (!workspace)
        return mha__fail(error, MHA_NO_MEMORY, "workspace", "no memory for a workspace of %zu bytes",
                         plan.workspace_bytes);
    const mha_status status = mha_forward(&plan, workspace, plan.workspace_bytes, error);
    mha__release(&allocator, workspace, plan.workspace_bytes);
    return status;
}
