/* State of one mha_case_diagnose call: the tensor, the rows that are checked, the candidates; and its steps. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_SEARCH_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_SEARCH_H

#include "base/base.h"
#include "verify/bugs/bugs.h"
#include "verify/engine/runner.h"
#include "verify/tolerance/tolerance.h"

enum {
    MHA_SEARCH_TIES = 4,    /* numbers of one bug that are reported, because they do the same */
    MHA_SEARCH_MATCHES = 4, /* matches in some places, and without a name, that are reported */
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
    uint64_t heads;                 /* bits: heads with the last of them, before W_O; 0: all */
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

/* The compared elements: the lines of some query rows (B, T_q), the first columns of each. */
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
    double *heads;       /* of an output, (B, T_q, h*d_v); NULL: not computed */
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
    size_t alone; /* the number of single bugs */
} mha__search_progress;

/* The request of a search. */
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
    double *undone;                  /* of W_O W_O^T the Cholesky factor, once solvers need it (look.c) */
    bool can_undo;                   /* it has one */
    struct mha__solving *solving;    /* of mha__search_solve */
    const mha__candidate *with;      /* NULL, or: a bug that all candidates have, too */
    struct mha__changes *changes;    /* of mha__search_unnamed */
    struct mha__pair_search *pairs;  /* of mha__search_pairs */
    struct mha__mixed_heads *mixed;  /* NULL, or: candidates are tried in some heads before W_O (solve/in_heads.c) */
    const struct mha__places *there; /* NULL, or: only these places are compared (in_places.c) */
    mha__search_progress progress;
    double until;   /* on the clock of mha__clock_seconds: when nothing more is tried, at most wish->until */
    size_t untried; /* candidates that a limit left untried */
    bool no_time;   /* some of them were left untried so that time is left for the report */
    bool no_memory; /* some of them, or all, would take more than the memory limit */
    bool halted;    /* the memory limit leaves no memory for candidates */
} mha__search;

static inline mha_status mha__search_no_memory(const mha__search *s, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, s->c->name, "no memory to diagnose the case");
}

/* ---------------------------------------------------------------- the tensor (target.c) */

/* Finds a recorded tensor by its name ("expected.output", or only the stage); NULL: the output, or else the last stage
 * that is recorded. False: there is none. */
bool mha__target_find(const mha_case *c, const char *name, int *wide, int *slot);
/* A recorded tensor in the order and shape in which bugs compute it, batch row by batch row. */
mha_view mha__target_view(const mha_case *c, const case_expected *e, mha_stage stage);
/* Reads the tensor into s->target, and takes the memory whose size follows from it. MHA_NOT_FOUND, MHA_UNSUPPORTED (a
 * stage of the absorbed form, a tensor without elements), MHA_NO_MEMORY. */
mha_status mha__target_load(mha__search *s, const char *name, mha_diagnosis *d, mha_error *error);

/* ---------------------------------------------------------------- rows that are compared, and rounding (part.c) */

/* Chooses the rows to be checked (all rows of a small case), derives what rounding may explain, and computes the stage
 * of the unmodified case. `rows_checked` and `distance` must be zero before. */
mha_status mha__search_prepare(mha__search *s, mha_error *error);
/* Computes the stage of the case as a fused kernel of a lower precision gives it: all rows of it, or of a slice those
 * that are checked. */
mha_status mha__search_model(mha__search *s, mha_dtype type, double *values, mha_error *error);
/* Chooses the regions of the three passes. */
void mha__search_choose_regions(mha__search *s);
/* Marks query rows of one batch row: `spread` of them at equal distances, and the `far` farthest of the others. Only
 * rows marked in `among` are considered. */
void mha__search_mark(const mha__search *s, size_t b, size_t far, size_t spread, const unsigned char *among,
                      unsigned char *marks);

/* ---------------------------------------------------------------- one candidate (fit.c) */

