/* Published statements about parameter counts, compared with the counts of their configurations when allocated. */
#ifndef MHA_MODELS_CLAIMS_CLAIMS_H
#define MHA_MODELS_CLAIMS_CLAIMS_H

#include "mha/layer.h"

typedef enum mha__claim_verdict {
    MHA_CLAIM_TRUE,
    MHA_CLAIM_FALSE,
    MHA_CLAIM_ONLY_IF, /* holds for the configuration it names, fails for another one that it covers */
    MHA_CLAIM_VERDICT_COUNT
} mha__claim_verdict;

const char *mha__claim_verdict_name(mha__claim_verdict verdict); /* "only if"; "?" outside the list */

/* A configuration with the number that the statement gives for it and the number counted in its storages. */
typedef struct mha__claim_side {
    const char *configuration; /* "layer d_model=512 h=8", "gpt2", "transformer-base vocab_size=40000"; NULL: none */
    int64_t stated, counted;
} mha__claim_side;

/* One statement, checked. All texts are static. */
typedef struct mha__claim {
    const char *source;          /* author and place */
    const char *statement;       /* the statement in words */
    const char *formula;         /* the number as stated, or its formula */
    const char *count;           /* the quantity that was counted, in the words of `mha params` */
    int64_t unit;                /* the number is rounded to multiples of this; 1: it is exact */
    mha__claim_side holds, fails; /* `fails` has a configuration only for a verdict "only if" */
    mha__claim_verdict verdict;
    const char *condition; /* the condition under which it holds, or the correction; NULL: none */
} mha__claim;

size_t mha__claim_count(void);
/* Allocates the configurations of claim `index`, counts, compares and releases them.
 * Errors: MHA_NOT_FOUND past the end, MHA_NO_MEMORY. */
mha_status mha__claim_check(size_t index, mha__claim *claim, mha_error *error);

/* One matrix in place of W_Q and W_K: W_QK = W_Q W_K^T of each head, its rank and its scores, without rounding.
 * Biases, norms and rotations between the two matrices are left out. */
typedef struct mha__merged_qk {
    size_t rank; /* the least of the heads' ranks modulo 2^31 - 1: a lower bound of the rank of the exact product.
                  * The shape gives the upper bound min(d_k, d_q, d_kin); the rank is proven if both are equal. */
    bool equal;  /* in each head x_q W_Q (x_k W_K)^T = x_q W_QK x_k^T modulo 2^31 - 1, for one random x_q and x_k */
} mha__merged_qk;

/* Computes both from a layer of finite weights. Errors: MHA_NO_MEMORY. */
mha_status mha__merge_qk(const mha_layer *layer, mha__merged_qk *merged, mha_error *error);

#endif
