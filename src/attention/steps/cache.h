/* The key/value cache, as the forward pass uses it. */
#ifndef MHA_ATTENTION_STEPS_CACHE_H
#define MHA_ATTENTION_STEPS_CACHE_H

#include "mha/attention.h"

/* All of its memory, (B, h_kv, capacity, d): of the keys, or of the values. */
mha_view mha__cache_memory(const mha_cache *cache, bool values);
/* How many of the rows held stay when `rows` more are appended. MHA_INVALID: no room, with the numbers. */
mha_status mha__cache_room(const mha_cache *cache, size_t rows, size_t *kept, mha_error *error);
/* Appends keys (B, T, h_kv, d_k) and values (B, T, h_kv, d_v), F32 or F64, evicting as mha__cache_room
 * said. There is room: mha__cache_room was asked before. */
void mha__cache_append(mha_cache *cache, const mha_view *keys, const mha_view *values);

#endif