/* Whether a computed element x and a recorded element y count as equal: equal numbers; NaN on both sides; x is a
 * hidden score and y the lowest number of the recorded type; x overflows the recorded type and y is infinite. */
bool mha__search_same(const mha__target *t, double x, double y);
/* Whether the time limit is reached, or the memory limit leaves no memory for candidates. */
bool mha__search_is_over(const mha__search *s);
/* Computes candidate *x on a region, with a worker's bench, and compares it with the tensor. Past a limit it is untried
 * and fits nothing; the unmodified case is always fitted. */
void mha__search_fit(const mha__search *s, size_t worker, const mha__region *on, mha__candidate *x);
/* Fits a candidate on the first rows, and on all that is checked if it may explain the tensor there: it is complete
 * then. True if it may explain all. */
bool mha__search_try(const mha__search *s, size_t worker, mha__candidate *x);
/* Fits a bug with its numbers, which must live as long as the search, on all that is checked, and appends it to the
 * single candidates, which must be the only ones so far. */
void mha__search_append(mha__search *s, size_t index, const double *numbers);
/* Distance of numbers from the unmodified case. */
typedef struct mha__moved {
    double most, rms;
} mha__moved;

/* Compares numbers of the stage, all rows of it, with the tensor and with the unmodified case on a region. */
void mha__search_hold(const mha__search *s, const mha__region *on, const double *values, mha__candidate *x,
                      mha__moved *moved);
/* Whether a candidate may explain the tensor, checking by the region on which it was fitted. */
bool mha__search_is_promising(const mha__search *s, const mha__candidate *x);
/* True if an answer leaves a bug undecided. */
bool mha__leaves_undecided(const mha_diagnosis *d, const char *bug);
/* True if the search tries a bug, or a pair (b -1: none), with program `k`. */
bool mha__search_tries(const mha__search *s, int a, int b, const mha__program *k);
/* True if the search needs no row that shows a bug with this program: a slice that sees the same keys has none. */
bool mha__search_knows_visibility(const mha__search *s, int bug, const mha__program *k);
/* Writes the program of a candidate; false if it does not apply. `worker`: memory for numbers of an unnamed change. */
bool mha__search_program(const mha__search *s, size_t worker, const mha__candidate *x, mha__program *program);
/* Counts one more candidate as done, and tells the caller if this is its thread. */
void mha__search_step(mha__search *s, size_t worker);
/* Counts so many candidates as untried. */
void mha__search_leave(mha__search *s, size_t count);
/* True if the search may look for unnamed changes and for bugs in some places: it has the whole case. */
static inline bool mha__search_is_wide(const mha__search *s)
{
    return !s->wish->whole && !s->wish->only && !s->inputs->sequences && s->c->kind != CASE_ROPE && !s->target.is_zero;
}
/* How many elements a region has. */
size_t mha__search_elements(const mha__search *s, const mha__region *on);
/* Computes a candidate on a region and stores the difference of each element; 0 where no finite difference exists. */
void mha__search_differences(const mha__search *s, size_t worker, const mha__region *on, const mha__candidate *x,
                             double *differences);
/* Fits the case with each other number of query heads that its widths allow, and returns the one that comes nearest to
 * the tensor on the checked rows (other_heads.c). *heads is 0 when there is none, or when a weight, a cached row or a
 * mask has an axis of heads and so fixes the number. */
mha_status mha__search_other_heads(const mha__search *s, size_t *heads, mha__candidate *best, mha_error *error);

/* ---------------------------------------------------------------- matches (report.c) */

/* Whether a candidate reproduces the tensor to float32 or float64 accuracy; `best`: the least excess of all. */
bool mha__search_is_exact(const mha__search *s, const mha__candidate *x, int wide, double best);
/* Whether a candidate does not reproduce the tensor, checking by a region on which it was fitted, and is of no account
 * for what does. */
