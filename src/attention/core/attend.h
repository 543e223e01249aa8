/* The core of attention: scores, softmax, and the sum of the values. */
#ifndef MHA_ATTENTION_CORE_ATTEND_H
#define MHA_ATTENTION_CORE_ATTEND_H

#include "attention/core/terms/terms.h"

/* Computes the heads on the path of the plan. */
void mha__attend(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V, const mha_view *heads,
                 char *scratch);
size_t mha__attend_scratch(const mha__resolved *r);

#endif
