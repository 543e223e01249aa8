/* The shapes of the stages of a case as a bug computes them. */
#include "attention/call/stage_table.h"
#include "verify/bug_forward/bug_inputs.h"

int mha__bug_shape(const mha__bug_inputs *inputs, mha_stage stage, size_t shape[4])
{
    const mha_case *c = inputs->c;
    const mha__stage_sizes sizes = {.B = c->B,
                                    .T_q = c->T_q,
                                    .T_k = c->T_k,
                                    .S = inputs->S,
                                    .S_all = inputs->S + mha__extra_rows(c),
                                    .h = c->H,
                                    .h_kv = c->H_kv,
                                    .d_k = c->d_k,
                                    .d_v = c->d_v,
                                    .d_out = c->kind == CASE_ROPE ? c->H * c->d_k : c->E_out,
                                    .q_rank = c->q_rank,
                                    .kv_rank = c->kv_rank,
                                    .d_rope = c->d_rope};
    const bool of_form = stage <= MHA_STAGE_K_ROT || stage == MHA_STAGE_PRESENT_KEY || stage == MHA_STAGE_PRESENT_VALUE;
    if (c->absorbed && of_form) /* bugs compute the stored form */
        return 0;
    return stage == MHA_STAGE_GATED && !inputs->gate ? 0 : mha__stage_extents(stage, &sizes, shape);
}

bool mha__stage_is_by_query(const mha_case *c, mha_stage stage)
{
    return mha__stage_is_of_scores(stage) || stage == MHA_STAGE_HEADS || stage == MHA_STAGE_GATED ||
           (stage == MHA_STAGE_OUTPUT && c->kind != CASE_ROPE);
}
