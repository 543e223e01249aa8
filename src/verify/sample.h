/* A part of the query rows of a large case, on which it is checked. */
#ifndef MHA_VERIFY_SAMPLE_H
#define MHA_VERIFY_SAMPLE_H

#include "base/arena.h"
#include "mha/case.h"
#include "verify/attempt/attempt.h"

/* Multiply-adds of one forward of a case. */
double mha__case_work(const mha_case *c);
/* Chooses the rows of a case that the exact path is asked for; *sample is NULL where these are all. MHA_NO_MEMORY. */
mha_status mha__sample_of(const mha_case *c, mha__arena *pool, const mha__sample **sample, mha_error *error);
/* The axis of mha__sample_axis in a result as the file of a case shapes it, with `rank` extents. */
int mha__sample_axis_of(const mha_case *c, mha_stage stage, int rank);

#endif
