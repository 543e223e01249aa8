/* Rounding to the types of mha_precision, without the library's. */
#ifndef TEST_ROUNDED_H
#define TEST_ROUNDED_H

#include "mha/precision.h"

/* Whether tensors of the type have a scale. */
bool rounded_scaled(mha_dtype type);
/* TF32 rounds what a product reads; numbers are stored as floats. */
mha_dtype rounded_stored(mha_dtype type);
/* A number without a scale; n of them, with that of the largest; one in [0, 1], with that of 1. */
double rounded_number(mha_dtype type, double x);
void rounded_tensor(mha_dtype type, double *x, size_t n);
double rounded_share(mha_dtype type, double p);

#endif
