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

static void forward(const mha__resolved *r, char *workspace)
{
    const mha__layout *at = &r->layout;
    float *scratch = (float *)(void *)(workspace + at->project_scratch);
    const mha_view to_Q = result_in(workspace, &at->Q), to_K = result_in(workspace, &at->K),
                   to_V = result_in(workspace, &at->V), concat = result_in(workspace, &at->heads),
                   output = result_in(workspace, &at->output);
    mha__clock clock = mha__clock_start(r);

    mha_view heads[3]; /* Q, K and V, head by head */
    mha__project_inputs(r, &to_Q, &to_K, &to_V, heads, scratch);
    mha__stages_done(r, (mha_stage[]){MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V}, heads, 3, &clock);
    mha_view Q = heads[0], K = heads[1], V = heads[2];

    mha__normalise(r, MHA_QUERIES, &Q);
    mha__rotate_heads(r, MHA_QUERIES, &Q);
    mha__stage_done(r, MHA_STAGE_Q_ROT, &Q, &clock);
    mha__normalise(r, MHA_KEYS, &K);
    mha__rotate_heads(r, MHA_KEYS, &K);
    mha__stage_done(r, MHA_STAGE_K_ROT, &K, &clock);

    if (r->cache) { /* K and V of all calls so far */
        mha__cache_append(r->cache, &K, &V);
        K = mha__swap_time_and_heads(mha_cache_keys(r->cache));
        V = mha__swap_time_and_heads(mha_cache_values(r->cache));
    }
    mha__stage_done(r, MHA_STAGE_PRESENT_KEY, &K, &clock);
    mha__stage_done(r, MHA_STAGE_PRESENT_VALUE, &V, &clock);

    mha__attend(r, &Q, &K, &V, &concat, workspace + at->attend_scratch); /* softmax(Q K^T * scale) V, head by head */
    mha__stage_done(r, MHA_STAGE_HEADS, &concat, &clock);

    mha_view out = mha__project(r, MHA_QUERIES, &concat, MHA_W_O, MHA_B_O, 1, &output, scratch);
    mha__stage_done(r, MHA_STAGE_OUTPUT, &out, &clock);
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

mha_status mha_forward(const mha_plan *plan, void *workspace, size_t workspace_bytes, mha_error *error)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    if (!workspace || workspace_bytes < r->plan.workspace_bytes)
        return mha__fail(error, MHA_INVALID, "workspace", "expected a workspace of %zu bytes, found %zu",
                         r->plan.workspace_bytes, workspace ? workspace_bytes : 0);
    TRY(check_unchanged(r, error));
    mha__times_clear(r);
    char *base = (char *)workspace + (MHA_ALIGNMENT - (uintptr_t)workspace % MHA_ALIGNMENT) % MHA_ALIGNMENT;
    if (r->plan.path == MHA_PATH_EXACT) {
        mha__exact(r, base);
        return MHA_OK;
    }
    const int openmp_default = r->layout.uses_blas ? mha__gemm_begin() : 0;
    forward(r, base);
    if (r->layout.uses_blas)
        mha__gemm_end(openmp_default);
    return MHA_OK;
}
