/* The core of attention: scores, softmax, and the sum of the values. */
#ifndef MHA_ATTENTION_CORE_ATTEND_H
#define MHA_ATTENTION_CORE_ATTEND_H

#include "attention/core/terms/relative.h"

/* attend.c: computes the heads on the path of the plan. */
void mha__attend(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V, const mha_view *heads,
                 char *scratch);
size_t mha__attend_scratch(const mha__resolved *r);

/* attend_shared.c: the same as mha__attend_dense for a cache that continues another one, of which K and V are the
 * last range. */
void mha__attend_shared(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                        const mha_view *heads, const float *bias_rows, const mha__relative_tables *relative,
                        char *scratch);
size_t mha__attend_shared_scratch(const mha__resolved *r);

#endif
