/* Attention itself: what is asked of it (semantics, inputs, kept stages) and the calls that run it. */
#ifndef MHA_ATTENTION_H
#define MHA_ATTENTION_H

#include "mha/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- semantics */

typedef enum mha_mask_kind {
    MHA_MASK_NONE = 0, /* then without values */
    MHA_MASK_ADDITIVE, /* added to the score; -inf hides the key */
    MHA_MASK_KEEPS,    /* true: the key stays visible */
    MHA_MASK_HIDES     /* true: the key is hidden */
} mha_mask_kind;

/* A mask, aligned from the right with (B, h, T_q, S) and broadcast (extents of 1, missing leading
 * extents). A last extent between 2 and S-1 hides the keys it does not reach. Additive masks are
 * F32 or F64, the others BOOL or U8. */
typedef struct mha_mask {
    mha_mask_kind kind;
    mha_view values;
} mha_mask;

typedef enum mha_rope_kind {
    MHA_ROPE_NONE = 0,
    MHA_ROPE_INTERLEAVED, /* rotates features (0,1), (2,3), ... (Meta, GPT-J) */
    MHA_ROPE_HALF_SPLIT   /* rotates features (i, i + dim/2) (NeoX, Hugging Face) */
} mha_rope_kind;

/* y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin, angle = position * base^(-2i/dim): Su et al. 2021.
 * Queries and new keys rotate, after bias and norm. */
typedef struct mha_rope {
    mha_rope_kind kind;
    size_t dim;  /* features rotated, even; 0: d_k. The others are left alone */
    double base; /* 0: 10000 */
    /* I64 (B, T): positions of the new rows. Without: offset + i for query i (see mha_semantics), and the
     * number of keys cached before this call (evicted ones counted) + j for new key j. */
    mha_view q_positions, k_positions; /* k_positions without data: q_positions when T_q = T_k */
    /* F32 or F64: (n, dim/2), indexed by position, or (B, T, dim/2), one row per new row (then T_q = T_k) */
    mha_view cos_table, sin_table;
} mha_rope;

typedef enum mha_empty_rows {
    MHA_EMPTY_ZERO = 0, /* a query that sees no key, no extra row and no sink: weights 0, output b_O, lse -inf */
    MHA_EMPTY_NAN
} mha_empty_rows;

typedef enum mha_hidden_values {
    MHA_HIDDEN_IGNORE = 0, /* a hidden key contributes nothing, whatever its rows hold */
    MHA_HIDDEN_PROPAGATE   /* weight 0 times its value row: NaN and infinity there reach the output, also of
                            * queries that see no key */
} mha_hidden_values;

/* All semantics in one descriptor; all-zero is plain attention: softmax(Q K^T / sqrt(d_k)) V.
 * Order: project, bias, split heads, q/k norm, rotate, append to the cache, append the bias_k/bias_v
 * row, append the zero row, scores * scale, softcap, hide and add, softmax (sinks join the
 * denominator), weights V, merge heads, W_O, b_O. All arrays are borrowed for the call. */
typedef struct mha_semantics {
    bool has_scale; /* scale is meant; otherwise 1/sqrt(d_k) */
    double scale;
    double softcap; /* c > 0: c * tanh(score / c), before anything is hidden or added */

    /* Query i stands at position p = offset + i, key j at first_key + j (first_key is 0 unless a cache
     * has evicted rows). Offset 0 is top-left; S - T_q is bottom-right. When neither field is given the
     * offset is the number of cached keys. */
    bool has_offset;
    int64_t offset;                 /* the same for all batch rows, */
    const int64_t *position_offset; /* or (B), one per batch row; wins when not NULL */
    bool causal;                    /* key at position <= p */
    bool window;                    /* p - window_left <= position <= p + window_right; -1 is open */
    int64_t window_left, window_right;

    const int64_t *kv_lengths; /* (B): key j of row b is hidden iff j >= kv_lengths[b]; counts cached keys */
    mha_mask key_padding;      /* (B, S) */
    bool has_padding_fill;     /* keys that key_padding hides get this finite value added instead */
    double padding_fill;
    mha_mask mask;
    const double *alibi_slopes; /* (h): adds -slope[h] * (p - position of the key) (Press et al. 2022) */

    mha_rope rope;
    double norm_eps; /* of q/k norm; 0: 1e-6 */

    bool zero_row;          /* add_zero_attn: one more key and value of zeros, always visible */
    bool softmax_plus_one;  /* one more exp(0) in the denominator */
    mha_empty_rows empty_rows;
    mha_hidden_values hidden_values;

    /* Ragged batches without padding: sequence b is rows [cu[b], cu[b+1]) of inputs given with batch
     * extent 1. (n_sequences + 1) entries, starting at 0, never decreasing. Per-row arrays above count
     * sequences as batch rows. cu_seqlens_k NULL: as cu_seqlens_q. */
    size_t n_sequences;
    const int64_t *cu_seqlens_q, *cu_seqlens_k;
} mha_semantics;

