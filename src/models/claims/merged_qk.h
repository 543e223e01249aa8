/* One matrix in place of W_Q and W_K: W_QK = W_Q W_K^T of each head, its rank and its scores, without rounding. */
#ifndef MHA_MODELS_CLAIMS_MERGED_QK_H
#define MHA_MODELS_CLAIMS_MERGED_QK_H

#include "mha/layer.h"

/* Biases, norms and rotations between the two matrices are left out. */
typedef struct mha__merged_qk {
    size_t rank; /* the least of the heads' ranks modulo 2^31 - 1: a lower bound of the rank of the exact product.
                  * The shape gives the upper bound min(d_k, d_q, d_kin); the rank is proven if both are equal. */
    bool equal;  /* in each head x_q W_Q (x_k W_K)^T = x_q W_QK x_k^T modulo 2^31 - 1, for one random x_q and x_k */
} mha__merged_qk;

/* Computes both from a layer of finite weights. Errors: MHA_NO_MEMORY. */
mha_status mha__merge_qk(const mha_layer *layer, mha__merged_qk *merged, mha_error *error);

#endif
