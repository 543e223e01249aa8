/* Shared code of building and running a trial. */
#ifndef TEST_TRIAL_PARTS_H
#define TEST_TRIAL_PARTS_H

#include "support/trial.h"

size_t trial_size_of(mha_dtype dtype);
/* (B, T, heads*d), or (B, T, heads, d) with bare, in the trial's layout, `gap` elements between neighbouring
 * rows, in memory from `memory`. */
mha_view trial_rows(rig *r, mha_dtype dtype, size_t T, size_t heads, size_t d, void *(*memory)(rig *, size_t));

#endif
