/* The key/value cache: projected, rotated rows of earlier calls, appended to and evicted by window. */
#include <string.h>

#include "attention/cache/cache_memory.h"
#include "base/heads.h"
#include "compute/half.h"
#include "compute/kernels/kernels.h"

static size_t room_bytes(const mha_cache_spec *s)
{
    return s->dtype == MHA_I8 ? (s->d_k > s->d_v ? s->d_k : s->d_v) * sizeof(float) : 0;
}

mha_status mha__cache_allocate(const mha_cache_spec *spec, size_t shared, const mha_allocator *allocator,
                               mha_cache **cache, mha_error *error)
{
    const size_t rows = spec->capacity - shared;
    const size_t k[4] = {spec->batch, spec->kv_heads, rows, mha__cache_row_elements(spec, spec->d_k)},
                 v[4] = {spec->batch, spec->kv_heads, rows, mha__cache_row_elements(spec, spec->d_v)};
    mha_view keys = mha_view_of(NULL, spec->dtype, 4, k), values = mha_view_of(NULL, spec->dtype, 4, v);
    size_t key_bytes, value_bytes;
    if (mha_view_elements(&keys) == SIZE_MAX || mha_view_elements(&values) == SIZE_MAX ||
        mha_dtype_bytes(spec->dtype, mha_view_elements(&keys), &key_bytes, NULL) != MHA_OK ||
        mha_dtype_bytes(spec->dtype, mha_view_elements(&values), &value_bytes, NULL) != MHA_OK)
        return mha__fail(
            error, MHA_INVALID, "cache",
            "expected fewer rows, found %zu of %zu heads for %zu batch rows, more bytes than a size can count", rows,
            spec->kv_heads, spec->batch);
    mha_allocator a = mha__allocator_or_default(allocator);
    mha_cache *c = mha__allocate(&a, sizeof *c);
    if (c)
        *c = (mha_cache){.allocator = a,
                         .spec = *spec,
                         .shared = shared,
                         .key_bytes = key_bytes,
                         .value_bytes = value_bytes,
                         .keys = mha__allocate(&a, key_bytes),
                         .values = mha__allocate(&a, value_bytes), .row = mha__allocate(&a, room_bytes(spec))};
    if (!c || (key_bytes && !c->keys) || (value_bytes && !c->values) || (room_bytes(spec) && !c->row)) {
        mha_cache_destroy(c);
        return mha__fail(error, MHA_NO_MEMORY, "cache", "no memory for a cache of %zu rows", rows);
    }
    *cache = c;
    return MHA_OK;
}

mha_status mha_cache_create(const mha_cache_spec *spec, const mha_allocator *allocator, mha_cache **cache,
                            mha_error *error)
{
    TRY(mha__expect_unused("cache", spec->reserved, sizeof spec->reserved, error));
    if (!mha__dtype_is_float(spec->dtype) && spec->dtype != MHA_I8)
        return mha__fail(error, MHA_INVALID, "cache", "expected elements of F32, F16, BF16, I8 or F64, found %s",
                         mha_dtype_name(spec->dtype));
    if (spec->capacity < spec->window)
        return mha__fail(error, MHA_INVALID, "cache", "expected a capacity of at least the window, %zu rows, found %zu",
                         spec->window, spec->capacity);
    return mha__cache_allocate(spec, 0, allocator, cache, error);
}

mha_status mha__cache_duplicate(const mha_cache *cache, mha_cache **copy, mha_error *error)
{
    TRY(mha__cache_allocate(&cache->spec, cache->shared, &cache->allocator, copy, error));
    mha_cache *c = *copy;
    c->length = cache->length, c->first = cache->first;
    c->trunk = cache->trunk, c->least = cache->least, c->trunk_losses = cache->trunk_losses;
    if (cache->key_bytes)
        memcpy(c->keys, cache->keys, cache->key_bytes);
    if (cache->value_bytes)
        memcpy(c->values, cache->values, cache->value_bytes);
    return MHA_OK;
}

void mha_cache_destroy(mha_cache *cache)
{
    if (!cache)
        return;
    mha_allocator a = cache->allocator;
    mha__release(&a, cache->keys, cache->key_bytes);
    mha__release(&a, cache->values, cache->value_bytes);
    mha__release(&a, cache->row, room_bytes(&cache->spec));
    mha__release(&a, cache, sizeof *cache);
}

size_t mha_cache_capacity(const mha_cache *cache)
{
    return cache->spec.capacity;
}

size_t mha_cache_length(const mha_cache *cache)
{
    return cache->length;
}

size_t mha_cache_first(const mha_cache *cache)
{
    return cache->first;
}

size_t mha_cache_bytes(const mha_cache *cache)
{
    return cache->key_bytes + cache->value_bytes;
}

void mha_cache_clear(mha_cache *cache)
{
    mha_cache_truncate(cache, 0);
    cache->first = cache->trunk ? cache->first : 0;
}

void mha_cache_truncate(mha_cache *cache, size_t length)
{
    length = length > cache->least ? length : cache->least;
    cache->losses += length < cache->length;
    cache->length = length < cache->length ? length : cache->length;
}

