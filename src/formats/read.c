/* Tensor data from a file into a view: positioned reads, byte order, conversion. */
#include <inttypes.h>
#include <string.h>
#include <zip.h>

#include "base/quantised/decoders.h"
#include "formats/file.h"
#include "formats/files/chunks.h"
#include "formats/quantised/packings.h"
#include "formats/readers/readers.h"
#include "lab/lab.h"

enum { BUFFER_BYTES = 1 << 16 };

/* The state of reading one tensor, or some of it, from its first byte to its last. */
typedef struct reading {
    const mha_file *file;
    const mha__entry *entry;
    uint64_t offset;    /* of the next byte, in a file */
    zip_file_t *member; /* of an npz, else NULL */
    bool swap;          /* the file's byte order is not this machine's */
    void *buffer;
    mha__unpacking *unpacking; /* of a quantised tensor, else NULL */
    bool keeps_f8;             /* with its scales, in blocks */
    size_t run, gap, left;     /* elements that lie together, between two such runs, and left of the run */
    mha_error *error;
} reading;

/* The file's entry for a tensor that the caller has, perhaps as a copy; NULL when it is not of this file. */
static const mha__entry *entry_of(const mha_file *file, const mha_file_tensor *tensor)
{
    const size_t listed = file->entries.count;
    if (tensor->index >= listed + file->parts.count)
        return NULL;
    const mha__entry *entry = tensor->index < listed
                                  ? (const mha__entry *)file->entries.items + tensor->index
                                  : (const mha__entry *)file->parts.items + (tensor->index - listed);
    return strcmp(entry->tensor.name, tensor->name) == 0 ? entry : NULL;
}

static mha_status zip_failure(const reading *state, zip_error_t *why)
{
    char name[sizeof state->error->name];
    mha__name_inside(name, sizeof name, state->file->path, state->entry->tensor.name);
    return mha__zip_failed(why, name, state->error);
}

static mha_status read_member(reading *state, void *to, size_t bytes)
{
    char *at = to;
    while (bytes > 0) {
        int64_t got = mha__zip_read(state->member, at, bytes);
        if (got < 0)
            return zip_failure(state, zip_file_get_error(state->member));
        if (got == 0)
            return mha__fail_inside(state->error, MHA_FORMAT, mha__entry_path(state->file, state->entry),
                                    state->entry->tensor.name, 0,
                                    "expected %zu more bytes in the archive, found its end", bytes);
        at += got;
        bytes -= (size_t)got;
    }
    return MHA_OK;
}

static mha_status read_bytes(reading *state, void *to, size_t bytes)
{
    if (state->member)
        return read_member(state, to, bytes);
    const mha__source *source = mha__file_source(state->file, state->entry->source);
    mha_status status = mha__source_read(source, state->offset, to, bytes, state->error);
    state->offset += bytes;
    return status;
}

/* Passes over elements: by their place in a file, by reading in an archive. */
static mha_status skip(reading *state, size_t elements)
{
    char skipped[1024];
    if (state->unpacking) {
        mha__unpack_skip(state->unpacking, elements);
        return MHA_OK;
    }
    uint64_t left = (uint64_t)elements * mha__element_bytes(state->entry->tensor.dtype);
    if (!state->member) {
        state->offset += left;
        return MHA_OK;
    }
    while (left > 0) {
        const size_t step = left < sizeof skipped ? (size_t)left : sizeof skipped;
        TRY(read_member(state, skipped, step));
        left -= step;
    }
    return MHA_OK;
}

/* The next elements, run by run: as they are in the file, or unpacked. */
static mha_status next(reading *state, void *to, size_t elements)
{
    const size_t width = state->unpacking ? sizeof(float) : mha__element_bytes(state->entry->tensor.dtype);
    for (char *at = to; elements > 0;) {
        if (state->left == 0) {
            TRY(skip(state, state->gap));
            state->left = state->run;
        }
        const size_t step = elements < state->left ? elements : state->left;
        if (state->keeps_f8)
            mha__unpack_f8(state->unpacking, step, (unsigned char *)at);
        else
            TRY(state->unpacking ? mha__unpack_next(state->unpacking, (float *)(void *)at, step, state->error)
                                 : read_bytes(state, at, step * width));
        at += state->keeps_f8 ? step / MHA_F8_BLOCK * (MHA_F8_SCALE + MHA_F8_BLOCK) : step * width;
        elements -= step;
        state->left -= step;
    }
    return MHA_OK;
}

