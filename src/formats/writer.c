/* Writing safetensors and npy: collecting tensors, the header, the data. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "formats/file.h"
#include "formats/files/atomic_file.h"
#include "formats/files/chunks.h"
#include "formats/readers/readers.h"
#include "lab/lab.h"

typedef struct item {
    const char *name;
    mha_view view;
    size_t bytes, element_bytes; /* element_bytes 0: a type with several elements in a block */
} item;

struct mha_writer {
    mha__arena texts; /* path and names */
    const char *path;
    bool npy;
    mha__list items;  /* item */
    json_t *metadata; /* object of strings */
};

enum { BUFFER_BYTES = 1 << 16 };

mha_status mha__writer_create_using(const mha_allocator *allocator, const char *path, mha_writer **writer,
                                    mha_error *error)
{
    *writer = NULL;
    const char *name = path + (*path != '\0'); /* one character at least comes before the dot */
    bool npy = mha__text_ends(name, ".npy");
    bool named = npy || mha__text_ends(name, ".safetensors");
    if (!named)
        TRY(mha__output_is_direct(path, &named, error));
    if (!named)
        return mha__fail(error, MHA_INVALID, path, "expected a name that ends in .safetensors or .npy");
    TRY(mha__output_check(path, error));
    mha_allocator memory = mha__allocator_or_default(allocator);
    mha_writer *made = mha__allocate(&memory, sizeof *made);
    if (!made)
        return mha__fail(error, MHA_NO_MEMORY, path, "no memory to write it");
    made->texts.allocator = memory;
    made->npy = npy;
    made->items.item_bytes = sizeof(item);
    made->path = mha__arena_text(&made->texts, path, strlen(path));
    made->metadata = json_object();
    if (!made->path || !made->metadata) {
        mha_writer_destroy(made);
        return mha__fail(error, MHA_NO_MEMORY, path, "no memory to write it");
    }
    *writer = made;
    return MHA_OK;
}

mha_status mha_writer_create(const char *path, mha_writer **writer, mha_error *error)
{
    return mha__writer_create_using(NULL, path, writer, error);
}

void mha_writer_destroy(mha_writer *writer)
{
    if (!writer)
        return;
    mha_allocator memory = writer->texts.allocator;
    mha__list_release(&memory, &writer->items);
    json_decref(writer->metadata);
    mha__arena_free(&writer->texts);
    mha__release(&memory, writer, sizeof *writer);
}

static mha_status check_view(const mha_writer *writer, const char *name, const mha_view *view, mha_error *error)
{
    bool held = writer->npy ? mha__npy_descr(view->dtype) != NULL : mha__safetensors_has(view->dtype);
    if (!held)
        return mha__fail_inside(error, MHA_UNSUPPORTED, writer->path, name, 0,
                                "expected a dtype that %s can hold, found %s", writer->npy ? "npy" : "safetensors",
                                mha_dtype_name(view->dtype));
    size_t elements = mha_view_elements(view), bytes;
    if (view->rank < 0 || view->rank > MHA_MAX_RANK)
        return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0, "expected a rank of 0 to %d, found %d",
                                MHA_MAX_RANK, view->rank);
    if (elements == SIZE_MAX || mha_dtype_bytes(view->dtype, elements, &bytes, NULL) != MHA_OK)
        return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0,
                                "expected a shape whose bytes can be counted");
    for (int k = 0; k < view->rank; k++)
        if (view->shape[k] > INT64_MAX)
            return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0, "expected extents under 2^63, found %zu",
                                    view->shape[k]);
    if (!view->data && elements > 0)
        return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0, "expected data, found a view without any");
    if (mha__element_bytes(view->dtype) == 0 && !mha__view_is_contiguous(view))
        return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0, "expected packed elements to be contiguous");
    return MHA_OK;
}

/* The error for a text that jansson did not take: no memory, or not UTF-8. */
static mha_status refuse_text(const mha_writer *writer, const char *name, const char *what, mha_error *error)
{
    if (errno == ENOMEM)
        return mha__fail_inside(error, MHA_NO_MEMORY, writer->path, name, 0, "no memory to write it");
    return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0, "expected %s in UTF-8", what);
}

