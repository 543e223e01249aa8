/* The parts of planning a call: its settings against its sizes, memory of results, the workspace. */
#ifndef MHA_ATTENTION_PLAN_H
#define MHA_ATTENTION_PLAN_H

#include "attention/call/resolved.h"

/* Checks the norms of q and k, and gives a norm to heads that only the rule normalises. */
mha_status mha__validate_norms(mha__resolved *r, mha_error *error);
/* Checks masks, lengths, windows, rotation and numbers of a call whose sizes are known, and fills in the defaults of
 * rotation and norms. MHA_INVALID and MHA_UNSUPPORTED name the field. */
mha_status mha__validate_semantics(mha__resolved *r, mha_error *error);
/* Checks that the path can compute in the precision that the call has. The blas and fast paths round no weight and no
 * cached row: these must be BF16. */
mha_status mha__validate_precision(const mha__resolved *r, mha_error *error);

/* Whether the last axes of a view are those of `full`, from the right; extents of 1 are broadcast. The last may be
 * short, or any where `full` has SIZE_MAX. */
mha_status mha__expect_broadcast(const char *name, const mha_view *v, const size_t *full, int rank, bool may_be_short,
                                 mha_error *error);
/* Checks the type of a mask's values by its kind, and their shape as above. */
mha_status mha__mask_check(const char *name, const mha_mask *mask, const size_t *full, int full_rank, bool may_be_short,
                           mha_error *error);
/* Checks a pattern against the sizes of its call; the message names the part. */
mha_status mha__pattern_validate(const mha__resolved *r, mha_error *error);

/* MHA_INVALID when the output, a kept stage or the partial softmaxes have several elements in one place, or share
 * memory with an input, a mask, a rotation table, a weight, the cache or another stage. Rows of one tensor that lie
 * side by side (query, key, value and output as columns of one packed tensor) do not. */
mha_status mha__expect_apart(const mha__resolved *r, mha_error *error);

/* Fills in r->layout. Returns the bytes of aligned workspace that the call takes, or SIZE_MAX for too many. */
size_t mha__lay_out(mha__resolved *r);

#endif
