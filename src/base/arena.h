/* Memory that lives as long as its owner: taken block by block, released all at once. */
#ifndef MHA_BASE_ARENA_H
#define MHA_BASE_ARENA_H

#include "base/base.h"

/* Zero-initialised but for `allocator`, an arena is empty. */
typedef struct mha__arena {
    mha_allocator allocator;
    struct arena_block *first;
    struct arena_block *spare; /* of an earlier use, see mha__arena_recycle */
} mha__arena;

/* `bytes` zeroed bytes (at least one, so that an empty tensor has an address, too), valid until mha__arena_free.
 * NULL when there is no memory. */
void *mha__arena_take(mha__arena *arena, size_t bytes);
/* The same for memory that is written before it is read: what it holds is not said. */
void *mha__arena_scratch(mha__arena *arena, size_t bytes);
/* An array with room for one more item behind `count` items of `size` bytes: `items`, or a larger copy. NULL when there
 * is no memory. */
void *mha__arena_more(mha__arena *arena, void *items, size_t count, size_t *room, size_t size);
/* A copy of `length` bytes of text (zeros for NULL) with a final NUL; NULL when there is no memory. */
char *mha__arena_text(mha__arena *arena, const char *text, size_t length);
/* Empties the arena, but keeps its allocations: those that the next use takes in the same sizes need no allocator, and
 * no system that finds them pages. Spare allocations of an earlier use that nothing took are released. */
void mha__arena_recycle(mha__arena *arena);
void mha__arena_free(mha__arena *arena); /* with what was spare */
/* A contiguous view of newly taken memory; without data when there is none. */
mha_view mha__arena_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape);
/* The same with the numbers of a view; none of a view without data. MHA_NO_MEMORY says `name`. */
mha_status mha__arena_copy(mha__arena *arena, mha_dtype dtype, const mha_view *from, const char *name, mha_view *to,
                           mha_error *error);

#endif
