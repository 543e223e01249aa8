/* Results that were recorded from another library: read, and held against ours. */
#ifndef TEST_RECORDED_H
#define TEST_RECORDED_H

#include "mha/file.h"

#define RECORDED_EXACT 1e-12 /* of the largest number: transformers' own sums round in another order */

/* A tensor of a file in memory that the caller frees; data NULL: the file has none of this name. */
mha_view recorded_view(const mha_file *file, const char *name, mha_dtype dtype);
/* Fails unless an output of F64 is a recorded one, off by at most `bound` and RECORDED_EXACT. */
void recorded_meets(const char *what, const char *prefix, const mha_view *found, const mha_view *expected,
                    double bound);

#endif
