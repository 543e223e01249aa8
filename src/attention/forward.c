/* The whole equation on one page:
 *
 *   out = concat(head_1 ... head_h) W_O + b_O,   head_i = softmax(Q_i K_i^T * scale) V_i
 *   Q = x_q W_Q + b_Q,  K = x_k W_K + b_K,  V = x_v W_V + b_V            (Vaswani et al. 2017, section 3.2)
 *
 * With latents (latent.c) Q, K and V are made in two stages; with a gate (gate.c) the heads are multiplied before W_O.
 * Heads are strided views of Q, K, V and of the concatenation; nothing is copied to split or merge them. */
#include "attention/forward.h"
#include "attention/cache/cache.h"
#include "attention/steps/steps.h"

/* The view for the result of a step, in this workspace. */
static mha_view result_in(char *workspace, const mha__result *result)
{
    mha_view view = result->view;
    if (result->offset != SIZE_MAX)
        view.data = workspace + result->offset;
    return view;
}

/* Rounds a result in place where the call computes in BF16 and what made it has not done so. */
static void round_in_place(const mha__resolved *r, bool done, const mha_view *rows)
{
    if (mha__rounds_to_bf16(r) && !done)
        mha__round_to_bf16(rows, rows, r->plan.threads);
}

/* The same of rows that are attended to, unless nothing was made of the input, which is rounded already. */
static void round_made(const mha__resolved *r, const mha_view *x, const mha_view *rows)
{
    round_in_place(r, rows->data == x->data || mha__rounds_late(r), rows);
}

/* Inputs to project. In BF16 they are rounded here unless the projection rounds. An input equal to the previous one
 * shares its copy; mha_plan_move may have set them apart. */
static void projected_inputs(const mha__resolved *r, char *workspace, size_t n, mha_view x[])
{
    const mha_view *given[3] = {&r->query, &r->key, &r->value};
    const bool follows[3] = {false, r->key_follows, r->value_follows};
    for (size_t i = 0; i < n; i++) {
        x[i] = *given[i];
        if (!mha__projects_copies(r))
            continue;
        if (follows[i] && given[i]->data == given[i - 1]->data) {
            x[i] = x[i - 1];
            continue;
        }
        const bool by_head = given[i]->rank == 4;
        const mha_view to = result_in(workspace, &r->layout.rounded[i]),
                       heads = mha__split_heads(&to, by_head ? given[i]->shape[2] : 1),
                       from = by_head ? *given[i] : mha__split_heads(given[i], 1);
        mha__round_to_bf16(&heads, &from, r->plan.threads);
        x[i] = by_head ? heads : to;
    }
}

static float *project_scratch(const mha__resolved *r, char *workspace)
{
    return (float *)(void *)(workspace + r->layout.project_scratch);
}

static void norm_and_rotate(const mha__resolved *r, mha__side side, const mha_view *x)
{
    if (mha__normalises_first(r, side)) {
        mha__normalise(r, side, x);
        mha__clip(r, x);
    }
    mha__rotate_heads(r, side, x);
    if (r->semantics.qkv.norm.after_rope)
        mha__normalise(r, side, x);
}

/* Q, K and V of the new rows, head by head, normalised and rotated where the call asks for it. */
static void inputs(const mha__resolved *r, char *workspace, mha_view heads[3], mha__clock *clock)
{
    const mha__layout *at = &r->layout;
    const mha_view to_Q = result_in(workspace, &at->Q), to_K = result_in(workspace, &at->K),
                   to_V = result_in(workspace, &at->V);
    float *scratch = project_scratch(r, workspace);
    mha_view x[3] = {0};
    if (r->latent.kv_rank) {
        const mha_view latents[] = {result_in(workspace, &at->q_latent), result_in(workspace, &at->kv_latent),
                                    result_in(workspace, &at->wide_q), result_in(workspace, &at->wide_kv)};
        mha__latent_inputs(r, latents, &to_Q, &to_K, heads, scratch, clock);
    } else {
        projected_inputs(r, workspace, 3, x);
        const mha__projection all[] = {{MHA_QUERIES, &x[0], MHA_W_Q, MHA_B_Q, r->plan.h, &to_Q},
                                       {MHA_KEYS, &x[1], MHA_W_K, MHA_B_K, r->plan.h_kv, &to_K},
                                       {MHA_KEYS, &x[2], MHA_W_V, MHA_B_V, r->plan.h_kv, &to_V}};
        mha__project_all(r, all, 3, heads, scratch);
        for (mha__side side = MHA_QUERIES; side <= MHA_KEYS; side++)
            if (!mha__normalises_first(r, side)) /* otherwise they are clipped behind their norm */
                mha__clip(r, &heads[side]);
        mha__clip(r, &heads[2]);
        mha__stages_done(r, (mha_stage[]){MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V}, heads, 3, clock);
    }

    norm_and_rotate(r, MHA_QUERIES, &heads[0]);
    mha__scale_queries(r, &heads[0]);
    round_made(r, &x[0], &heads[0]);
    mha__stage_done(r, MHA_STAGE_Q_ROT, &heads[0], clock);
    norm_and_rotate(r, MHA_KEYS, &heads[1]);
    round_made(r, &x[1], &heads[1]);
    round_made(r, &x[2], &heads[2]);
    mha__stage_done(r, MHA_STAGE_K_ROT, &heads[1], clock);
}

