/* The key/value cache: projected, rotated keys and values of earlier calls. */
#ifndef MHA_CACHE_H
#define MHA_CACHE_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Projected, rotated keys and values of earlier calls, (B, h_kv, capacity, d). A forward with a cache
 * appends its new rows, then attends to all rows. One forward at a time may use a cache. */
typedef struct mha_cache mha_cache;

typedef struct mha_cache_spec {
    size_t batch, kv_heads, d_k, d_v;
    size_t capacity; /* rows; appending beyond it is MHA_INVALID, unless `window` */
    size_t window;   /* > 0: before rows are appended, rows older than the last `window` are evicted if
                        there is no room; capacity must be at least window */
    mha_dtype dtype; /* F32; F16 or BF16, to which appended rows are rounded, to nearest even (what is too large for
                        F16, from 65520, becomes infinite); F64 for the exact path. All else is computed as ever */
} mha_cache_spec;

MHA_API mha_status mha_cache_create(const mha_cache_spec *spec, const mha_allocator *allocator, mha_cache **cache,
                                    mha_error *error);
MHA_API void mha_cache_destroy(mha_cache *cache);
MHA_API size_t mha_cache_length(const mha_cache *cache); /* rows held */
MHA_API size_t mha_cache_first(const mha_cache *cache);  /* position of row 0: rows evicted so far */
MHA_API size_t mha_cache_bytes(const mha_cache *cache);
MHA_API void mha_cache_clear(mha_cache *cache);
/* Forgets the newest rows until `length` are held; nothing happens when there are no more than that. */
MHA_API void mha_cache_truncate(mha_cache *cache, size_t length);
/* The rows held, (B, h_kv, length, d). Valid until the next append, load, clear or destroy. */
MHA_API mha_view mha_cache_keys(const mha_cache *cache);
MHA_API mha_view mha_cache_values(const mha_cache *cache);
/* Replaces the content by given rows, (B, h_kv, P, d_k) and (B, h_kv, P, d_v), any plain float dtype. */
MHA_API mha_status mha_cache_load(mha_cache *cache, const mha_view *keys, const mha_view *values, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
