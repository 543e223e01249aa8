/* Floats that are rounded to BF16 and stay floats: a product of two of them is exact in a float. */
#ifndef MHA_COMPUTE_BF16_FLOATS_H
#define MHA_COMPUTE_BF16_FLOATS_H

#include <stddef.h>

/* y[i] = x[i] rounded to the nearest BF16 number, ties to even, i < n; NaN stays NaN. y and x may be one. */
void mha__round_floats(size_t n, const float *x, float *y);

#endif