static void output(const mha__resolved *r, char *workspace, const mha_view *concat, mha__clock *clock)
{
    const mha_view to = result_in(workspace, &r->layout.output), gate = result_in(workspace, &r->layout.gate);
    if (mha__gate_width(r)) { /* heads * sigmoid(x_q W_G + b_G) */
        mha_view x;
        projected_inputs(r, workspace, 1, &x);
        const mha_view by_row =
            mha__project(r, MHA_QUERIES, &x, MHA_W_G, MHA_B_G, 1, &gate, project_scratch(r, workspace));
        round_in_place(r, mha__projection_rounds(r), &by_row);
        mha__gate_heads(r, &gate, concat);
        round_in_place(r, false, concat);
        mha__stage_done(r, MHA_STAGE_GATED, concat, clock);
    }
    mha_view out = mha__project(r, MHA_QUERIES, concat, MHA_W_O, MHA_B_O, 1, &to, project_scratch(r, workspace));
    round_in_place(r, mha__projection_rounds(r), &out);
    mha__stage_done(r, MHA_STAGE_OUTPUT, &out, clock);
}

/* Keeps all keys and values; a cache that continues another one has them in several places. */
static void present(const mha__resolved *r, const mha_view *K, const mha_view *V, mha__clock *clock)
{
    const bool continues = r->cache && mha__cache_trunk(r->cache);
    for (int v = 0; v < 2; v++) {
        const mha_stage stage = v ? MHA_STAGE_PRESENT_VALUE : MHA_STAGE_PRESENT_KEY;
        mha_view rows = *(v ? V : K);
        if (continues && mha__is_kept(r, stage)) {
            rows = mha__swap_time_and_heads(*mha__stage_view(r, stage));
            mha__cache_copy(r->cache, v && !r->latent.absorbed, &rows, 1);
        }
        mha__stage_done(r, stage, &rows, clock);
    }
}

void mha__forward(const mha__resolved *r, char *workspace)
{
    const mha_view concat = result_in(workspace, &r->layout.heads);
    const bool absorbed = r->latent.absorbed;
    mha__clock clock = mha__clock_start(r);

    mha_view heads[3];
    inputs(r, workspace, heads, &clock);
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
    present(r, &K, &V, &clock);

    const mha_view mixed = result_in(workspace, &r->layout.mixed), by_head = mha__split_heads(&mixed, r->plan.h);
    mha__attend(r, &Q, &K, &V, absorbed ? &by_head : &concat, /* softmax(Q K^T * scale) V, by heads */
                workspace + r->layout.attend_scratch);
    if (absorbed)
        mha__latent_leave(r, &by_head, &concat, project_scratch(r, workspace));
    round_in_place(r, r->plan.path == MHA_PATH_FAST, &concat);
    mha__stage_done(r, MHA_STAGE_HEADS, &concat, &clock);

    output(r, workspace, &concat, &clock);
}

void mha__forward_inputs(const mha__resolved *r, char *workspace)
{
    mha__clock clock = mha__clock_start(r);
    mha_view heads[3];
    inputs(r, workspace, heads, &clock);
}

void mha__forward_output(const mha__resolved *r, char *workspace, const mha_view *heads)
{
    const mha_view concat = result_in(workspace, &r->layout.heads);
    const mha_view from = heads->rank == 3 ? mha__split_heads(heads, r->plan.h) : *heads;
    mha__clock clock = mha__clock_start(r);
    (void)mha_view_copy(&concat, &from);
    output(r, workspace, &concat, &clock);
}
