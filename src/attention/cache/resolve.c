/* Where the new rows of a call stand in its cache, and how many keys the call then has. */
#include <limits.h>

#include "attention/call/definition.h"
#include "attention/cache/cache.h"
#include "attention/cache/pages.h"

static mha_status check_memory(const mha__resolved *r, mha_error *error)
{
    const mha__sizes *plan = &r->plan;
    if (mha__semantics_of(r)->place.has_key_offset && !mha__semantics_of(r)->place.has_offset &&
        !mha__semantics_of(r)->place.position_offset)
        return mha__fail(error, MHA_INVALID, "key_offset",
                         "expected the position of the queries with a cache; set `offset` or `position_offset`");
    TRY(mha__cache_check_trunks(r->cache, error));
    const mha_view keys = mha_cache_keys(r->cache), values = mha_cache_values(r->cache);
    const size_t k[4] = {plan->B, plan->h_kv, keys.shape[2], plan->d_k},
                 v[4] = {plan->B, plan->h_kv, keys.shape[2], r->latent.absorbed ? 0 : plan->d_v};
    TRY(mha__expect_shape(error, "cache keys", &keys, 4, k));
    TRY(mha__expect_shape(error, "cache values", &values, 4, v));
    if (plan->path != MHA_PATH_EXACT && keys.dtype == MHA_F64)
        return mha__fail(error, MHA_UNSUPPORTED, "cache",
                         "expected F32 or less for this path, found %s; use the exact path",
                         mha_dtype_name(keys.dtype));
    return MHA_OK;
}

mha_status mha__cache_advance(mha__resolved *r, mha_error *error)
{
    mha__sizes *plan = &r->plan;
    size_t kept;
    TRY(mha__cache_room(r->cache, plan->T_k, &kept, error));
    if (plan->path != MHA_PATH_EXACT && kept + plan->T_k > INT_MAX) /* CBLAS counts in int */
        return mha__fail(error, MHA_UNSUPPORTED, "cache", /* unreachable: a test would need 16 GiB */
                         "expected at most %d keys for this path, found %zu; use the exact path",
                         INT_MAX, kept + plan->T_k);
    r->kept = kept;
    r->held = mha_cache_length(r->cache);
    r->gone = mha_cache_first(r->cache);
    r->cached = mha__semantics_of(r)->place.key_offset + (int64_t)(r->gone + r->held);
    r->first_key = r->cached - (int64_t)kept;
    plan->S = kept + plan->T_k;
    return MHA_OK;
}

mha_status mha__cache_resolve(mha__resolved *r, mha_error *error)
{
    r->plan.S = r->plan.T_k;
    r->cached = r->first_key = mha__semantics_of(r)->place.key_offset;
    if (!r->cache)
        return MHA_OK;
    TRY(check_memory(r, error));
    return mha__cache_advance(r, error);
}
