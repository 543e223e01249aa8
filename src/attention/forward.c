/* The whole equation on one page:
 *
 *   out = concat(head_1 ... head_h) W_O + b_O,   head_i = softmax(Q_i K_i^T * scale) V_i
 *   Q = x_q W_Q + b_Q,  K = x_k W_K + b_K,  V = x_v W_V + b_V            (Vaswani et al. 2017, section 3.2)
 *
 * With latents (latent.c) Q, K and V are made in two stages; with a gate (gate.c) the heads are multiplied before W_O.
 * Heads are strided views of Q, K, V and of the concatenation; nothing is copied to split or merge them. */
#include "attention/cache/cache.h"
#include "attention/core/attend.h"
#include "attention/forward.h"
#include "attention/rows/rows.h"
#include "base/heads.h"

/* Where a step puts its result; no data: its input is its result. */
static mha_view place(const mha__resolved *r, char *workspace, const mha__result *result)
{
    const mha_view nowhere = {0};
    return result->offset == MHA_NOWHERE ? nowhere : mha__result_in(r, workspace, result);
}

/* Q, K and V of the new rows, head by head, normalised and rotated where the call asks for it. */
static void inputs(const mha__resolved *r, char *workspace, mha_view heads[3], mha__clock *clock)
{
    const mha__layout *at = &r->layout;
    const mha_view to_Q = place(r, workspace, &at->Q), to_K = place(r, workspace, &at->K),
                   to_V = place(r, workspace, &at->V);
    float *scratch = mha__project_scratch_in(r, workspace);
    mha_view x[3] = {0};
    if (r->latent.kv_rank) {
        const mha_view latents[] = {
            mha__result_in(r, workspace, &at->q_latent), mha__result_in(r, workspace, &at->kv_latent),
            mha__result_in(r, workspace, &at->wide_q), mha__result_in(r, workspace, &at->wide_kv)};
        mha__latent_inputs(r, latents, &to_Q, &to_K, heads, scratch, clock);
    } else {
        mha__inputs_to_project(r, workspace, 3, x);
        const mha__projection all[] = {{MHA_QUERIES, &x[0], MHA_W_Q, MHA_B_Q, r->plan.h, &to_Q},
                                       {MHA_KEYS, &x[1], MHA_W_K, MHA_B_K, r->plan.h_kv, &to_K},
                                       {MHA_KEYS, &x[2], MHA_W_V, MHA_B_V, r->plan.h_kv, &to_V}};
        mha__project(r, all, 3, heads, scratch);
        mha__clip_projected(r, heads);
        mha__stages_done(r, (mha_stage[]){MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V}, heads, 3, clock);
    }

    mha__finish_rows(r, MHA_QUERIES, &x[0], &heads[0]);
    mha__stage_done(r, MHA_STAGE_Q_ROT, &heads[0], clock);
    mha__finish_rows(r, MHA_KEYS, &x[1], &heads[1]);
    mha__finish_values(r, &x[2], &heads[2]);
    mha__stage_done(r, MHA_STAGE_K_ROT, &heads[1], clock);
}

static void output(const mha__resolved *r, char *workspace, const mha_view *concat, mha__clock *clock)
{
    const mha_view to = place(r, workspace, &r->layout.output), gate = place(r, workspace, &r->layout.gate);
    float *scratch = mha__project_scratch_in(r, workspace);
    if (mha__gate_width(r)) { /* heads * sigmoid(x_q W_G + b_G) */
        mha_view x, made;
        mha__inputs_to_project(r, workspace, 1, &x);
        mha__project(r, &(mha__projection){MHA_QUERIES, &x, MHA_W_G, MHA_B_G, 1, &gate}, 1, &made, scratch);
        mha__gate_heads(r, &gate, concat);
        mha__stage_done(r, MHA_STAGE_GATED, concat, clock);
    }
    mha_view out;
    mha__project(r, &(mha__projection){MHA_QUERIES, concat, MHA_W_O, MHA_B_O, 1, &to}, 1, &out, scratch);
    mha__stage_done(r, MHA_STAGE_OUTPUT, &out, clock);
}

/* softmax(Q K^T * scale) V, by heads, of the rows made so far. */
static void attend(const mha__resolved *r, char *workspace, const mha_view heads[3], const mha_view *concat,
                   mha__clock *clock)
{
    const bool absorbed = r->latent.absorbed;
    mha_view Q = heads[0], K = heads[1], V = heads[2];
    if (r->cache) { /* K and V of all calls so far */
        const mha_view none = mha_view_slice(&V, 3, 0, 0);
        mha__cache_append(r->cache, &K, absorbed ? &none : &V);
        K = mha__swap_time_and_heads(mha_cache_keys(r->cache));
        V = absorbed ? mha__latent_values(r, &K) : mha__swap_time_and_heads(mha_cache_values(r->cache));
    }
    if (r->pages.keys.data) {
        K = r->pages.keys;
        V = absorbed ? mha__latent_values(r, &K) : r->pages.values;
    }
    mha__present_done(r, &K, &V, clock);

    const mha_view mixed = place(r, workspace, &r->layout.mixed), by_head = mha__split_heads(&mixed, r->plan.h);
    mha__attend(r, &Q, &K, &V, absorbed ? &by_head : concat, workspace + r->layout.attend_scratch);
    if (absorbed)
        mha__latent_leave(r, &by_head, concat, mha__project_scratch_in(r, workspace));
    mha__stage_done(r, MHA_STAGE_HEADS, concat, clock);
}

void mha__forward(const mha__resolved *r, char *workspace, bool whole, const mha_view *given)
{
    const mha_view to = mha__result_in(r, workspace, &r->layout.heads),
                   concat = to.rank == 3 ? mha__split_heads(&to, r->plan.h) : to;
    mha__clock clock = mha__clock_start(r);
    mha_view heads[3];
    if (given) {
        const mha_view from = given->rank == 3 ? mha__split_heads(given, r->plan.h) : *given;
        (void)mha_view_copy(&concat, &from, NULL);
    } else {
        inputs(r, workspace, heads, &clock);
    }
    if (whole)
        attend(r, workspace, heads, &concat, &clock);
    if (whole || given)
        output(r, workspace, &concat, &clock);
}
