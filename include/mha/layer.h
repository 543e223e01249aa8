/* A multi-head attention layer: its shape, and its weights in a parameter table. */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "mha/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q/k normalisation: x * w / sqrt(mean(x^2) + eps), after the bias and before the rotation. */
typedef enum mha_norm {
    MHA_NORM_NONE = 0,
    MHA_NORM_HEAD, /* over each head's d_k features, one weight (d_k) shared by the heads (Qwen3) */
    MHA_NORM_ROW   /* over the whole projected row, weight (h*d_k) or (h_kv*d_k) (OLMo 2) */
} mha_norm;

/* Every width is free up to INT_MAX, as is a row of all heads: CBLAS counts in int. Zero means the default in
 * the comment; an all-zero config is the base layer of Vaswani et al. 2017: d_model 512, 8 heads,
 * d_k = d_v = 64, no biases. */
typedef struct mha_config {
    size_t d_model;  /* 512 */
    size_t n_heads;  /* 8 */
    size_t kv_heads; /* n_heads; must divide n_heads. Query head i reads key/value head i / (n_heads/kv_heads) */
    size_t d_k;      /* d_model / n_heads, which must then divide */
    size_t d_v;      /* d_k when d_k is given, else d_model / n_heads */
    size_t d_q;      /* width of the query input: d_model */
    size_t d_kin;    /* width of the key input: d_model */
    size_t d_vin;    /* width of the value input: d_kin */
    size_t d_out;    /* width of the output: d_model */
    bool bias_q, bias_k, bias_v, bias_o;
    bool bias_kv;    /* one learned key and value row behind all real keys (add_bias_kv) */
    bool sinks;      /* one learned logit per query head in the softmax denominator */
    mha_norm q_norm, k_norm;
    mha_dtype dtype; /* of the weights: F32, F64, F16 or BF16 */
} mha_config;

/* Every weight a layer can have, in the order of the equation. y = x W + b; head i of W_Q is columns
 * [i*d_k, (i+1)*d_k). Names, shapes in symbols and which of them a config asks for: src/attention/config.c. */
typedef enum mha_weight {
    MHA_W_Q,    /* (d_q, h*d_k) */
    MHA_B_Q,    /* (h*d_k) */
    MHA_W_K,    /* (d_kin, h_kv*d_k) */
    MHA_B_K,    /* (h_kv*d_k) */
    MHA_W_V,    /* (d_vin, h_kv*d_v) */
    MHA_B_V,    /* (h_kv*d_v) */
    MHA_W_O,    /* (h*d_v, d_out) */
    MHA_B_O,    /* (d_out) */
    MHA_BIAS_K, /* (h_kv*d_k), the learned key row of bias_kv */
    MHA_BIAS_V, /* (h_kv*d_v), its value row */
    MHA_SINKS,  /* (h) */
    MHA_Q_NORM, /* (d_k), or (h*d_k) for a norm over the row */
    MHA_K_NORM, /* (d_k), or (h_kv*d_k) */
    MHA_WEIGHT_COUNT
} mha_weight;

MHA_API const char *mha_weight_name(mha_weight weight); /* "W_Q"; "?" outside the list */

/* Fills the defaults in and validates. MHA_INVALID says what is wrong in words and numbers (d_model
 * 512 with 12 heads: names both and the head counts that divide). *config is untouched on error. */
MHA_API mha_status mha_config_resolve(mha_config *config, mha_error *error);
/* Rank (1 or 2) and shape of a weight under a resolved config; rank 0 when the config has no such
 * weight. `symbol` (may be NULL) receives static text such as "(d_q, h*d_k)". */
MHA_API int mha_config_weight_shape(const mha_config *config, mha_weight weight, size_t shape[2], const char **symbol);

/* Opaque. const in every forward: any number of threads may share one layer. */
typedef struct mha_layer mha_layer;

/* Resolves a copy of `config`, allocates every weight through `table` under prefix + name (zeros)
 * and makes a layer of them. The layer borrows the table, which must outlive it; `table` NULL: the layer makes one with
 * the default allocator (mha_layer_params shows it), which goes with the layer. `prefix` NULL is "".
 * Errors: MHA_INVALID, MHA_NO_MEMORY; then no row stays behind. */
MHA_API mha_status mha_layer_create(const mha_config *config, mha_params *table, const char *prefix,
                                    mha_layer **layer, mha_error *error);
/* Removes the layer's rows from its table. NULL is allowed. */
MHA_API void mha_layer_destroy(mha_layer *layer);

MHA_API const mha_config *mha_layer_config(const mha_layer *layer); /* resolved; lives as long as the layer */
MHA_API mha_params *mha_layer_params(const mha_layer *layer);
/* The row of a weight; NULL when the layer has none. */
MHA_API mha_tensor *mha_layer_weight(const mha_layer *layer, mha_weight weight);
/* Head i's slice of a weight, as a strided view: columns of W_Q, W_K, W_V and their biases, rows of
 * W_O, one element of sinks. i counts query heads for W_Q, b_Q, W_O, sinks; key/value heads for
 * W_K, b_K, W_V, b_V, bias_k, bias_v. No data where the weight is absent, is not per head (b_O,
 * norms over a head) or i is too large. */
MHA_API mha_view mha_layer_head(const mha_layer *layer, mha_weight weight, size_t head);

/* Random values, uniform: the matrices after Xavier (Glorot and Bengio 2010: bound sqrt(6 / (fan_in +
 * fan_out))), biases within 1 / sqrt(rows of their matrix), bias_k and bias_v with Xavier-normal's variance,
 * sinks in [-1, 1), norms in [0.5, 1.5): an implementation that forgets one of them gives another output.
 * Element e of a weight depends on (seed, weight, e) alone: the same on every machine. */
MHA_API void mha_layer_init(mha_layer *layer, uint64_t seed);
/* Copies `from` (any plain floating dtype, shape of the weight) into a weight.
 * MHA_NOT_FOUND: the layer has no such weight. MHA_INVALID: shape, with both in the message. */
MHA_API mha_status mha_layer_set(mha_layer *layer, mha_weight weight, const mha_view *from, mha_error *error);

/* Makes the layer ready for the fast path: W_Q, W_K, W_V and W_O are copied into the layout of the kernels,
 * F16 and BF16 as they are stored and all else as F32, as derived rows ("W_Q.packed") of the table: their bytes are shown, their elements
 * never counted. Without it the fast path leaves the projections to BLAS. Calling it again renews the copies.
 * mha_layer_set and mha_layer_init renew them too; who writes to a weight through a view calls
 * mha_layer_repack, or the fast path goes on with what was there before. mha_layer_unpack gives the memory
 * back. None of these during a forward. Errors: MHA_NO_MEMORY; then nothing is packed. */
MHA_API mha_status mha_layer_pack(mha_layer *layer, mha_error *error);
MHA_API void mha_layer_repack(mha_layer *layer);
MHA_API void mha_layer_unpack(mha_layer *layer);

#ifdef __cplusplus
}
#endif
#endif
