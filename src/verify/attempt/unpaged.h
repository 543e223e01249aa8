/* Keys and values in pages as rows of a cache: what checks a call with pages. */
#ifndef MHA_VERIFY_ATTEMPT_UNPAGED_H
#define MHA_VERIFY_ATTEMPT_UNPAGED_H

#include "base/arena.h"
#include "mha/attention.h"
#include "verify/attempt/attempt.h"

/* The rows of B sequences, S the longest length, and what else a call with them says. */
typedef struct mha__unpaged {
    mha_view keys, values;          /* (B, h_kv, S, d), zeros after the last key; F32, or F64 as the pages have it */
    const int64_t *lengths, *offsets; /* (B): keys, and the position of query 0 where the call gives none */
} mha__unpaged;

/* Checks table and lengths, and copies the rows to `pool`. MHA_INVALID, MHA_NO_MEMORY. */
mha_status mha__unpage(const mha_pages *pages, size_t B, size_t T_q, mha__arena *pool, mha__unpaged *unpaged,
                       mha_error *error);
/* Makes `call`, which has been planned, one without pages, whose keys are cached rows: those of `unpaged`. `config`: of
 * its layer, or NULL. MHA_UNSUPPORTED: a ragged batch, keys of a longer sequence. */
mha_status mha__unpage_call(mha_call *call, const mha_config *config, mha__arena *pool, mha__unpaged *unpaged,
                            mha_error *error);
/* Makes stages that a call with these pages has kept those of `request`, the call without them. There the extra rows of
 * S' follow the longest sequence. Hidden keys follow the last key of a shorter one: the exact path gives their numbers
 * where the call with pages has zeros. A view of another shape than the call has stays as it is.
 * Errors: as of the exact path. */
mha_status mha__unpage_stages(const mha__unpaged *unpaged, const mha__request *request, mha_keep *kept, size_t count,
                              mha__arena *pool, mha_error *error);

#endif
