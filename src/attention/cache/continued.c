/* Caches that continue another one, the trunk: they share its rows, and store those that follow. The last rows of the
 * trunk, which fill no block of keys, are copied: what is shared are whole blocks, those that one cache would have. */
#include <string.h>

#include "attention/cache/cache_memory.h"
#include "compute/kernels/kernels.h"

/* The bytes of rows of sequence b and head g. */
static char *rows_of(const mha_view *stored, size_t b, size_t g)
{
    const mha_view sequence = mha_view_slice(stored, 0, b, 1);
    return mha_view_slice(&sequence, 1, g, 1).data;
}

mha_status mha_cache_continue(const mha_cache *trunk, size_t batch, size_t rows, const mha_allocator *allocator,
                              mha_cache **cache, mha_error *error)
{
    mha_cache_spec spec = trunk->spec;
    if (batch == 0 || spec.batch == 0 || batch % spec.batch != 0)
        return mha__fail(error, MHA_INVALID, "cache", "expected a number of sequences that is a multiple of the %zu "
                         "of the cache that is continued, found %zu",
                         spec.batch, batch);
    TRY(mha__cache_check_trunks(trunk, error));
    spec.batch = batch;
    spec.window = 0;
    if (!mha__add(trunk->length, rows, &spec.capacity))
        return mha__fail(error, MHA_INVALID, "cache", "expected rows that a size can count, found %zu after %zu", rows,
                         trunk->length);
    const size_t shared = trunk->length - trunk->length % mha__flash_block(spec.d_k, spec.d_v);
    mha_cache *made;
    TRY(mha__cache_allocate(&spec, shared, allocator, &made, error));
    made->length = made->least = trunk->length;
    made->first = trunk->first;
    made->trunk = trunk;
    made->trunk_losses = trunk->losses;
    for (int v = 0; v < 2; v++) {
        const mha_view from = mha__cache_stored(trunk, v, shared, made->length - shared),
                       to = mha__cache_stored(made, v, shared, made->length - shared);
        const size_t bytes = from.shape[2] * mha__stored_row_bytes(&from);
        for (size_t b = 0; b < batch && bytes > 0; b++)
            for (size_t g = 0; g < spec.kv_heads; g++)
                memcpy(rows_of(&to, b, g), rows_of(&from, b / (batch / trunk->spec.batch), g), bytes);
    }
    *cache = made;
    return MHA_OK;
}

size_t mha_cache_shared(const mha_cache *cache)
{
    return cache->shared;
}

mha_status mha_cache_reorder(mha_cache *cache, const size_t *from, mha_error *error)
{
    const size_t B = cache->spec.batch, together = cache->trunk ? B / cache->trunk->spec.batch : B;
    for (size_t b = 0; b < B; b++)
        if (from[b] >= B || from[b] / together != b / together)
            return mha__fail(error, MHA_INVALID, "cache",
                             "sequence %zu: expected one of %zu to %zu to take the rows from, found %zu", b,
                             b / together * together, b / together * together + together - 1, from[b]);
    const mha_view keys = mha__cache_stored(cache, false, cache->shared, cache->length - cache->shared),
                   values = mha__cache_stored(cache, true, cache->shared, cache->length - cache->shared);
    const size_t n = keys.shape[2], row_k = mha__stored_row_bytes(&keys), row_v = mha__stored_row_bytes(&values);
    const size_t widest = row_k > row_v ? row_k : row_v;
    const size_t room_bytes = cache->spec.kv_heads ? B * n * widest : 0; /* not above the bytes of the cache */
    char *room = mha__allocate(&cache->allocator, room_bytes);
    if (room_bytes && !room)
        return mha__fail(error, MHA_NO_MEMORY, "cache", "no memory for the rows of one head, %zu bytes", room_bytes);
    for (int v = 0; v < 2 && room_bytes; v++) {
        const mha_view *rows = v ? &values : &keys;
        const size_t bytes = n * mha__stored_row_bytes(rows);
        for (size_t g = 0; g < cache->spec.kv_heads && bytes > 0; g++) {
            for (size_t b = 0; b < B; b++)
                memcpy(room + b * bytes, rows_of(rows, b, g), bytes);
            for (size_t b = 0; b < B; b++)
                memcpy(rows_of(rows, b, g), room + from[b] * bytes, bytes);
        }
    }
    mha__release(&cache->allocator, room, room_bytes);
    cache->losses++;
    return MHA_OK;
}