/* The learned extras of a layer, for callers who have Q, K, V in hand and no layer; contiguous F32 or
 * F64 of the shapes in layer.h, no data where absent. */
typedef struct mha_extras {
    mha_view b_q, b_k, b_v;    /* (h*d_k), (h_kv*d_k), (h_kv*d_v): added before anything else */
    mha_view bias_k, bias_v;   /* (h_kv*d_k), (h_kv*d_v) */
    /* (h), one more logit of each head in the denominator, without a value. -inf adds nothing: that head has no
     * sink, and its queries that see no key follow empty_rows; +inf and NaN make weights, output and lse NaN. */
    mha_view sinks;
    mha_view q_norm, k_norm;   /* (d_k), or (h*d_k) / (h_kv*d_k) for a norm over the row */
} mha_extras;

/* ---------------------------------------------------------------- key/value cache */

/* Projected, rotated keys and values of earlier calls, (B, h_kv, capacity, d). A forward with a cache
 * appends its new rows, then attends to all rows. One forward at a time may use a cache. */
typedef struct mha_cache mha_cache;

typedef struct mha_cache_spec {
    size_t batch, kv_heads, d_k, d_v;
    size_t capacity; /* rows; appending beyond it is MHA_INVALID, unless `window` */
    size_t window;   /* > 0: before rows are appended, rows older than the last `window` are evicted if
                        there is no room; capacity must be at least window */
    mha_dtype dtype; /* F32; F16 or BF16, to which appended rows are rounded, to nearest even (what is too large for
                        F16, from 65520, becomes infinite); F64 for the exact path. All else is computed as ever */
} mha_cache_spec;

MHA_API mha_status mha_cache_create(const mha_cache_spec *spec, const mha_allocator *allocator, mha_cache **cache,
                                    mha_error *error);
MHA_API void mha_cache_destroy(mha_cache *cache);
MHA_API size_t mha_cache_length(const mha_cache *cache); /* rows held */
MHA_API size_t mha_cache_first(const mha_cache *cache);  /* position of row 0: rows evicted so far */
MHA_API size_t mha_cache_bytes(const mha_cache *cache);
MHA_API void mha_cache_clear(mha_cache *cache);
/* Forgets the newest rows until `length` are held; nothing happens when there are no more than that. */
MHA_API void mha_cache_truncate(mha_cache *cache, size_t length);
/* The rows held, (B, h_kv, length, d). Valid until the next append, load, clear or destroy. */
MHA_API mha_view mha_cache_keys(const mha_cache *cache);
MHA_API mha_view mha_cache_values(const mha_cache *cache);
/* Replaces the content by given rows, (B, h_kv, P, d_k) and (B, h_kv, P, d_v), any plain float dtype. */
MHA_API mha_status mha_cache_load(mha_cache *cache, const mha_view *keys, const mha_view *values, mha_error *error);

/* ---------------------------------------------------------------- stages */

/* Code, name, in the order data flows. S' = S plus the rows of bias_kv and zero_row. In a ragged batch
 * B is the number of sequences, T_q and S' the longest; what lies beyond a sequence's own length is 0.
 *   q (B,T_q,h*d_k)  k (B,T_k,h_kv*d_k)  v (B,T_k,h_kv*d_v)   after bias, before norm and rotation
 *   q_rot k_rot      after norm and rotation; ragged: q, k, v, q_rot, k_rot, heads, output stay packed (1,total,..)
 *   scores (B,h,T_q,S')   scale * Q K^T, hidden keys too      capped   after softcap
 *   masked           hidden keys -inf, additive masks and ALiBi added       weights   after softmax
 *   weights_mean (B,T_q,S')   mean of weights over the heads
 *   heads (B,T_q,h*d_v)   concat, before W_O                  output (B,T_q,d_out)
 *   present_key (B,h_kv,S,d_k)  present_value (B,h_kv,S,d_v)  what the cache holds afterwards, or would
 *   lse (B,h,T_q)    log sum exp of the visible masked scores, sinks and plus-one included */
