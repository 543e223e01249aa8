/* The memory of tensors' numbers. Small blocks share chunks of zeros, whose pages take memory when they are written: a
 * configuration of 200 bytes can ask for 100,000 tensors of 32 KiB. */
#include "base/base.h"
#include "params/table.h"

/* Blocks below `small` bytes come from chunks once the heap, which is faster, has given a table `on_heap` bytes. */
static const size_t small = (size_t)1 << 20, on_heap = (size_t)4 << 20, chunk_bytes = (size_t)4 << 20;

struct mha__chunk {
    char *data;
    size_t used, live; /* bytes that blocks have taken; blocks in use */
};

static void release_chunk(mha_params *table, struct mha__chunk *c)
{
    if (table->chunk == c)
        table->chunk = NULL;
    mha__release(&table->allocator, c->data, chunk_bytes);
    mha__release(&table->allocator, c, sizeof *c);
}

/* The table's chunk with room for `bytes`, a new one if need be; NULL: no memory for one. */
static struct mha__chunk *chunk_with(mha_params *table, size_t bytes)
{
    if (table->chunk && chunk_bytes - table->chunk->used >= bytes)
        return table->chunk;
    struct mha__chunk *c = mha__allocate(&table->allocator, sizeof *c);
    if (!c)
        return NULL;
    c->data = mha__allocate(&table->allocator, chunk_bytes);
    if (c->data)
        return table->chunk = c;
    release_chunk(table, c);
    return NULL;
}

bool mha__storage_allocate(mha_params *table, mha__tensor_storage *s)
{
    const size_t taken = (s->bytes + MHA_ALIGNMENT - 1) / MHA_ALIGNMENT * MHA_ALIGNMENT;
    const bool shares = s->bytes < small && mha__allocates_untouched(&table->allocator);
    struct mha__chunk *c = shares && table->small_bytes >= on_heap && taken > 0 ? chunk_with(table, taken) : NULL;
    if (c) {
        s->chunk = c;
        s->data = s->block = c->data + c->used;
        c->used += taken;
        c->live++;
        return true;
    }
    table->small_bytes += shares ? taken : 0;
    s->data = mha__allocate(&table->allocator, s->bytes);
    return s->data || s->bytes == 0;
}

void mha__storage_drop(const mha_params *table, mha__tensor_storage *s)
{
    if (s->block)
        mha__untouch(s->block, s->bytes);
    else
        mha__release(&table->allocator, s->data, s->bytes);
    s->data = NULL;
}

void *mha__storage_renew(const mha_params *table, const mha__tensor_storage *s)
{
    return s->block ? s->block : mha__allocate_unset(&table->allocator, s->bytes);
}

void mha__storage_release(mha_params *table, mha__tensor_storage *s)
{
    if (s->chunk && --s->chunk->live == 0)
        release_chunk(table, s->chunk);
    else
        mha__storage_drop(table, s);
    mha__release(&table->allocator, s->packed, s->packed_bytes);
    mha__release(&table->allocator, s, sizeof *s);
}