bool mha__search_is_refuted(const mha__search *s, const mha__candidate *x);
/* True if a candidate that leaves this part of the tensor may be among the closest. */
bool mha__search_is_close(const mha__search *s, double relative);
/* The least number of bugs in an exact candidate with at most `most`; 3 when no candidate is exact. */
size_t mha__search_least_order(const mha__search *s, int wide, size_t most);
mha_bug_match mha__search_explain(const mha__search *s, const mha__candidate *x, bool exact, int wide);
/* Writes those of n candidates that reproduce the tensor, at most MHA_SEARCH_MATCHES. `p`: the places of the last bug
 * of each (NULL: all). Returns their number. */
size_t mha__report_found(const mha__search *s, const mha__candidate *all, size_t n, const struct mha__places *p,
                         mha_bug_match *found);
/* Adds n matches. */
mha_status mha__report_add(const mha__search *s, const mha_bug_match *found, size_t n, mha_diagnosis *d,
                           mha_error *error);
/* Reports all candidates of `order` that reproduce the tensor; `which`: memory for an index of each. */
mha_status mha__report_exact(mha__search *s, size_t order, int wide, size_t *which, mha_diagnosis *d, mha_error *error);
/* Reports another number of heads when it reproduces the tensor and no single bug does. */
mha_status mha__report_other_heads(mha__search *s, mha_diagnosis *d, mha_error *error);
/* Reports what a kernel of low precision may have rounded to the tensor: the case, or it with one bug. `which`:
 * memory for an index of each candidate. */
mha_status mha__report_low_precision(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);
/* Whether a candidate changes nothing but the precision of some numbers. */
bool mha__search_only_rounds(const mha__search *s, const mha__candidate *x);
/* Reports one rounding that explains most of the difference, more than chance does: as the closest to a match with the
 * case in a lower precision, or as a near match if there is no match. `which`: memory for one index. */
mha_status mha__report_rounding(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);
/* Reports, when nothing is exact, the near candidates and the three closest ones that differ from each other. */
mha_status mha__report_closest(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error);

/* ---------------------------------------------------------------- bugs in some places (in_places.c) */

/* Tries to reproduce the tensor where the search looks, which are places p; how many matches it writes to `found`, at
 * most MHA_SEARCH_MATCHES. */
typedef size_t mha__search_there(mha__search *s, const struct mha__places *p, mha_bug_match *found);
/* The same by single bugs, which the search must have tried. */
mha__search_there mha__search_singles;
/* Adds to the matches bugs that reproduce the tensor if they occur only in some batch rows, heads or query rows. */
mha_status mha__search_in_places(mha__search *s, mha__search_there *try_there, mha_diagnosis *d, mha_error *error);

/* The same of outputs, in whose rows W_O mixes the heads (solve/in_heads.c). */
mha_status mha__search_in_heads(mha__search *s, mha__search_there *try_there, mha_diagnosis *d, mha_error *error);

/* ---------------------------------------------------------------- unnamed changes and pairs (unnamed.c, pairs.c) */

/* Adds to the matches the changes without a name that reproduce the tensor, everywhere or in some batch rows, heads or
 * query rows only; the search must have tried all bugs. */
mha_status mha__search_unnamed(mha__search *s, mha_diagnosis *d, mha_error *error);

/* Finds the numbers of all bugs with a real number that have bug s->with, too, and writes those pairs that may explain
 * the tensor to `found`; how many, at most the number of bugs (solve/solve.c). After mha__search_solve. */
size_t mha__search_solve_with(mha__search *s, mha__candidate *found);
/* Writes the program of a candidate of two changes; true if each changes the program of the other, and their order does
 * not matter. */
bool mha__search_are_two(const mha__search *s, size_t worker, const mha__candidate *x, mha__program *both);
/* Adds to the matches pairs that reproduce the tensor: of all bugs without numbers, bugs with a number of a list and
 * changes without a name. The search must have tried each of them singly, and checks all rows. */
mha_status mha__search_pairs(mha__search *s, mha_diagnosis *d, mha_error *error);

#endif
