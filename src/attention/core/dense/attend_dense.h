/* The core of attention with whole rows of scores. */
#ifndef MHA_ATTENTION_CORE_DENSE_ATTEND_DENSE_H
#define MHA_ATTENTION_CORE_DENSE_ATTEND_DENSE_H

#include "attention/core/terms/terms.h"

/* heads = softmax(Q K^T * scale, visible keys) V for every (batch, head). Q (B, T_q, h, d_k),
 * K (B, S, h_kv, d_k), V (B, S, h_kv, d_v), heads (B, T_q, h, d_v). Keeps the stages from scores to
 * weights_mean and lse. K and V may be F16 or BF16. `bias_rows` is what mha__bias_prepare
 * made, `relative` what mha__relative_prepare did.
 * `scratch` is mha__attend_dense_scratch bytes in all. */
void mha__attend_dense(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                       const mha_view *heads, const float *bias_rows, const mha__relative_tables *relative,
                       char *scratch);
size_t mha__attend_dense_scratch(const mha__resolved *r);

#endif
