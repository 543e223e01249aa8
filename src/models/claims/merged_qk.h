/* One matrix for each head in place of two: W_i = W_i^Q (W_i^K)^T, its parameters, scores and rank. */
#ifndef MHA_MODELS_CLAIMS_MERGED_QK_H
#define MHA_MODELS_CLAIMS_MERGED_QK_H

#include "mha/attention.h"


/* The scores of head i are x_q W_i^Q (W_i^K)^T x_k^T: one matrix W_i (d_q, d_kin) can replace the pair. Biases add
 * three terms: x_q (W_i^Q b_i^K), the same for all keys; (W_i^K b_i^Q) x_k^T; and b_i^Q b_i^K. They become vectors
 * and a number. A rotation or a norm between the two matrices cannot be merged.
 *
 * Rows added to a table, of group "attention":
 *   W_QK (h, d_q, d_kin)   u_Q (h, d_q) with a key bias   u_K (h, d_kin) with a query bias   c_QK (h) with both */
typedef struct mha__merged mha__merged;

/* Allocates the rows (zeros, lazily) for a layer of this configuration; `prefix` NULL is "". Errors: MHA_INVALID,
 * MHA_UNSUPPORTED (q/k norm, an extra key row; the message says which), MHA_NO_MEMORY. */
mha_status mha__merged_create(const mha_config *config, mha_params *table, const char *prefix, mha__merged **merged,
                                     mha_error *error);
void mha__merged_destroy(mha__merged *merged); /* NULL is allowed */

/* Fills the rows from a layer of the same configuration, products summed in float64 and rounded once. */
mha_status mha__merged_fill(mha__merged *merged, const mha_layer *layer, mha_error *error);

/* Scores of a call, (B, h, T_q, S): scale * (x_q W_i x_k^T + the bias terms), in float64. query (B, T_q, d_q) and key
 * (B, S, d_kin), any plain float dtype; `scores` F32 or F64. Errors: MHA_INVALID (shapes), MHA_NO_MEMORY. */
mha_status mha__merged_scores(const mha__merged *merged, const mha_view *query, const mha_view *key, double scale,
                                     const mha_view *scores, mha_error *error);

/* The numerical rank of W_i: singular values above max(d_q, d_kin) * epsilon(dtype) * the largest, by LAPACK's
 * dgesvd. At most d_k. Errors: MHA_INVALID (head), MHA_UNSUPPORTED (the BLAS comes without LAPACK), MHA_NO_MEMORY. */
mha_status mha__merged_rank(const mha__merged *merged, size_t head, size_t *rank, mha_error *error);

#endif
