/* Backward: the gradients of a call of attention, in float64. */
#ifndef MHA_BACKWARD_H
#define MHA_BACKWARD_H

#include "mha/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gradients of a call, each named after its input: "query", "mask", "sinks". */
typedef enum mha_gradient {
    MHA_D_QUERY,        /* as call->query: (B, T_q, h, d_k), with a layer (B, T_q, d_q) */
    MHA_D_KEY,          /* as call->key: (B, T_k, h_kv, d_k); of grouped heads the sum over the group. With a layer
                         * (B, T_k, d_kin); a key that was left out has none, and adds its own to that of the query */
    MHA_D_VALUE,        /* as call->value: (B, T_k, h_kv, d_v), with a layer (B, T_k, d_vin); likewise, with the key */
    MHA_D_MASK,         /* of an additive mask, in its shape: summed where it was broadcast, 0 where it hides */
    MHA_D_KEY_PADDING,  /* of additive key padding, likewise */
    MHA_D_ALIBI_SLOPES, /* (h) */
    MHA_D_PAST_KEY,     /* of the rows in the cache before the call, (B, h_kv, P, d_k), as mha_cache_read gives them; 0
                         * for rows that the call evicts */
    MHA_D_PAST_VALUE,   /* likewise, (B, h_kv, P, d_v) */
    MHA_D_PAGE_KEYS,    /* as call->pages.keys, (pages, page_size, h_kv, d_k): of a page that sequences share the sum
                         * over them, 0 for rows that hold no key */
    MHA_D_PAGE_VALUES,  /* likewise, (pages, page_size, h_kv, d_v) */
    MHA_D_WEIGHTS,      /* MHA_D_WEIGHTS + w: of weight w of the call or of its layer, in its shape */
    MHA_GRADIENT_COUNT = MHA_D_WEIGHTS + MHA_WEIGHT_COUNT,
    MHA_GRADIENT_ROOM = MHA_D_WEIGHTS + MHA_WEIGHT_ROOM /* no version has more */
} mha_gradient;

MHA_API const char *mha_gradient_name(mha_gradient gradient); /* "query"; "?" outside the list */

/* The stages of a backward: what it makes on its way from the gradient of the output to those of the inputs, in the
 * order of its equations (src/attention/core/backward/backward.c). All but row_sums are gradients of a stage of the
 * forward; P itself is the forward's stage weights. Each has the shape of a stage of the forward, also in a ragged
 * batch. An absorbed call has the stages of the same call without `absorbed`. Elements beyond the end of a shorter
 * sequence are 0. */
typedef enum mha_backward_stage {
    MHA_BACKWARD_D_HEADS,   /* as heads, (B, T_q, h*d_v)    dO */
    MHA_BACKWARD_D_WEIGHTS, /* as weights, (B, h, T_q, S')  dP = dO V^T; 0 where the key is hidden; a kernel
                             *                              may make any number */
    MHA_BACKWARD_ROW_SUMS,  /* as lse, (B, h, T_q)          D = sum_j P dP = dO . O; none of a sigmoid; 0 where a query
                             *                              sees no key: a kernel may give any number */
    MHA_BACKWARD_D_MASKED,  /* as masked, (B, h, T_q, S')   dZ = P (dP - D + dlse), of the scores with all that is
                             *                              added to them; 0 where the key is hidden */
    MHA_BACKWARD_D_SCORES,  /* as scores, (B, h, T_q, S')   dS, of scale * Q K^T, after the softcap */
    MHA_BACKWARD_D_Q_ROT,   /* as q_rot, (B, T_q, h*d_k)    dQ, of queries as they are attended to */
    MHA_BACKWARD_D_K_ROT,   /* as k_rot, (B, T_k, h_kv*d_k) dK, summed over the heads that share it */
    MHA_BACKWARD_D_V,       /* as v, (B, T_k, h_kv*d_v)     dV, likewise */
    MHA_BACKWARD_STAGE_COUNT
} mha_backward_stage;

/* Properties of a stage of a backward in every call. */
typedef struct mha_backward_stage_info {
    const char *name;    /* "d_scores" */
    const char *meaning; /* one line, with its equation */
    const char *foreign; /* names in other programs, separated by blanks, for messages */
    mha_stage like;      /* the stage of the forward whose shape it has */
} mha_backward_stage_info;

MHA_API const mha_backward_stage_info *mha_backward_stage_at(mha_backward_stage stage); /* NULL outside the list */

/* One stage that a backward keeps. */
typedef struct mha_backward_keep {
    mha_backward_stage stage;
    mha_view view; /* memory for it: F32 or F64, of its shape (mha_backward_stage_shape), with any strides. No data: not
                    * wanted */
} mha_backward_keep;

/* The type to which a backward of low precision rounds at each point: F16 or BF16; MHA_F32, which is 0, stands for no
 * rounding beyond that of float32. */
typedef struct mha_backward_precision {
    mha_dtype scores;        /* of the forward, at the points of mha_precision.scores */
    mha_dtype weights;       /* P, wherever it is read */
    mha_dtype probabilities; /* P where it meets dO */
    mha_dtype output;        /* O in D = rowsum(dO O) */
    mha_dtype d_weights;     /* dP */
    mha_dtype d_scores;      /* dS where it meets Q and K, and the gradients of what is added to scores */
    mha_dtype sums;          /* every partial sum of dQ, dK and dV */
    mha_dtype gradients;     /* what goes out, of one head and of all that share it */
    uint32_t block_rows;     /* n > 0: partial sums are rounded to `gradients`, too, after each block of n keys (dQ) or
                              * n queries (dK, dV) but the last; PyTorch does this on CPUs, with n from 32 to 256 */
    mha_dtype reserved[7];   /* 0; see mha.h */
} mha_backward_precision;

