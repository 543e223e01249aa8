/* Refuses calls whose results would overwrite their inputs or each other. */
#ifndef MHA_ATTENTION_OVERLAP_H
#define MHA_ATTENTION_OVERLAP_H

#include "attention/resolved.h"

/* MHA_INVALID when the output, a kept stage or the partial softmaxes have several elements in one place, or share
 * memory with an input, a mask, a rotation table, a weight, the cache or another stage. Rows of one tensor that lie
 * side by side (query, key, value and output as columns of one packed tensor) do not. */
mha_status mha__expect_apart(const mha__resolved *r, mha_error *error);
/* False only when the views have no byte in common, as far as extents and strides tell. */
bool mha__may_meet(const mha_view *one, const mha_view *other);
/* MHA_INVALID when several elements of a view lie in one place, or when that would take too long to tell. */
mha_status mha__expect_own_places(const char *name, const mha_view *written, mha_error *error);

#endif
