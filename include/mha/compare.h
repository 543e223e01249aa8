/* Comparing results: the difference of two tensors, and how far rounding may take them apart. */
#ifndef MHA_COMPARE_H
#define MHA_COMPARE_H

#include "mha/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- comparison */

/* Everything about the difference of two tensors, actual a against expected e. NaN equals NaN and an
 * infinity equals the infinity of the same sign: such a pair has difference 0. Any other pair with a
 * NaN or an infinity on either side is infinitely far apart. */
typedef struct mha_difference {
    size_t elements;
    size_t mismatches; /* not |a - e| <= atol + rtol * |e| */
    double max_abs;    /* largest |a - e| */
    double max_rel;    /* largest |a - e| / |e|; infinite where e is 0 and a is not */
    /* Largest number of representable values from a to e: of float64 when both tensors are F64, else of
     * float32 (to which both are rounded). The two zeros are one value. */
    double max_ulp;
    double rms;    /* sqrt(mean((a - e)^2)) */
    double cosine; /* a.e / (|a| |e|) over the pairs finite on both sides; 1 when both norms are 0, 0 when one is */
    /* Where |a - e| - rtol * |e| is largest (then |a - e|, then the first): the element that decides
     * whether the tensors agree. Index in row-major order of the views' shape, rank entries. */
    int rank;
    size_t worst_index[MHA_MAX_RANK];
    double worst_actual, worst_expected;
    size_t nan_actual, nan_expected, inf_actual, inf_expected;
    double tolerance_needed; /* the smallest atol that, with the given rtol, leaves no mismatch */
    double tolerance_factor; /* the smallest factor on both rtol and atol that leaves none; 1 or less: they agree */
} mha_difference;

/* Compares two views of equal shape and any plain floating dtype (integers and BOOL are compared as
 * numbers). Errors: MHA_INVALID (shapes differ, both named; a negative or NaN tolerance),
 * MHA_UNSUPPORTED (a quantised type). */
MHA_API mha_status mha_compare(const mha_view *actual, const mha_view *expected, double rtol, double atol,
                               mha_difference *difference, mha_error *error);

/* ---------------------------------------------------------------- the error bound */

/* bound[s]: how far any element of stage s may lie from its exact value when the call is computed with unit roundoff
 * `unit` (2^-24 for float, 2^-53 for double), rounding to nearest, with subnormals kept, in any order of summation.
 * Derived once, in src/verify/tolerance/error_bound.c, from the sizes of the numbers that go in; they are measured, with
 * one float64 forward inside. Infinite when a number on the way to the stage (a projection, a score, a sum of weighted
 * values) may exceed the range of the type.
 *
 * The bound speaks of elements whose exact value is finite, and of the sizes of finite numbers. An element whose exact
 * value is infinite or NaN is found infinite or NaN, but not always the same: a visible key with an infinite value and
 * a weight that rounds to 0 gives 0 * inf, NaN, where the exact value is infinite. With a cache of 16 bits the bound
 * holds against both exact values that one may mean: attention over the exact rows, and over the exact rows rounded to
 * 16 bits.
 *
 * The call is given as it will be
 * run: a cache holds the rows from before it and has room for the new ones; it is read, not appended to. Which stages
 * are kept, the path and the threads do not matter. Errors: as mha_plan_call, MHA_NO_MEMORY. */
MHA_API mha_status mha_error_bound(const mha_layer *layer, const mha_call *call, double unit,
                                   double bound[MHA_STAGE_COUNT], mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
