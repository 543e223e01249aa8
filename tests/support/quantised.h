/* Compares the values of quantised tensors with recorded ones, bit for bit. */
#ifndef TEST_QUANTISED_H
#define TEST_QUANTISED_H

#include "mha/file.h"

/* A tensor as F32, to be freed. */
float *read_values(const mha_file *file, const mha_file_tensor *tensor);
/* Fails unless each of `count` values has the same bits, or both are a NaN. */
void assert_same_values(const char *name, const float *found, const float *expected, size_t count);
/* Each tensor NAME of a file that a script in tests/peers recorded, beside NAME.values: there must be `count`. */
void check_recorded_values(const char *path, size_t count);

#endif
