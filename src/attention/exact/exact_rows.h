/* The rows of queries and keys of the exact path, once they are projected. */
#ifndef MHA_ATTENTION_EXACT_EXACT_ROWS_H
#define MHA_ATTENTION_EXACT_EXACT_ROWS_H

#include "attention/steps/steps.h"

/* Norm, rotation and scale by position of all rows (rows, heads, d_k) of a side, in place. */
void mha__exact_rows(const mha__resolved *r, mha__side side, double *x, size_t heads);

#endif
