/* How far the results of a call may lie apart, and the sizes of the numbers on which that depends. */
#ifndef MHA_VERIFY_TOLERANCE_TOLERANCE_H
#define MHA_VERIFY_TOLERANCE_TOLERANCE_H

#include "mha/case.h"
#include "verify/attempt.h"

/* Sizes of the numbers that went into a forward, on which its rounding errors depend; over the finite ones. */
typedef struct mha__magnitudes {
    size_t d_q, d_kin, d_vin; /* terms of each projection's sums; 0 where nothing is projected */
    double x_q, x_k, x_v;     /* largest 2-norm of an input row; largest element where nothing is projected */
    double W_Q, W_K, W_V;     /* largest 2-norm of a column; 0 where nothing is projected */
    double W_O, W_O_sum;      /* largest 2-norm and sum of absolute values of a column */
    double b_Q, b_K, b_V, b_O; /* largest absolute value of a bias; also of one added without projection */
    size_t norm_terms;         /* features a q/k norm averages over; 0 without norm */
    double norm_weight;        /* largest absolute weight of the norms */
    double norm_rms;           /* smallest sqrt(mean(x^2) + eps) they divide by */
    bool rotated;
    double q_turn, k_turn; /* how far rounded angles may move a rotated row, in 2-norm; 0 with tables of cos and sin */
    double q_row, k_row; /* largest 2-norm of one head's row as it enters the scores, cached rows included */
    double v_max;        /* largest absolute value of V, cached rows and bias_v included */
    double added;        /* largest finite absolute value added to a score (masks, fill, ALiBi) */
    double softcap;      /* 0: none */
    double cache_unit, cache_eta, cache_largest; /* of a cache of 16 bits, its unit roundoff, smallest subnormal and the
                                                    number from which on rows become infinite; 0 without */
} mha__magnitudes;

/* How far results of one call may lie apart, [0] in float32 and [1] in float64, where nobody says: see
 * src/verify/tolerance/tolerance.c. Of the wanted stages; the others are infinite. */
typedef struct mha__tolerance {
    double atol[2][MHA_STAGE_COUNT];
} mha__tolerance;

/* The two forwards that tell a tolerance, on the exact and on the blas path, with their stages: a caller who needs the
 * results of these paths finds them here. */
typedef struct mha__two_runs {
    mha__attempt exact, narrow;
} mha__two_runs;

/* Runs the request twice, without its cache, with its output laid out as `layout`, and derives the tolerance. Free the
 * runs in any case. */
mha_status mha__tolerance_of(const mha__request *request, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                             mha__two_runs *runs, mha__tolerance *tolerance, mha_error *error);
void mha__two_runs_free(mha__two_runs *runs);
/* The same for one stage, where the error that float32 makes on this call is known, and the largest element of the
 * stage. `ran`: a forward of the request that kept the stages of mha__magnitudes_want, on any path. */
void mha__tolerance_of_error(const mha__request *request, const mha__attempt *ran, mha_stage stage, double error,
                             double largest, double atol[2]);
/* The tolerance of a case of kind rope, for each stage: one rotation alone. */
mha__tolerance mha__tolerance_of_rope(const mha_case *c);

/* What storing a result in a type of less than 32 bits may change: |stored - result| <= relative |stored| + absolute.
 * 0 and 0 for wider types, whose rounding is part of mha__tolerance. Results of `overflow` or more in size become
 * infinite; `lowest` is the least finite value. */
typedef struct mha__storage {
    double relative, absolute, overflow, lowest;
} mha__storage;

mha__storage mha__storage_of(mha_dtype dtype);

/* The tolerance of a comparison with an expected tensor: |exact - yours| <= atol + rtol |yours|. `wide`: both are
 * computed in float64. Where the file states no rtol or atol they follow from `stored` and `derived`; without `derived`
 * (NULL) such an atol is infinite. */
typedef struct mha__allowed {
    double rtol, atol;
    bool derived; /* the file leaves one of them open */
} mha__allowed;

mha__allowed mha__allowed_of(const mha_case *c, int slot, bool wide, mha_stage stage, mha_dtype stored,
                             const mha__tolerance *derived);

/* The stages that mha__magnitudes_of reads, added to those wanted. */
void mha__magnitudes_want(bool wanted[MHA_STAGE_COUNT]);
/* Measures a request from its inputs and the stages of a forward of it, with or without the cached rows. */
void mha__magnitudes_of(const mha__request *request, const mha__attempt *ran, mha__magnitudes *magnitudes);
/* The bound of mha_error_bound (compare.h) from the sizes of a plan and of its numbers. */
void mha__bound_of(const mha_plan *plan, const mha__magnitudes *magnitudes, double unit, double bound[MHA_STAGE_COUNT]);

/* How far the rounding of its angles may move what a rotation turns, in 2-norm: one head's row, and one pair of it. */
typedef struct mha__turn {
    double row, pair;
} mha__turn;

/* For x (B, T, heads, d) at positions up to `farthest`; zero where there is no rotation, or by tables. */
mha__turn mha__turn_of(const mha_rope *rope, const mha_view *x, double farthest);
/* The same for a pair of norm 1: see src/verify/tolerance/error_bound.c. */
double mha__angle_error(double position, double frequency);

#endif
