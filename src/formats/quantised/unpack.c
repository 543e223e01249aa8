/* Unpacks quantised tensors in the order of their values, a buffer of blocks at a time. */
#include <math.h>
#include <string.h>

#include "base/quantised/decoders.h"
#include "formats/files/chunks.h"
#include "formats/quantised/packings.h"
#include "lab/lab.h"

enum { BUFFER_BYTES = 1 << 15 };

struct mha__unpacking {
    const mha_file *file;
    const mha__entry *entry;
    const mha__block_kind *kind;
    uint64_t offset, end;               /* of the bytes that have not been read */
    size_t at, buffered;                /* bytes of the buffer: decoded, and read */
    size_t taken;                       /* values of the block that were given away or passed over */
    float values[MHA_LARGEST_BLOCK];    /* of the block */
    unsigned char buffer[BUFFER_BYTES]; /* whole blocks */
    mha__parts parts;                   /* of a tensor that is packed into several ones */
    size_t row, column;                 /* of its next value */
};

bool mha__is_packed(const mha__entry *entry)
{
    return entry->packing.kind || mha__block_kind_of(entry->tensor.dtype);
}

/* ---------------------------------------------------------------- several tensors */

static const mha__entry *part_of(const mha__unpacking *u, mha__part part)
{
    const size_t number = u->entry->packing.parts[part];
    return number == SIZE_MAX ? NULL : (const mha__entry *)u->file->parts.items + number;
}

/* The type of the numbers in a part. */
static mha_dtype type_of(const mha__unpacking *u, const mha__entry *part, mha__part which)
{
    return which == MHA_PART_SCALES && u->entry->packing.powers ? MHA_F8_E8M0 : part->tensor.dtype;
}

/* Whether a part is kept as F32: scales and tables are, codes never. */
static bool is_numbers(mha_dtype dtype, mha__part which)
{
    return which != MHA_PART_CODES &&
           (mha__dtype_is_float(dtype) || dtype == MHA_F8_E8M0 || (which == MHA_PART_SCALES && dtype == MHA_F8_E4M3));
}

static mha_status read_part(const mha__unpacking *u, const mha__entry *part, void *bytes, mha_error *error)
{
    const mha_file_tensor *tensor = &part->tensor;
    TRY(mha__source_read(mha__file_source(u->file, part->source), tensor->offset, bytes, tensor->bytes, error));
    if (mha__host_is_big_endian())
        mha__swap_bytes(bytes, tensor->dtype, tensor->elements);
    return MHA_OK;
}

static mha_status load_part(mha__unpacking *u, mha__part which, mha_error *error)
{
    const mha__entry *part = part_of(u, which);
    if (!part || which >= MHA_PART_STATE)
        return MHA_OK;
    const mha_allocator *memory = &u->file->allocator;
    const size_t bytes = part->tensor.bytes, elements = part->tensor.elements;
    const mha_dtype dtype = type_of(u, part, which);
    void *held = mha__allocate(memory, bytes);
    float *numbers = held && is_numbers(dtype, which) ? mha__allocate(memory, elements * sizeof *numbers) : NULL;
    u->parts.bytes[which] = held;
    u->parts.numbers[which] = numbers;
    if (!held || (is_numbers(dtype, which) && !numbers))
        return mha__fail_inside(error, MHA_NO_MEMORY, mha__entry_path(u->file, part), part->tensor.name, 0,
                                "no memory for its %zu bytes", bytes);
    TRY(read_part(u, part, held, error));
    const mha_view from = mha_view_of(held, dtype, 1, &elements),
                   to = mha_view_of(numbers, MHA_F32, 1, &elements);
    return numbers ? mha_view_copy(&to, &from, NULL) : MHA_OK;
}

static void release_part(const mha__unpacking *u, mha__part which)
{
    const mha__entry *part = part_of(u, which);
    mha__release(&u->file->allocator, mha__unconst(u->parts.bytes[which]), part ? part->tensor.bytes : 0);
    mha__release(&u->file->allocator, mha__unconst(u->parts.numbers[which]),
                 part ? part->tensor.elements * sizeof(float) : 0);
}

static mha_status load_parts(mha__unpacking *u, mha_error *error)
{
    const mha__packing *packing = &u->entry->packing;
    const mha_file_tensor *tensor = &u->entry->tensor;
    mha__part wrong = MHA_PARTS;
    u->parts.packing = packing;
    u->parts.columns = tensor->shape[tensor->rank - 1];
    u->parts.rows = tensor->rank > 1 ? tensor->shape[tensor->rank - 2] : 1;
    for (int p = 0; p < MHA_PARTS; p++)
        TRY(load_part(u, (mha__part)p, error));
    const mha_dtype dtype = part_of(u, MHA_PART_CODES)->tensor.dtype;
    for (unsigned c = 0; c < 256 && mha__element_bytes(dtype) == 1; c++) {
        unsigned char code = (unsigned char)c;
        const mha_view one = mha_view_of(&code, dtype, 0, NULL);
        u->parts.code_values[c] = (float)mha_view_get(&one, NULL);
    }
    if (packing->kind->check)
        wrong = packing->kind->check(&u->parts, tensor);
    if (wrong == MHA_PARTS)
        return MHA_OK;
    const mha__entry *part = part_of(u, wrong);
    if (wrong == MHA_PART_ZEROS)
        return mha__fail_inside(error, MHA_FORMAT, mha__entry_path(u->file, part), part->tensor.name, 0,
                                "expected zero points of %g, as sym is true and checkpoint_format is %s, found another "
                                "one",
                                (double)(1u << (packing->bits - 1)) - packing->offset,
                                packing->offset > 0 ? "gptq or missing" : "gptq_v2");
    return mha__fail_inside(error, MHA_FORMAT, mha__entry_path(u->file, part), part->tensor.name, 0,
                            "expected groups from 0 to %zu, found another one", packing->grid_rows - 1);
}

