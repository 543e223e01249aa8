/* Questions of the conformance suite answered by this library, and looked up by name. */
#ifndef TEST_ASKED_H
#define TEST_ASKED_H

#include "mha/mha.h"

/* The index of a question; the test fails where there is none. */
size_t asked_index(const char *name);
/* The question of that name; the test fails where it cannot be made. */
mha_question *asked(const char *name, mha_dtype dtype, const mha_conform_readings *readings);

/* Memory for an answer: the output, of any floating type, and lse in F32; no gradients. */
mha_answer asked_memory(const mha_question *q, mha_dtype dtype);
void asked_free(mha_answer *answer);

/* Answers a question on a path, from inputs widened to F32, the output rounded to `dtype` at last. */
mha_answer asked_path(const mha_question *q, mha_path path, mha_dtype dtype);

/* The exact answer in a type: the output, lse in F32, and gradients where they are asked for. */
mha_answer asked_exact(mha_question *q, mha_dtype dtype);

/* Whether an answer is right; `reason` (400 bytes, may be NULL) says why not. */
bool asked_passes(mha_question *q, const mha_answer *answer, char *reason);

#endif
