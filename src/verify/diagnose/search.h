/* State of one mha_case_diagnose call: the tensor, the rows that are judged, the candidates. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_H

#include "base/base.h"
#include "verify/variant_forward/variant_forward.h"
#include "verify/tolerance/tolerance.h"

enum {
    MHA_SEARCH_TIES = 4 /* numbers of one variant that are reported, because they do the same */
};

/* The tensor to be explained, batch row by batch row, in the order in which variants are computed. */
typedef struct mha__target {
    mha_stage stage;
    int slot;
    mha_dtype stored;        /* the type in which it was recorded */
    bool wide;               /* recorded in F64, so explained to float64 accuracy first */
    bool by_query;           /* lines of the tensor belong to query rows, which can be left out */
    size_t row, columns;     /* elements of a batch row, and of a line, as computed */
    size_t recorded_columns; /* elements of a line of the tensor, which may lack the extra rows of S' */
    const unsigned char *there; /* (B, T_q), by query: query rows that there are; NULL otherwise */
    double *values;
    double rms, largest;     /* of the finite elements */
    bool has_nan, is_zero;   /* some element is NaN; every element is 0 */
    mha__storage storage;
    mha__allowed allowed[2]; /* what the judge allows in float32 and float64 */
    bool states[2];          /* the file states all of that tolerance */
    double noise[2];         /* noise floor: the largest error that rounding in float32, in float64 explains */
} mha__target;

/* One candidate: up to two indices into the list of variants (-1: none), and how well it fits. */
typedef struct mha__candidate {
    int a, b;
    const double *numbers; /* of a; NULL: it has none */
    size_t order;          /* number of variants */
    bool complete;         /* compared on all rows that are judged */
    bool finite;           /* finite in exactly the elements in which the tensor is */
    bool unchanged;        /* equal to the unmodified case on the judged rows */
    size_t apart;          /* elements of the tensor that are numbers, and are not those of the candidate */
    double max_abs, relative, lean; /* of the differences: the largest; rms and mean, by the rms of the tensor */
    double excess;    /* largest |x - y| - u |y|; u: unit roundoff of the stored type, 0 from 32 bits on */
    double needed[2]; /* least atol with which the judge would pass it, in float32 and float64 */
    double louder;    /* errors of scores grow with the scale: its scale by the case's, at least 1 */
} mha__candidate;

/* What is compared: the lines of some query rows (B, T_q), the first columns of each. */
typedef struct mha__region {
    unsigned char *rows;
    size_t columns;
} mha__region;

typedef struct mha__search {
    const mha_case *asked; /* the case as it is */
    const mha_case *c;     /* the same; of a ragged batch: with its sequences as batch rows of the longest length */
    mha__variant_inputs *inputs;
    mha__knobs said; /* the knobs of the unmodified case */
    mha__target target;
    mha__arena pool;
    unsigned char *there;  /* (B, T_q): rows that are queries, not padding of a shorter sequence */
    unsigned char *judged; /* (B, T_q): query rows on which candidates are compared */
    mha__region full;      /* the judged rows, all columns */
    mha__region screened;  /* a part of `full`, for candidates that fit best on `probed` */
    mha__region probed;    /* a part of `screened`, on which every pair and every choice of a number is tried first */
    double *distance;      /* (B, T_q): distance between the tensor and the unmodified case */
    double *base;          /* the stage of the unmodified case, of the judged rows */
    const double *whole;   /* the same of all rows: `base`, or in float32 where a part is judged */
    bool in_part;          /* not all rows are judged */
    size_t workers;
    mha__variant_bench *bench[MHA_VARIANT_WORKERS];
    double *computed[MHA_VARIANT_WORKERS];
    mha__candidate *candidates;
    size_t singles, count; /* the unmodified case and single variants come first */
    mha__candidate *pairs; /* which are tried last */
    size_t pair_count;
    const mha_progress *progress;
    size_t done, total;
} mha__search;

static inline mha_status mha__search_no_memory(const mha__search *s, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, s->c->name, "no memory to diagnose the case");
}

/* Chooses the rows to be judged (all rows of a small case), derives what rounding may explain, and computes `base`.
 * `judged` and `distance` must be zero before. */
mha_status mha__search_prepare(mha__search *s, mha_error *error);
/* Computes the stage of the case as a fused kernel of a lower precision gives it, all rows of it. */
mha_status mha__search_model(const mha__search *s, mha_dtype type, double *values, mha_error *error);
/* Chooses the regions on which many candidates are tried before: parts of what is judged. */
void mha__search_screen(mha__search *s);
/* Marks query rows of one batch row: `spread` of them at equal distances, and the `far` farthest of the others. Only
 * rows marked in `among` are considered. */
