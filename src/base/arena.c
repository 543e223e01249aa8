/* Memory that lives as long as its owner: taken piece by piece, given back at once. */
#include "base/base.h"
#include "verify/case/record.h"

/* Precedes the memory handed out, in an allocation of its own alignment. */
struct pool_block {
    struct pool_block *next;
    size_t bytes;
};

void *mha__arena_take(mha__arena *pool, size_t bytes)
{
    size_t total;
    if (!mha__add(bytes ? bytes : 1, MHA_ALIGNMENT, &total))
        return NULL;
    struct pool_block *block = mha__allocate(&pool->allocator, total);
    if (!block)
        return NULL;
    block->bytes = total;
    block->next = pool->first;
    pool->first = block;
    return (char *)block + MHA_ALIGNMENT;
}

void mha__arena_free(mha__arena *pool)
{
    while (pool->first) {
        struct pool_block *block = pool->first;
        pool->first = block->next;
        mha__release(&pool->allocator, block, block->bytes);
    }
}

mha_view mha__arena_view(mha__arena *pool, mha_dtype dtype, int rank, const size_t *shape)
{
    mha_view view = mha_view_of(NULL, dtype, rank, shape);
    size_t bytes;
    if (mha_dtype_bytes(dtype, mha_view_elements(&view), &bytes) == MHA_OK)
        view.data = mha__arena_take(pool, bytes);
    return view;
}
