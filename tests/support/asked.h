/* Test cases of the conformance suite answered by this library, and looked up by name. */
#ifndef TEST_ASKED_H
#define TEST_ASKED_H

#include "mha/lab.h"

/* The index of a test case; the test fails where there is none. */
size_t asked_index(const char *name);
/* The test case of that name; the test fails where it cannot be made. */
mha_test_case *asked(const char *name, mha_dtype dtype, const mha_conform_choices *choices);

/* Memory for a result: the output, of any floating type, and lse in F32; no gradients. */
mha_test_result asked_memory(const mha_test_case *q, mha_dtype dtype);
void asked_free(mha_test_result *result);

/* Results a test case on a path, from inputs widened to F32, the output rounded to `dtype` at last. */
mha_test_result asked_path(const mha_test_case *q, mha_path path, mha_dtype dtype);

/* The exact result in a type: the output, lse in F32, and gradients where they are asked for. */
mha_test_result asked_exact(mha_test_case *q, mha_dtype dtype);

/* Whether a result is right; `reason` (400 bytes, may be NULL) says why not. */
bool asked_passes(mha_test_case *q, const mha_test_result *result, char *reason);

/* A bug that is no bug in float32: a right kernel may round so. */
#define ASKED_RIGHT_IN_FLOAT32 "softmax-base-2-rounded"

#endif
