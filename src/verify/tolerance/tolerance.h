/* Tolerances for the results of a call, and the magnitudes from which they are derived. */
#ifndef MHA_VERIFY_TOLERANCE_TOLERANCE_H
#define MHA_VERIFY_TOLERANCE_TOLERANCE_H

#include "attention/call/resolved.h"
#include "mha/case.h"
#include "verify/attempt/attempt.h"

/* Magnitudes of finite numbers: largest absolute values and 2-norms, all 0 of what a call lacks. */

/* A product x W + b. */
typedef struct mha__product_size {
    size_t terms; /* of each sum: rows of W; 0 without W, when b is added to x */
    double W, b;  /* largest 2-norm of a column, largest absolute value */
} mha__product_size;

/* A norm of q, of k or of a latent. */
typedef struct mha__norm_size {
    size_t terms;        /* features that are normalised together; 0 without norm */
    double weight, bias; /* largest absolute factor, and what is added */
    double divisor;      /* the smallest r of mha_norm_kind */
    double row;          /* largest 2-norm of the features together, before the norm; not of a latent */
} mha__norm_size;

/* A latent c = x A + b, and norm(c). */
typedef struct mha__latent_size {
    mha__product_size made; /* c */
    mha__norm_size norm;
    double row; /* largest 2-norm of norm(c): at most weight * sqrt(rank) of new rows; cached rows included */
} mha__latent_size;

/* Rows of queries or keys in the scores. */
typedef struct mha__row_size {
    mha__norm_size norm;
    double row;      /* largest 2-norm of one head's row, cached rows included */
    double turn;     /* largest change of a rotated row by rounded angles (2-norm); 0 with tables */
    double times;    /* the largest factor of a query's position; of keys 1 */
    double relative; /* the sum over its relative tables of the longest row of a head (2-norm); 0: no terms */
} mha__row_size;

/* Magnitudes of the numbers in a call, on which its rounding errors depend. */
typedef struct mha__magnitudes {
    const mha__resolved *call;       /* validated; in the plan of the forward that was measured */
    double x[3];                     /* of query, key and value: longest row; without projection, largest element */
    mha__product_size W[3];          /* W_Q, W_K, W_V */
    mha__product_size W_G, W_O, W_KVB;
    mha__product_size absorbed;      /* W_K^T of a head: rows of W_KVB */
    double W_O_sum;                  /* largest sum of absolute values of a column */
    mha__latent_size q_latent, kv_latent;
    mha__row_size rows[2];           /* of queries and of keys */
    double v_max;                    /* largest value, cached rows and bias_v included */
    double added;                    /* largest sum of terms added to a score (masks, fill, ALiBi, bias) */
    double sink;                     /* largest term of the softmax without a key */
    bool cached, cache_rounds;       /* there is a cache, and it rounds new rows to the type `cache` */
    mha_dtype cache;
} mha__magnitudes;

/* The largest absolute finite value of a view; 0 without data, and of switches. */
double mha__largest(const mha_view *view);

/* The tolerance of each stage of a call, [0] in float32 and [1] in float64, for files that state none; infinite for
 * stages that are not wanted. See src/verify/tolerance/tolerance.c. */
typedef struct mha__tolerance {
    double atol[2][MHA_STAGE_COUNT];
} mha__tolerance;

/* The two forwards from which a tolerance is derived, on the exact and the blas path. They keep their stages, for
 * callers that need these results. */
typedef struct mha__two_runs {
    mha__attempt undropped;     /* exact, without the dropout of a call that has one: `narrow` has none either */
    mha__attempt exact, narrow; /* `narrow` takes exponentials of 2: it is no result of the blas path */
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

/* The error of storing a result in a type of less than 32 bits: |stored - result| <= relative |x| + absolute, where x
 * is either of the two.
 * Both are 0 for wider types, whose rounding is part of mha__tolerance. Absolute values of at least `overflow` become
 * infinite; `lowest` is the least finite value. */
typedef struct mha__storage {
    double relative, absolute, overflow, lowest;
} mha__storage;

mha__storage mha__storage_of(mha_dtype dtype);
/* lost(x) of error_bound.c: what storing at a point of a low precision costs a row of n elements with 2-norm x, or with
 * n = 1 a number of at most x; in a tensor of numbers of at most `most`, whose scale it shares, or of at most x. */
double mha__lost_among(mha_dtype dtype, double x, double n, double most);
double mha__lost(mha_dtype dtype, double x, double n);
/* An error e of such a row or number, of n elements and that size, with what storing it in a cache adds. */
double mha__cached_error(mha_dtype dtype, double e, double size, double n);

/* mha_compare with the exact tensor as `actual` and the recorded one as `expected`, where rtol multiplies the exact
 * number: |exact - recorded| <= atol + rtol |exact|. */
mha_status mha__compare_to_exact(const mha_view *exact, const mha_view *recorded, double rtol, double atol,
                                 mha_difference *difference, mha_error *error);

/* The default tolerance: |exact - yours| <= atol + rtol |exact|, of results stored in a type.
 * `wide`: they were computed in float64. */
mha_allowance mha__allowance_of(const mha__tolerance *derived, bool wide, mha_stage stage, mha_dtype stored);

/* The same of a comparison with an expected tensor. Numbers that the file does not state follow from `stored` and
 * `derived`; atol is infinite if it is not stated and `derived` is NULL. */
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
/* The bound of mha_error_bound (compare.h), with what storing at the points of a low precision adds to it. */
void mha__bound_of(const mha__magnitudes *magnitudes, double unit, const mha_precision *precision,
                   double bound[MHA_STAGE_COUNT]);
/* The bound of only a rotation: of an element of rows of d features with 2-norm `row`, when angles that are rounded
 * change a row by `turn`. */
double mha__rotation_bound(const mha_rope *rope, size_t d, double row, double turn, double unit);

/* The largest change of a rotated vector by rounded angles, in 2-norm: of one head's row, and of one of its pairs. */
typedef struct mha__turn {
    double row, pair;
} mha__turn;

/* For x (B, T, heads, d) at positions up to `farthest`; 0 without rotation or with tables of no origin. */
mha__turn mha__turn_of(const mha_rope *rope, const mha_rope_origin *origin, const mha_view *x, double farthest);

#endif