#define MHA_STAGE_LIST(X)                                                                          \
    X(MHA_STAGE_Q, "q")                                                                            \
    X(MHA_STAGE_K, "k")                                                                            \
    X(MHA_STAGE_V, "v")                                                                            \
    X(MHA_STAGE_Q_ROT, "q_rot")                                                                    \
    X(MHA_STAGE_K_ROT, "k_rot")                                                                    \
    X(MHA_STAGE_SCORES, "scores")                                                                  \
    X(MHA_STAGE_CAPPED, "capped")                                                                  \
    X(MHA_STAGE_MASKED, "masked")                                                                  \
    X(MHA_STAGE_WEIGHTS, "weights")                                                                \
    X(MHA_STAGE_WEIGHTS_MEAN, "weights_mean")                                                      \
    X(MHA_STAGE_HEADS, "heads")                                                                    \
    X(MHA_STAGE_OUTPUT, "output")                                                                  \
    X(MHA_STAGE_PRESENT_KEY, "present_key")                                                        \
    X(MHA_STAGE_PRESENT_VALUE, "present_value")                                                    \
    X(MHA_STAGE_LSE, "lse")

typedef enum mha_stage {
#define MHA_STAGE_ENUM(code, name) code,
    MHA_STAGE_LIST(MHA_STAGE_ENUM)
#undef MHA_STAGE_ENUM
    MHA_STAGE_COUNT
} mha_stage;

MHA_API const char *mha_stage_name(mha_stage stage);             /* "weights"; "?" outside the list */
MHA_API bool mha_stage_find(const char *name, mha_stage *stage); /* false: no stage of that name */

/* ---------------------------------------------------------------- calls */

#define MHA_PATH_LIST(X)                                                                           \
    X(MHA_PATH_AUTO, "auto")   /* the fastest that supports the request */                         \
    X(MHA_PATH_FAST, "fast")   /* packed projections, streaming core; see below */                 \
    X(MHA_PATH_BLAS, "blas")   /* SGEMM for projections and per-head products: the paper spelled out */ \
    X(MHA_PATH_EXACT, "exact") /* float64, plain loops: the judge */

typedef enum mha_path {
#define MHA_PATH_ENUM(code, name) code,
    MHA_PATH_LIST(MHA_PATH_ENUM)
#undef MHA_PATH_ENUM
    MHA_PATH_COUNT
} mha_path;

MHA_API const char *mha_path_name(mha_path path);             /* "blas"; "?" outside the list */
MHA_API bool mha_path_find(const char *name, mha_path *path); /* false: no path of that name */

/* Only the exact path takes inputs of other floats than F32, caches of F64, rows that overlap or whose stride or number
 * is beyond an int, and scales and caps beyond the range of float; else no path refuses what another can do. One request
 * goes another way than asked: with MHA_HIDDEN_PROPAGATE `fast` hands over to `blas`, which holds the weights whole;
 * plan.path and plan.path_reason say so. Where scores or weights are kept, `fast` stays `fast`: they are computed beside it (see mha_call).
 *
 * Same answer: on one machine, with one instruction set and one BLAS, a path gives the same bits on every run,
 * for any number of threads, for a batch row alone or among any others, for any strides and alignment of inputs
 * and stages, and whatever else is kept. What the blas path asks of a BLAS for this is that the bits of an SGEMM
 * do not depend on strides and alignment, nor those of an SGEMV whose rows have a gap between them; OpenBLAS
 * keeps to that, and the tests hold it to it. Nor may a BLAS skip zeros, as those of GSL, ATLAS and BLIS do: 0 * NaN is
 * then lost on the blas path, and MHA_HIDDEN_PROPAGATE needs the exact one. Not promised: the same bits on another path,
 * with packed weights instead of unpacked, or for a sequence cut into several calls. How the calling thread rounds and
 * whether it flushes subnormals to zero holds for the threads that help as well; bounds and tests are for rounding to
 * nearest.
 * Floating-point traps stay the calling thread's own.
 *
 * One forward. Everything is borrowed; nothing but `stages`, the cache and the workspace is written.
 *
 * With a layer:    query (B, T_q, d_q), key (B, T_k, d_kin), value (B, T_k, d_vin).
 *                  key without data: key = query; value without data: value = key.
 * Without a layer: query (B, T_q, h, d_k), key (B, T_k, h_kv, d_k), value (B, T_k, h_kv, d_v), all given;
 *                  there is no output projection: output is (B, T_q, h, d_v) or (B, T_q, h*d_v), the
 *                  same numbers as heads. mha_view_heads makes such views of any layout.
 * Inputs are F32; the exact path takes any plain float dtype. The last stride is 1; rows do not overlap
 * (time stride at least their width) but for the exact path. The strides of extents below 2 mean nothing and may be any
 * numbers. For all paths but the exact one time strides, in elements, and the number of keys are at most 2^31 - 1.
 *
 * stages[s] with data is filled, F32 or F64 (the blas and fast paths compute in float all the same);
 * any strides, so output can be in any layout; no number depends on what else is kept. The fast path never
 * holds scores and weights: where these are kept they are computed beside it, by the blas path's arithmetic.
 * stages[MHA_STAGE_OUTPUT] may be absent. Stages must not
 * overlap each other or the inputs. */
