/* One candidate, computed and compared with the tensor. */
#ifndef MHA_VERIFY_DIAGNOSE_SEARCH_FIT_H
#define MHA_VERIFY_DIAGNOSE_SEARCH_FIT_H

#include "verify/diagnose/search/search.h"

/* Whether a computed element x and a recorded element y count as equal: equal numbers; NaN on both sides; x is a
 * hidden score and y the lowest number of the recorded type; x overflows the recorded type and y is infinite. */
bool mha__search_same(const mha__target *t, double x, double y);
/* Whether the time limit is reached, or the memory limit leaves no memory for candidates. */
bool mha__search_is_over(const mha__search *s);
/* Computes candidate *x on a region, with a worker's bench, and compares it with the tensor. Past a limit it is untried
 * and fits nothing; the unmodified case is always fitted. */
void mha__search_fit(const mha__search *s, size_t worker, const mha__region *on, mha__candidate *x);
/* Fits a bug with its numbers, which must live as long as the search, on all that is checked, and appends it to the
 * single candidates, which must be the only ones so far. */
void mha__search_append(mha__search *s, size_t index, const double *numbers);
/* How far numbers are from those of the unmodified case. */
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
/* How many elements a region has. */
size_t mha__search_elements(const mha__search *s, const mha__region *on);
/* Computes a candidate on a region and stores the difference of each element; 0 where no finite difference exists. */
void mha__search_differences(const mha__search *s, size_t worker, const mha__region *on, const mha__candidate *x,
                             double *differences);
/* Fits the case with each other number of query heads that its widths allow, and returns the one that comes nearest to
 * the tensor on the checked rows (other_heads.c). *heads is 0 when there is none, or when a weight, a cached row or a
 * mask has an axis of heads and so fixes the number. */
mha_status mha__search_other_heads(const mha__search *s, size_t *heads, mha__candidate *best, mha_error *error);

#endif
