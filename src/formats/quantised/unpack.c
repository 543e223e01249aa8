/* Unpacks quantised tensors from their first value to their last, a buffer of blocks at a time. */
#include <string.h>

#include "formats/quantised/decoders.h"
#include "formats/quantised/unpack.h"

enum { BUFFER_BYTES = 1 << 15 };

struct mha__unpacking {
    const mha_file *file;
    const mha__entry *entry;
    mha__decoder decode;
    size_t block_elements, block_bytes;
    uint64_t offset, end;               /* of the bytes that have not been read */
    size_t at, buffered;                /* bytes of the buffer: decoded, and read */
    size_t taken;                       /* values of the block that were given away */
    float values[MHA_LARGEST_BLOCK];    /* of the block */
    unsigned char buffer[BUFFER_BYTES]; /* whole blocks */
};

bool mha__is_packed(const mha__entry *entry)
{
    return mha__decoder_of(entry->tensor.dtype) != NULL;
}

mha_status mha__unpack_begin(const mha_file *file, const mha__entry *entry, mha__unpacking **unpacking,
                             mha_error *error)
{
    const mha_file_tensor *tensor = &entry->tensor;
    mha__unpacking *u = mha__allocate(&file->allocator, sizeof *u);
    *unpacking = u;
    if (!u)
        return mha__fail_inside(error, MHA_NO_MEMORY, mha__entry_path(file, entry), tensor->name, 0,
                                "no memory for %zu bytes of buffer", sizeof *u);
    u->file = file;
    u->entry = entry;
    u->decode = mha__decoder_of(tensor->dtype);
    for (u->block_elements = 1; mha_dtype_bytes(tensor->dtype, u->block_elements, &u->block_bytes) != MHA_OK;)
        u->block_elements++;
    u->taken = u->block_elements;
    u->offset = tensor->offset;
    u->end = tensor->offset + tensor->bytes;
    return MHA_OK;
}

static mha_status next_block(mha__unpacking *u, mha_error *error)
{
    if (u->at == u->buffered) {
        const uint64_t left = u->end - u->offset;
        const size_t room = BUFFER_BYTES / u->block_bytes * u->block_bytes, bytes = left < room ? (size_t)left : room;
        TRY(mha__source_read(mha__file_source(u->file, u->entry->source), u->offset, u->buffer, bytes, error));
        u->offset += bytes;
        u->buffered = bytes;
        u->at = 0;
    }
    u->decode(u->buffer + u->at, u->values);
    u->at += u->block_bytes;
    u->taken = 0;
    return MHA_OK;
}

mha_status mha__unpack_next(mha__unpacking *u, float *values, size_t count, mha_error *error)
{
    while (count > 0) {
        if (u->taken == u->block_elements)
            TRY(next_block(u, error));
        const size_t left = u->block_elements - u->taken, step = count < left ? count : left;
        memcpy(values, u->values + u->taken, step * sizeof *values);
        u->taken += step;
        values += step;
        count -= step;
    }
    return MHA_OK;
}

void mha__unpack_end(mha__unpacking *u)
{
    if (u)
        mha__release(&u->file->allocator, u, sizeof *u);
}
