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

/* Sizes of the numbers that went into a forward, on which its rounding errors depend; over the finite ones. */
typedef struct mha_magnitudes {
    size_t d_q, d_kin, d_vin; /* terms of each projection's sums; 0 where nothing is projected */
    double x_q, x_k, x_v;     /* largest 2-norm of an input row; largest element where nothing is projected */
    double W_Q, W_K, W_V;     /* largest 2-norm of a column; 0 where nothing is projected */
    double W_O, W_O_sum;      /* largest 2-norm and sum of absolute values of a column */
    double b_Q, b_K, b_V, b_O; /* largest absolute value of a bias; also of one added without projection */
    size_t norm_terms;         /* features a q/k norm averages over; 0 without norm */
    double norm_weight;        /* largest absolute weight of the norms */
    double norm_rms;           /* smallest sqrt(mean(x^2) + eps) they divide by */
    bool rotated;
    double q_turn, k_turn; /* how far rounded angles may move a rotated row, in 2-norm; 0 where tables give cos and sin */
    double q_row, k_row; /* largest 2-norm of one head's row as it enters the scores, cached rows included */
    double v_max;        /* largest absolute value of V, cached rows and bias_v included */
    double added;        /* largest finite absolute value added to a score (masks, fill, ALiBi) */
    double softcap;      /* 0: none */
} mha_magnitudes;

/* Measures them from a call whose inputs are set (its cache is read, not appended to), with one float64
 * forward inside. Errors: as mha_plan_call, MHA_NO_MEMORY. */
MHA_API mha_status mha_magnitudes_measure(const mha_layer *layer, const mha_call *call, mha_magnitudes *magnitudes,
                                          mha_error *error);
/* bound[s]: how far any element of stage s may lie from its exact value when the forward is computed with
 * unit roundoff `unit` (2^-24 for float, 2^-53 for double), in any order of summation. Derived once, in
 * src/verify/tolerance/error_bound.c. Infinite when the scores may exceed the range of the type. */
MHA_API void mha_error_bound(const mha_plan *plan, const mha_magnitudes *magnitudes, double unit,
                             double bound[MHA_STAGE_COUNT]);

#ifdef __cplusplus
}
#endif
#endif
