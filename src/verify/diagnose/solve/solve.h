/* The numbers of bugs that have some. */
#ifndef MHA_VERIFY_DIAGNOSE_SOLVE_H
#define MHA_VERIFY_DIAGNOSE_SOLVE_H

#include "verify/diagnose/search/search.h"

/* How many bugs have numbers that can be looked for in the region of the second pass. */
size_t mha__search_count_solved(const mha__search *s);
/* Looks for these numbers, and appends the best ones to the single candidates, which must be the only ones so far:
 * those of bugs that may explain the tensor. */
mha_status mha__search_solve(mha__search *s, mha_error *error);
/* Appends the best numbers of the bugs that were seen to explain nothing, as far as they may come close, after all
 * candidates: of those that only round, or of the others. mha__search_solve must have been called. */
void mha__search_solve_closest(mha__search *s, bool rounds);
/* Looks for the numbers of bug `index`, one for each head, batch row, key or weight, and appends
 * it. `pool`: memory until all such bugs are done. */
typedef mha_status mha__solver(mha__search *s, size_t index, mha__arena *pool, mha_error *error);
mha__solver mha__solve_places, mha__solve_readers, mha__solve_factors, mha__solve_unwritten, mha__solve_keys,
    mha__solve_values, mha__solve_key_rows, mha__solve_dropout, mha__solve_lacking, mha__solve_by_heads;
/* The same for all such bugs, until one reproduces the tensor. */
mha_status mha__search_solve_each(mha__search *s, mha_error *error);

/* The smallest of n distances; `own` if none is smaller than that one. */
size_t mha__solve_nearest(const double *far, size_t n, size_t own);
/* Appends bug `index` with a number for each place, unless each is the place's own: its index mod n. */
void mha__solve_offer(mha__search *s, size_t index, const double *order, size_t places, size_t n);

/* ---------------------------------------------------------------- the tensor and the case (look.c) */

/* The merged heads of the tensor and stages of a program, of the checked rows. */
typedef struct mha__look {
    bool projected; /* W_O is undone */
    size_t width;   /* h*d_v */
    /* (B, T_q, width); NULL: the tensor is of another stage, or W_O cannot be undone: it has more rows than columns, or
     * very many */
    const double *found;
    double *weights, *heads, *values; /* of mha__look_at_program */
} mha__look;

mha_status mha__look_begin(mha__search *s, mha__arena *pool, mha__look *look, mha_error *error);
mha_status mha__look_at_program(const mha__search *s, const mha__program *program, mha__arena *pool, mha__look *look,
                                mha_error *error);
/* Copies the recorded weights; NULL: none are recorded. */
mha_status mha__look_for_weights(const mha__search *s, mha__arena *pool, double **weights, mha_error *error);
/* Computes a stage of a program on the checked rows; zeros in other rows. */
mha_status mha__look_at(const mha__search *s, const mha__program *program, mha_stage stage, mha__arena *pool,
                        double **values, mha_error *error);

/* ---------------------------------------------------------------- least squares (look.c) */

/* Adds to the lower triangle of A (n, n) and to r (n) the normal equations of y = sum x_i parts_i, for n parts of m
 * numbers. y may be NULL. */
void mha__equations_add(const double *parts, size_t n, size_t m, const double *y, double *A, double *r);
/* Replaces x, the right side, by the solution. Returns false if A is singular: of a diagonal element less than this
 * share is left. A becomes its Cholesky factor. */
bool mha__equations_solve(double *A, size_t n, double least, double *x);
/* The two halves of that. */
bool mha__cholesky(double *A, size_t n, double least);
void mha__cholesky_solve(const double *L, size_t n, double *x);

/* ---------------------------------------------------------------- descent (descend.c) */

/* Memory of one worker for up to so many numbers at once. */
typedef struct mha__descent {
    const mha__search *s;
    size_t worker, elements;  /* in the region of the second pass */
    double *r, *tried, *J;    /* differences: of the present numbers, of others; derivatives by each number */
    double *products, *slope; /* J^T J, the lower triangle; J^T r */
    double *normal, *step;    /* J^T J damped; the solution */
    double *x, *other;        /* numbers */
} mha__descent;

/* Takes memory from the pool of the search for n numbers; `free_ones` of them are fitted at once. Returns false
 * without memory. */
bool mha__descent_begin(mha__search *s, size_t worker, size_t n, size_t free_ones, mha__descent *m);
/* Least squares after Levenberg and Marquardt from the first n numbers of m->x, which it improves, of the bug at
 * an index. */
void mha__descend(const mha__descent *m, size_t index, size_t n);

#endif