typedef struct mha_call {
    mha_view query, key, value;
    mha_semantics semantics;
    mha_extras extras; /* without a layer only; with one its weights are used */
    mha_cache *cache;  /* may be NULL */
    mha_view stages[MHA_STAGE_COUNT];
    mha_path path;
    int threads; /* 0: mha_threads_available() */
    double *stage_ms; /* NULL, or MHA_STAGE_COUNT numbers: milliseconds spent on each stage; those of scores to heads
                         are counted together under heads; projections made together share their time by size. The
                         exact path leaves it alone */
} mha_call;

/* What a call will do: the path it takes, the sizes it works on. */
typedef struct mha_plan {
    mha_path path;           /* really taken; never AUTO */
    const char *path_reason; /* why not the one asked for, or for AUTO the fastest; "" when it is. Static text */
    size_t B, T_q, T_k;      /* sequences; the longest query and new key lengths */
    size_t S, S_extra;       /* longest key length with cache; extra rows (S' = S + S_extra) */
    size_t h, h_kv, d_k, d_v, d_out;
    double scale;
    int threads;
    size_t workspace_bytes;
    int stage_rank[MHA_STAGE_COUNT];
    size_t stage_shape[MHA_STAGE_COUNT][4]; /* what each stage's view must have; 0 behind its rank */
} mha_plan;

/* Validates a call (stages need not be set yet) and says what it takes. `layer` NULL: Q, K, V given.
 * Errors: MHA_INVALID (shape, value: named with expected and found), MHA_UNSUPPORTED (a combination
 * without meaning, or numbers that only the exact path holds; see mha_path). */
MHA_API mha_status mha_plan_call(const mha_layer *layer, const mha_call *call, mha_plan *plan, mha_error *error);

/* Runs it. `workspace` has at least plan.workspace_bytes bytes at any alignment; one per concurrent
 * call. Allocates nothing. Errors as mha_plan_call; then no stage and no cache was touched.
 *
 * Any thread may fork meanwhile, but not a signal's handler that may interrupt a forward: the child can use the library
 * at once, with threads of its own (a cache or a workspace that others were writing holds whatever it held). For this
 * fork waits, at most a second, until calls of the BLAS made here are over, as a BLAS has locks of its own which a child
 * would find closed; for calls that others make of the same BLAS nobody waits. A child made during a forward on the blas
 * path sees the BLAS on one thread until its first forward there is done. */
MHA_API mha_status mha_forward(const mha_layer *layer, const mha_call *call, void *workspace, size_t workspace_bytes,
                               mha_error *error);

/* Rotation alone: rotates x (B, T, h, d) of F32 or F64 into y of the same shape (y may be x). In float64
 * when `exact`. Without positions or per-row tables, row t stands at first_position + t; MHA_INVALID when that is beyond
 * 2^61 in size. */
MHA_API mha_status mha_rotate(const mha_view *x, const mha_rope *rope, int64_t first_position, bool exact,
                              const mha_view *y, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
