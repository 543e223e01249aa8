/* A multi-head attention layer: its shape, and its weights in a parameter table. */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "mha/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q/k normalisation, after the bias: what it is over, and the shape of its weight. Which kind of norm it is, and
 * whether it comes before or after the rotation, says mha_norm_rule of a call. */
typedef enum mha_norm {
    MHA_NORM_NONE = 0,
    MHA_NORM_HEAD,     /* over each head's d_k features, one weight (d_k) shared by the heads (Qwen3) */
    MHA_NORM_ROW,      /* over the whole projected row, weight (h*d_k) or (h_kv*d_k) (OLMo 2) */
    MHA_NORM_EACH_HEAD /* over each head, with weights of its own: (h, d_k) or (h_kv, d_k) (Cohere) */
} mha_norm;

/* A gate on the heads, before W_O: heads * sigmoid(x_q W_G + b_G) (Qiu et al. 2025; Qwen3-Next, AFMoE). */
typedef enum mha_gate {
    MHA_GATE_NONE = 0,
    MHA_GATE_FEATURE, /* one number for each feature of the heads, W_G (d_q, h*d_v) */
    MHA_GATE_HEAD     /* one for each head, W_G (d_q, h) */
} mha_gate;

/* Every weight a layer can have, in the order of the equation. Matrices are row-major and multiply an input row from
 * the right, y = x W + b; columns [i*d_k, (i+1)*d_k) of W_Q are head i. Quantised matrices lie column by column, as
 * files store them (out, in): each column is cut into blocks of 32 numbers, of 256 with Q2_K to Q6_K and IQ4_XS, so the
 * number of rows is a multiple of that. Every value is a float, the one to which it is decoded: each path gives the
 * bits that it gives for a layer of these floats. Where a path uses the BLAS, one matrix at a time is widened to floats
 * in the workspace. */
typedef enum mha_weight {
    MHA_W_Q,    /* (d_q, h*d_k); with q_rank (q_rank, h*d_k) */
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
    MHA_Q_NORM, /* (d_k), (h*d_k) for a norm over the row, or (h, d_k) */
    MHA_K_NORM, /* (d_k), (h_kv*d_k), or (h_kv, d_k) */
    MHA_Q_NORM_BIAS, /* as MHA_Q_NORM */
    MHA_K_NORM_BIAS, /* as MHA_K_NORM */
    MHA_BIAS_TABLE,  /* (n, h), the table of a relative position bias (mha/bias.h) */
    MHA_W_QA,     /* (d_q, q_rank), from here to W_KVB latent attention: the layer's W_Q reads what these make of x_q */
    MHA_B_QA,     /* (q_rank) */
    MHA_QA_NORM,  /* (q_rank) */
    MHA_W_KVA,    /* (d_kin, kv_rank + d_rope), instead of W_K and W_V */
    MHA_B_KVA,    /* (kv_rank + d_rope) */
    MHA_KVA_NORM, /* (kv_rank) */
    MHA_W_KVB,    /* (kv_rank, h*(d_n + d_v)): of each head first d_n columns for its keys, then d_v for its values */
    MHA_W_G,      /* (d_q, h*d_v) or (d_q, h): the gate */
    MHA_B_G,      /* (h*d_v) or (h) */
    MHA_RELATIVE_K,       /* (n, d_k) or (n, h*d_k), rows that queries are multiplied with (mha/relative.h) */
    MHA_RELATIVE_COLUMNS, /* the same by the columns of a grid */
    MHA_RELATIVE_Q,       /* (n, d_k) or (n, h*d_k), rows that keys are multiplied with */
    MHA_WEIGHT_COUNT
} mha_weight;

enum { MHA_WEIGHT_ROOM = 64 }; /* no version has more weights */

/* The role of a weight in the equation. */
typedef enum mha_weight_kind {
    MHA_WEIGHT_MATRIX,    /* rows are multiplied by it */
    MHA_WEIGHT_BIAS,      /* added to what a matrix makes */
    MHA_WEIGHT_ROW,       /* one more key or value row */
    MHA_WEIGHT_SINK,      /* one more logit of each head */
    MHA_WEIGHT_NORM,      /* factors of a norm */
    MHA_WEIGHT_NORM_BIAS, /* added after a norm */
    MHA_WEIGHT_TABLE      /* rows that are chosen by position */
} mha_weight_kind;

/* The tensor that a weight computes or changes. */
typedef enum mha_weight_side {
    MHA_WEIGHT_QUERIES,
    MHA_WEIGHT_KEYS, /* keys and values */
    MHA_WEIGHT_HEADS, /* the heads, after the values: gate and output */
    MHA_WEIGHT_SCORES
} mha_weight_side;

