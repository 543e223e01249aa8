/* The numbers of bugs that have some. */
#ifndef MHA_VERIFY_DIAGNOSE_SOLVE_H
#define MHA_VERIFY_DIAGNOSE_SOLVE_H

#include "verify/diagnose/search/fit.h"

/* How many bugs have numbers that can be looked for in the region of the second pass. */
size_t mha__search_count_solved(const mha__search *s);
/* Looks for these numbers, and appends the best ones to the single candidates, which must be the only ones so far:
 * those of bugs that may explain the tensor. */
mha_status mha__search_solve(mha__search *s, mha_error *error);
/* Appends the best numbers of the bugs that were seen to explain nothing, as far as they may come close, behind all
 * candidates: of those that only round, or of the others. mha__search_solve must have been called. */
void mha__search_solve_closest(mha__search *s, bool rounds);
/* Looks for the numbers of bug `index`, of which there is one for each head, batch row, key or weight, and appends
 * it. `pool`: memory until all such bugs are done. */
typedef mha_status mha__solver(mha__search *s, size_t index, mha__arena *pool, mha_error *error);
mha__solver mha__solve_heads, mha__solve_q_heads, mha__solve_factors, mha__solve_columns, mha__solve_kv_heads,
    mha__solve_batches, mha__solve_keys, mha__solve_values, mha__solve_key_rows, mha__solve_unwritten,
    mha__solve_queries, mha__solve_written, mha__solve_dropout, mha__solve_blocks, mha__solve_kv_blocks,
    mha__solve_lacking, mha__solve_by_heads;
/* The same for all bugs whose numbers are found in this way: SOLVE_HEADS and what follows it. */
mha_status mha__search_solve_each(mha__search *s, int how, mha_error *error);

/* The smallest of n distances; `own` where none is smaller than that one. */
size_t mha__solve_nearest(const double *far, size_t n, size_t own);
/* Appends bug `index` with an order that says what stands in each place, unless each says its own: its number mod
 * n. */
void mha__solve_offer(mha__search *s, size_t index, const double *order, size_t places, size_t n);

/* How the rows of the tensor are turned back into merged heads. */
typedef struct mha__unproject {
    bool can; /* false: the stage is another one, or W_O has more rows than columns, or very many */
    size_t width, columns;
    const double *W, *L, *bias; /* W NULL: there is no projection */
    double *less_bias;
} mha__unproject;

mha_status mha__unproject_begin(const mha__search *s, mha__arena *pool, mha__unproject *u, mha_error *error);
/* The merged heads x (h*d_v) of which a row (B, T_q) of the tensor is made; false: it is none that is checked. */
bool mha__unproject_row(const mha__search *s, const mha__unproject *u, size_t row, double *x);
/* A stage of a program on the checked rows; zeros in other rows. NULL without memory. */
double *mha__solve_stage(const mha__search *s, const mha__program *program, mha_stage stage, mha__arena *pool);
/* Turns the lower triangle of A (n, n) into L with L L^T = A; false when A is singular: of a diagonal element less than
 * this share is left. */
bool mha__cholesky(double *A, size_t n, double least);
/* Solves L L^T y = x for the n numbers of x, which y replaces. */
void mha__cholesky_solve(const double *L, size_t n, double *x);

#endif
