/* Compares the stages that a forward kept with those of the oracle, element by element. */
#ifndef TEST_COMPARE_H
#define TEST_COMPARE_H

#include <stdbool.h>

#include "support/oracle.h"

/* The one tolerance of these tests. An element of `found` may differ from the oracle's value by the slack
 * the oracle carried through the equation (derived in oracle_error.h), plus the rounding of `found`'s own
 * type: 2^-24 |v| for F32, 2^-53 |v| for F64, or the smallest subnormal. NaN must meet NaN, infinity the
 * same infinity. Where the slack itself is infinite, anything passes: the format cannot hold what was computed
 * on the way.
 *
 * Returns true when all elements hold; otherwise `text` names the worst element (largest ratio of
 * difference to allowance), both values, the allowance and how many fail. */
bool compare_stage(const char *name, const mha_view *found, const oracle_stage *expected, char *text, size_t size);

/* The same bits in two views of equal shape and dtype; otherwise the first difference in words. */
bool compare_bits(const char *name, const mha_view *a, const mha_view *b, char *text, size_t size);

#endif
