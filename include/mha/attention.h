/* Attention: the settings and inputs of a call, its plan, and the functions that run it.
 *
 *     mha_layer *layer = NULL;
 *     mha_config config = {0};
 *     mha_call call = {0}; // x and y: 10 rows of 512 floats
 *     config.d_model = 512, config.n_heads = 8;
 *     call.query = mha_rows(x, 1, 10, 512), call.output = mha_rows(y, 1, 10, 512);
 *     call.semantics.visible.causal = true;
 *     mha_status status = mha_layer_create(&config, NULL, NULL, &layer, &error);
 *     if (status == MHA_OK)
 *         mha_layer_init(layer, 7), status = mha_run(layer, &call, &error);
 *     mha_layer_destroy(layer);
 *
 * The fields of mha_call by use, with a layer; a field without an entry stays 0. All uses set `output`, and take masks
 * and settings in `semantics`.
 *
 *   use              query            key, value          other fields
 *   self-attention   (B, T, d_q)                          semantics.visible.causal, for a decoder
 *   cross-attention  (B, T_q, d_q)    (B, T_k, d_kin)     semantics.visible.kv_lengths or key_padding, for padded keys
 *   decoding         (B, 1, d_q)                          cache: keys and values of earlier calls
 *   ragged batch     (1, total, d_q)  or (1, total_k, .)  semantics.place.n_sequences, cu_seqlens_q; cu_seqlens_k
 *   paged keys       (B, T_q, d_q)                        pages: keys and values of all rows, also the new ones
 */
#ifndef MHA_ATTENTION_H
#define MHA_ATTENTION_H

#include "mha/bias.h"
#include "mha/cache.h"
#include "mha/layer.h"
#include "mha/mask.h"
#include "mha/pages.h"
#include "mha/precision.h"
#include "mha/relative.h"
#include "mha/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- semantics */

/* Rotary position embedding (Su et al. 2021). Pair i of a row's features, (x1, x2), becomes m (x1 cos a - x2 sin a,
 * x2 cos a + x1 sin a) with a = position * base^(-2i/dim) and m = attention_factor. Queries and new keys are rotated
 * after bias and norm. */
typedef struct mha_rope {
    mha_rope_kind kind;
    size_t dim;  /* the first `dim` features, an even number, are rotated; the rest stay as they are. 0: d_k */
    double base; /* 0: 10000 */
    bool last;   /* the last `dim` features are rotated instead (DeepSeek) */
    double attention_factor; /* m > 0, as YaRN and LongRoPE have it; 0: 1 */
    mha_view frequencies; /* F32 or F64, (dim/2): a = position * frequencies[i]; mha/positions.h computes those of
                           * public models. No data: the formula above */
    /* I64 (B, T): positions of the new rows. Without data query i has position offset + i (see mha_semantics), and
     * new key j has position key_offset + P + j, where P counts all keys cached before this call, evicted ones
     * included. */
    mha_view q_positions, k_positions; /* k_positions without data: q_positions when T_q = T_k and there is no
                                        * key_offset */
    /* F32 or F64: (n, dim/2), indexed by position, or (B, T, dim/2), one row for each new row (then T_q = T_k) */
    mha_view cos_table, sin_table;
    /* Of tables by row: what they were made of. No forward reads it; mha_error_bound counts what rounding does to such
     * angles, cases record it, and the diagnosis names what people get wrong about it. */
    uint64_t reserved[4]; /* 0; see mha.h */
} mha_rope;

/* A q/k norm of n neighbouring features x: y = (x - m) / r * w + b, with m = 0 except for LayerNorm. */
typedef enum mha_norm_kind {
    MHA_NORM_RMS = 0, /* r = sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019) */
    MHA_NORM_LAYER,   /* m = mean(x), r = sqrt(mean((x - m)^2) + eps) (Ba et al. 2016; Cohere, StableLM, ViT-22B) */
    MHA_NORM_L2       /* r = sqrt(sum(x^2) + eps) (Henry et al. 2020) */
} mha_norm_kind;

/* How queries and keys are normalised; mha_norm says over which features, and the weights are those of the layer. */
typedef struct mha_norm_rule {
    mha_norm_kind kind;
    bool plus_one;   /* the factor of a feature is 1 + w instead of w (Gemma 3, Qwen3-Next) */
    bool after_rope; /* after the rotation instead of before it (Llama 4) */
    bool unweighted; /* queries and keys that have no norm weight are normalised, too: each head, with factor 1
                      * (Llama 4, whose "L2 norm" is MHA_NORM_RMS) */
} mha_norm_rule;