/* Rows [from, from + n) without their scales, (B, h_kv, n, d). */
static mha_view rows_at(const mha_cache *cache, bool values, size_t from, size_t n)
{
    const mha_view rows = mha__cache_stored(cache, values, from, n);
    return mha_view_slice(&rows, 3, 0, values ? cache->spec.d_v : cache->spec.d_k);
}

mha_view mha_cache_keys(const mha_cache *cache)
{
    return rows_at(cache, false, cache->shared, cache->length - cache->shared);
}

mha_view mha_cache_values(const mha_cache *cache)
{
    return rows_at(cache, true, cache->shared, cache->length - cache->shared);
}

mha_status mha_cache_read(const mha_cache *cache, bool values, const mha_view *to, mha_error *error)
{
    const mha_cache_spec *s = &cache->spec;
    const size_t shape[4] = {s->batch, s->kv_heads, cache->length, values ? s->d_v : s->d_k};
    const mha_view all = mha_view_of(NULL, MHA_F32, 4, shape);
    if (!mha__dtype_is_float(to->dtype) || (!to->data && mha_view_elements(&all) != 0))
        return mha__fail(error, MHA_INVALID, "rows",
                         to->data ? "expected floating elements, found %s" : "expected data, found none",
                         mha_dtype_name(to->dtype));
    TRY(mha__expect_shape(error, "rows", to, 4, shape));
    TRY(mha__cache_check_trunks(cache, error));
    const mha_view target = mha__swap_time_and_heads(*to);
    mha__cache_copy(cache, values, &target, 1);
    return MHA_OK;
}

mha_status mha__cache_room(const mha_cache *cache, size_t rows, size_t *kept, mha_error *error)
{
    const mha_cache_spec *s = &cache->spec;
    size_t keep = cache->length;
    if (s->window && rows > s->capacity - keep && keep > s->window)
        keep = s->window;
    if (rows > s->capacity - keep)
        return mha__fail(error, MHA_INVALID, "cache", "expected room for %zu new rows, found %zu of %zu rows in use%s",
                         rows, cache->length, s->capacity, s->window ? " (and a window to keep)" : "");
    *kept = keep;
    return MHA_OK;
}

void mha__cache_count_evicted(mha_cache *cache, size_t rows)
{
    cache->first = rows;
}

static void evict(mha_cache *cache, size_t keep)
{
    size_t gone = cache->length - keep;
    if (gone == 0)
        return;
    for (int values = 0; values < 2; values++) {
        const mha_view all = mha__cache_memory(cache, values);
        const size_t row = mha__stored_row_bytes(&all), plane = all.shape[2] * row;
        for (size_t p = 0; row > 0 && p < all.shape[0] * all.shape[1]; p++) { /* latents have no values */
            char *rows = (char *)all.data + p * plane;
            memmove(rows, rows + gone * row, keep * row);
        }
    }
    cache->first += gone;
    cache->length = keep;
    cache->losses++;
}

void mha__cache_append(mha_cache *cache, const mha_view *keys, const mha_view *values)
{
    size_t rows = keys->shape[1], keep = cache->length;
    if (mha__cache_room(cache, rows, &keep, NULL) != MHA_OK)
        return; /* unreachable: the call was planned with room for them */
    evict(cache, keep);
    for (int v = 0; v < 2; v++) {
        const mha_view from = mha__swap_time_and_heads(*(v ? values : keys)),
                       to = rows_at(cache, v, cache->length, rows);
        mha__narrow(&to, &from, cache->row);
    }
    cache->length += rows;
}

mha_status mha_cache_load(mha_cache *cache, const mha_view *keys, const mha_view *values, mha_error *error)
{
    const mha_cache_spec *s = &cache->spec;
    for (int v = 0; v < 2; v++) {
        const size_t shape[4] = {s->batch, s->kv_heads, keys->rank > 2 ? keys->shape[2] : 0, v ? s->d_v : s->d_k};
        const char *name = v ? "past values" : "past keys";
        const mha_view *from = v ? values : keys;
        TRY(mha__expect_shape(error, name, from, 4, shape));
        if (!from->data && mha_view_elements(from) != 0)
            return mha__fail(error, MHA_INVALID, name, "expected data, found none");
        if (!mha__dtype_is_float(from->dtype))
            return mha__fail(error, MHA_UNSUPPORTED, "cache", "expected past rows of a floating type, found %s",
                             mha_dtype_name(from->dtype));
    }
    if (keys->shape[2] > s->capacity)
        return mha__fail(error, MHA_INVALID, "cache", "expected at most %zu past rows, found %zu", s->capacity,
                         keys->shape[2]);
    if (cache->trunk)
        return mha__fail(error, MHA_UNSUPPORTED, "cache",
                         "expected a cache of its own rows, found one that continues another; load that one");
    for (int v = 0; v < 2; v++) {
        const mha_view to = rows_at(cache, v, 0, keys->shape[2]);
        mha__narrow(&to, v ? values : keys, cache->row);
    }
    cache->length = keys->shape[2];
    cache->first = 0;
    cache->losses++;
    return MHA_OK;
}
