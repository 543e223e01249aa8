/* Tolerances for the results of a call, and the magnitudes from which they are derived. */
#ifndef MHA_VERIFY_TOLERANCE_TOLERANCE_H
#define MHA_VERIFY_TOLERANCE_TOLERANCE_H

#include "mha/case.h"
#include "verify/attempt.h"

/* A norm of q or k. */
typedef struct mha__norm_size {
    size_t terms;        /* features that are normalised together; 0 without norm */
    double weight, bias; /* largest absolute factor, and what is added */
    double divisor;      /* the smallest r of mha_norm_kind */
    double row;          /* largest 2-norm of the features together, before the norm */
} mha__norm_size;

/* Magnitudes of one latent: c = x A + b of `rank` features, and norm(c). */
typedef struct mha__latent_magnitudes {
    size_t rank;         /* 0: no latent */
    double A, b;         /* largest 2-norm of a column of A, largest absolute value of the bias */
    double weight, rms;  /* of the norm, as norm_weight and norm_rms below */
    double row;          /* largest 2-norm of norm(c), cached rows included: at most weight * sqrt(rank) of new ones */
} mha__latent_magnitudes;

/* Magnitudes of the finite numbers in a forward, on which its rounding errors depend. */
typedef struct mha__magnitudes {
    size_t d_q, d_kin, d_vin; /* number of terms in each projection's sums; 0 without projection */
    double x_q, x_k, x_v;     /* largest 2-norm of an input row; without projection, its largest element */
    double W_Q, W_K, W_V;     /* largest 2-norm of a column; 0 without projection */
    double W_O, W_O_sum;      /* largest 2-norm, and largest sum of absolute values, of a column */
    double b_Q, b_K, b_V, b_O; /* largest absolute value of a bias, with or without projection */
    mha_norm_rule norm_rule;
    mha__norm_size norm[2];    /* of q and of k */
    double W_G, b_G;           /* as W_Q and b_Q; 0 without a gate */
    bool gated;
    double query_times;        /* the largest factor of a query's position */
    mha__latent_magnitudes q_latent, kv_latent;
    bool absorbed;
    size_t d_n, d_r, d_v;        /* of a head in W_KVB; d_r: features of k_r */
    double W_KVB, W_KVB_row;     /* largest 2-norm of a column, and of what a row has for the keys of one head */
    bool rotated;
    double rope_times;     /* what rotated features are multiplied by; 0: 1 */
    double q_turn, k_turn; /* largest change of a rotated row by rounded angles (2-norm); 0 with tables */
    double q_row, k_row; /* largest 2-norm of one head's row in the scores, cached rows included */
    double v_max;        /* largest absolute value of V, cached rows and bias_v included */
    double added;        /* largest finite sum of terms added to a score (masks, fill, ALiBi), in absolute value */
    double relative_rows[2];   /* [0] for q, [1] for k: the sum over its tables of the longest row of a head (2-norm);
                                * 0: no terms */
    double relative_scales[2]; /* of these terms, in absolute value; 0: that of the plan */
    double sink;         /* largest absolute value of a term of the softmax without a key */
    mha_softmax softmax; /* of the call */
    double clip;         /* of q, k and v; 0: none */
    double cache_unit, cache_eta, cache_largest; /* of a cache of 16 bits, its unit roundoff, smallest subnormal and the
                                                    number from which on rows become infinite; 0 without */
    bool cache_by_row;                           /* of 8 bits: the unit is a part of a row's largest element */
    bool cached;                                 /* there is a cache, of any type */
} mha__magnitudes;

/* The tolerance of each stage of a call, [0] in float32 and [1] in float64, for files that state none; infinite for
 * stages that are not wanted. See src/verify/tolerance/tolerance.c. */
typedef struct mha__tolerance {
    double atol[2][MHA_STAGE_COUNT];
} mha__tolerance;

/* The two forwards from which a tolerance is derived, on the exact and the blas path. They keep their stages, for
 * callers that need these results. */
typedef struct mha__two_runs {
    mha__attempt exact, narrow;
} mha__two_runs;

/* Runs the request on both paths, without its cache, with its output in `layout`, and derives the tolerance. The runs
 * must be freed in any case. */
mha_status mha__tolerance_of(const mha__request *request, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                             mha__two_runs *runs, mha__tolerance *tolerance, mha_error *error);
void mha__two_runs_free(mha__two_runs *runs);
/* The tolerance of one stage, from a known float32 error on this call and from the largest element of the stage.
 * `ran`: a forward of the request on any path that kept the stages of mha__magnitudes_want. */
void mha__tolerance_of_error(const mha__request *request, const mha__attempt *ran, mha_stage stage, double error,
                             double largest, double atol[2]);
/* The tolerance of a case of kind rope, which is one rotation; equal for all stages. */
mha__tolerance mha__tolerance_of_rope(const mha_case *c);

/* The error of storing a result in a type of less than 32 bits: |stored - result| <= relative |stored| + absolute.
 * Both are 0 for wider types, whose rounding is part of mha__tolerance. Absolute values of at least `overflow` become
 * infinite; `lowest` is the least finite value. */
typedef struct mha__storage {
    double relative, absolute, overflow, lowest;
} mha__storage;

mha__storage mha__storage_of(mha_dtype dtype);

/* What is allowed where nobody states a tolerance: |exact - yours| <= atol + rtol |yours|, of results stored in a type.
 * `wide`: they were computed in float64. */
mha_allowance mha__allowance_of(const mha__tolerance *derived, bool wide, mha_stage stage, mha_dtype stored);

/* The same of a comparison with an expected tensor. What the file does not state follows from `stored` and `derived`;
 * atol is infinite if it is not stated and `derived` is NULL. */
typedef struct mha__allowed {
    double rtol, atol;
    bool derived; /* the file does not state both */
} mha__allowed;

mha__allowed mha__allowed_of(const mha_case *c, int slot, bool wide, mha_stage stage, mha_dtype stored,
                             const mha__tolerance *derived);

/* Adds the stages that mha__magnitudes_of reads to the wanted ones. */
void mha__magnitudes_want(const mha_layer *layer, bool wanted[MHA_STAGE_COUNT]);
/* Measures a request from its inputs and from the stages of a forward, made with or without the cached rows. */
void mha__magnitudes_of(const mha__request *request, const mha__attempt *ran, mha__magnitudes *magnitudes);
/* The bound of mha_error_bound (compare.h), from a plan's sizes and the magnitudes of its numbers; with what storing at
 * the points of a low precision adds to it. */
void mha__bound_of(const mha_plan *plan, const mha__magnitudes *magnitudes, double unit, const mha_precision *precision,
                   double bound[MHA_STAGE_COUNT]);

/* The largest change of a rotated vector by rounded angles, in 2-norm: of one head's row, and of one of its pairs. */
typedef struct mha__turn {
    double row, pair;
} mha__turn;

/* For x (B, T, heads, d) at positions up to `farthest`; 0 without rotation or with tables of no origin. */
mha__turn mha__turn_of(const mha_rope *rope, const mha_view *x, double farthest);
/* The change of a pair of norm 1, derived in src/verify/tolerance/error_bound.c. */
double mha__angle_error(double position, double frequency);

#endif