/* Reads into a chunk of the file's dtype and byte order directly, else by way of the buffer. */
static mha_status read_straight(void *context, const mha_view *piece)
{
    reading *state = context;
    size_t elements = mha_view_elements(piece);
    mha_status status = next(state, piece->data, elements);
    if (status == MHA_OK && state->swap)
        mha__swap_bytes(piece->data, piece->dtype, elements);
    return status;
}

static mha_status read_converted(void *context, const mha_view *piece)
{
    reading *state = context;
    const mha_dtype dtype = state->unpacking ? MHA_F32 : state->entry->tensor.dtype;
    size_t elements = mha_view_elements(piece);
    TRY(next(state, state->buffer, elements));
    if (state->swap && !state->unpacking)
        mha__swap_bytes(state->buffer, dtype, elements);
    mha_view bytes = mha_view_of(state->buffer, dtype, piece->rank, piece->shape);
    mha_status status = mha_view_copy(piece, &bytes, NULL);
    if (status != MHA_OK)
        return mha__fail_inside(state->error, status, mha__entry_path(state->file, state->entry),
                                state->entry->tensor.name, 0, "expected a floating type to read %s into, found %s",
                                mha_dtype_name(dtype), mha_dtype_name(piece->dtype));
    return MHA_OK;
}

/* Skips the npy header, which was read when the file was opened. */
static mha_status open_member(reading *state)
{
    const mha_file_tensor *tensor = &state->entry->tensor;
    zip_t *archive = state->file->archive;
    state->member = mha__zip_member(archive, state->entry->source);
    if (!state->member)
        return zip_failure(state, zip_get_error(archive));
    char header[256];
    mha_status status = MHA_OK;
    for (uint64_t left = tensor->offset; left > 0 && status == MHA_OK;) {
        size_t step = left < sizeof header ? (size_t)left : sizeof header;
        status = read_member(state, header, step);
        left -= step;
    }
    return status;
}

/* Reads to the end of a member, because libzip checks its checksum only there. */
static mha_status close_member(reading *state, mha_status status)
{
    char beyond;
    int64_t got = status == MHA_OK ? mha__zip_read(state->member, &beyond, 1) : 0;
    if (got < 0)
        status = zip_failure(state, zip_file_get_error(state->member));
    else if (got > 0)
        status = mha__fail_inside(state->error, MHA_FORMAT, mha__entry_path(state->file, state->entry),
                                  state->entry->tensor.name, 0, "expected %zu bytes of data, found more in the archive",
                                  state->entry->tensor.bytes);
    zip_fclose(state->member);
    return status;
}

static mha_view reverse_axes(const mha_view *view)
{
    mha_view reversed = *view;
    for (int k = 0; k < view->rank; k++) {
        reversed.shape[k] = view->shape[view->rank - 1 - k];
        reversed.stride[k] = view->stride[view->rank - 1 - k];
    }
    return reversed;
}

/* Elements [from, from + count) of an axis of a tensor. */
typedef struct part {
    int axis;
    size_t from, count;
    size_t shape[MHA_MAX_RANK], elements; /* of the part */
    size_t before, run, gap, behind;      /* in the file's order: elements before, in and between its runs, behind */
} part;

static bool find_part(const mha__entry *entry, part *p)
{
    const mha_file_tensor *tensor = &entry->tensor;
    size_t inner = 1;
    memcpy(p->shape, tensor->shape, sizeof p->shape);
    p->elements = p->run = tensor->elements;
    p->before = p->gap = p->behind = 0;
    if (tensor->rank == 0 && p->axis == 0)
        return true;
    if (p->axis < 0 || p->axis >= tensor->rank || p->from > tensor->shape[p->axis] ||
        p->count > tensor->shape[p->axis] - p->from)
        return false;
    const size_t extent = tensor->shape[p->axis];
    if (p->count == extent)
        return true; /* all of it */
    for (int k = entry->fortran ? 0 : p->axis + 1; k < (entry->fortran ? p->axis : tensor->rank); k++)
        inner *= tensor->shape[k];
    p->shape[p->axis] = p->count;
    p->elements = extent ? tensor->elements / extent * p->count : 0;
    p->before = p->from * inner;
    p->run = p->count * inner;
    p->gap = (extent - p->count) * inner;
    p->behind = (extent - p->from - p->count) * inner;
    return true;
}

