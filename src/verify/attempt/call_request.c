/* A call of a caller as the request that is checked: its cache and its pages become rows. */
#include "attention/cache/cache.h"
#include "base/base.h"
#include "verify/attempt/call_request.h"
#include "verify/attempt/unpaged.h"

/* The rows of the cache that stay when the new ones are appended: in place, or copied if they have 8 bits or belong to
 * several caches. */
static mha_status read_cache(mha__call_request *c, mha_error *error)
{
    const mha_cache *cache = c->call.cache;
    mha__request *request = &c->request;
    mha_view *const rows[] = {&request->past_key, &request->past_value};
    size_t kept;
    TRY(mha__cache_room(cache, c->plan.T_k, &kept, error));
    const size_t held = mha_cache_length(cache), gone = held - kept;
    for (int v = 0; v < 2; v++) {
        mha_view all = v ? mha_cache_values(cache) : mha_cache_keys(cache);
        request->cache = all.dtype;
        all.shape[2] = held;
        if (all.dtype == MHA_I8 || mha_cache_shared(cache) > 0) {
            all = mha__arena_view(&c->memory, all.dtype == MHA_F64 ? MHA_F64 : MHA_F32, all.rank, all.shape);
            if (!all.data)
                return mha__fail(error, MHA_NO_MEMORY, "cache", "no memory for its rows");
            TRY(mha_cache_read(cache, v, &all, error));
        }
        *rows[v] = mha_view_slice(&all, 2, gone, kept);
    }
    request->cache_rounds = request->cache == MHA_F16 || request->cache == MHA_BF16 || request->cache == MHA_I8;
    request->evicted = mha_cache_first(cache) + gone;
    return MHA_OK;
}

mha_status mha__call_request_begin(mha__call_request *c, const mha_layer *layer, const mha_call *call,
                                   mha_error *error)
{
    *c = (mha__call_request){.call = *call, .memory.allocator = mha__allocator_default()};
    c->request = (mha__request){.layer = layer, .call = &c->call};
    c->call.path = MHA_PATH_EXACT; /* the only one that accepts all magnitudes and types */
    c->call.output = c->call.partial = (mha_view){0};
    c->call.keep_count = 0;
    c->call.precision = (mha_precision){.inputs = MHA_F32};
    TRY(mha_plan_call(layer, &c->call, &c->plan, error));
    if (call->cache)
        return read_cache(c, error);
    if (!call->pages.keys.data)
        return MHA_OK;
    mha__unpaged rows;
    TRY(mha__unpage_call(&c->call, layer ? mha_layer_config(layer) : NULL, &c->memory, &rows, error));
    c->request.past_key = rows.keys, c->request.past_value = rows.values;
    return MHA_OK;
}

void mha__call_request_free(mha__call_request *c)
{
    mha__arena_free(&c->memory);
}
