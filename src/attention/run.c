/* Runs a plan: checks what it depends on, then computes the call or one of its two ends. mha_run plans a call and runs
 * it once. */
#include "attention/cache/cache.h"
#include "attention/cache/stages.h"
#include "attention/core/exact/exact.h"
#include "attention/forward.h"
#include "attention/layer/layer.h"
#include "base/base.h"
#include "compute/gemm.h"

/* Refuses a plan when something that it depends on has changed since. */
static mha_status check_unchanged(const mha__resolved *r, mha_error *error)
{
    if (!r->kernels)
        return mha__fail(error, MHA_INVALID, "plan", "expected a plan made by mha_plan_call, found zeros");
    if (r->cache && (mha_cache_length(r->cache) != r->held || mha_cache_first(r->cache) != r->gone))
        return mha__fail(
            error, MHA_INVALID, "cache",
            "expected %zu rows after %zu evicted ones, as planned, found %zu after %zu; plan the call again", r->held,
            r->gone, mha_cache_length(r->cache), mha_cache_first(r->cache));
    if (r->cache)
        TRY(mha__cache_check_trunks(r->cache, error));
    if (r->kernels != mha__kernels_get())
        return mha__fail(error, MHA_INVALID, "isa", "expected %s, as planned, found %s; plan the call again",
                         r->kernels->isa, mha__kernels_get()->isa);
    if (r->layer && r->generation != mha__layer_generation(r->layer))
        return mha__fail(error, MHA_INVALID, "layer",
                         "expected weights as planned, found them packed or unpacked since; plan the call again");
    return MHA_OK;
}

/* Checks a plan and its workspace, and runs what of the call is asked for: all of it, or one end. */
static mha_status run(const mha_plan *plan, void *workspace, size_t bytes, bool whole, const mha_view *heads,
                      mha_error *error)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    if (!workspace || bytes < r->plan.workspace_bytes)
        return mha__fail(error, MHA_INVALID, "workspace", "expected a workspace of %zu bytes, found %zu",
                         r->plan.workspace_bytes, workspace ? bytes : 0);
    TRY(check_unchanged(r, error));
    mha__times_clear(r);
    char *base = (char *)workspace + (MHA_ALIGNMENT - (uintptr_t)workspace % MHA_ALIGNMENT) % MHA_ALIGNMENT;
    if (r->plan.path == MHA_PATH_EXACT) {
        mha__exact(r, base, whole, heads);
        return MHA_OK;
    }
    mha__gemm_bracket bracket;
    if (r->layout.uses_blas)
        TRY(mha__gemm_begin(r->plan.threads, &bracket, error));
    mha__forward(r, base, whole, heads);
    if (r->layout.uses_blas)
        mha__gemm_end(&bracket);
    return MHA_OK;
}

mha_status mha_forward(const mha_plan *plan, void *workspace, size_t workspace_bytes, mha_error *error)
{
    return run(plan, workspace, workspace_bytes, true, NULL, error);
}

mha_status mha_forward_inputs(const mha_plan *plan, void *workspace, size_t workspace_bytes, mha_error *error)
{
    return run(plan, workspace, workspace_bytes, false, NULL, error);
}

mha_status mha_forward_output(const mha_plan *plan, const mha_view *heads, void *workspace, size_t workspace_bytes,
                              mha_error *error)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    const size_t *s = r->query.shape, h = r->plan.h, d_v = mha__head_width(r);
    const size_t by_row[3] = {s[0], s[1], h * d_v}, by_head[4] = {s[0], s[1], h, d_v};
    if (!heads)
        return mha__fail(error, MHA_INVALID, "heads", "expected data, found none");
    if (r->kernels)
        TRY(mha__expect_shape(error, "heads", heads, heads->rank == 4 ? 4 : 3, heads->rank == 4 ? by_head : by_row));
    if (!mha__dtype_is_float(heads->dtype) || (!heads->data && mha_view_elements(heads) != 0))
        return mha__fail(error, MHA_INVALID, "heads",
                         heads->data ? "expected a floating type" : "expected data, found none");
    return run(plan, workspace, workspace_bytes, false, heads, error);
}

/* ---------------------------------------------------------------- planned and run once */

mha_status mha_run(const mha_layer *layer, const mha_call *call, mha_error *error)
{
    const mha_allocator allocator = layer ? *mha_params_allocator(mha_layer_params(layer)) : mha__allocator_default();
    mha_plan plan;
    TRY(mha__plan_in_place(layer, call, &plan, error));
    void *workspace = mha__allocate_unset(&allocator, plan.workspace_bytes);
    if (!workspace)
        return mha__fail(error, MHA_NO_MEMORY, "workspace", "no memory for a workspace of %zu bytes",
                         plan.workspace_bytes);
    const mha_status status = mha_forward(&plan, workspace, plan.workspace_bytes, error);
    mha__release(&allocator, workspace, plan.workspace_bytes);
    return status;
}
