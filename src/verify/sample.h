/* A part of the query rows of a large case, on which it is checked. */
#ifndef MHA_VERIFY_SAMPLE_H
#define MHA_VERIFY_SAMPLE_H

#include "base/arena.h"
#include "mha/case.h"

/* Some of the T query rows, the same of every batch row and under every head. */
typedef struct mha__sample {
    const bool *rows; /* T */
    size_t count;
} mha__sample;

/* Multiply-adds of one forward of a case. */
double mha__case_work(const mha_case *c);
/* Chooses the rows of a case that the exact path is asked for; *sample is NULL where these are all. MHA_NO_MEMORY. */
mha_status mha__sample_of(const mha_case *c, mha__arena *pool, const mha__sample **sample, mha_error *error);
/* The axis of queries of a stage in the plan's shape, if it is one that is attended for; else -1. */
int mha__sample_axis(mha_stage stage);
/* The same of a result as the file of a case shapes it, with `rank` extents. */
int mha__sample_axis_of(const mha_case *c, mha_stage stage, int rank);
/* Copies the rows of a sample, in their order, along an axis; `to` has so many. */
void mha__sample_copy(const mha__sample *sample, int axis, const mha_view *from, const mha_view *to);
/* Which of all rows is row `index` of a sample. */
size_t mha__sample_row(const mha__sample *sample, size_t index);

#endif
