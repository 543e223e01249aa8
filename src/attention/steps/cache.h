/* The key/value cache, as the forward pass uses it. */
#ifndef MHA_ATTENTION_STEPS_CACHE_H
#define MHA_ATTENTION_STEPS_CACHE_H

#include "mha/attention.h"

/* All of its memory, (B, h_kv, capacity, d): of the keys, or of the values. */
mha_view mha__cache_memory(const mha_cache *cache, bool values);
/* How many cached rows stay when `rows` more are appended. MHA_INVALID: no room; the message has the numbers. */
mha_status mha__cache_room(const mha_cache *cache, size_t rows, size_t *kept, mha_error *error);
/* Appends keys (B, T, h_kv, d_k) and values (B, T, h_kv, d_v), F32 or F64, after evicting all but the rows that
 * mha__cache_room keeps. The caller has asked mha__cache_room whether there is room. */
void mha__cache_append(mha_cache *cache, const mha_view *keys, const mha_view *values);

#endif