/* Queries scaled by position: q times 1 + growth * log(1 + max(0, floor((p + first) / every))), and times
 * log(p + 1) / log(log_n) where p + 1 > log_n, after norm and rotation, where p is the query's position in the rotation
 * if q_positions are given, else the one that `causal` counts. */
typedef struct mha_query_scale {
    double growth; /* 0: none (Llama 4: attn_scale; Ministral 3: llama_4_scaling_beta) */
    int64_t every; /* 1 or more (Llama 4: floor_scale; Ministral 3: original_max_position_embeddings) */
    int64_t first; /* number of the first position: 1 in Llama 4, 0 in Ministral 3 */
    int64_t log_n; /* the training length, 2 or more (Qwen: seq_length, with use_logn_attn); 0: none */
} mha_query_scale;

/* How the scores s of a query become its weights. */
typedef enum mha_normaliser {
    MHA_SOFTMAX = 0, /* exp(s_j) / sum exp(s) */
    MHA_SIGMOID      /* 1 / (1 + exp(-(s_j + sigmoid_bias))), each key by itself (Ramapuram et al. 2024, whose bias is
                      * -log of the number of keys); a hidden key has weight 0. There is no lse: the stage, sinks,
                      * softmax_plus_one, `partial` and MHA_EMPTY_NAN are refused. Heads of parts of the keys add
                      * up, before gate and b_O. */
} mha_normaliser;

typedef enum mha_empty_rows {
    MHA_EMPTY_ZERO = 0, /* a query that sees no key, no extra row and no sink: weights 0, output b_O, lse -inf */
    MHA_EMPTY_NAN       /* the same query: weights and output NaN */
} mha_empty_rows;

typedef enum mha_hidden_values {
    MHA_HIDDEN_IGNORE = 0, /* a hidden key contributes nothing, whatever numbers its rows hold */
    MHA_HIDDEN_PROPAGATE   /* a hidden key contributes 0 times its value row: a NaN or infinity there reaches the
                            * output, also of queries that see no key */
} mha_hidden_values;

/* Where the rows of a call stand. */
typedef struct mha_place {
    /* Query i has position p = offset + i, key j has position key_offset + first_key + j; first_key is the number of
     * rows that the cache has evicted. Offset 0 aligns a causal mask top-left, S - T_q bottom-right. With neither
     * offset nor position_offset given, the offset is the number of keys cached before the call. */
    bool has_offset; /* needed for offset 0 */
    int64_t offset;                 /* of all batch rows */
    const int64_t *position_offset; /* (B): of each batch row, instead of `offset`; NULL: not given */
    /* The keys of the call are a part of a longer sequence, after its first key_offset keys (see mha_merge):
     * causal, window, ALiBi, bias, relative terms and implied positions of a rotation count from the beginning of the
     * sequence, and so does kv_lengths, which may then be longer than the part. Masks and key padding are those of the
     * part: mha_view_slice cuts them. The queries keep their positions; with a cache their offset must be given. */
    bool has_key_offset; /* needed for key_offset 0, the first part */
    int64_t key_offset;
    /* The softmax is only over the keys: sinks, softmax_plus_one, the bias_k/bias_v row and the zero row are left out,
     * because another part counts them. */
    bool keys_only;

    /* Ragged batch without padding: the inputs have batch extent 1, and sequence b is their rows [cu[b], cu[b+1]).
     * Both arrays have n_sequences + 1 entries, start at 0 and never decrease; they need cu_seqlens_q. cu_seqlens_k
     * NULL is cu_seqlens_q. In position_offset, kv_lengths, key_padding and mask B is then n_sequences. */
    size_t n_sequences;
    const int64_t *cu_seqlens_q, *cu_seqlens_k;
    uint64_t reserved[4]; /* 0; see mha.h */
} mha_place;

/* Operations on queries, keys and values between their projections and their products. */
typedef struct mha_qkv {
    mha_rope rope;   /* without a kind its other fields must be zero */
    double norm_eps; /* of q/k norms and of the norms of latents; 0: 1e-6 */
    mha_norm_rule norm;
    mha_query_scale query_scale;
    /* c > 0: every number of q, k and v is limited to [-c, c] (MPT, OLMo, DBRX): after its bias or, for q and k that
     * are normalised before the rotation, after the norm (OLMoE). Rows of the cache, bias_k and bias_v are not. Not
     * with kv_rank. 0: none */
    double clip_qkv;
    uint64_t reserved[8]; /* 0; see mha.h */
} mha_qkv;

