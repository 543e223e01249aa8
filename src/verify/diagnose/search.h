/* State of one mha_case_diagnose call: the tensor, the rows that are judged, the candidates. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_H

#include "verify/variant_forward/variant_forward.h"
#include "verify/tolerance/tolerance.h"

enum { MHA_SEARCH_WORKERS = 8 };

/* The tensor to be explained, batch row by batch row, in the order in which variants are computed. */
typedef struct mha__target {
    mha_stage stage;
    int slot;
    mha_dtype stored;        /* the type in which it was recorded */
    bool wide;               /* recorded in F64, so explained to float64 accuracy first */
    bool by_query;           /* lines of the tensor belong to query rows, which can be left out */
    size_t row, columns;     /* elements of a batch row, and of a line, as computed */
    size_t recorded_columns; /* elements of a line of the tensor, which may lack the extra rows of S' */
    double *values;
    double rms, largest;
    mha__storage storage;
    mha__allowed allowed[2]; /* what the judge allows in float32 and float64 */
    bool states[2];          /* the file states all of that tolerance */
    double noise[2];         /* noise floor: the largest error that rounding in float32, in float64 explains */
} mha__target;

/* One candidate: up to two indices into the list of variants (-1: none), and how well it fits. */
typedef struct mha__candidate {
    int a, b;
    size_t order;     /* number of variants */
    bool complete;    /* compared on all rows that are judged */
    bool numbers;     /* finite in exactly the elements in which the tensor is */
    bool unchanged;   /* equal to the unmodified case on the judged rows */
    double max_abs, relative;
    double excess;    /* largest |x - y| - u |y|; u: unit roundoff of the stored type, 0 from 32 bits on */
    double needed[2]; /* least atol with which the judge would pass it, in float32 and float64 */
    double louder;    /* errors of scores grow with the scale: its scale by the case's, at least 1 */
} mha__candidate;

typedef struct mha__search {
    const mha_case *c;
    mha__variant_inputs *inputs;
    mha__knobs said; /* the knobs of the unmodified case */
    mha__target target;
    mha__arena pool;
    unsigned char *judged; /* (B, T_q): query rows on which candidates are compared */
    unsigned char *screened; /* the fewer rows on which pairs are tried first */
    double *distance;      /* (B, T_q): distance between the tensor and the unmodified case */
    double *base;          /* the stage of the unmodified case */
    bool in_part;          /* not all rows are judged */
    size_t workers;
    mha__variant_bench *bench[MHA_SEARCH_WORKERS];
    double *computed[MHA_SEARCH_WORKERS];
    mha__candidate *candidates;
    size_t singles, count;
    const mha_progress *progress;
    size_t done, total;
} mha__search;

/* Chooses the rows to be judged (all rows of a small case), derives what rounding may explain, and computes `base`.
 * `judged` and `distance` must be zero before. */
mha_status mha__search_prepare(mha__search *s, mha_error *error);
/* Chooses the rows on which pairs are tried first: some of the judged ones. */
void mha__search_screen(mha__search *s);
/* Computes candidate *x on the rows marked in `kept`, with a worker's bench, and compares it with the tensor. */
void mha__search_fit(const mha__search *s, size_t worker, const unsigned char *kept, mha__candidate *x);
/* Tries other numbers of query heads that fit the widths of the case, and returns the one that comes nearest to the
 * tensor on the judged rows. *heads is 0 when there is none, or when a weight, a cached row or a mask has an axis of
 * heads and so fixes the number. */
mha_status mha__search_other_heads(const mha__search *s, size_t *heads, mha__candidate *best, mha_error *error);

#endif
