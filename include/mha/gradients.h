/* Laboratory. Gradients that somebody computed: the bound of a right backward, and the known bugs that give them. */
#ifndef MHA_GRADIENTS_H
#define MHA_GRADIENTS_H

#include "mha/backward.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How far a right backward may lie from mha_backward without a precision: to each of gradients->of, and of the stages
 * to keep, goes, element by element, the bound for arithmetic of unit roundoff `unit` (2^-24 for float, 2^-53 for
 * double), rounding to nearest, with any order of summation, D of either of its two sums, P from scores and lse or as a
 * softmax, numbers below the least normal one kept or taken for zero, and with roundings at the points of
 * gradients->precision. The inputs, d_output and d_lse are what the kernel reads; wider ones are rounded to its type
 * first where rows are projected, rotated or scaled. It is infinite where a number on the way may leave the range of
 * the type, and NaN, of stages alone, where a right backward may have any number. The derivation is in
 * src/verify/backward/bound.c, of norms in bound_norm.c beside it, of layers in bound_layer.c, of stages in
 * bound_stages.c. Errors: as of mha_backward; MHA_INVALID (a unit that is not between 0 and 1). */
MHA_API mha_status mha_gradient_bound(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients,
                                      double unit, mha_error *error);

/* A named way to get gradients wrong. */
typedef struct mha_gradient_bug {
    const char *name; /* "d-missing" */
    const char *help; /* one line */
    bool wide;        /* rounding to a type at a point: it allows much, and is looked at when nothing else explains */
} mha_gradient_bug;

/* The rows of the list of bugs, in the order of the data flow; NULL behind the last. */
MHA_API const mha_gradient_bug *mha_gradient_bug_at(size_t index);

/* Finds the known bugs that give recorded gradients: `found` has these in found->of (any of them; only read), and
 * the d_output, d_lse and precision of the backward that computed them. A bug that can matter in this call is made in
 * float64, and explains the gradients when each of their elements lies within the bound of a backward with that
 * bug, in arithmetic of roundoff `unit`, and 1,024 roundoffs of the gradient's largest number. Writes the first
 * `room` of those that do to `list`, and how many do to *count. Where none does, those that give all gradients that are
 * wrong, while it would change others that are right: a bug in one of two kernels, of dQ or of dK and dV (of given
 * heads, and where dQ is right up to 131,072 pairs of queries and keys). None is looked for where the gradients are
 * right: *count is then 0 and *right is true. Of wide ones only the first that explains is given. Stages in
 * found->keep, F32 or F64 and only read, too, are held against it likewise, but those that are right: a bug is
 * looked for in what is wrong. Errors: as of mha_gradient_bound. */
MHA_API mha_status mha_gradient_explain(const mha_layer *layer, const mha_call *call, const mha_gradients *found,
                                        double unit, const mha_gradient_bug **list, size_t room, size_t *count,
                                        bool *right, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