/* Which keys a query sees. */
typedef struct mha_visible {
    bool causal;                    /* a query sees keys at positions <= p */
    int64_t prefix;                 /* with causal: and keys at positions below this one (prefix-LM) */
    /* A window hides keys at positions < p - window_left and > p + window_right. Each side is 0 or more, and is given
     * when it is not 0 or when its has_ field is true, which is needed only for 0. A side that is not given is open. */
    bool has_window_left, has_window_right;
    int64_t window_left, window_right;
    int64_t window_keep; /* window_left does not hide positions below this one: tokens that are sinks of attention */
    int64_t chunk; /* n > 0: it sees only positions of its own chunk, floor(position / n) = floor(p / n) (Llama 4) */

    /* (B): key j of row b is hidden iff key_offset + j >= kv_lengths[b]; j counts cached keys, too */
    const int64_t *kv_lengths;
    mha_mask key_padding;      /* (B, S) */
    bool has_padding_fill;     /* padding_fill, finite, is added to the score of keys that key_padding would hide;
                                * needed for padding_fill 0 */
    double padding_fill;
    mha_mask mask;
    mha_pattern pattern; /* segments, query padding, lists of keys, masks by block: see mask.h */
    uint64_t reserved[8]; /* 0; see mha.h */
} mha_visible;

/* Terms added to scores. */
typedef struct mha_added {
    /* (h): adds -slope[h] * (p - position of the key) (Press et al. 2022); mha/positions.h has theirs */
    const double *alibi_slopes;
    mha_bias bias; /* adds MHA_BIAS_TABLE[row, h], the row of its rule for p and the position of the key */
    mha_relative relative; /* adds products of queries and keys with rows chosen by position */
    uint64_t reserved[8]; /* 0; see mha.h */
} mha_added;

/* How scores become weights, and weights heads. */
typedef struct mha_softmax {
    /* scale is used when it is not 0 or when has_scale is true, which is needed only for scale 0. */
    bool has_scale;
    double scale;   /* not given: 1/sqrt(d_k) */
    double softcap; /* c > 0: c * tanh(score / c), before anything is hidden or added */

    bool zero_row;          /* one more key and value of zeros, always visible (add_zero_attn) */
    bool softmax_plus_one;  /* one more exp(0) in the denominator */
    mha_normaliser normaliser;
    double sigmoid_bias; /* of MHA_SIGMOID, finite; 0: none */
    mha_empty_rows empty_rows;
    mha_hidden_values hidden_values;
    /* Dropout of weights (Srivastava et al. 2014), on the exact path. With the weights P of each head, k of
     * dropout_keep and p of dropout_p the heads are
     *   O_i = sum_j P_ij m_ij V_j,   m_ij = k_ij / (1 - p),
     * and the gradients dP_ij = m_ij dO_i . V_j, dV_j = sum_i P_ij m_ij dO_i. Weights, lse and sinks are those before
     * dropout. Frameworks draw k by random numbers of their own: the caller gives the k that was drawn. dropout_keep is
     * BOOL or U8, true where a weight is kept, in the shape of the stage weights, (B, h, T_q, S'); an extent of 1 and a
     * missing leading axis are broadcast. A dropped weight meets its value with the factor 0. */
    double dropout_p; /* from 0 on, below 1; above 0 it needs dropout_keep */
    mha_view dropout_keep;
    uint64_t reserved[7]; /* 0; see mha.h */
} mha_softmax;

/* All settings that change the result. All-zero is plain attention: softmax(Q K^T / sqrt(d_k)) V. Order: project and
 * add b_Q, b_K, b_V (through latents, if the layer has any), split heads, q/k norm, clip, rotate (or clip, rotate,
 * norm), scale queries by position, append to the cache, append the bias_k/bias_v row, append the zero row, scale,
 * softcap, hide (causal, window, lengths, padding, mask, pattern) and add (mask, ALiBi, bias, relative terms), softmax
 * (sinks join the denominator) or sigmoid, dropout, weights V, merge heads, gate, W_O, b_O. The arrays belong to the
 * caller, as those of mha_call do. */
