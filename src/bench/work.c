/* The work of a planned call: which stages it has, which pairs of a query and a key it computes. */
#include "attention/call/definition.h"
#include "attention/visibility/pattern.h"
#include "bench/work.h"

bool mha__stage_happens(const mha_plan *plan, mha_stage stage)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    const mha_semantics *s = mha__semantics_of(r);
    size_t shape[4];
    const bool has = mha__stage_shape(r, stage, shape) > 0, turns = s->qkv.rope.kind != MHA_ROPE_NONE;
    switch (stage) {
    case MHA_STAGE_Q_ROT: return has && (turns || r->norm[0] != MHA_NORM_NONE || mha__scales_queries(&s->qkv));
    case MHA_STAGE_K_ROT: return has && (turns || r->norm[1] != MHA_NORM_NONE);
    case MHA_STAGE_CAPPED: return has && s->softmax.softcap > 0;
    case MHA_STAGE_MASKED: return has && (r->visibility.terms || r->visibility.hides);
    default: return has;
    }
}

bool mha__plan_hides_keys(const mha_plan *plan)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    return mha__hides_keys(&r->visibility, &r->weight[MHA_BIAS_TABLE]);
}

uint64_t mha__plan_pairs(const mha_plan *plan)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    const mha__visibility *v = &r->visibility;
    uint64_t pairs = 0;
    for (size_t b = 0; b < r->plan.B; b++) {
        const mha__sequence s = mha__resolved_sequence(r, b);
        pairs += mha__visible_pairs(v, s.offset, s.T_q, mha__visible_length(v, b, s.S)) + s.T_q * r->plan.S_extra;
    }
    return pairs;
}