static mha_status check_target(const mha_file *file, const mha__entry *entry, const part *p, const mha_view *to,
                               mha_error *error)
{
    const mha_file_tensor *tensor = &entry->tensor;
    char held[200], wanted[200];
    mha__shape_text(held, sizeof held, p->shape, tensor->rank);
    mha__shape_text(wanted, sizeof wanted, to->shape, to->rank);
    if (mha_view_elements(to) != p->elements)
        return mha__fail_inside(error, MHA_INVALID, mha__entry_path(file, entry), tensor->name, 0,
                                "expected %s (%zu elements), found %s (%zu elements) in the file", wanted,
                                mha_view_elements(to), held, p->elements);
    if (!to->data && p->elements > 0)
        return mha__fail_inside(error, MHA_INVALID, mha__entry_path(file, entry), tensor->name, 0,
                                "expected memory to read into, found a view without data");
    if (!mha__is_packed(entry) && mha__element_bytes(tensor->dtype) == 0)
        return mha__fail_inside(error, MHA_UNSUPPORTED, mha__entry_path(file, entry), tensor->name, 0,
                                "expected a type that is decoded here, found the quantised %s: convert it to another,"
                                " such as Q8_0 or F16",
                                mha_dtype_name(tensor->dtype));
    if (entry->fortran && strcmp(held, wanted) != 0)
        return mha__fail_inside(error, MHA_INVALID, mha__entry_path(file, entry), tensor->name, 0,
                                "expected %s, found %s in Fortran order, which only a view of the same shape can take",
                                wanted, held);
    return MHA_OK;
}

/* Whether whole blocks of a quantised type, one after the other, go where blocks of the type belong. */
static bool takes_blocks(const mha__entry *entry, const part *p, const mha_view *to)
{
    const mha_dtype dtype = entry->tensor.dtype;
    size_t bytes;
    return mha__element_bytes(dtype) == 0 && !entry->packing.kind && to->dtype == dtype && p->run == p->elements &&
           mha_dtype_bytes(dtype, p->before, &bytes, NULL) == MHA_OK &&
           mha_dtype_bytes(dtype, p->elements, &bytes, NULL) == MHA_OK && mha__view_is_contiguous(to);
}

/* Whether F8 and its scales go where blocks of them belong. */
static mha_status takes_f8(const reading *state, const part *p, const mha_view *to, bool *takes)
{
    mha_dtype stays = MHA_F32;
    if (to->dtype == MHA_F8_E4M3_SCALED || to->dtype == MHA_F8_E5M2_SCALED)
        TRY(mha__unpack_stays(state->file, state->entry, &stays, state->error));
    *takes = stays != MHA_F32 && stays == to->dtype && mha__view_is_contiguous(to) &&
             (p->before | p->run | p->gap) % MHA_F8_BLOCK == 0;
    return MHA_OK;
}