void mha__search_mark(const mha__search *s, size_t b, size_t far, size_t spread, const unsigned char *among,
                      unsigned char *marks);
/* Whether a computed element x and a recorded element y count as equal: equal numbers; NaN on both sides; x is a
 * hidden score and y the lowest number of the recorded type; x overflows the recorded type and y is infinite. */
bool mha__search_same(const mha__target *t, double x, double y);
/* Computes candidate *x on a region, with a worker's bench, and compares it with the tensor. */
void mha__search_fit(const mha__search *s, size_t worker, const mha__region *on, mha__candidate *x);
/* How far numbers are from those of the unmodified case. */
typedef struct mha__moved {
    double most, rms;
} mha__moved;

/* Compares numbers of the stage, all rows of it, with the tensor and with the unmodified case on a region. */
void mha__search_hold(const mha__search *s, const mha__region *on, const double *values, mha__candidate *x,
                      mha__moved *moved);
/* Whether a candidate may explain the tensor, judging by the region on which it was fitted. */
bool mha__search_is_promising(const mha__search *s, const mha__candidate *x);
/* Counts one more candidate as done, and tells the caller if this is its thread. */
void mha__search_step(mha__search *s, size_t worker);
/* How many elements a region has. */
size_t mha__search_elements(const mha__search *s, const mha__region *on);
/* Computes the candidate there and stores the difference of each such element; 0 where no finite difference
 * exists. */
void mha__search_differences(const mha__search *s, size_t worker, const mha__region *on, const mha__candidate *x,
                             double *differences);
/* How many variants have numbers that can be looked for on the screened rows. */
size_t mha__search_count_solved(const mha__search *s);
/* Looks for these numbers, and appends the best ones to the single candidates, which must be the only ones so far. */
mha_status mha__search_solve(mha__search *s, mha_error *error);
/* Fits a variant with its numbers, which must live as long as the search, and appends it likewise. */
void mha__search_append(mha__search *s, size_t index, const double *numbers);
/* Looks for another order of the heads, and for keys that are hidden, and appends them likewise. */
mha_status mha__search_solve_heads(mha__search *s, mha_error *error);
mha_status mha__search_solve_keys(mha__search *s, mha_error *error);
/* Looks for weights that were dropped, and appends them likewise. */
mha_status mha__search_solve_dropout(mha__search *s, mha_error *error);

/* How the rows of the tensor are turned back into merged heads. */
typedef struct mha__unproject {
    bool can; /* false: the stage is another one, or W_O has more rows than columns, or very many */
    size_t width, columns;
    const double *W, *L, *bias; /* W NULL: there is no projection */
    double *less_bias;
} mha__unproject;

mha_status mha__unproject_begin(const mha__search *s, mha__arena *pool, mha__unproject *u, mha_error *error);
/* The merged heads x (h*d_v) of which a row of the tensor is made. */
void mha__unproject_row(const mha__unproject *u, const double *row, double *x);
/* Turns the lower triangle of A (n, n) into L with L L^T = A; false when A is singular: of a diagonal element less than
 * this share is left. */
bool mha__cholesky(double *A, size_t n, double least);
/* Solves L L^T y = x for the n numbers of x, which y replaces. */
void mha__cholesky_solve(const double *L, size_t n, double *x);
/* Tries other numbers of query heads that fit the widths of the case, and returns the one that comes nearest to the
 * tensor on the judged rows. *heads is 0 when there is none, or when a weight, a cached row or a mask has an axis of
 * heads and so fixes the number. */
mha_status mha__search_other_heads(const mha__search *s, size_t *heads, mha__candidate *best, mha_error *error);

/* Whether a candidate reproduces the tensor to float32 or float64 accuracy; `best`: the least excess of all. */
bool mha__search_is_exact(const mha__search *s, const mha__candidate *x, int wide, double best);
/* The least number of variants in an exact candidate with at most `most`; 3 when no candidate is exact. */
size_t mha__search_least_order(const mha__search *s, int wide, size_t most);
mha_explanation mha__search_explain(const mha__search *s, const mha__candidate *x, bool exact, int wide);
/* Reports all candidates of `order` that reproduce the tensor; `which`: memory for an index of each. */
mha_status mha__report_exact(mha__search *s, size_t order, int wide, size_t *which, mha_diagnosis *d, mha_error *error);
/* Reports another number of heads when it reproduces the tensor and no single variant does. */
mha_status mha__report_other_heads(mha__search *s, mha_diagnosis *d, mha_error *error);
/* Reports what a kernel of low precision may have rounded to the tensor: the case, or it with one variant. `which`:
 * memory for an index of each candidate. */
mha_status mha__report_low_precision(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);
/* Reports, when nothing is exact, the near candidates and the three closest ones that differ from each other. */
mha_status mha__report_closest(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);

#endif
