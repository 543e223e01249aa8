/* An allocator that counts everything, checks what it gets back, and fails when told to. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/failing.h"

struct failing_block {
    void *data;
    size_t bytes;
    failing_block *next;
};

static void *allocate(void *context, size_t bytes, size_t alignment)
{
    failing *f = context;
    f->calls++;
    if (bytes == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0)
        f->bugs++;
    if (bytes > f->largest)
        f->largest = bytes;
    if ((f->fail_at && (f->then_all ? f->calls >= f->fail_at : f->calls == f->fail_at)) ||
        (f->limit && bytes > f->limit))
        return NULL;
    failing_block *b = malloc(sizeof *b);
    void *data = NULL;
    if (!b || posix_memalign(&data, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0) {
        free(b);
        return NULL;
    }
    memset(data, 0xA5, bytes);
    *b = (failing_block){data, bytes, f->blocks};
    f->blocks = b;
    f->live_blocks++;
    f->live_bytes += bytes;
    if (f->live_bytes > f->peak_bytes)
        f->peak_bytes = f->live_bytes;
    return data;
}

static void release(void *context, void *data, size_t bytes)
{
    failing *f = context;
    failing_block **link = &f->blocks;
    while (*link && (*link)->data != data)
        link = &(*link)->next;
    failing_block *b = *link;
    if (!b || b->bytes != bytes)
        f->bugs++;
    if (!b)
        return;
    *link = b->next;
    f->live_blocks--;
    f->live_bytes -= b->bytes;
    memset(data, 0x5A, b->bytes);
    free(data);
    free(b);
}

mha_allocator failing_allocator(failing *f)
{
    return (mha_allocator){allocate, release, f};
}

size_t failing_bytes_at(const failing *f, const void *data)
{
    for (const failing_block *b = f->blocks; b; b = b->next)
        if (b->data == data)
            return b->bytes;
    return 0;
}
