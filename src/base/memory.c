/* Memory: the default allocator, and the wrapper that zeroes and aligns every block. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

/* From here on a block is a mapping of its own: zero pages from the system, committed when written. */
static const size_t mapping_threshold = (size_t)1 << 20;

static void *default_allocate(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (bytes >= mapping_threshold) {
        void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return block == MAP_FAILED ? NULL : block;
    }
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    return aligned_alloc(alignment, rounded);
}

static void default_release(void *context, void *block, size_t bytes)
{
    (void)context;
    if (bytes >= mapping_threshold)
        munmap(block, bytes);
    else
        free(block);
}

mha_allocator mha_allocator_default(void)
{
    return (mha_allocator){default_allocate, default_release, NULL};
}

mha_allocator mha_allocator_or_default(const mha_allocator *allocator)
{
    return allocator && allocator->allocate && allocator->release ? *allocator : mha_allocator_default();
}

void *mha_allocate(const mha_allocator *allocator, size_t bytes)
{
    if (bytes == 0 || bytes > PTRDIFF_MAX)
        return NULL;
    void *block = allocator->allocate(allocator->context, bytes, MHA_ALIGNMENT);
    bool zero_already = allocator->allocate == default_allocate && bytes >= mapping_threshold;
    if (block && !zero_already)
        memset(block, 0, bytes);
    return block;
}

void mha_release(const mha_allocator *allocator, void *block, size_t bytes)
{
    if (block)
        allocator->release(allocator->context, block, bytes);
}
