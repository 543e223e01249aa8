/* Mistakes as somebody makes them in a kernel, planted in the oracle: none of this shares code with the library. */
#ifndef TEST_MISTAKES_H
#define TEST_MISTAKES_H

#include "support/oracle_run.h"

/* Mistakes in the rows of q and k, in the reading of heads and behind the softmax, and between the two: NULL past the
 * end. Their names are those of the library's variants, with the number of those that have one. */
const oracle_mistake *mistake_of_rows_at(size_t index);
const oracle_mistake *mistake_of_output_at(size_t index);
const oracle_mistake *mistake_of_scores_at(size_t index);

#endif
