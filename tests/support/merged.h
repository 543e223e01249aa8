/* How far an output may lie from that of one call when its keys were attended to in parts that are merged. */
#ifndef TEST_MERGED_H
#define TEST_MERGED_H

#include "mha/attention.h"

/* The largest finite magnitude of a view; 0 without data. */
double merged_largest(const mha_view *v);

/* The output bound of one process, plus what merging n parts one after the other adds to heads, through W_O. A part's
 * heads are weighted means of values, at most X; its |lse| is at most m, the largest |score| plus log of the terms.
 * `bound` is that of mha_error_bound, `unit` the roundoff of what is stored of a part. */
double merged_output(const mha_view *W_O, double X, double m, const double *bound, double unit, size_t n);

#endif
