/* Laboratory. Error bounds of gradients, and the known bugs that produce given gradients. */
#ifndef MHA_GRADIENTS_H
#define MHA_GRADIENTS_H

#include "mha/backward.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the error bound of a correct backward, element by element, to each of gradients->of and of the stages to keep:
 * the largest distance from mha_backward without a precision. The bound holds for arithmetic of unit roundoff `unit`
 * (2^-24 for float, 2^-53 for double) that rounds to nearest. Sums of different numbers are taken to have independent
 * roundings; a correct backward exceeds the bound with a probability below 1e-9. The bound allows
 *   - any order of summation, and both sums for D;
 *   - P from scores and lse, or from a softmax;
 *   - numbers below the least normal number kept or replaced by zero;
 *   - roundings at the points of gradients->precision.
 * The kernel reads the inputs, d_output and d_lse in its own type; it rounds wider numbers first where it projects,
 * rotates or scales rows. The bound is infinite where a number on the way may leave the range of the type. The bound of
 * a stage is NaN where a correct backward may have any number. src/verify/backward/bound.c derives the bound;
 * bound_norm.c has norms, bound_layer.c layers, bound_stages.c stages.
 * Errors: those of mha_backward; MHA_INVALID: a unit that is not between 0 and 1. */
MHA_API mha_status mha_gradient_bound(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients,
                                      double unit, mha_error *error);

/* A named way to get gradients wrong. */
typedef struct mha_gradient_bug {
    const char *name; /* "d-missing" */
    const char *help; /* one line */
    bool wide;        /* rounding at a point, or a bug of a forward in P: sought when nothing else explains */
} mha_gradient_bug;

/* An explanation of gradients: a row of the list, two of them ("d-missing and scale-missing-dk"), a row in places or
 * with what else it changes, or a change without a name ("unnamed"), which `help` then says. */
typedef struct mha_gradient_match {
    char name[128];
    char help[512]; /* one line */
} mha_gradient_match;

/* The rows of the list of bugs, in the order of the data flow; NULL past the last. */
MHA_API const mha_gradient_bug *mha_gradient_bug_at(size_t index);

/* Finds the bugs that produce recorded gradients. `found` has any of the gradients in found->of, and d_output,
 * d_lse and precision of the backward that computed them; the function only reads them. A bug that can matter in this
 * call is computed in float64. It explains the gradients when each element is within the bound of a backward with
 * that bug, in arithmetic of unit roundoff `unit`, plus 1,024 roundoffs of the gradient's largest number.
 *
 * `list` receives the first `room` bugs that explain the gradients, and *count their number. If no bug explains all
 * gradients, bugs count that produce all wrong gradients and would change correct ones: the bug is in one of two
 * kernels, that of dQ or that of dK and dV (in some heads; if dQ is correct, up to 131,072 pairs of queries and keys).
 * If no bug does, the function tries bugs for at most about ten seconds: with a P that has its own lse, or a D of its
 * own P; in the batch rows, heads and rows in which gradients are wrong; changes without a name; two bugs at once; and
 * a bug for each of up to four wrong gradients. A ragged batch is then tried as one row with segments.
 * If the gradients are correct, *count is 0 and *right is true. Of wide bugs only the first is listed. Stages in
 * found->keep, F32 or F64, must match as well, except those that are correct.
 * Errors: those of mha_gradient_bound. */
MHA_API mha_status mha_gradient_explain(const mha_layer *layer, const mha_call *call, const mha_gradients *found,
                                        double unit, mha_gradient_match *list, size_t room, size_t *count,
                                        bool *right, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