typedef struct mha_semantics {
    mha_place place;
    mha_qkv qkv;
    mha_visible visible;
    mha_added added;
    mha_softmax softmax;
} mha_semantics;

/* ---------------------------------------------------------------- stages */

/* In the order data flows, but for the last three. S' = S plus the rows of bias_kv and zero_row. In a ragged batch q,
 * k, v, q_rot, k_rot, heads, output and the last three keep the shape (1, total, ...) of the inputs; in the others B is
 * then the number of sequences, T_q and S' are the longest lengths, and what a sequence does not fill is 0. */
typedef enum mha_stage {
    MHA_STAGE_Q,             /* (B, T_q, h*d_k)      after bias, before norm and rotation; without a
                              *                       norm before the rotation, and always of v, after clip_qkv */
    MHA_STAGE_K,             /* (B, T_k, h_kv*d_k) */
    MHA_STAGE_V,             /* (B, T_k, h_kv*d_v) */
    MHA_STAGE_Q_ROT,         /* (B, T_q, h*d_k)      after norm, rotation and the scale by position */
    MHA_STAGE_K_ROT,         /* (B, T_k, h_kv*d_k) */
    MHA_STAGE_SCORES,        /* (B, h, T_q, S')      scale * Q K^T, of hidden keys too */
    MHA_STAGE_CAPPED,        /* (B, h, T_q, S')      after softcap */
    MHA_STAGE_MASKED,        /* (B, h, T_q, S')      hidden keys -inf, all that is added to scores added */
    MHA_STAGE_WEIGHTS,       /* (B, h, T_q, S')      after softmax, before dropout */
    MHA_STAGE_WEIGHTS_MEAN,  /* (B, T_q, S')         mean of the weights over the heads */
    MHA_STAGE_HEADS,         /* (B, T_q, h*d_v)      the heads side by side, before gate and W_O */
    MHA_STAGE_OUTPUT,        /* (B, T_q, d_out) */
    MHA_STAGE_PRESENT_KEY,   /* (B, h_kv, S, d_k)    cached and new rows, also without a cache; not in a ragged batch */
    MHA_STAGE_PRESENT_VALUE, /* (B, h_kv, S, d_v) */
    MHA_STAGE_LSE,           /* (B, h, T_q)          log sum exp of visible masked scores, sinks and plus-one, too */
    /* Only of latent attention, before q, k and v; then only of a layer with a gate, before the output: */
    MHA_STAGE_Q_LATENT,      /* (B, T_q, q_rank)     x_q W_QA + b_QA, before its norm; with a q_rank */
    MHA_STAGE_KV_LATENT,     /* (B, T_k, kv_rank+d_rope)  [c, k_r] = x_k W_KVA + b_KVA, before norm and rotation */
    MHA_STAGE_GATED,         /* (B, T_q, h*d_v)      heads * sigmoid(x_q W_G + b_G) */
    MHA_STAGE_COUNT
} mha_stage;

/* Properties of a stage in every call. */
typedef struct mha_stage_info {
    const char *name;    /* "q_rot" */
    const char *shape;   /* "(B, T_q, h*d_k)"; in a ragged batch see above */
    const char *meaning; /* one line, in the symbols of mha.h */
    const char *foreign; /* names in other programs, separated by blanks, for messages; NULL: none */
    int step;            /* place in the order in which data flows, from 0; -1: it has no place in that order */
} mha_stage_info;

MHA_API const mha_stage_info *mha_stage_at(mha_stage stage);     /* its row; NULL outside the list */
MHA_API bool mha_stage_find(const char *name, mha_stage *stage); /* false: no stage of that name */

/* ---------------------------------------------------------------- calls */

enum { MHA_PLAN_PRIVATE_BYTES = 12288 };

typedef enum mha_path {
    MHA_PATH_AUTO,  /* the fastest path that supports the call */
    MHA_PATH_FAST,  /* packed projections (mha_layer_pack), flash attention; see "paths and bits" below */
    MHA_PATH_BLAS,  /* SGEMM for projections and per-head products: the paper spelled out */
    MHA_PATH_EXACT, /* float64, plain loops: the reference */
    MHA_PATH_COUNT
} mha_path;

MHA_API const char *mha_path_name(mha_path path);             /* "blas"; "?" outside the list */
MHA_API bool mha_path_find(const char *name, mha_path *path); /* false: no path of that name */

