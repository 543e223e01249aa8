/* Memory that ends, or begins, exactly where the next page forbids all access. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/guard.h"

typedef struct held {
    unsigned char *pages; /* the mapping: one forbidden page, `inner` bytes, one forbidden page */
    size_t inner, page;
    void *block;
    struct held *next;
} held;

static held *blocks;

static void die(const char *what)
{
    perror(what);
    abort();
}

void *guard_allocate(size_t bytes, guard_side side, unsigned char fill)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (bytes + page - 1) / page * page;
    if (inner == 0)
        inner = page;
    held *h = malloc(sizeof *h);
    unsigned char *pages = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!h || pages == MAP_FAILED || mprotect(pages + page, inner, PROT_READ | PROT_WRITE) != 0)
        die("guard_allocate");
    unsigned char *block = side == GUARD_AFTER ? pages + page + inner - bytes : pages + page;
    memset(block, fill, bytes);
    *h = (held){pages, inner, page, block, blocks};
    blocks = h;
    return block;
}

static held **find(const void *block)
{
    held **link = &blocks;
    while (*link && (*link)->block != block)
        link = &(*link)->next;
    if (!*link) {
        fprintf(stderr, "guard: %p is not a guarded block\n", (void *)(uintptr_t)block);
        abort();
    }
    return link;
}

static void release(held **link)
{
    held *h = *link;
    *link = h->next;
    munmap(h->pages, h->inner + 2 * h->page);
    free(h);
}

void guard_release(void *block)
{
    if (block)
        release(find(block));
}

static void *aligned(void *context, size_t bytes, size_t alignment)
{
    return guard_allocate((bytes + alignment - 1) / alignment * alignment, *(const guard_side *)context, 0xFF);
}

static void take_back(void *context, void *block, size_t bytes)
{
    (void)context, (void)bytes;
    guard_release(block);
}

mha_allocator guard_allocator(guard_side side)
{
    static guard_side sides[] = {[GUARD_AFTER] = GUARD_AFTER, [GUARD_BEFORE] = GUARD_BEFORE};
    return (mha_allocator){aligned, take_back, &sides[side]};
}

void guard_protect(void *block, int writable)
{
    held *h = *find(block);
    if (mprotect(h->pages + h->page, h->inner, writable ? PROT_READ | PROT_WRITE : PROT_READ) != 0)
        die("guard_protect");
}

void guard_release_all(void)
{
    while (blocks)
        release(&blocks);
}

int guard_teardown(void **state)
{
    (void)state;
    guard_release_all();
    return 0;
}
