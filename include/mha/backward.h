/* Laboratory. Backward: the gradients of a call of attention, in float64. */
#ifndef MHA_BACKWARD_H
#define MHA_BACKWARD_H

#include "mha/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a call has gradients of. The name of one is that of what it is the gradient of: "query", "mask", "sinks". */
typedef enum mha_gradient {
    MHA_D_QUERY,        /* as call->query: (B, T_q, h, d_k) */
    MHA_D_KEY,          /* as call->key: (B, T_k, h_kv, d_k); of grouped heads the sum over the group */
    MHA_D_VALUE,        /* as call->value: (B, T_k, h_kv, d_v); likewise */
    MHA_D_MASK,         /* of an additive mask, in its shape: summed where it was broadcast, 0 where it hides */
    MHA_D_KEY_PADDING,  /* of additive key padding, likewise */
    MHA_D_ALIBI_SLOPES, /* (h) */
    MHA_D_WEIGHTS,      /* MHA_D_WEIGHTS + w: of weight w of the call, in its shape */
    MHA_GRADIENT_COUNT = MHA_D_WEIGHTS + MHA_WEIGHT_COUNT
} mha_gradient;

MHA_API const char *mha_gradient_name(mha_gradient gradient);                 /* "query"; "?" outside the list */
MHA_API bool mha_gradient_find(const char *name, mha_gradient *gradient);     /* false: none of that name */

/* What comes into a backward, and where its gradients go. With L any number that is made of the output and of lse,
 * d_x is the derivative of L by x: the gradients of output and lse come in, those of what the call reads go out. */
typedef struct mha_gradients {
    mha_view d_output; /* of the call's output: (B, T_q, h, d_v) or (B, T_q, h*d_v), any floating type and strides */
    mha_view d_lse;    /* of the stage lse: (B, h, T_q), any floating type and strides. No data: 0 */
    mha_view of[MHA_GRADIENT_COUNT]; /* F32 or F64, any strides that give each element a place of its own. No data:
                                      * not wanted */
    uint64_t reserved[8];            /* 0; see mha.h */
} mha_gradients;

/* Rank and shape of a gradient of a planned call; 0, with `shape` untouched, when the call has no such gradient. */
MHA_API int mha_gradient_shape(const mha_plan *plan, mha_gradient gradient, size_t shape[4]);

/* The gradients of a call, in float64 and plain loops; the equations, with their source, are in
 * src/attention/backward/backward.c. The call is given as for mha_run; its path, output and kept stages do not matter.
 * Its forward is that of the exact path, which keeps a (B, h, T_q, S') of weights in F64; the backward takes another
 * five (T_q, S') of one head.
 *
 * A key that is hidden from a query gets nothing from it and gives it nothing, whatever numbers its rows hold; with
 * MHA_HIDDEN_PROPAGATE it meets a weight of 0, as in the forward. A query that sees no key has a gradient of 0, also
 * where MHA_EMPTY_NAN makes its output NaN. Where min(max(x, -c), c) limits a number of q, k or v, its gradient is 0;
 * a number of just c passes it on. Tables of a rotation, positions and numbers of the settings have no gradient here.
 * Gradients are written when all of them are known, and then may replace what was read.
 *
 * Errors, with nothing written: as of mha_plan_call on the exact path; MHA_INVALID (a gradient that the call does not
 * have, another shape or type, words that are reserved); MHA_NO_MEMORY; MHA_UNSUPPORTED: a layer, a cache, pages,
 * `partial` and a precision, whose gradients are not computed; d_lse of a sigmoid, which has no lse. */
MHA_API mha_status mha_backward(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients,
                                mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
