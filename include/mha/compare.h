/* Laboratory. Comparing results: the difference of two tensors, and how far rounding may take them apart. */
#ifndef MHA_COMPARE_H
#define MHA_COMPARE_H

#include "mha/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- comparison */

/* The difference of two tensors, actual a and expected e. Two NaN are equal, and so are two infinities of one sign:
 * their difference is 0. In any other pair with a NaN or an infinity the difference is infinite. */
typedef struct mha_difference {
    size_t elements;
    size_t mismatches; /* not |a - e| <= atol + rtol * |e| */
    double max_abs;    /* largest |a - e| */
    double max_rel;    /* largest |a - e| / |e|; infinite where e is 0 and a is not */
    /* Largest number of steps between representable values from a to e: values of float64 when both tensors are F64,
     * else of float32, to which both are rounded. The two zeros are one value. */
    double max_ulp;
    double rms;    /* sqrt(mean((a - e)^2)) */
    double cosine; /* a.e / (|a| |e|) over the pairs finite on both sides; 1 when both norms are 0, 0 when one is */
    /* The element that decides whether the tensors agree: the one with the largest |a - e| - rtol * |e|, among equals
     * the one with the largest |a - e|, then the first in row-major order. `rank` entries. */
    int rank;
    size_t worst_index[MHA_MAX_RANK];
    double worst_actual, worst_expected;
    size_t nan_actual, nan_expected, inf_actual, inf_expected;
    double tolerance_needed; /* the smallest atol that, with the given rtol, leaves no mismatch */
    double tolerance_factor; /* the smallest factor on both rtol and atol that leaves none; 1 or less: they agree */
} mha_difference;

/* Compares two views of equal shape and any plain dtype (integers and BOOL as numbers). Errors: MHA_INVALID (the
 * shapes differ: the message has both; a tolerance is negative or NaN), MHA_UNSUPPORTED (a quantised type). */
MHA_API mha_status mha_compare(const mha_view *actual, const mha_view *expected, double rtol, double atol,
                               mha_difference *difference, mha_error *error);

/* ---------------------------------------------------------------- the error bound */

/* bound[s], for the stages s < count: how far any element of stage s may lie from its exact value when the call is
 * computed with unit roundoff `unit` (2^-24 for float, 2^-53 for double), rounding to nearest, with subnormals kept,
 * in any order of summation. It is infinite when a number that the stage depends on (a projection, a score, a sum of
 * weighted values) may exceed the range of the type. The derivation is in src/verify/tolerance/error_bound.c; the
 * magnitudes that enter it are measured here, on q, k and v of the call in float64.
 *
 * The bound holds for elements whose exact value is finite, and depends on finite numbers only. An element whose
 * exact value is infinite or NaN is computed as infinite or NaN, but not always as the same one: a visible key with
 * an infinite value and a weight that rounds to 0 gives 0 * inf = NaN where the exact value is infinite. With a cache
 * of F16, BF16 or I8 the bound holds against attention over the exact new rows and against attention over the rounded
 * ones.
 *
 * The call is given as it will be run: its cache holds the rows from before the call and has room for the new ones,
 * after eviction if need be; it is read, not appended to. Kept stages, `partial`, path and threads do not matter.
 * Errors: as of mha_plan_call on the exact path; MHA_INVALID (a unit that is not between 0 and 1); MHA_UNSUPPORTED
 * (pages of a ragged batch, or of a part of the keys); MHA_NO_MEMORY. */
MHA_API mha_status mha_error_bound(const mha_layer *layer, const mha_call *call, double unit,
                                   double *bound, size_t count, mha_error *error);

/* atol[s], for the stages s < count: how far a right kernel of `precision` may lie from the exact result of this call.
 * A number y of a result that is stored in 16 or 8 bits may besides be off by the rounding of y itself.
 *
 *   atol = tolerance of a float32 kernel + min(bound, 4 E)
 *
 * E is the largest error of the stage when the call is computed in float64 with roundings at the points of the
 * precision (mha_call.precision), and of new rows to the type of a cache of 16 or 8 bits; `bound` is what these
 * roundings can cost at most, by the derivation in src/verify/tolerance/error_bound.c; a stage of less than 64 elements
 * gets only the bound. Why this is enough, and the tolerance of float32, is explained in
 * src/verify/tolerance/tolerance.c. A rule of thumb to compare it with: FlashAttention's tests allow twice the error of
 * a plain kernel of the same type. E is that of one run: an estimate, which mha_error_bound is not. Where that is
 * infinite, a kernel may leave the range of float on the way while another does not: atol then allows what one may be
 * off that does not. The call is given as for mha_error_bound, which with call->precision set gives that bound; here
 * call->precision does not matter. Errors: as of mha_error_bound, and of mha_plan_call on the blas path. */
MHA_API mha_status mha_precision_tolerance(const mha_layer *layer, const mha_call *call, const mha_precision *precision,
                                           double *atol, size_t count, mha_error *error);

/* The largest error of a correct result of one stage. */
typedef struct mha_allowance {
    mha_stage stage;
    mha_dtype computed; /* F32: in float32, rounding where call->precision says so; F64: in float64 */
    mha_dtype stored;   /* the type of its elements, to which they were rounded at last */
    double rtol, atol;  /* written: right means |exact - result| <= atol + rtol |exact| for every element */
} mha_allowance;

/* Fills in rtol and atol of `count` results of this call, each of a stage that the call has. This is the tolerance of
 * mha_case_check, and so of `mha check`, where a case states none; the derivation is in
 * src/verify/tolerance/tolerance.c. It runs the call on the exact and the blas path, so that it is as tight as the
 * rounding errors that occur: mha_error_bound holds in any order of summation, and may be hundreds of times wider. The
 * call is given as for mha_error_bound. Errors: as of mha_plan_call on the exact and the blas path; MHA_INVALID (a
 * stage or a type that is none of these); MHA_NO_MEMORY. */
MHA_API mha_status mha_tolerance(const mha_layer *layer, const mha_call *call, mha_allowance *results, size_t count,
                                 mha_error *error);

/* Elements without a distance: replaces elements of a result that represent the exact value by that value, as
 * mha_case_check does before it compares. These are infinities where the exact value is beyond the range of
 * allowance->stored (F16, BF16, F8_E5M2), and of the stage masked the lowest finite number of F32, F64 or that type
 * where the exact score is -inf. `result` is a copy of what was stored, F64, of the shape of `exact`. Returns the
 * number of infinities. */
MHA_API size_t mha_replace_equivalent(const mha_view *exact, const mha_allowance *allowance, const mha_view *result);

#ifdef __cplusplus
}
#endif
#endif
