/* State of one mha_case_diagnose call: the tensor, the rows that are checked, the candidates. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_SEARCH_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_SEARCH_H

#include "base/base.h"
#include "verify/bugs/bugs.h"
#include "verify/engine/runner.h"
#include "verify/tolerance/tolerance.h"

enum {
    MHA_SEARCH_TIES = 4,    /* numbers of one bug that are reported, because they do the same */
    MHA_SEARCH_MATCHES = 4, /* matches in some places alone, and without a name, that are reported */
    MHA_SEARCH_TEXT = 64    /* bytes of the text of numbers and places */
};

/* The tensor to be explained, batch row by batch row, in the order in which bugs are computed. */
typedef struct mha__target {
    mha_stage stage;
    int slot;
    mha_dtype stored;                  /* the type in which it was recorded */
    bool wide;                         /* recorded in F64, so explained to float64 accuracy first */
    bool by_query;                     /* lines of the tensor belong to query rows, which can be left out */
    size_t row, columns;               /* elements of a batch row, and of a line, as computed */
    size_t recorded_columns;           /* elements of a line of the tensor, which may lack the extra rows of S' */
    const unsigned char *rows_present; /* (B, T_q) where the stage is by query: mha__search.rows_present; else NULL */
    double *values;
    double rms, largest;   /* of the finite elements */
    bool has_nan, is_zero; /* some element is NaN; every element is 0 */
    mha__storage storage;
    mha__allowed allowed[2]; /* what the checker allows in float32 and float64 */
    bool states[2];          /* the file states all of that tolerance */
    double noise[2];         /* noise floor: the largest error that rounding in float32, in float64 explains */
} mha__target;

/* One candidate: up to two indices into the list of bugs (-1: none), and how well it fits. */
typedef struct mha__candidate {
    int a, b;
    const double *numbers;          /* of a; NULL: it has none */
    const double *numbers_b;        /* of b */
    size_t unnamed;                 /* 0, or 1 + the index of a change without a name */
    size_t order;                   /* number of bugs */
    bool complete;                  /* compared on all rows that are checked */
    bool finite;                    /* finite in exactly the elements in which the tensor is */
    bool unchanged;                 /* equal to the unmodified case on the checked rows */
    bool untried;                   /* a limit was reached before it was fitted */
    size_t apart[2];                /* numbers that rounding in float32, in float64 does not explain */
    double max_abs, relative, lean; /* of the differences: the largest; rms and mean, by the rms of the tensor */
    double excess;    /* largest |x - y| - u |y|; u: unit roundoff of the stored type, 0 from 32 bits on */
    double needed[2]; /* least atol with which the checker would pass it, in float32 and float64 */
    double louder;    /* errors of scores grow with the scale: its scale by the case's, at least 1 */
} mha__candidate;

/* What is compared: the lines of some query rows (B, T_q), the first columns of each. */
typedef struct mha__region {
    unsigned char *rows;
    size_t columns;
} mha__region;

/* The case without any bug. */
typedef struct mha__unmodified {
    mha__program program;
    double *stage;       /* the tensor's stage, of the checked rows */
    const double *whole; /* the same of all rows: `stage`, or in float32 where a part is checked */
    double *distance;    /* (B, T_q): of each row from the tensor */
} mha__unmodified;

/* Memory of each thread. */
typedef struct mha__search_workers {
    size_t count;
    mha__runner *bench[MHA__MOST_RUNNERS];
    double *computed[MHA__MOST_RUNNERS];
    double *table[MHA__MOST_RUNNERS]; /* numbers of a change without a name */
} mha__search_workers;

typedef struct mha__candidates {
    mha__candidate *all;
    size_t singles, count; /* the unmodified case and single bugs come first, pairs last */
} mha__candidates;

typedef struct mha__search_progress {
    const mha_progress *caller;
    size_t done, total;
    size_t alone; /* of the total, those that are no pairs */
} mha__search_progress;

/* What is asked of a search. */
typedef struct mha__search_wish {
    const char *tensor; /* its name, see mha__target_find */
    int threads;
    const mha_progress *progress; /* may be NULL */
    const mha_case *whole;     /* NULL, or: the case is a slice of this one, and only what looks at one head is tried */
    const mha_diagnosis *only; /* NULL, or: only what it names is tried */
    bool known_visibility;     /* what it leaves undecided was looked at in all rows of a slice of the same batch row */
    const mha_case *slice;     /* NULL, or: a slice of the case, in which all that looks at one head was refuted */
    const mha_diagnosis *refuted; /* its diagnosis: what comes close there is tried again */
    double until;                 /* on the clock of mha__clock_seconds: when nothing more is tried */
    double memory;                /* bytes that the search may take */
} mha__search_wish;

typedef struct mha__search {
    const mha__search_wish *wish;
    const mha_case *asked; /* the case as it is */
    const mha_case *c;     /* the same; of a ragged batch: with its sequences as batch rows of the longest length */
    mha__inputs *inputs;
    mha__target target;
    mha__unmodified unmodified;
    mha__arena pool;
    unsigned char *rows_present; /* (B, T_q): rows that are queries, not padding of a shorter sequence */
    unsigned char *rows_checked; /* (B, T_q): rows on which candidates are compared */
    bool in_part;                /* not all rows are checked */
    mha__region region_first;    /* the first pass: every pair and every choice of a number */
    mha__region region_second;   /* the second pass, more rows: those that fit best in the first */
    mha__region region_full;     /* the checked rows, all columns */
    mha__search_workers workers;
    mha__candidates candidates;
    struct mha__solving *solving;    /* of mha__search_solve */
    struct mha__changes *changes;    /* of mha__search_unnamed */
    struct mha__pair_search *pairs;  /* of mha__search_pairs */
    const struct mha__places *there; /* NULL, or: only what lies there is compared (in_places.c) */
    mha__search_progress progress;
    double begun;   /* on the clock of mha__clock_seconds */
    size_t untried; /* candidates that a limit left untried */
    bool no_time;   /* some of them were left untried so that time is left for the report */
    bool no_memory; /* some of them, or all, would take more than the memory limit */
    bool halted;    /* the memory limit leaves no memory for candidates */
} mha__search;

static inline mha_status mha__search_no_memory(const mha__search *s, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, s->c->name, "no memory to diagnose the case");
}

#endif