/* The rounding of a fused kernel (FlashAttention-2): probabilities, output, d_scores and gradients of F16 or BF16,
 * all else in float32. All MHA_F32 for another type. */
MHA_API mha_backward_precision mha_backward_precision_of(mha_dtype type);

/* The softmax over all keys, if this call holds only some of them (place.key_offset). With it the gradients
 * of this part of the keys are those of the whole softmax, as a backward computes them that is given O and lse; that
 * of the query is a term of a sum over the parts. */
typedef struct mha_whole_softmax {
    mha_view lse;    /* (B, h, T_q), of all keys. No data: the call has all keys */
    mha_view output; /* (B, T_q, h, d_v), of all keys */
    /* Only for mha_gradient_bound. */
    mha_view sizes;       /* sum_j P_ij |V_jc|, in the shape of output: a forward of the absolute values */
    double lse_error;     /* of MHA_STAGE_LSE, by mha_error_bound of all keys */
    double largest;       /* of all |V_jc| */
    size_t keys;          /* how many there are */
    uint64_t reserved[4]; /* 0; see mha.h */
} mha_whole_softmax;

/* The inputs of a backward, and the destinations of its gradients. With L any number computed from output and lse,
 * d_x is the derivative of L by x: the gradients of output and lse come in, those of what the call reads go out. */
typedef struct mha_gradients {
    mha_view d_output; /* of the call's output: (B, T_q, h, d_v) or (B, T_q, h*d_v), with a layer (B, T_q, d_out); any
                        * floating type and strides */
    mha_view d_lse;    /* of the stage lse: (B, h, T_q), any floating type and strides. No data: 0 */
    mha_view of[MHA_GRADIENT_ROOM]; /* F32 or F64, any strides that give each element a place of its own. No data: not
                                     * wanted. From MHA_GRADIENT_COUNT on without data */
    /* All 0: none. Else what a kernel of that precision gives: float64, rounded at these points. */
    mha_backward_precision precision;
    mha_whole_softmax whole;       /* all 0: the call has all keys */
    const mha_backward_keep *keep; /* `keep_count` stages to keep, each at most once */
    size_t keep_count;
    uint64_t reserved[6]; /* 0; see mha.h */
} mha_gradients;

/* Rank and shape of a gradient of a planned call; 0, with `shape` untouched, when the call has no such gradient. */
MHA_API int mha_gradient_shape(const mha_plan *plan, mha_gradient gradient, size_t shape[4]);

/* Rank and shape of a stage of the backward of a planned call; 0, with `shape` untouched: it has no such stage. */
MHA_API int mha_backward_stage_shape(const mha_plan *plan, mha_backward_stage stage, size_t shape[4]);

/* The gradients of a call, in float64 and plain loops; the equations, with their source, are in
 * src/attention/core/backward/backward.c. The call is given as for mha_run; its path, output and kept stages do not
 * matter. Its forward is that of the exact path, which keeps a (B, h, T_q, S') of weights in F64; the backward takes
 * another five (T_q, S') of one head, and as much as it keeps: stages are kept in float64, those of rows in the type to
 * which a modelled precision stores gradients.
 *
 * A key that is hidden from a query gets nothing from it and gives it nothing, whatever numbers its rows hold; with
 * MHA_HIDDEN_PROPAGATE it meets a weight of 0, as in the forward. A query that sees no key has a gradient of 0, also
 * where MHA_EMPTY_NAN makes its output NaN. Where min(max(x, -c), c) limits a number of q, k or v, its gradient is 0;
 * a number of just c passes it on. Tables of a rotation, positions and numbers of the settings have no gradient here.
 * Gradients and kept stages are written when all of them are known, and then may replace what was read.
 *
 * With a layer they go on through its projections, latents and gate, to its inputs and to all of its weights; that of a
 * weight which the call leaves out is 0, and that of a quantised one is by the numbers that are decoded. `absorbed` has
 * the same gradients.
 *
 * With a cache, which stays as it is, the rows that were in it before the call have gradients of their own, and so have
 * the rows of pages. They are those of the numbers that are attended to: a row that a cache of fewer bits rounds passes
 * its gradient on unchanged. A call of the rows before takes them on as gradients of its keys and values after norm
 * and rotation (MHA_STAGE_K_ROT, MHA_STAGE_V).
 *
 * Errors, with nothing written: as of mha_plan_call on the exact path; MHA_INVALID (a gradient or a stage that the call
 * does not have, a stage twice, another shape or type, words that are reserved); MHA_NO_MEMORY; MHA_UNSUPPORTED:
 * `partial` and a precision, whose gradients are not computed, and latents in a cache or in pages (`absorbed`); a
 * precision of gradients and a part of the keys with a layer; d_lse of a sigmoid, which has no lse, and the lse of a
 * whole one: each of its keys is by itself. */
MHA_API mha_status mha_backward(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients,
                                mha_error *error);

/* Gives every weight of a layer a row for its gradient in the layer's table, filled with zeros: "W_Q.gradient" behind
 * the prefix, of the weight's shape, F32 or F64, derived. Rows of an earlier call are replaced; all go with the layer.
 * Errors: MHA_INVALID (another type), MHA_NO_MEMORY; the layer then has no such rows. */
MHA_API mha_status mha_layer_add_gradients(mha_layer *layer, mha_dtype dtype, mha_error *error);
/* The row of a weight's gradient; NULL: it has none. */
MHA_API mha_tensor *mha_layer_gradient(const mha_layer *layer, mha_weight weight);
/* Lets a backward write the gradients of all weights into their rows: gradients->of has their memory. */
MHA_API void mha_layer_lend_gradients(const mha_layer *layer, mha_gradients *gradients);

#ifdef __cplusplus
}
#endif
#endif
