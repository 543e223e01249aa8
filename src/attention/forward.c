/* The whole equation on one page:
 *
 *   out = concat(head_1 ... head_h) W_O + b_O,   head_i = softmax(Q_i K_i^T * scale) V_i
 *   Q = x_q W_Q + b_Q,  K = x_k W_K + b_K,  V = x_v W_V + b_V            (Vaswani et al. 2017, section 3.2)
 *
 * Heads are strided views of Q, K, V and of the concatenation; nothing is copied to split or merge them. */
#include "attention/layer.h"
#include "attention/resolved.h"
#include "attention/steps/cache.h"
#include "attention/steps/steps.h"
#include "compute/gemm.h"

/* The view for the result of a step, in this workspace. */
static mha_view result_in(char *workspace, const mha__result *result)
{
    mha_view view = result->view;
    if (result->offset != SIZE_MAX)
        view.data = workspace + result->offset;
    return view;
}

static float *project_scratch(const mha__resolved *r, char *workspace)
{
    return (float *)(void *)(workspace + r->layout.project_scratch);
}

/* Q, K and V of the new rows, head by head, rotated. */
static void inputs(const mha__resolved *r, char *workspace, mha_view heads[3], mha__clock *clock)
{
    const mha__layout *at = &r->layout;
    const mha_view to_Q = result_in(workspace, &at->Q), to_K = result_in(workspace, &at->K),
                   to_V = result_in(workspace, &at->V);
    mha__project_inputs(r, &to_Q, &to_K, &to_V, heads, project_scratch(r, workspace));
    mha__stages_done(r, (mha_stage[]){MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V}, heads, 3, clock);

    mha__normalise(r, MHA_QUERIES, &heads[0]);
    mha__rotate_heads(r, MHA_QUERIES, &heads[0]);
    mha__stage_done(r, MHA_STAGE_Q_ROT, &heads[0], clock);
    mha__normalise(r, MHA_KEYS, &heads[1]);
    mha__rotate_heads(r, MHA_KEYS, &heads[1]);
    mha__stage_done(r, MHA_STAGE_K_ROT, &heads[1], clock);
}

static void output(const mha__resolved *r, char *workspace, const mha_view *concat, mha__clock *clock)
{
    const mha_view to = result_in(workspace, &r->layout.output);
    mha_view out = mha__project(r, MHA_QUERIES, concat, MHA_W_O, MHA_B_O, 1, &to, project_scratch(r, workspace));
    mha__stage_done(r, MHA_STAGE_OUTPUT, &out, clock);
}

static void forward(const mha__resolved *r, char *workspace)
{
    const mha_view concat = result_in(workspace, &r->layout.heads);
    mha__clock clock = mha__clock_start(r);

    mha_view heads[3];
    inputs(r, workspace, heads, &clock);
    mha_view Q = heads[0], K = heads[1], V = heads[2];

    if (r->cache) { /* K and V of all calls so far */
        mha__cache_append(r->cache, &K, &V);
        K = mha__swap_time_and_heads(mha_cache_keys(r->cache));
        V = mha__swap_time_and_heads(mha_cache_values(r->cache));
    }
    mha__stage_done(r, MHA_STAGE_PRESENT_KEY, &K, &clock);
    mha__stage_done(r, MHA_STAGE_PRESENT_VALUE, &V, &clock);

    mha__attend(r, &Q, &K, &V, &concat, workspace + r->layout.attend_scratch); /* softmax(Q K^T * scale) V, by heads */
    mha__stage_done(r, MHA_STAGE_HEADS, &concat, &clock);

    output(r, workspace, &concat, &clock);
}

/* The first or the last lines alone. */
static void forward_end(const mha__resolved *r, char *workspace, const mha_view *given)
{
    const mha_view concat = result_in(workspace, &r->layout.heads);
    mha__clock clock = mha__clock_start(r);
    mha_view heads[3];
    if (!given) {
        inputs(r, workspace, heads, &clock);
        return;
    }
    const mha_view from = given->rank == 3 ? mha__split_heads(given, r->plan.h) : *given;
    (void)mha_view_copy(&concat, &from);
    output(r, workspace, &concat, &clock);
}

/* ---------------------------------------------------------------- one forward */

/* Refuses a plan when something that it depends on has changed since. */
static mha_status check_unchanged(const mha__resolved *r, mha_error *error)
{
    if (!r->kernels)
        return mha__fail(error, MHA_INVALID, "plan", "expected a plan made by mha_plan_call, found zeros");
    if (r->cache && (mha_cache_length(r->cache) != r->held || mha_cache_first(r->cache) != r->gone))
        return mha__fail(error, MHA_INVALID, "cache",
                         "has %zu rows after %zu evicted ones, and had %zu after %zu when this call was planned: "
                         "plan the call again",
                         mha_cache_length(r->cache), mha_cache_first(r->cache), r->held, r->gone);
    if (r->kernels != mha__kernels_get())
        return mha__fail(error, MHA_INVALID, "isa", "planned for %s, but %s has been chosen since: plan the call again",
                         r->kernels->isa, mha__kernels_get()->isa);
    if (r->layer && r->generation != mha__layer_generation(r->layer))
        return mha__fail(error, MHA_INVALID, "layer", "its weights were packed or unpacked since: plan the call again");
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
        if (whole)
            mha__exact(r, base);
        else
            mha__exact_end(r, base, heads);
        return MHA_OK;
    }
    const int openmp_default = r->layout.uses_blas ? mha__gemm_begin() : 0;
    if (whole)
        forward(r, base);
    else
        forward_end(r, base, heads);
    if (r->layout.uses_blas)
        mha__gemm_end(openmp_default);
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
    const size_t *s = r->query.shape, h = r->plan.h, d_v = r->plan.d_v;
    const size_t by_row[3] = {s[0], s[1], h * d_v}, by_head[4] = {s[0], s[1], h, d_v};
    if (r->kernels)
        TRY(mha__expect_shape(error, "heads", heads, heads->rank == 4 ? 4 : 3, heads->rank == 4 ? by_head : by_row));
    if (!mha__dtype_is_float(heads->dtype) || (!heads->data && mha_view_elements(heads) != 0))
        return mha__fail(error, MHA_INVALID, "heads", heads->data ? "expected a floating type" : "no data");
    return run(plan, workspace, workspace_bytes, false, heads, error);
}