mha_status mha_writer_add(mha_writer *writer, const char *name, const mha_view *view, mha_error *error)
{
    if (!name || name[0] == '\0')
        return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0,
                                "expected a name for the tensor, found none");
    if (strcmp(name, "__metadata__") == 0)
        return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0,
                                "expected another name: the format keeps this one for itself");
    if (writer->npy && writer->items.count > 0)
        return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0,
                                "expected one tensor in an npy file, found a second");
    const item *items = writer->items.items;
    for (size_t i = 0; i < writer->items.count; i++)
        if (strcmp(items[i].name, name) == 0)
            return mha__fail_inside(error, MHA_INVALID, writer->path, name, 0,
                                    "expected every tensor to be named once, found this name twice");
    TRY(check_view(writer, name, view, error));
    errno = 0; /* malloc sets it */
    json_t *text = json_string(name);
    if (!text)
        return refuse_text(writer, name, "a name", error);
    json_decref(text);

    const char *copy = mha__arena_text(&writer->texts, name, strlen(name));
    item *added = copy ? mha__list_add(&writer->texts.allocator, &writer->items) : NULL;
    if (!added)
        return mha__fail_inside(error, MHA_NO_MEMORY, writer->path, name, 0, "no memory to write it");
    *added = (item){.name = copy, .view = *view, .element_bytes = mha__element_bytes(view->dtype)};
    return mha_dtype_bytes(view->dtype, mha_view_elements(view), &added->bytes, error);
}

mha_status mha_writer_add_metadata(mha_writer *writer, const char *key, const char *value, mha_error *error)
{
    if (writer->npy)
        return mha__fail_inside(error, MHA_UNSUPPORTED, writer->path, key, 0,
                                "expected no metadata for an npy file, which has no place for it");
    if (json_object_get(writer->metadata, key))
        return mha__fail_inside(error, MHA_INVALID, writer->path, key, 0,
                                "expected every metadata key once, found this key twice");
    errno = 0;
    json_t *text = json_string(value);
    if (!text || json_object_set_new(writer->metadata, key, text) != 0)
        return refuse_text(writer, key, "metadata", error);
    return MHA_OK;
}

/* ---------------------------------------------------------------- headers */

/* Visits the tensors with the widest elements first, then as added: after a header of a multiple of 8 bytes each one
 * is aligned. `visit` gets the position of the tensor's data after the header. */
typedef mha_status (*item_visit)(void *context, const item *one, uint64_t begin);

static mha_status in_file_order(const mha_writer *writer, item_visit visit, void *context)
{
    static const size_t widths[] = {8, 4, 2, 1, 0};
    const item *items = writer->items.items;
    uint64_t begin = 0;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t i = 0; i < writer->items.count; i++) {
            if (items[i].element_bytes != widths[w])
                continue;
            TRY(visit(context, &items[i], begin));
            begin += items[i].bytes;
        }
    return MHA_OK;
}

static mha_status describe(void *context, const item *one, uint64_t begin)
{
    json_t *shape = json_array();
    for (int k = 0; k < one->view.rank; k++)
        if (json_array_append_new(shape, json_integer((json_int_t)one->view.shape[k])) != 0) {
            json_decref(shape);
            return MHA_NO_MEMORY;
        }
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", mha_dtype_name(one->view.dtype), "shape", shape,
                              "data_offsets", (json_int_t)begin, (json_int_t)begin + (json_int_t)one->bytes);
    return entry && json_object_set_new(context, one->name, entry) == 0 ? MHA_OK : MHA_NO_MEMORY;
}

