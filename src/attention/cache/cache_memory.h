/* The parts of a cache, for the files of this room. */
#ifndef MHA_ATTENTION_CACHE_CACHE_MEMORY_H
#define MHA_ATTENTION_CACHE_CACHE_MEMORY_H

#include "attention/cache/cache.h"
#include "base/base.h"

struct mha_cache {
    mha_allocator allocator;
    mha_cache_spec spec;
    size_t length, first; /* rows of a sequence; rows evicted before them */
    void *keys, *values;  /* (B, h_kv, capacity - shared, d); rows of 8 bits with their scales */
    float *row;           /* one row, of keys or values, for a cache of 8 bits */
    size_t key_bytes, value_bytes;

    const mha_cache *trunk; /* NULL, or the cache whose first `shared` rows are the first ones of this */
    size_t shared, least;   /* least: rows that stay, those of the trunk when it was continued */
    size_t losses;          /* how often rows were taken away or replaced */
    size_t trunk_losses;    /* of the trunk, when it was continued */
};

/* A cache without rows that stores all of its capacity but the first `shared` rows. */
mha_status mha__cache_allocate(const mha_cache_spec *spec, size_t shared, const mha_allocator *allocator,
                               mha_cache **cache, mha_error *error);
/* Elements from one row of d numbers to the next; SIZE_MAX when there are too many to count. */
size_t mha__cache_row_elements(const mha_cache_spec *spec, size_t d);
/* Bytes of a row of such a view. */
static inline size_t mha__stored_row_bytes(const mha_view *stored)
{
    size_t bytes = 0;
    (void)mha_dtype_bytes(stored->dtype, stored->shape[3], &bytes, NULL);
    return bytes;
}
/* Rows [from, from + n) as they are stored, with their scales, (B, h_kv, n, elements); `from` is not below `shared`. */
mha_view mha__cache_stored(const mha_cache *cache, bool values, size_t from, size_t n);

#endif
