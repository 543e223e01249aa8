/* How a test compares, and what examinations of tests share. */
#ifndef MHA_VERIFY_POWER_CRITERION_H
#define MHA_VERIFY_POWER_CRITERION_H

#include "mha/power.h"

/* MHA_INVALID: a tolerance or limit that is negative or NaN, a cosine or share above 1, a precision that is none. */
mha_status mha__criterion_check(const mha_criterion *k, mha_error *error);
/* The factor and max_abs of mha_power_row, of contiguous F64 views of one shape, by rtol and atol or by the limit.
 * `square`: the sum of the squares of the right one. */
double mha__criterion_factor(const mha_criterion *k, const mha_view *made, const mha_view *right, double square,
                             double *max_abs);
/* Adds a row to the counts. */
void mha__power_count(mha_power *p, const mha_power_row *row);

#endif
