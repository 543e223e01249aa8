/* Memory of results: apart from inputs and from each other. */
#ifndef MHA_ATTENTION_APART_H
#define MHA_ATTENTION_APART_H

#include "attention/call/resolved.h"

/* MHA_INVALID when the output, a kept stage or the partial softmaxes have several elements in one place, or share
 * memory with an input, a mask, a rotation table, a weight, the cache or another stage. Rows of one tensor that lie
 * side by side (query, key, value and output as columns of one packed tensor) do not. */
mha_status mha__expect_apart(const mha__resolved *r, mha_error *error);

#endif