/* The JSON of a safetensors header, to be freed; NULL when there is no memory. */
static char *safetensors_header(const mha_writer *writer)
{
    json_t *header = json_object();
    mha_status status = header ? MHA_OK : MHA_NO_MEMORY;
    if (status == MHA_OK && json_object_size(writer->metadata) > 0 &&
        json_object_set(header, "__metadata__", writer->metadata) != 0)
        status = MHA_NO_MEMORY;
    if (status == MHA_OK)
        status = in_file_order(writer, describe, header);
    char *text = status == MHA_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    return text;
}

/* 8 bytes of length, then the JSON padded with blanks to a multiple of 8. */
static mha_status write_safetensors_header(const char *text, mha__output *output, mha_error *error)
{
    size_t length = strlen(text), padding = (8 - length % 8) % 8;
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)(length + padding) >> 8 * i);
    TRY(mha__output_write(output, prefix, sizeof prefix, error));
    TRY(mha__output_write(output, text, length, error));
    return mha__output_write(output, "        ", padding, error);
}

/* Version 1: magic, 2 bytes of length, the dictionary, padded so that the data begins at a multiple of 64. */
static mha_status write_npy_header(const mha_writer *writer, mha__output *output, mha_error *error)
{
    const item *one = writer->items.items;
    char shape[MHA_MAX_RANK * 24 + 4], header[512];
    mha__shape_text(shape, sizeof shape, one->view.shape, one->view.rank);
    memset(header, ' ', sizeof header);
    int text = snprintf(header + 10, sizeof header - 10, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                        mha__npy_descr(one->view.dtype), shape);
    size_t length = (10 + (size_t)text + 1 + 63) / 64 * 64;
    header[10 + text] = ' ';
    header[length - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((length - 10) & 0xff);
    header[9] = (char)((length - 10) >> 8);
    return mha__output_write(output, header, length, error);
}

/* ---------------------------------------------------------------- data */

typedef struct writing {
    mha__output *output;
    void *buffer;
    mha_error *error;
} writing;

static mha_status write_piece(void *context, const mha_view *piece)
{
    writing *state = context;
    size_t elements = mha_view_elements(piece);
    mha_view packed = mha_view_of(state->buffer, piece->dtype, piece->rank, piece->shape);
    mha_status status = mha_view_copy(&packed, piece, NULL);
    if (status != MHA_OK)
        return mha__fail(state->error, status, state->output->path, "is scattered"); /* unreachable: blocks never are */
    if (mha__host_is_big_endian())
        mha__swap_bytes(state->buffer, piece->dtype, elements);
    return mha__output_write(state->output, state->buffer, elements * mha__element_bytes(piece->dtype), state->error);
}

static mha_status write_item(void *context, const item *one, uint64_t begin)
{
    (void)begin;
    writing *state = context;
    bool as_it_is = one->element_bytes <= 1 || !mha__host_is_big_endian();
    if (as_it_is && mha__view_is_contiguous(&one->view))
        return mha__output_write(state->output, one->view.data, one->bytes, state->error);
    return mha__view_pieces(&one->view, BUFFER_BYTES / one->element_bytes, write_piece, state);
}

mha_status mha_writer_commit(mha_writer *writer, mha_error *error)
{
    if (writer->npy && writer->items.count == 0)
        return mha__fail(error, MHA_INVALID, writer->path, "expected one tensor for an npy file, found none");
    char *header = writer->npy ? NULL : safetensors_header(writer); /* before the file: it may lack memory */
    void *buffer = mha__allocate(&writer->texts.allocator, BUFFER_BYTES);
    mha__output output;
    mha_status status = buffer && (header || writer->npy)
                            ? mha__output_open(&output, writer->path, error)
                            : mha__fail(error, MHA_NO_MEMORY, writer->path, "no memory to write it");
    if (status == MHA_OK) {
        writing state = {&output, buffer, error};
        status = header ? write_safetensors_header(header, &output, error) : write_npy_header(writer, &output, error);
        if (status == MHA_OK)
            status = in_file_order(writer, write_item, &state);
        status = mha__output_finish(&output, status, error);
    }
    mha__release(&writer->texts.allocator, buffer, BUFFER_BYTES);
    free(header);
    return status;
}
