/* The arena: a list of allocations, each with a head in front of the memory that is handed out. */
#include "base/arena.h"

/* The head: the first MHA_ALIGNMENT bytes of an allocation. The memory that is handed out follows. */
struct arena_block {
    struct arena_block *next;
    size_t bytes;
};

void *mha__arena_take(mha__arena *arena, size_t bytes)
{
    size_t total;
    if (!mha__add(bytes ? bytes : 1, MHA_ALIGNMENT, &total))
        return NULL;
    struct arena_block *block = mha__allocate(&arena->allocator, total);
    if (!block)
        return NULL;
    block->bytes = total;
    block->next = arena->first;
    arena->first = block;
    return (char *)block + MHA_ALIGNMENT;
}

void mha__arena_free(mha__arena *arena)
{
    while (arena->first) {
        struct arena_block *block = arena->first;
        arena->first = block->next;
        mha__release(&arena->allocator, block, block->bytes);
    }
}

mha_view mha__arena_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape)
{
    mha_view view = mha_view_of(NULL, dtype, rank, shape);
    size_t bytes;
    if (mha_dtype_bytes(dtype, mha_view_elements(&view), &bytes) == MHA_OK)
        view.data = mha__arena_take(arena, bytes);
    return view;
}
