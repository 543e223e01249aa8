/* Memory of one owner: taken piece by piece, given back at once. */
#ifndef MHA_BASE_ARENA_H
#define MHA_BASE_ARENA_H

#include "base/base.h"

typedef struct mha__arena {
    mha_allocator allocator;
    struct mha__arena_block *first;
} mha__arena;

/* Zeroed bytes until mha__arena_free; at least one, so that an empty tensor has an address, too. NULL without memory. */
void *mha__arena_take(mha__arena *arena, size_t bytes);
void mha__arena_free(mha__arena *arena);
/* A contiguous view of new memory; without data when there is no memory. */
mha_view mha__arena_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape);

#endif
