/* How a test compares, for what examines tests. */
#ifndef MHA_VERIFY_POWER_CRITERION_H
#define MHA_VERIFY_POWER_CRITERION_H

#include "mha/power.h"

/* MHA_INVALID: a tolerance or limit that is negative or NaN, a cosine above 1, a precision that is none. */
mha_status mha__criterion_check(const mha_criterion *k, mha_error *error);
/* The factor of mha_power_row; `square`: the sum of the squares of what is right. */
double mha__criterion_factor(const mha_criterion *k, const mha_difference *d, double square);

#endif
