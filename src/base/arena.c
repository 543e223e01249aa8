/* The arena: a list of allocations, each with a head in front of the memory that is handed out. */
#include <string.h>

#include "base/arena.h"

/* The head: the first MHA_ALIGNMENT bytes of an allocation. The memory that is handed out follows. */
struct arena_block {
    struct arena_block *next;
    size_t bytes;
};

/* The spare allocation of `total` bytes; NULL when there is none. */
static struct arena_block *take_spare(mha__arena *arena, size_t total)
{
    for (struct arena_block **at = &arena->spare; *at; at = &(*at)->next) {
        struct arena_block *block = *at;
        if (block->bytes == total) {
            *at = block->next;
            return block;
        }
    }
    return NULL;
}

static void *take(mha__arena *arena, size_t bytes, bool zeroed)
{
    size_t total;
    if (!mha__add(bytes ? bytes : 1, MHA_ALIGNMENT, &total))
        return NULL;
    struct arena_block *block = take_spare(arena, total);
    if (block && zeroed)
        memset((char *)block + MHA_ALIGNMENT, 0, total - MHA_ALIGNMENT);
    if (!block)
        block = mha__allocate(&arena->allocator, total);
    if (!block)
        return NULL;
    block->bytes = total;
    block->next = arena->first;
    arena->first = block;
    return (char *)block + MHA_ALIGNMENT;
}

void *mha__arena_take(mha__arena *arena, size_t bytes)
{
    return take(arena, bytes, true);
}

void *mha__arena_scratch(mha__arena *arena, size_t bytes)
{
    return take(arena, bytes, false);
}

void *mha__arena_more(mha__arena *arena, void *items, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return items;
    *room = count ? 2 * count : 8;
    void *more = mha__arena_take(arena, *room * size);
    return more && count ? memcpy(more, items, count * size) : more;
}

char *mha__arena_text(mha__arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? mha__arena_take(arena, length + 1) : NULL;
    return copy && text ? memcpy(copy, text, length) : copy;
}

static void release_list(mha__arena *arena, struct arena_block **first)
{
    while (*first) {
        struct arena_block *block = *first;
        *first = block->next;
        mha__release(&arena->allocator, block, block->bytes);
    }
}

void mha__arena_recycle(mha__arena *arena)
{
    release_list(arena, &arena->spare);
    arena->spare = arena->first;
    arena->first = NULL;
}

void mha__arena_free(mha__arena *arena)
{
    release_list(arena, &arena->first);
    release_list(arena, &arena->spare);
}

mha_view mha__arena_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape)
{
    mha_view view = mha_view_of(NULL, dtype, rank, shape);
    size_t bytes;
    if (mha_dtype_bytes(dtype, mha_view_elements(&view), &bytes, NULL) == MHA_OK)
        view.data = mha__arena_take(arena, bytes);
    return view;
}

mha_status mha__arena_copy(mha__arena *arena, mha_dtype dtype, const mha_view *from, const char *name, mha_view *to,
                           mha_error *error)
{
    const mha_view copy = from->data ? mha__arena_view(arena, dtype, from->rank, from->shape) : (mha_view){0};
    if (from->data && !copy.data)
        return mha__fail(error, MHA_NO_MEMORY, name, "no memory for a copy");
    if (from->data)
        TRY(mha_view_copy(&copy, from, error));
    *to = copy;
    return MHA_OK;
}
