/* Attention itself: what is asked of it (semantics, inputs, kept stages) and the calls that run it. */
#ifndef MHA_ATTENTION_H
#define MHA_ATTENTION_H

#include "mha/cache.h"
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
    /* A scale, offset or padding_fill other than 0 is meant; its has_ switch is needed only to mean 0 itself. */
    bool has_scale;
    double scale;   /* without: 1/sqrt(d_k) */
    double softcap; /* c > 0: c * tanh(score / c), before anything is hidden or added */

    /* Query i stands at position p = offset + i, key j at first_key + j (first_key is 0 unless a cache
     * has evicted rows). Offset 0 is top-left; S - T_q is bottom-right. When neither field is given the
     * offset is the number of cached keys. */
    bool has_offset;
    int64_t offset;                 /* the same for all batch rows, */
    const int64_t *position_offset; /* or (B), one per batch row; wins when not NULL */
    bool causal;                    /* key at position <= p */
    bool window;                    /* p - window_left <= position <= p + window_right; -1 is open. Without: no window, */
    int64_t window_left, window_right; /* and counts other than 0 and -1 are refused */

    const int64_t *kv_lengths; /* (B): key j of row b is hidden iff j >= kv_lengths[b]; counts cached keys */
    mha_mask key_padding;      /* (B, S) */
    bool has_padding_fill;     /* keys that key_padding hides get this finite value added instead */
    double padding_fill;
    mha_mask mask;
    const double *alibi_slopes; /* (h): adds -slope[h] * (p - position of the key) (Press et al. 2022) */

    mha_rope rope; /* its other fields are refused without a kind */
    double norm_eps; /* of q/k norm; 0: 1e-6 */

    bool zero_row;          /* add_zero_attn: one more key and value of zeros, always visible */
    bool softmax_plus_one;  /* one more exp(0) in the denominator */
    mha_empty_rows empty_rows;
    mha_hidden_values hidden_values;

    /* Ragged batches without padding: sequence b is rows [cu[b], cu[b+1]) of inputs given with batch
     * extent 1. (n_sequences + 1) entries, starting at 0, never decreasing. Without cu_seqlens_q the other
     * two are refused. Per-row arrays above count sequences as batch rows. cu_seqlens_k NULL: as cu_seqlens_q. */
    size_t n_sequences;
    const int64_t *cu_seqlens_q, *cu_seqlens_k;
} mha_semantics;

/* ---------------------------------------------------------------- stages */

/* In the order data flows. S' = S plus the rows of bias_kv and zero_row. In a ragged batch B is the number of sequences,
 * T_q and S' the longest; what lies beyond a sequence's own length is 0, and q, k, v, q_rot, k_rot, heads and output stay
 * packed (1, total, ...). */
typedef enum mha_stage {
    MHA_STAGE_Q,             /* (B, T_q, h*d_k)      after bias, before norm and rotation */
    MHA_STAGE_K,             /* (B, T_k, h_kv*d_k) */
    MHA_STAGE_V,             /* (B, T_k, h_kv*d_v) */
    MHA_STAGE_Q_ROT,         /* (B, T_q, h*d_k)      after norm and rotation */
    MHA_STAGE_K_ROT,         /* (B, T_k, h_kv*d_k) */
    MHA_STAGE_SCORES,        /* (B, h, T_q, S')      scale * Q K^T, of hidden keys too */
    MHA_STAGE_CAPPED,        /* (B, h, T_q, S')      after softcap */
    MHA_STAGE_MASKED,        /* (B, h, T_q, S')      hidden keys -inf, additive masks and ALiBi added */
    MHA_STAGE_WEIGHTS,       /* (B, h, T_q, S')      after softmax */
    MHA_STAGE_WEIGHTS_MEAN,  /* (B, T_q, S')         mean of the weights over the heads */
    MHA_STAGE_HEADS,         /* (B, T_q, h*d_v)      the heads side by side, before W_O */
    MHA_STAGE_OUTPUT,        /* (B, T_q, d_out) */
    MHA_STAGE_PRESENT_KEY,   /* (B, h_kv, S, d_k)    what a cache holds afterwards, or would; not in a ragged batch */
    MHA_STAGE_PRESENT_VALUE, /* (B, h_kv, S, d_v) */
    MHA_STAGE_LSE,           /* (B, h, T_q)          log sum exp of the visible masked scores, sinks and plus-one included */
    MHA_STAGE_COUNT
} mha_stage;

