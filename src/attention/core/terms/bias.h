/* Relative position bias: checked, turned into floats, and added to the scores of a row. */
#ifndef MHA_ATTENTION_CORE_TERMS_BIAS_H
#define MHA_ATTENTION_CORE_TERMS_BIAS_H

#include "attention/call/resolved.h"
#include "attention/core/terms/mask.h"

/* The row of a table of n rows for a query at position p and a key at position q; n when the rule has none: no rule, or
 * a position outside the grid. */
size_t mha__bias_row(const mha_bias *bias, size_t n, int64_t p, int64_t q);

/* Refuses a rule that does not fit its table or the positions of the call. */
mha_status mha__bias_check(const mha__resolved *r, mha_error *error);

/* Refuses positions outside the cells of a grid. */
mha_status mha__bias_expect_cells(const mha__resolved *r, const char *name, size_t cells, mha_error *error);

/* The table as floats, head by head, in an order in which the keys of a row follow each other: by distance, or by cell.
 * How many floats that takes; 0 without a rule. */
size_t mha__bias_floats(const mha__resolved *r);
void mha__bias_prepare(const mha__resolved *r, float *bias_rows);

/* Writes the bias of query i of a head for the keys of the interval, or adds it to the terms that are there. */
void mha__bias_terms(const mha__resolved *r, const float *bias_rows, const mha__sequence *s, size_t head, size_t i,
                     mha__interval keys, bool add, float *terms);

#endif
