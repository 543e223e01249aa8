/* The key/value cache, as the forward pass uses it. */
#ifndef MHA_ATTENTION_CACHE_CACHE_H
#define MHA_ATTENTION_CACHE_CACHE_H

#include "mha/attention.h"

/* All of its own memory, (B, h_kv, capacity - shared rows, d): of the keys, or of the values. */
mha_view mha__cache_memory(const mha_cache *cache, bool values);
/* How many cached rows stay when `rows` more are appended. MHA_INVALID: no room; the message has the numbers. */
mha_status mha__cache_room(const mha_cache *cache, size_t rows, size_t *kept, mha_error *error);
/* A cache with the same rows, and the trunk of that, for a forward that must leave the first one as it is; the caller
 * destroys it. Errors: MHA_NO_MEMORY. */
mha_status mha__cache_duplicate(const mha_cache *cache, mha_cache **copy, mha_error *error);
/* Says how many rows were evicted before those in the cache. */
void mha__cache_count_evicted(mha_cache *cache, size_t rows);
/* Appends keys (B, T, h_kv, d_k) and values (B, T, h_kv, d_v), F32 or F64, after evicting all but the rows that
 * mha__cache_room keeps. The caller has asked mha__cache_room whether there is room. */
void mha__cache_append(mha_cache *cache, const mha_view *keys, const mha_view *values);

/* ---------------------------------------------------------------- caches that continue others */

/* The cache that it continues; NULL: none. */
const mha_cache *mha__cache_trunk(const mha_cache *cache);
/* MHA_INVALID when a cache that it continues has lost rows since. */
mha_status mha__cache_check_trunks(const mha_cache *cache, mha_error *error);
/* Into how many ranges of rows it is divided, one for each cache from the first trunk to itself; 1: not at all. */
size_t mha__cache_segments(const mha_cache *cache);

/* Some consecutive rows of all sequences, which lie in one cache. */
typedef struct mha__cache_rows {
    size_t from;           /* the number of the first one */
    size_t together;       /* so many neighbouring sequences share each */
    mha_view keys, values; /* (B / together, h_kv, n, d) */
} mha__cache_rows;

mha__cache_rows mha__cache_segment(const mha_cache *cache, size_t number);
/* Copies the first features of all keys (or values), as numbers, to `to` (B, length, h_kv, features) of F32, F64, F16
 * or BF16. */
void mha__cache_copy(const mha_cache *cache, bool values, const mha_view *to, int threads);

#endif