static mha_status read_part(const mha_file *file, const mha__entry *entry, const part *p, const mha_view *to,
                            mha_error *error)
{
    const mha_file_tensor *tensor = &entry->tensor;
    mha_status status = check_target(file, entry, p, to, error);
    if (status != MHA_OK || p->elements == 0)
        return status;

    reading state = {.file = file, .entry = entry, .offset = tensor->offset, .run = p->run, .gap = p->gap,
                     .left = p->run, .error = error};
    state.swap = entry->big_endian != mha__host_is_big_endian();
    if (file->archive) {
        status = open_member(&state);
        if (!state.member)
            return status;
    }
    if (status == MHA_OK && takes_blocks(entry, p, to)) {
        size_t before = 0, bytes = 0;
        (void)mha_dtype_bytes(tensor->dtype, p->before, &before, NULL);
        (void)mha_dtype_bytes(tensor->dtype, p->elements, &bytes, NULL);
        state.offset += before;
        return read_bytes(&state, to->data, bytes);
    }
    if (status == MHA_OK)
        status = takes_f8(&state, p, to, &state.keeps_f8);
    if (status == MHA_OK && mha__is_packed(entry))
        status = mha__unpack_begin(file, entry, p->before, tensor->elements - p->before - p->behind, &state.unpacking,
                                   error);
    else if (status == MHA_OK)
        status = skip(&state, p->before);
    mha_view target = entry->fortran ? reverse_axes(to) : *to;
    if (status == MHA_OK && state.keeps_f8)
        status = next(&state, to->data, p->elements);
    else if (status == MHA_OK && !state.unpacking && target.dtype == tensor->dtype && mha__view_is_contiguous(&target))
        status = mha__view_pieces(&target, SIZE_MAX, read_straight, &state);
    else if (status == MHA_OK) {
        state.buffer = mha__allocate(&file->allocator, BUFFER_BYTES);
        const size_t width = state.unpacking ? sizeof(float) : mha__element_bytes(tensor->dtype);
        status = state.buffer ? mha__view_pieces(&target, BUFFER_BYTES / width, read_converted, &state)
                              : mha__fail_inside(error, MHA_NO_MEMORY, mha__entry_path(file, entry), tensor->name, 0,
                                                 "no memory for %d bytes of buffer", BUFFER_BYTES);
        mha__release(&file->allocator, state.buffer, BUFFER_BYTES);
    }
    mha__unpack_end(state.unpacking);
    if (!state.member)
        return status;
    return close_member(&state, status == MHA_OK ? skip(&state, p->behind) : status);
}

static mha_status read_tensor(const mha_file *file, const mha_file_tensor *tensor, part *p, const mha_view *to,
                              mha_error *error)
{
    const mha__entry *entry = entry_of(file, tensor);
    if (!entry)
        return mha__fail_inside(error, MHA_NOT_FOUND, file->path, tensor->name, 0,
                                "expected a tensor of this file, found one that is not in it");
    if (!find_part(entry, p))
        return mha__fail_inside(error, MHA_INVALID, mha__entry_path(file, entry), tensor->name, 0,
                                "expected a part of its %d axes, found elements %zu to %zu of axis %d", tensor->rank,
                                p->from, p->from + p->count, p->axis);
    return read_part(file, entry, p, to, error);
}

mha_status mha_file_read(const mha_file *file, const mha_file_tensor *tensor, const mha_view *to, mha_error *error)
{
    part all = {.count = tensor->shape[0]};
    return read_tensor(file, tensor, &all, to, error);
}

mha_status mha_file_read_part(const mha_file *file, const mha_file_tensor *tensor, int axis, size_t from, size_t count,
                              const mha_view *to, mha_error *error)
{
    part some = {.axis = axis, .from = from, .count = count};
    return read_tensor(file, tensor, &some, to, error);
}

mha_status mha__file_stays(const mha_file *file, const mha_file_tensor *tensor, mha_dtype *dtype, mha_error *error)
{
    return mha__unpack_stays(file, entry_of(file, tensor), dtype, error);
}

mha_status mha__file_same_bytes(const mha_file *file, const mha_file_tensor *a, const mha_file_tensor *b, bool *same,
                                mha_error *error)
{
    enum { PLACES = 64, PIECE = 4096 };
    const mha__entry *first = entry_of(file, a), *second = entry_of(file, b);
    unsigned char one[PIECE], other[PIECE];
    *same = false;
    if (!first || !second || file->archive || a->packing || b->packing || a->bytes == 0 || a->bytes != b->bytes)
        return MHA_OK;
    const size_t pieces = (a->bytes + PIECE - 1) / PIECE, places = pieces < PLACES ? pieces : PLACES;
    for (size_t i = 0; i < places; i++) {
        const size_t at = (pieces <= PLACES ? i : pieces / PLACES * i) * PIECE;
        const size_t bytes = a->bytes - at < PIECE ? a->bytes - at : PIECE;
        TRY(mha__source_read(mha__file_source(file, first->source), a->offset + at, one, bytes, error));
        TRY(mha__source_read(mha__file_source(file, second->source), b->offset + at, other, bytes, error));
        if (memcmp(one, other, bytes) != 0)
            return MHA_OK;
    }
    *same = true;
    return MHA_OK;
}
