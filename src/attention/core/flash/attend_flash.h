/* The core of attention of the fast path, block by block. */
#ifndef MHA_ATTENTION_CORE_FLASH_ATTEND_FLASH_H
#define MHA_ATTENTION_CORE_FLASH_ATTEND_FLASH_H

#include "attention/core/terms/terms.h"

/* The same as mha__attend_dense for the fast path, which never stores whole rows of scores or weights. If they are to
 * be kept, mha__attend_dense computes them before, so that the heads have the same bits whether or not anything is
 * kept. `scratch` is mha__attend_flash_scratch bytes in all. */
void mha__attend_flash(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                       const mha_view *heads, const float *bias_rows, const mha__relative_tables *relative,
                       char *scratch);
size_t mha__attend_flash_scratch(const mha__resolved *r);
bool mha__attend_flash_uses_blas(const mha__resolved *r); /* for scores or weights to keep */

#endif