/* One stage that a forward keeps, or only times. */
typedef struct mha_keep {
    mha_stage stage;
    mha_view view; /* memory for the stage: F32 or F64, of the stage's shape (mha_plan_stage), with any strides. Without
                    * data the stage is only timed */
    double ms;     /* written by the forward: milliseconds. Stages from scores to heads are timed together, under heads;
                    * projections computed together share their time in proportion to size; 0 on the exact path */
} mha_keep;

/* One call of attention. mha_plan_call copies the struct; the arrays, weights, cache and keep list that it points to
 * are borrowed until the last forward of the plan. A forward writes only the output, the kept stages and their times,
 * the cache and the workspace.
 *
 * With a layer:    query (B, T_q, d_q), key (B, T_k, d_kin), value (B, T_k, d_vin), output (B, T_q, d_out).
 *                  key without data: key = query; value without data: value = key, as it must be with kv_rank.
 * Without a layer: query (B, T_q, h, d_k), key (B, T_k, h_kv, d_k), value (B, T_k, h_kv, d_v), all given; there is
 *                  no output projection: output is (B, T_q, h, d_v) or (B, T_q, h*d_v), the same numbers as heads.
 * mha_rows and mha_heads make views of the usual layout, mha_view_rows and mha_view_heads of the others.
 *
 * Inputs are F32 with last stride 1; their rows do not overlap (time stride at least the width), and time strides, in
 * elements, and the number of keys are at most 2^31 - 1. The exact path also takes F64, F16 and BF16, rows that
 * overlap, and larger strides and numbers. Strides of extents below 2 are ignored. Output and kept stages are F32 or
 * F64 with any strides that give each element a place of its own; the blas and fast paths compute in float either way.
 * They and `partial` share no element with each other or with anything the call reads: inputs, masks, tables, weights,
 * cache. Different columns of one tensor may be used. */
typedef struct mha_call {
    mha_view query, key, value;
    mha_view output; /* no data: no output is written */
    mha_semantics semantics;
    /* Weights of a call without a layer: NULL, or weight_count contiguous views of the shapes in layer.h and of
     * any floating type, without data where there is no weight, as for W_Q, W_K, W_V, W_O, b_O, gates and latents.
     * NULL with a layer. A head whose sink is -inf has no sink: its queries that see no key follow empty_rows. A sink
     * of +inf or NaN makes weights, output and lse NaN. */
    const mha_view *weights;
    size_t weight_count; /* how many views `weights` has: MHA_WEIGHT_COUNT of the headers it was compiled with */
    mha_cache *cache; /* may be NULL */
    mha_pages pages;  /* keys and values in pages, instead of key, value and cache; no data: none */
    /* A layer with kv_rank attends to its latents (DeepSeek-V2, section 2.1.2): as
     *   q_n . (norm(c) W_K) = (q_n W_K^T) . norm(c)   and   sum w_j (norm(c_j) W_V) = (sum w_j norm(c_j)) W_V
     * with head i's columns W_K and W_V of W_KVB, the output is that without `absorbed`, up to rounding. All heads
     * share one key head [norm(c), rope(k_r)] of d_k = kv_rank + d_rope features, whose first d_v = kv_rank are the
     * values: so are h_kv, d_k and d_v in the plan and in the stages q, k, v, q_rot, k_rot, present_key and
     * present_value; heads, output and the default scale are as ever. A cache has kv_heads 1, that d_k, and d_v 0:
     * values are not stored next to keys. */
    bool absorbed;
    mha_keep *keep;   /* `keep_count` stages to keep or to time, each at most once; `output` can only be timed */
    size_t keep_count;
    /* No data: none. Or F64 (B, h, T_q, d_v + 2) on the exact path: the softmax of each row over the keys of earlier
     * calls, which this call continues and then writes back. A row is (r, l, a), with sum exp(score) = l e^r and
     * sum exp(score) v = a e^r over the keys so far; before the first call it is (-inf, 0, 0). Weights, lse, heads and
     * output are then those of all keys so far (weights: of this call's keys), and have the bits that one call with
     * all keys gives. d_v is that of the plan. The first call counts what is not a key, the others set keys_only. */
    mha_view partial;
    /* All 0: none. Else, on the exact path, what a kernel of that precision gives: float64, rounded at these points.
     * Not with `partial`, nor with kv_rank. The blas and fast paths compute in BF16, mha_precision_of(MHA_BF16), with
     * sums in float: see the end of precision.h. The matrices and biases of the projections, bias_k and bias_v, a
     * cache and pages must then be BF16, because no weight and no row of earlier calls is rounded. */
    mha_precision precision;
    mha_path path;
    int threads; /* 0: mha_threads_available() */
    uint64_t reserved[16]; /* 0; see mha.h */
} mha_call;

