/* Memory: the default allocator, the functions that zero and align every block. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "mha/system.h"

/* Bytes from which a block is a mapping of its own: pages of zeros, which the system commits when they are written. */
static const size_t mapping_threshold = (size_t)1 << 20;
/* Bytes from which the mapping asks for huge pages: reading weights from end to end then has fewer TLB misses. */
static const size_t huge_threshold = (size_t)8 << 20;

static void *default_allocate(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (bytes >= mapping_threshold) {
        void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (block == MAP_FAILED)
            return NULL;
#ifdef MADV_HUGEPAGE
        if (bytes >= huge_threshold)
            (void)madvise(block, bytes, MADV_HUGEPAGE);
#endif
        return block;
    }
    void *block; /* aligned_alloc would need a rounded size, and sanitizers would miss writes past the end */
    return posix_memalign(&block, alignment, bytes) == 0 ? block : NULL;
}

static void default_release(void *context, void *block, size_t bytes)
{
    (void)context;
    if (bytes >= mapping_threshold)
        munmap(block, bytes);
    else
        free(block);
}

/* Bytes of a region, and those from which a block lies in one: smaller blocks hold pointers, and checkers of leaks do
 * not look for pointers in mappings. */
static const size_t region_bytes = (size_t)1 << 36, region_threshold = (size_t)1 << 16;

static bool in_regions(const mha__regions *r, const char *block)
{
    bool inside = false;
    for (size_t i = 0; i < r->count; i++)
        inside |= block >= r->region[i] && block < r->region[i] + region_bytes;
    return inside;
}

/* A region of zeros that blocks can be taken from; NULL: there is none. */
static char *add_region(mha__regions *r)
{
    void *region = r->count == MHA_REGIONS ? MAP_FAILED
                                           : mmap(NULL, region_bytes, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        return NULL;
    r->left = region_bytes;
    return r->region[r->count++] = region;
}

static void *regions_allocate(void *context, size_t bytes, size_t alignment)
{
    mha__regions *r = context;
    const bool fits = bytes >= region_threshold && bytes <= region_bytes / 2;
    if (!fits || !((r->count > 0 && bytes <= r->left) || add_region(r))) {
        void *block = default_allocate(NULL, bytes, alignment);
        return block && bytes < mapping_threshold ? memset(block, 0, bytes) : block;
    }
    char *block = r->region[r->count - 1] + (region_bytes - r->left);
    r->left -= (bytes + alignment - 1) / alignment * alignment;
    r->live++;
    return block;
}

static void regions_release(void *context, void *block, size_t bytes)
{
    mha__regions *r = context;
    if (bytes < region_threshold || !in_regions(r, block)) {
        default_release(NULL, block, bytes);
        return;
    }
    if (--r->live == 0)
        while (r->count > 0)
            munmap(r->region[--r->count], region_bytes);
}

mha_allocator mha__regions_allocator(mha__regions *regions)
{
    return (mha_allocator){regions_allocate, regions_release, regions};
}

mha_allocator mha__allocator_default(void)
{
    return (mha_allocator){default_allocate, default_release, NULL};
}

mha_allocator mha__allocator_or_default(const mha_allocator *allocator)
{
    return allocator && allocator->allocate && allocator->release ? *allocator : mha__allocator_default();
}

bool mha__allocates_untouched(const mha_allocator *allocator)
{
    return allocator->allocate == default_allocate || allocator->allocate == regions_allocate;
}

void mha__untouch(void *part, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)part,
                    first = (from + page - 1) / page * page, end = (from + bytes) / page * page;
    if (first < end)
        (void)madvise((char *)part + (first - from), end - first, MADV_DONTNEED);
}

void *mha__allocate_unset(const mha_allocator *allocator, size_t bytes)
{
    if (bytes == 0 || bytes > PTRDIFF_MAX)
        return NULL;
    return allocator->allocate(allocator->context, bytes, MHA_ALIGNMENT);
}

void *mha__allocate(const mha_allocator *allocator, size_t bytes)
{
    void *block = mha__allocate_unset(allocator, bytes);
    const bool zero_already = allocator->allocate == regions_allocate ||
                              (allocator->allocate == default_allocate && bytes >= mapping_threshold);
    if (block && !zero_already)
        memset(block, 0, bytes);
    return block;
}

void mha__release(const mha_allocator *allocator, void *block, size_t bytes)
{
    if (block)
        allocator->release(allocator->context, block, bytes);
}
