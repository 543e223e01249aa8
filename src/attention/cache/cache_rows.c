/* Where the rows of a cache lie: in its own memory and, when it continues other caches, in theirs. */
#include "attention/cache/cache_memory.h"
#include "base/heads.h"
#include "compute/half.h"
#include "compute/kernels/kernels.h"

size_t mha__cache_row_elements(const mha_cache_spec *s, size_t d)
{
    const size_t behind = 2 * (size_t)MHA_ROW_SCALE; /* at most: the scale, and what fills a word */
    return s->dtype != MHA_I8 || d == 0 ? d : d > SIZE_MAX - behind ? SIZE_MAX : mha__byte_row(d);
}

mha_view mha__cache_memory(const mha_cache *cache, bool values)
{
    const mha_cache_spec *s = &cache->spec;
    const size_t shape[4] = {s->batch, s->kv_heads, s->capacity - cache->shared,
                             mha__cache_row_elements(s, values ? s->d_v : s->d_k)};
    return mha_view_of(values ? cache->values : cache->keys, s->dtype, 4, shape);
}

mha_view mha__cache_stored(const mha_cache *cache, bool values, size_t from, size_t n)
{
    const mha_view all = mha__cache_memory(cache, values);
    return mha_view_slice(&all, 2, from - cache->shared, n);
}

const mha_cache *mha__cache_trunk(const mha_cache *cache)
{
    return cache->trunk;
}

mha_status mha__cache_check_trunks(const mha_cache *cache, mha_error *error)
{
    for (; cache->trunk; cache = cache->trunk)
        if (cache->trunk->losses != cache->trunk_losses)
            return mha__fail(
                error, MHA_INVALID, "cache",
                "expected the cache that it continues as it was, found lost or replaced rows; continue that one again");
    return MHA_OK;
}

size_t mha__cache_segments(const mha_cache *cache)
{
    size_t n = 1;
    for (; cache->trunk; cache = cache->trunk)
        n++;
    return n;
}

mha__cache_rows mha__cache_segment(const mha_cache *cache, size_t number)
{
    const mha_cache *holder = cache;
    size_t to = cache->length;
    for (size_t i = mha__cache_segments(cache) - 1; i > number; i--, holder = holder->trunk)
        to = holder->shared;
    const size_t from = holder->shared;
    mha_view rows[2];
    for (int v = 0; v < 2; v++) {
        rows[v] = mha__cache_stored(holder, v, from, to - from);
        rows[v] = mha_view_slice(&rows[v], 3, 0, v ? holder->spec.d_v : holder->spec.d_k);
    }
    return (mha__cache_rows){from, cache->spec.batch / (holder->spec.batch ? holder->spec.batch : 1), rows[0], rows[1]};
}

void mha__cache_copy(const mha_cache *cache, bool values, const mha_view *to, int threads)
{
    for (size_t i = 0; i < mha__cache_segments(cache); i++) {
        const mha__cache_rows some = mha__cache_segment(cache, i);
        const mha_view rows = mha__swap_time_and_heads(values ? some.values : some.keys),
                       from = mha_view_slice(&rows, 3, 0, to->shape[3]),
                       target = mha_view_slice(to, 1, some.from, from.shape[1]);
        for (size_t k = 0; k < some.together; k++) { /* sequences k, k + together, ... */
            mha_view every = mha_view_slice(&target, 0, k, from.shape[0]);
            every.stride[0] = target.stride[0] * (ptrdiff_t)some.together;
            mha__widen(&every, &from, threads);
        }
    }
}