/* Whether a block can have all scales of the tensor. */
static mha_status scales_fit(const mha_file *file, const mha__entry *entry, bool *fit, mha_error *error)
{
    mha__unpacking u = {.file = file, .entry = entry};
    const mha__entry *part = part_of(&u, MHA_PART_SCALES);
    const mha_status status = load_part(&u, MHA_PART_SCALES, error);
    const float *scales = status == MHA_OK ? u.parts.numbers[MHA_PART_SCALES] : NULL;
    *fit = scales != NULL;
    for (size_t i = 0; *fit && i < part->tensor.elements; i++)
        *fit = !(fabsf(scales[i]) >= MHA_F8_SCALE_LIMIT && isfinite(scales[i]));
    release_part(&u, MHA_PART_SCALES);
    return status;
}

mha_status mha__unpack_stays(const mha_file *file, const mha__entry *entry, mha_dtype *dtype, mha_error *error)
{
    const mha__packing *packing = &entry->packing;
    const bool whole = mha__block_kind_of(entry->tensor.dtype) != NULL;
    bool fit = true;
    *dtype = packing->kind ? mha__scaled_blocks(packing, &entry->tensor) : whole ? entry->tensor.dtype : MHA_F32;
    if (*dtype == MHA_F8_E4M3_SCALED && packing->kind)
        TRY(scales_fit(file, entry, &fit, error));
    if (!fit)
        *dtype = MHA_F32;
    return MHA_OK;
}

void mha__unpack_f8(mha__unpacking *u, size_t count, unsigned char *blocks)
{
    for (size_t i = 0; i < count; i += MHA_F8_BLOCK, blocks += MHA_F8_SCALE + MHA_F8_BLOCK) {
        mha__put_scaled_block(&u->parts, u->row, u->column, blocks);
        mha__unpack_skip(u, MHA_F8_BLOCK);
    }
}

static void next_values(mha__unpacking *u, float *values, size_t count)
{
    const mha__unpack_value value = u->entry->packing.kind->value;
    for (size_t i = 0; i < count; i++) {
        values[i] = value(&u->parts, u->row, u->column);
        if (++u->column == u->parts.columns) {
            u->column = 0;
            u->row++;
        }
    }
}

/* ---------------------------------------------------------------- blocks */

mha_status mha__unpack_begin(const mha_file *file, const mha__entry *entry, size_t first, size_t count,
                             mha__unpacking **unpacking, mha_error *error)
{
    const mha_file_tensor *tensor = &entry->tensor;
    mha__unpacking *u = mha__allocate(&file->allocator, sizeof *u);
    *unpacking = u;
    if (!u)
        return mha__fail_inside(error, MHA_NO_MEMORY, mha__entry_path(file, entry), tensor->name, 0,
                                "no memory for %zu bytes of buffer", sizeof *u);
    u->file = file;
    u->entry = entry;
    if (entry->packing.kind) {
        TRY(load_parts(u, error));
    } else {
        u->kind = mha__block_kind_of(tensor->dtype);
        const size_t n = u->kind->elements, last = first + count;
        u->taken = n;
        u->offset = tensor->offset;
        u->end = tensor->offset + (last / n + (last % n != 0)) * u->kind->bytes;
    }
    mha__unpack_skip(u, first);
    return MHA_OK;
}

static mha_status next_block(mha__unpacking *u, mha_error *error)
{
    if (u->at == u->buffered) {
        const uint64_t left = u->end - u->offset;
        const size_t room = BUFFER_BYTES / u->kind->bytes * u->kind->bytes, bytes = left < room ? (size_t)left : room;
        TRY(mha__source_read(mha__file_source(u->file, u->entry->source), u->offset, u->buffer, bytes, error));
        u->offset += bytes;
        u->buffered = bytes;
        u->at = 0;
    }
    mha__decode_block(u->kind, u->buffer + u->at, u->values);
    u->at += u->kind->bytes;
    u->taken -= u->kind->elements;
    return MHA_OK;
}

mha_status mha__unpack_next(mha__unpacking *u, float *values, size_t count, mha_error *error)
{
    if (u->entry->packing.kind) {
        next_values(u, values, count);
        return MHA_OK;
    }
    while (count > 0) {
        if (u->taken >= u->kind->elements) /* more where values of the next block were passed over */
            TRY(next_block(u, error));
        const size_t left = u->kind->elements - u->taken, step = count < left ? count : left;
        memcpy(values, u->values + u->taken, step * sizeof *values);
        u->taken += step;
        values += step;
        count -= step;
    }
    return MHA_OK;
}

void mha__unpack_skip(mha__unpacking *u, size_t count)
{
    if (u->entry->packing.kind) {
        u->row += (u->column + count) / u->parts.columns;
        u->column = (u->column + count) % u->parts.columns;
        return;
    }
    const size_t n = u->kind->elements, past = u->taken + count;
    if (past < n) {
        u->taken = past;
        return;
    }
    const size_t bytes = (past / n - 1) * u->kind->bytes, held = u->buffered - u->at;
    u->at += bytes < held ? bytes : held;
    u->offset += bytes < held ? 0 : bytes - held;
    u->taken = n + past % n;
}

void mha__unpack_end(mha__unpacking *u)
{
    for (int p = 0; u && u->entry->packing.kind && p < MHA_PARTS; p++)
        release_part(u, (mha__part)p);
    if (u)
        mha__release(&u->file->allocator, u, sizeof *u);
}
