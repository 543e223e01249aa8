/* State of one mha_case_diagnose call: the tensor, the rows that are judged, the candidates. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_H

#include "verify/diagnose/variant_forward.h"
#include "verify/tolerance/tolerance.h"

enum { MHA_SEARCH_WORKERS = 8 };

/* The tensor to be explained, batch row by batch row, in the order in which variants are computed. */
typedef struct mha__target {
    mha_stage stage;
    int slot;
    mha_dtype stored;        /* the type it was recorded in */
    bool wide;               /* recorded in F64: float64 explains it first */
    bool by_query;           /* lines of the tensor belong to query rows, which can be left out */
    size_t row, columns;     /* elements of a batch row and of a line as computed */
    size_t recorded_columns; /* of a line of the tensor, which may lack the extra rows of S' */
    double *values;
    double rms, largest;
    mha__storage storage;
    mha__allowed allowed[2]; /* what the judge allows in float32 and float64 */
    bool states[2];          /* all of that stands in the file */
    double noise[2];         /* what float32 and float64 may explain */
} mha__target;

/* One candidate: entries of the list of variants, -1 for none, and how well it fits. */
typedef struct mha__candidate {
    int a, b;
    size_t order;     /* variants it takes */
    bool complete;    /* compared on all rows that are judged */
    bool numbers;     /* finite and not at the same places */
    bool unchanged;   /* it does nothing on the rows that are judged */
    double max_abs, relative;
    double excess;    /* largest |x - y| - u |y|, u being the unit roundoff of the stored type if that is a short one */
    double needed[2]; /* the least atol with which the judge would pass it */
    double louder;    /* errors of scores grow with the scale: this many times those of the case */
} mha__candidate;

typedef struct mha__search {
    const mha_case *c;
    mha__variant_inputs *inputs;
    mha__knobs said; /* what the case says */
    mha__target target;
    mha__arena pool;
    unsigned char *judged; /* (B, T_q): query rows on which candidates are compared */
    unsigned char *screened; /* fewer, for pairs */
    double *distance;      /* (B, T_q): from the tensor to what the case says */
    double *base;          /* the stage as the case says */
    bool in_part;          /* not all rows are judged */
    size_t workers;
    mha__variant_bench *bench[MHA_SEARCH_WORKERS];
    double *computed[MHA_SEARCH_WORKERS];
    mha__candidate *candidates;
    size_t singles, count;
    const mha_progress *progress;
    size_t done, total;
} mha__search;

/* Chooses the rows to be judged, all of a small case; derives what rounding may explain. Leaves the stage as the case
 * says in `base`. `judged` and `distance` are zero before. */
mha_status mha__search_prepare(mha__search *s, mha_error *error);
/* Chooses the rows on which pairs are tried first: some of the judged ones. */
void mha__search_screen(mha__search *s);
/* Computes candidate *x on the rows of `kept`, in the room of a worker, and compares it with the tensor. */
void mha__search_fit(const mha__search *s, size_t worker, const unsigned char *kept, mha__candidate *x);
/* The case as it says, but for its number of query heads: which of the other numbers that fit its widths comes nearest
 * to the tensor, on the rows that are judged. *heads is 0 when there is none, or when a weight, a cached row or a mask
 * is cut by head and tells the number. */
mha_status mha__search_other_heads(const mha__search *s, size_t *heads, mha__candidate *best, mha_error *error);

#endif