MHA_API const char *mha_stage_name(mha_stage stage);             /* "weights"; "?" outside the list */
MHA_API bool mha_stage_find(const char *name, mha_stage *stage); /* false: no stage of that name */

/* ---------------------------------------------------------------- calls */

enum { MHA_PLAN_PRIVATE_BYTES = 6144 };

typedef enum mha_path {
    MHA_PATH_AUTO,  /* the fastest that supports the request */
    MHA_PATH_FAST,  /* packed projections, streaming core; see "paths and bits" below */
    MHA_PATH_BLAS,  /* SGEMM for projections and per-head products: the paper spelled out */
    MHA_PATH_EXACT, /* float64, plain loops: the judge */
    MHA_PATH_COUNT
} mha_path;

MHA_API const char *mha_path_name(mha_path path);             /* "blas"; "?" outside the list */
MHA_API bool mha_path_find(const char *name, mha_path *path); /* false: no path of that name */

/* One stage that a forward keeps, or only times. */
typedef struct mha_keep {
    mha_stage stage;
    mha_view view; /* where the stage goes: F32 or F64, of the stage's shape (mha_plan_stage), any strides. Without data
                    * the stage is only timed */
    double ms;     /* written by the forward: milliseconds spent on the stage. Those of scores to heads are counted
                    * together under heads; projections made together share their time by size; 0 on the exact path */
} mha_keep;

/* One call of attention. The struct itself is copied by mha_plan_call; what it points to (arrays, weights, cache, keep
 * list) is borrowed until the last forward of the plan. Only the output, the kept stages, the cache and the workspace
 * are written.
 *
 * With a layer:    query (B, T_q, d_q), key (B, T_k, d_kin), value (B, T_k, d_vin), output (B, T_q, d_out).
 *                  key without data: key = query; value without data: value = key.
 * Without a layer: query (B, T_q, h, d_k), key (B, T_k, h_kv, d_k), value (B, T_k, h_kv, d_v), all given; there is
 *                  no output projection: output is (B, T_q, h, d_v) or (B, T_q, h*d_v), the same numbers as heads.
 * mha_rows and mha_heads make views of the usual layout, mha_view_rows and mha_view_heads of the others.
 *
 * Inputs are F32; the exact path takes any plain float type. Their last stride is 1, and their rows do not overlap
 * (time stride at least their width) but for the exact path. The strides of extents below 2 mean nothing and may be any
 * numbers. For all paths but the exact one time strides, in elements, and the number of keys are at most 2^31 - 1.
 * Output and kept stages are F32 or F64 with any strides; the blas and fast paths compute in float all the same. They
 * share no memory with each other nor with anything the call reads: inputs, masks, tables, weights, cache. Columns of
 * one packed tensor are apart. */
typedef struct mha_call {
    mha_view query, key, value;
    mha_view output; /* no data: no output is written */
    mha_semantics semantics;
    /* The learned weights beside Q, K and V for a call without a layer: NULL, or MHA_WEIGHT_COUNT views of the shapes
     * in layer.h, contiguous, of any of a layer's types, no data where absent; W_Q, W_K, W_V, W_O and b_O have none.
     * With a layer NULL. A sink of -inf adds nothing: that head has no sink, and its queries that see no key follow
     * empty_rows; a sink of +inf or NaN makes weights, output and lse NaN. */
    const mha_view *weights;
    mha_cache *cache; /* may be NULL */
    mha_keep *keep;   /* `keep_count` stages to keep or to time, each at most once; `output` only to be timed */
    size_t keep_count;
    mha_path path;
    int threads; /* 0: mha_threads_available() */
} mha_call;

/* What a call will do: the path it takes, the sizes it works on. The caller holds it and may copy it. */
typedef struct mha_plan {
    mha_path path;           /* really taken; never AUTO */
    const char *path_reason; /* why not the one asked for, or for AUTO the fastest; "" when it is. Static text */
    size_t B, T_q, T_k;      /* sequences; the longest query and new key lengths */
    size_t S, S_extra;       /* longest key length with cache; extra rows (S' = S + S_extra) */
    size_t h, h_kv, d_k, d_v, d_out;
    double scale;
    int threads;
    size_t workspace_bytes;
    union {
        unsigned char bytes[MHA_PLAN_PRIVATE_BYTES];
        double number;
        int64_t integer;
        void *pointer;
    } internal; /* the validated call, for mha_forward */
} mha_plan;

