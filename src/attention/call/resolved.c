/* A validated call: its stages, its sequences, and memory taken from its workspace. */
#include <string.h>

#include "attention/layer/layer.h"
#include "attention/call/definition.h"
#include "attention/call/settings/settings.h"
#include "attention/call/resolved.h"
#include "attention/visibility/pattern.h"

_Static_assert(sizeof(mha__sizes) == offsetof(mha_plan, reserved), "the public fields are copied at once");
_Static_assert(sizeof(mha__planned) <= MHA_PLAN_PRIVATE_BYTES, "a plan must hold the validated call");

void mha__semantics_complete(mha_semantics *s)
{
    mha__settings_mark(s);
    s->softmax.softmax_plus_one &= !s->place.keys_only;
    s->softmax.zero_row &= !s->place.keys_only;
}

/* By the letter of C a union is not read as a struct that is none of its members. gcc and clang define it here, because
 * one member is an array of unsigned char, which may alias any type. */
mha__resolved *mha__plan_inside(mha_plan *plan)
{
    return (mha__resolved *)(void *)&plan->internal;
}

const mha__resolved *mha__plan_resolved(const mha_plan *plan)
{
    return (const mha__resolved *)(const void *)&plan->internal;
}

bool mha__rounds_late(const mha__resolved *r)
{
    bool others = false;
    if (!mha__rounds_to_bf16(r) || r->plan.path != MHA_PATH_FAST)
        return false;
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        others |= s != MHA_STAGE_HEADS && s != MHA_STAGE_GATED && s != MHA_STAGE_OUTPUT && s != MHA_STAGE_LSE &&
                  mha__is_kept(r, (mha_stage)s);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        others |= mha__is_relative_table((mha_weight)w) && r->weight[w].data;
    return !others;
}

int mha__stage_shape(const mha__resolved *r, mha_stage stage, size_t shape[4])
{
    const mha__sizes *p = &r->plan;
    if ((unsigned)stage >= MHA_STAGE_COUNT)
        return 0;
    const bool is_present = stage == MHA_STAGE_PRESENT_KEY || stage == MHA_STAGE_PRESENT_VALUE;
    /* In a ragged batch scores have a row for each sequence, the rows of the inputs are those of all. */
    const bool by_sequence = is_present || mha__stage_is_of_scores(stage);
    const mha__stage_sizes sizes = {.B = by_sequence ? p->B : r->query.shape[0],
                                    .T_q = by_sequence ? p->T_q : r->query.shape[1], .T_k = r->key.shape[1],
                                    .S = p->S, .S_all = p->S + p->S_extra, .h = p->h, .h_kv = p->h_kv, .d_k = p->d_k,
                                    .d_v = by_sequence || stage == MHA_STAGE_V ? p->d_v : mha__head_width(r),
                                    .d_out = p->d_out, .q_rank = r->latent.q_rank, .kv_rank = r->latent.kv_rank,
                                    .d_rope = r->latent.d_r};
    if (is_present && (r->placed.cu_q || r->pages.keys.data)) /* no cache */
        return 0;
    if (stage == MHA_STAGE_LSE && r->softmax.normaliser == MHA_SIGMOID)
        return 0;
    if (stage == MHA_STAGE_GATED && !mha__gate_width(r))
        return 0;
    return mha__stage_extents(stage, &sizes, shape);
}

const mha_view *mha__stage_view(const mha__resolved *r, mha_stage stage)
{
    if (!r->has_data[stage])
        return NULL;
    return stage == MHA_STAGE_OUTPUT ? &r->output : &r->keep[r->keep_at[stage]].view;
}

mha__sequence mha__resolved_sequence(const mha__resolved *r, size_t b)
{
    const mha__placed *s = &r->placed;
    mha__sequence q = {.batch = b, .k_batch = b, .T_q = r->plan.T_q, .T_k = r->plan.T_k, .S = r->plan.S};
    if (s->cu_q) {
        q.batch = q.k_batch = 0;
        q.q_from = (size_t)s->cu_q[b], q.T_q = (size_t)(s->cu_q[b + 1] - s->cu_q[b]);
        q.k_from = (size_t)s->cu_k[b], q.T_k = q.S = (size_t)(s->cu_k[b + 1] - s->cu_k[b]);
    }
    if (r->pages.keys.data)
        q.k_batch = b, q.k_from = q.T_k = 0, q.S = (size_t)r->pages.lengths[b];
    q.offset = s->at_the_end ? (int64_t)q.S - (int64_t)q.T_q : s->offsets ? s->offsets[b] : s->offset;
    return q;
}

void *mha__workspace_take(mha__workspace *workspace, size_t count, size_t size)
{
    size_t bytes, end;
    if (!mha__mul(count, size, &bytes) || !mha__add(bytes, MHA_ALIGNMENT - 1, &bytes) ||
        !mha__add(workspace->used, bytes & ~(size_t)(MHA_ALIGNMENT - 1), &end)) {
        workspace->used = SIZE_MAX;
        return NULL;
    }
    void *block = workspace->base ? workspace->base + workspace->used : NULL;
    workspace->used = end;
    return block;
}