/* A validated call with its path and sizes. It is a plain value, which the caller may copy. */
typedef struct mha_plan {
    mha_path path;           /* the path the forward takes, never AUTO */
    const char *path_reason; /* why it is not the path asked for, or with AUTO not `fast`; "" when it is. Static text */
    size_t B, T_q, T_k;      /* number of sequences; longest lengths of queries and of new keys */
    size_t S, S_extra;       /* longest length of keys, cached ones included; extra rows (S' = S + S_extra) */
    size_t h, h_kv, d_k, d_v, d_out; /* of the attention: see mha_call.absorbed */
    double scale;
    int threads;
    size_t workspace_bytes;
    uint64_t reserved[8]; /* 0; see mha.h */
    union {
        unsigned char bytes[MHA_PLAN_PRIVATE_BYTES];
        double number;
        int64_t integer;
        void *pointer;
    } internal; /* the validated call, for mha_forward */
} mha_plan;

/* Validates a call, chooses its path and computes its sizes. `layer` NULL: Q, K and V are given. The plan borrows the
 * layer, the cache, and all that the call points to: they must stay until the last mha_forward with it, and lengths,
 * positions and offsets must keep the values that were checked, unless mha_plan_advance reads them anew (inputs,
 * weights and masks may change). A forward does not check them again: other values make it read or write outside of
 * arrays. *plan is untouched on error. It checks, in this order, and names the first fault: reserved words; each
 * setting; the inputs, query first; the path and the threads; the weights; the cache, the lengths and the pages;
 * the settings against the inputs; the output and the kept stages; that no memory is written which is read.
 * Errors: MHA_INVALID (a shape or value; the message has the expected and the found one), MHA_UNSUPPORTED (a
 * combination without meaning, or one that only the exact path can compute, see the end of this file). */
MHA_API mha_status mha_plan_call(const mha_layer *layer, const mha_call *call, mha_plan *plan, mha_error *error);

/* Rank (3 or 4) and shape that the view of a stage must have in a planned call; 0, with `shape` untouched, when the
 * call has no such stage. */
MHA_API int mha_plan_stage(const mha_plan *plan, mha_stage stage, size_t shape[4]);

/* Makes the planned call use other memory of the same types, shapes and strides. NULL keeps the present memory; a key
 * that was not given follows the query, a value that was not given follows the key. MHA_INVALID: `output` for a call
 * that was planned without one, a value apart from the key of latent attention; the plan is then untouched. */
MHA_API mha_status mha_plan_move(mha_plan *plan, const void *query, const void *key, const void *value, void *output,
                                 mha_error *error);

/* Makes the plan that of the same call on the rows that its cache, or its pages, hold now: after a forward the plan
 * takes the next token. It gives what mha_plan_call gives for that call, but settings, weights and memory are not
 * checked again. Arrays of lengths, positions, segments and pages are read anew: first write the numbers of the next
 * rows into them. Inputs are read where they were; mha_plan_move gives others. plan->workspace_bytes may grow. The plan
 * is untouched on error: MHA_INVALID (no room in the cache; an array or a kept stage that lacks the new keys, by name;
 * neither cache nor pages), MHA_UNSUPPORTED (`offset`, which is one number for all calls). */
MHA_API mha_status mha_plan_advance(mha_plan *plan, mha_error *error);

/* Runs a planned call; a plan may run any number of times, and in several threads at once when each thread has a copy
 * with its own output and workspace, without cache and keep list. `workspace` has at least plan->workspace_bytes
 * bytes, at any alignment. Allocates nothing. MHA_INVALID, with nothing written: the workspace is too small, or the
 * number of rows in the cache, the instruction set or the packed weights have changed and the call must be planned
 * again. MHA_NO_MEMORY, with nothing written: the memory of the process is limited (`ulimit -v`, `-d`), and OpenBLAS
 * would find none for its own buffers.
 *
 * Fork. A child of fork can use the library at once and gets its own threads; a cache or workspace that the parent was
 * writing has undefined contents in the child. Any thread may fork during a forward, but a signal handler that may
 * interrupt one must not: fork waits, at most one second, until the BLAS calls of this library have returned, because
 * the child would find the locks of the BLAS closed. It does not wait for BLAS calls of other code. A child made during
 * a forward on the blas path sees the BLAS use one thread until the child's first forward on that path is done. */
