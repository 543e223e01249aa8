/* The shapes of the stages of a case as a variant computes them. */
#include <string.h>

#include "verify/variant_forward/variant_inputs.h"

int mha__variant_shape(const mha__variant_inputs *inputs, mha_stage stage, size_t shape[4])
{
    const mha_case *c = inputs->c;
    const size_t S = inputs->S + mha__extra_rows(c), out = c->kind == CASE_ROPE ? c->H * c->d_k : c->E_out;
    const struct {
        int rank;
        size_t shape[4];
    } shapes[MHA_STAGE_COUNT] = {
        [MHA_STAGE_Q] = {3, {c->B, c->T_q, c->H * c->d_k, 0}},
        [MHA_STAGE_K] = {3, {c->B, c->T_k, c->H_kv * c->d_k, 0}},
        [MHA_STAGE_V] = {3, {c->B, c->T_k, c->H_kv * c->d_v, 0}},
        [MHA_STAGE_Q_ROT] = {3, {c->B, c->T_q, c->H * c->d_k, 0}},
        [MHA_STAGE_K_ROT] = {3, {c->B, c->T_k, c->H_kv * c->d_k, 0}},
        [MHA_STAGE_SCORES] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_CAPPED] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_MASKED] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_WEIGHTS] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_WEIGHTS_MEAN] = {3, {c->B, c->T_q, S, 0}},
        [MHA_STAGE_HEADS] = {3, {c->B, c->T_q, c->H * c->d_v, 0}},
        [MHA_STAGE_GATED] = {inputs->gate ? 3 : 0, {c->B, c->T_q, c->H * c->d_v, 0}},
        [MHA_STAGE_OUTPUT] = {3, {c->B, c->T_q, out, 0}},
        [MHA_STAGE_PRESENT_KEY] = {4, {c->B, c->H_kv, inputs->S, c->d_k}},
        [MHA_STAGE_PRESENT_VALUE] = {4, {c->B, c->H_kv, inputs->S, c->d_v}},
        [MHA_STAGE_LSE] = {3, {c->B, c->H, c->T_q, 0}},
        [MHA_STAGE_Q_LATENT] = {c->q_rank ? 3 : 0, {c->B, c->T_q, c->q_rank, 0}},
        [MHA_STAGE_KV_LATENT] = {c->kv_rank ? 3 : 0, {c->B, c->T_k, c->kv_rank + c->d_rope, 0}},
    };
    const bool of_form = stage <= MHA_STAGE_K_ROT || stage == MHA_STAGE_PRESENT_KEY || stage == MHA_STAGE_PRESENT_VALUE;
    if (c->absorbed && of_form) /* variants compute the stored form */
        return 0;
    memcpy(shape, shapes[stage].shape, sizeof shapes[stage].shape);
    return shapes[stage].rank;
}

bool mha__stage_is_by_query(const mha_case *c, mha_stage stage)
{
    switch (stage) {
    case MHA_STAGE_SCORES:
    case MHA_STAGE_CAPPED:
    case MHA_STAGE_MASKED:
    case MHA_STAGE_WEIGHTS:
    case MHA_STAGE_WEIGHTS_MEAN:
    case MHA_STAGE_HEADS:
    case MHA_STAGE_GATED:
    case MHA_STAGE_LSE: return true;
    case MHA_STAGE_OUTPUT: return c->kind != CASE_ROPE;
    default: return false;
    }
}
