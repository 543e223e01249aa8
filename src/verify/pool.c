/* Memory that lives as long as its owner: taken piece by piece, given back at once. */
#include "base/base.h"
#include "verify/case.h"

/* Precedes the memory handed out, in an allocation of its own alignment. */
struct pool_block {
    struct pool_block *next;
    size_t bytes;
};

void *mha_pool_take(mha_pool *pool, size_t bytes)
{
    size_t total;
    if (!mha_add(bytes ? bytes : 1, MHA_ALIGNMENT, &total))
        return NULL;
    struct pool_block *block = mha_allocate(&pool->allocator, total);
    if (!block)
        return NULL;
    block->bytes = total;
    block->next = pool->first;
    pool->first = block;
    return (char *)block + MHA_ALIGNMENT;
}

void mha_pool_free(mha_pool *pool)
{
    while (pool->first) {
        struct pool_block *block = pool->first;
        pool->first = block->next;
        mha_release(&pool->allocator, block, block->bytes);
    }
}

mha_view mha_pool_view(mha_pool *pool, mha_dtype dtype, int rank, const size_t *shape)
{
    mha_view view = mha_view_of(NULL, dtype, rank, shape);
    size_t bytes;
    if (mha_dtype_bytes(dtype, mha_view_elements(&view), &bytes) == MHA_OK)
        view.data = mha_pool_take(pool, bytes);
    return view;
}
