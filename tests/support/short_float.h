/* Floating types of 16 and 8 bits, written by their bit patterns. */
#ifndef TEST_SHORT_FLOAT_H
#define TEST_SHORT_FLOAT_H

#include "mha/tensor.h"

/* The pattern that is nearest to x; of two such the even one. */
unsigned short_float_pattern(double x, mha_dtype type);
/* x cut to the 8 bits of BF16, towards zero. */
double short_float_cut(float x);
/* Writes element i of a contiguous view. */
void short_float_set(const mha_view *view, size_t i, unsigned pattern);

#endif