/* Properties of a weight in every layer. */
typedef struct mha_weight_info {
    const char *name;   /* "W_Q" */
    const char *symbol; /* its shape: "(d_q, h*d_k)" */
    mha_weight_kind kind;
    mha_weight_side side;
    mha_weight of; /* the matrix of a bias, the norm of its bias; else the weight itself */
    bool of_latents; /* it makes latents, or is made for them: all heads share it, but W_KVB */
    const char *word;    /* its name in case files, which know `name`, too: "W_q"; NULL: only `name` */
    const char *foreign; /* names in other programs, separated by blanks, for messages; NULL: none */
    const char *meaning; /* one line */
} mha_weight_info;

/* The row of a weight; NULL outside the list. */
MHA_API const mha_weight_info *mha_weight_at(mha_weight weight);

/* The shape of a layer. 0 means the default that the comment gives: an all-zero config is the base layer of Vaswani
 * et al. 2017, d_model 512, 8 heads, d_k = d_v = 64, no biases. A width, and a row of all heads, is at most INT_MAX
 * elements, because CBLAS counts in int. */
typedef struct mha_config {
    size_t d_model;  /* 512 */
    size_t n_heads;  /* 8 */
    size_t kv_heads; /* n_heads; must divide n_heads. Query head i reads key/value head i / (n_heads/kv_heads) */
    size_t d_k;      /* d_model / n_heads, which must leave no remainder */
    size_t d_v;      /* d_k when d_k is given, else d_model / n_heads */
    size_t d_q;      /* width of the query input: d_model */
    size_t d_kin;    /* width of the key input: d_model */
    size_t d_vin;    /* width of the value input: d_kin */
    size_t d_out;    /* width of the output: d_model */
    bool bias_q, bias_k, bias_v, bias_o;
    bool bias_kv;    /* one learned key and value row after all real keys (add_bias_kv) */
    bool sinks;      /* one learned logit per query head in the softmax denominator */
    mha_norm q_norm, k_norm;
    bool norm_bias;  /* each q/k norm adds a bias of the shape of its weight (Phi, Persimmon) */
    size_t bias_rows; /* rows n of the table of a relative position bias (mha/bias.h), at most 65,536; 0: no table */
    /* Rows of the tables of relative terms (mha/relative.h), at most 65,536; 0: no table. */
    size_t relative_k_rows, relative_column_rows, relative_q_rows;
    bool relative_by_head; /* these tables have columns for each head: (n, h*d_k) */
    mha_dtype dtype; /* of the weights: F32, F64, F16, BF16; only of the matrices, the others are then F32: Q4_0, Q4_1,
                      * Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4,
                      * F8_E4M3_SCALED, F8_E5M2_SCALED */
    mha_gate gate;
    bool bias_gate;  /* b_G */

    /* Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1). kv_rank > 0: keys and values come from
     * one latent c of each token, and d_rope features of a key are the same for all heads:
     *   [c, k_r] = x_k W_KVA + b_KVA,   [k_n, v] = norm(c) W_KVB head by head,   k = [k_n, rope(k_r)]
     * with norm(c) = c * kva_norm / sqrt(mean(c^2) + norm_eps). With q_rank > 0 queries, too, come from a latent:
     *   q = norm(x_q W_QA + b_QA) W_Q
     * There is no W_K and no W_V; kv_heads is n_heads, and bias_q, bias_k, bias_v, bias_kv, q_norm and k_norm are not
     * set. A rotation turns the last d_rope features (mha_rope.last). See also mha_call.absorbed. */
    size_t q_rank, kv_rank; /* 0: no latent */
    size_t d_rope;          /* d_r, below d_k; d_n = d_k - d_rope features of a key are the head's own */
    bool bias_latent;       /* b_KVA, and with q_rank b_QA */

    /* For each matrix: a quantised type of those above instead of `dtype`, as files of several types have them;
     * 0 (F32) means `dtype`. */
    mha_dtype matrix_dtype[MHA_WEIGHT_ROOM];
    uint64_t reserved[16]; /* 0; see mha.h */
} mha_config;

/* Replaces zeros by the defaults and validates. MHA_INVALID: a value, or two that do not go together; the message has
 * both (for d_model 512 with 12 heads also the head counts that divide). *config is untouched on error. */
MHA_API mha_status mha_config_resolve(mha_config *config, mha_error *error);
/* Rank (1 or 2) and shape of a weight under a resolved config; 0 when the config has no such weight. `symbol` (may be
 * NULL) receives the shape in symbols, static text such as "(d_q, h*d_k)". */
MHA_API int mha_config_weight_shape(const mha_config *config, mha_weight weight, size_t shape[2], const char **symbol);

/* A layer and its weights. A forward only reads it: any number of threads may share one layer. */
typedef struct mha_layer mha_layer;

/* Resolves a copy of `config` and adds every weight, filled with zeros, to `table` under the name prefix + name. The
 * table must outlive the layer. `table` NULL: the layer creates a table with the default allocator (mha_layer_params
 * returns it) and destroys it with itself. `prefix` NULL is "". The caller destroys the layer.
 * Errors: MHA_INVALID, MHA_NO_MEMORY; the table is then as before. */
