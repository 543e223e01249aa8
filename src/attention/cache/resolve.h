/* The cache of a call: checked, and the place of the call's new rows in it. */
#ifndef MHA_ATTENTION_CACHE_RESOLVE_H
#define MHA_ATTENTION_CACHE_RESOLVE_H

#include "attention/call/resolved.h"

/* Checks the cache against the sizes of the call, and fills in where the new rows stand. Without a cache all keys are
 * new. Errors: MHA_INVALID, MHA_UNSUPPORTED (its shape, its type, no room). */
mha_status mha__cache_resolve(mha__resolved *r, mha_error *error);

/* Fills in the positions of the new rows, which follow the rows in the cache. MHA_INVALID: the cache has no room. */
mha_status mha__cache_advance(mha__resolved *r, mha_error *error);

#endif
