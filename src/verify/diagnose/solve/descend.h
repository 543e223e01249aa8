/* The numbers of a bug that come nearest to the tensor, by least squares. */
#ifndef MHA_VERIFY_DIAGNOSE_DESCEND_H
#define MHA_VERIFY_DIAGNOSE_DESCEND_H

#include "verify/diagnose/search/fit.h"

/* Memory of one worker for up to so many numbers at once. */
typedef struct mha__descent {
    const mha__search *s;
    size_t worker, elements;  /* in the region of the second pass */
    double *r, *tried, *J;    /* differences: of the present numbers, of others; derivatives by each number */
    double *products, *slope; /* J^T J, the lower triangle; -J^T r */
    double *normal, *step;    /* J^T J damped; the solution */
    double *x, *other;        /* numbers */
} mha__descent;

/* Takes memory from the pool of the search: for n numbers, `free_ones` of which are fitted at once. False without. */
bool mha__descent_begin(mha__search *s, size_t worker, size_t n, size_t free_ones, mha__descent *m);
/* Least squares after Levenberg and Marquardt from the first n numbers of m->x, which it improves, of the bug at
 * an index. */
void mha__descend(const mha__descent *m, size_t index, size_t n);

#endif