MHA_API mha_status mha_layer_create(const mha_config *config, mha_params *table, const char *prefix,
                                    mha_layer **layer, mha_error *error);
/* Removes the layer's rows from its table. NULL is allowed. */
MHA_API void mha_layer_destroy(mha_layer *layer);

MHA_API const mha_config *mha_layer_config(const mha_layer *layer); /* resolved; lives as long as the layer */
MHA_API mha_params *mha_layer_params(const mha_layer *layer); /* the table that has the layer's weights */
/* The row of a weight in the table; NULL when the layer has no such weight. */
MHA_API mha_tensor *mha_layer_weight(const mha_layer *layer, mha_weight weight);
/* The part of a weight that belongs to one head, as a strided view: columns of W_Q, W_K, W_V, W_G and their biases,
 * rows of W_O, one element of sinks, a column of bias_table, columns of the relative tables by head, a row of the
 * norms of each head. `head` counts query heads for W_Q, b_Q, W_O, W_KVB, W_G, b_G, sinks, tables and q_norm, key/value
 * heads for W_K, b_K, W_V, b_V, bias_k, bias_v and k_norm. No data where the layer has no such weight or head, where
 * all heads share the weight (b_O, the other norms and tables), or where rows of a quantised W_O begin inside a
 * block. */
MHA_API mha_view mha_layer_head(const mha_layer *layer, mha_weight weight, size_t head);

/* Fills all weights with uniform random values: matrices within sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio
 * 2010), biases within 1 / sqrt(rows of their matrix), bias_k and bias_v with the variance of Xavier-normal, sinks and
 * tables in [-1, 1), norms in [0.5, 1.5), their biases in [-0.5, 0.5). No bias is 0 and no norm 1 throughout, so
 * that an implementation which drops one gives another output. Element e of a weight depends only on (seed, weight, e)
 * and is the same on every machine. Of quantised types that floats are not rounded to (all but Q8_0 and Q4_0) codes and
 * scales of groups are random bits instead, with a scale of the block that keeps values within the same range. */
MHA_API void mha_layer_init(mha_layer *layer, uint64_t seed);
/* Copies `from` (a floating dtype or a quantised one that is decoded, shape of the weight) into a weight. A quantised
 * weight takes blocks of its own type as they are when they run down the columns, too (stride[0] = 1); other numbers
 * are rounded to F32 and then as ggml's reference rounds them: Q8_0: scale = largest |x| / 127 of the block, code = x /
 * scale, halves away from zero; Q4_0: scale = the x of the greatest size / -8, code = floor(x / scale + 8.5), at most
 * 15, and 8 less stands for 0; the scale is then rounded to F16. A block with NaN or infinity, or whose scale is beyond
 * F16, becomes NaN. To the other quantised types nothing is rounded here: MHA_UNSUPPORTED, as are whole numbers.
 * MHA_NOT_FOUND: the layer has no such weight. MHA_INVALID: another shape; the message has both. */
MHA_API mha_status mha_layer_set(mha_layer *layer, mha_weight weight, const mha_view *from, mha_error *error);

/* Packs the weights for the fast path, which projects by the BLAS without that: each matrix is put into panels, the
 * memory layout of the kernels, F16, BF16 and quantised ones in their own type, F64 as F32. Panels of F32, F16 and BF16
 * take the place of the matrix: they are its storage, as the table says (mha_tensor_info), and no other copy is there.
 * One matrix is packed after the other, so that at most one is stored twice. The numbers stay next to the panels if
 * these round or recode them (F64, quantised types), and where somebody has asked for a view (mha_tensor_view,
 * mha_layer_head), which stays valid; panels are then derived, and totals have their bytes, never their elements.
 *
 * Every reader of a matrix stored only in packed form unpacks it first: a view, a call on another path, a gradient, an
 * absorbed call (W_KVB). Both copies stay allocated until mha_layer_drop_views, however rare such calls are. Where
 * there is no memory for that, a view has no data and a call is MHA_NO_MEMORY. mha_layer_init writes into the panels;
 * mha_layer_set needs room for the matrix, or is MHA_NO_MEMORY. Call mha_layer_pack again after writing to a weight
 * through a view: it renews the panels of weights that are there twice; the fast path reads the old ones until then.
 *
 * mha_layer_drop_views says that nobody uses a view of the layer's weights any more, nor a plan made before: what is
 * packed then has only panels again. Neither function may be called during a forward. Errors: MHA_NO_MEMORY; then no
 * call takes the layer for packed. */
MHA_API mha_status mha_layer_pack(mha_layer *layer, mha_error *error);
MHA_API void mha_layer_drop_views(mha_layer *layer);

#ifdef __cplusplus
}
#endif
#endif