MHA_API mha_status mha_forward(const mha_plan *plan, void *workspace, size_t workspace_bytes, mha_error *error);

/* The two ends of a forward, for those who attend between them in another way: by parts that are merged (mha_merge),
 * or with heads and keys of other processes. mha_forward_inputs computes the stages q, k, v, q_rot and k_rot that the
 * call keeps; mha_forward_output computes heads W_O + b_O into the call's output from `heads`, (B, T_q, h*d_v) or
 * (B, T_q, h, d_v) of any floating type. Both do not touch the cache and all other stages, and their results have the
 * bits that mha_forward gives. Errors as of mha_forward; MHA_INVALID for heads of another shape or type. */
MHA_API mha_status mha_forward_inputs(const mha_plan *plan, void *workspace, size_t workspace_bytes, mha_error *error);
MHA_API mha_status mha_forward_output(const mha_plan *plan, const mha_view *heads, void *workspace,
                                      size_t workspace_bytes, mha_error *error);

/* Plans a call and runs it once. The workspace comes from the allocator of the layer's table, or without a layer from
 * the default one. Errors as of mha_plan_call, and MHA_NO_MEMORY. */
MHA_API mha_status mha_run(const mha_layer *layer, const mha_call *call, mha_error *error);

/* ---------------------------------------------------------------- paths and bits
 *
 * Limits of the paths. Only the exact path takes inputs of floating types other than F32, caches of F64, rows
 * that overlap, strides and row numbers beyond an int, and scales, softcaps and sigmoid biases beyond float's range;
 * every other call runs on every path, with three exceptions. Only `exact` drops weights: `auto` takes it, the others
 * refuse dropout_keep. MHA_HIDDEN_PROPAGATE and MHA_SIGMOID need whole rows of weights, which only `blas` and `exact`
 * have; `fast` then hands over to `blas` (plan.path, plan.path_reason say it).
 * `fast` never stores scores and weights: where they are kept, the arithmetic of blas computes them in addition.
 *
 * Same bits. On one machine, with one instruction set and one BLAS, a path gives the same bits on every run, for any
 * number of threads, for a batch row among any others, for any strides of inputs and stages, wherever these begin,
 * and whichever stages are kept. For this the bits of the BLAS's SGEMM must not depend on strides and alignment, nor
 * those of its SGEMV where there is a gap between rows: OpenBLAS meets this, and the tests check it. A BLAS must not
 * skip zeros either, as those of GSL, ATLAS and BLIS do: the blas path then loses 0 * NaN, and MHA_HIDDEN_PROPAGATE
 * needs the exact path.
 * The fast path gives a query row the same bits in a call of any number of query rows: a prefill, its chunks and single
 * tokens agree, for given heads and for layers with packed weights. A BLAS multiplies plain weights, and the latents
 * of `absorbed`; it may sum one row in another order than many, so this does not hold there, nor on the blas path.
 * Not promised are the same bits on another path or with packed instead of unpacked weights, nor, but for `partial`,
 * for keys that are cut into several calls.
 *
 * Rounding. The calling thread's rounding mode and treatment of subnormals hold for the threads of the pool, too;
 * bounds and tests assume rounding to nearest. Floating-point traps stay with the calling thread. On the blas path a
 * hidden value is multiplied by a weight of 0, and the sum of such zeros and of products that vanish is 0 of either
 * sign in another rounding mode, or where subnormals are flushed: what hidden rows hold may then change the sign of a
 * zero of the output. It changes nothing else; and nothing at all in rounding to nearest with subnormals, or on the
 * other paths. */

/* Marks the elements that cannot change the output in the parameter table. A key bias adds one number to all scores
 * of a query, and softmax ignores what all its inputs share; unless the biased keys pass a norm, a rotation (which
 * counts for the rotated features only) or a softcap, or compete with a sink, an extra row or softmax-plus-one, or
 * become weights by a sigmoid.
 * `semantics` NULL is plain attention; a new layer is marked for that. Errors: MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_mark_inert(mha_layer *layer, const mha_semantics *semantics, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