/* Validates a call, lays it out and says what it takes. `layer` NULL: Q, K, V given. *plan is untouched on error.
 * Errors: MHA_INVALID (shape, value: named with expected and found), MHA_UNSUPPORTED (a combination
 * without meaning, or numbers that only the exact path holds; see mha_path). */
MHA_API mha_status mha_plan_call(const mha_layer *layer, const mha_call *call, mha_plan *plan, mha_error *error);

/* Rank (3 or 4) and shape of a stage of a planned call, contiguous or not the shape its view must have; rank 0 and
 * nothing in `shape` when the call has no such stage. */
MHA_API int mha_plan_stage(const mha_plan *plan, mha_stage stage, size_t shape[4]);

/* The same call on other memory of the same types, shapes and strides. NULL keeps what the plan has; a key or value
 * that was not given follows the query or the key. MHA_INVALID: output for a call that was planned without one; the
 * plan is then untouched. */
MHA_API mha_status mha_plan_move(mha_plan *plan, const void *query, const void *key, const void *value, void *output,
                                 mha_error *error);

/* Runs a planned call, any number of times: one plan may run in several threads at once when each has a copy with an
 * output and a workspace of its own, and no cache and no keep list. `workspace` has at least plan->workspace_bytes bytes
 * at any alignment. Allocates nothing. MHA_INVALID: the workspace is too small, or something the plan depends on has
 * changed since (rows in the cache, the instruction set, packed weights) and the call must be planned again; then
 * nothing is written.
 *
 * Any thread may fork meanwhile, but not a signal's handler that may interrupt a forward: the child can use the library
 * at once, with threads of its own (a cache or a workspace that others were writing holds whatever it held). For this
 * fork waits, at most a second, until calls of the BLAS made here are over, as a BLAS has locks of its own which a child
 * would find closed; for calls that others make of the same BLAS nobody waits. A child made during a forward on the blas
 * path sees the BLAS on one thread until its first forward there is done. */
MHA_API mha_status mha_forward(const mha_plan *plan, void *workspace, size_t workspace_bytes, mha_error *error);

/* Plans a call and runs it once, with a workspace from the allocator of the layer's table, or the default one without a
 * layer. Errors as of mha_plan_call, and MHA_NO_MEMORY. */
MHA_API mha_status mha_run(const mha_layer *layer, const mha_call *call, mha_error *error);

/* ---------------------------------------------------------------- paths and bits
 *
 * Which path takes what. Only the exact path takes inputs of other floats than F32, caches of F64, rows that overlap or
 * whose stride or number is beyond an int, and scales and caps beyond the range of float; else no path refuses what another can do. One call goes another way
 * than asked: with MHA_HIDDEN_PROPAGATE `fast` hands over to `blas`, which holds the weights whole; plan.path and
 * plan.path_reason say so. The fast path never holds scores and weights: where these are kept they are computed beside
 * it, by the blas path's arithmetic, and `fast` stays `fast`.
 *
 * Same answer. On one machine, with one instruction set and one BLAS, a path gives the same bits on every run, for any
 * number of threads, for a batch row alone or among any others, for any strides and alignment of inputs and stages, and
 * whatever else is kept. What the blas path asks of a BLAS for this is that the bits of an SGEMM do not depend on
 * strides and alignment, nor those of an SGEMV whose rows have a gap between them; OpenBLAS keeps to that, and the tests
 * hold it to it. Nor may a BLAS skip zeros, as those of GSL, ATLAS and BLIS do: 0 * NaN is then lost on the blas path, and
 * MHA_HIDDEN_PROPAGATE needs the exact one. Not promised: the same bits on another path, with packed weights instead of unpacked, or for a sequence
 * cut into several calls.
 *
 * Rounding. How the calling thread rounds and whether it flushes subnormals to zero holds for the threads that help as
 * well; bounds and tests are for rounding to nearest. Floating-point traps stay the calling thread's own. */

/* Finds the elements that cannot change the output, and marks them in the table: the key bias adds one
 * number to all scores of a query, which softmax does not see. Not so where rotation (on the features it
 * turns), a key norm or softcap comes after it, nor with sinks, a learned or zero extra row, or
 * softmax-plus-one beside the real keys. `semantics` NULL is plain attention, which is what a new layer
 * is marked for. Errors: MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_mark_inert(mha_layer *layer, const mha_semantics *semantics);

#ifdef __cplusplus
}
#endif
#endif
