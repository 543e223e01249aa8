/* The list of tensors and metadata of a file, which the readers fill. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantised/decoders.h"
#include "formats/files/tensor_list.h"
#include "lab/lab.h"

/* ---------------------------------------------------------------- lists and strings */

void *mha__list_add(const mha_allocator *allocator, mha__list *list)
{
    void *items = mha__array_grow(allocator, list->items, list->count, &list->room, list->item_bytes);
    if (!items)
        return NULL;
    list->items = items;
    return (char *)list->items + list->count++ * list->item_bytes;
}

void mha__list_release(const mha_allocator *allocator, mha__list *list)
{
    mha__release(allocator, list->items, list->room * list->item_bytes);
    list->items = NULL;
    list->count = list->room = 0;
}

char *mha__file_text(mha_file *file, const char *text, size_t length)
{
    return mha__arena_text(&file->texts, text, length);
}

mha_status mha__file_no_memory(const mha_file *file, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, file->path, "no memory for the list of %zu tensors", file->entries.count);
}

/* ---------------------------------------------------------------- filling */

mha_status mha__file_add_source(mha_file *file, const char *path, size_t *index, mha_error *error)
{
    mha__source source;
    TRY(mha__source_open(&source, path, error));
    mha__source *place = mha__list_add(&file->allocator, &file->sources);
    if (!place) {
        mha__source_close(&source);
        return mha__file_no_memory(file, error);
    }
    *place = source;
    *index = file->sources.count - 1;
    return MHA_OK;
}

const mha__source *mha__file_source(const mha_file *file, size_t index)
{
    return (const mha__source *)file->sources.items + index;
}

const char *mha__entry_path(const mha_file *file, const mha__entry *entry)
{
    return file->archive ? file->path : mha__file_source(file, entry->source)->path;
}

mha_status mha__file_add_tensor(mha_file *file, const char *name, size_t name_length, const mha__entry *entry,
                                uint64_t where, mha_error *error)
{
    mha__entry added = *entry;
    mha_file_tensor *tensor = &added.tensor;
    char shape[200];
    mha__shape_text(shape, sizeof shape, tensor->shape, tensor->rank);
    mha_view view = mha_view_of(NULL, tensor->dtype, tensor->rank, tensor->shape);
    tensor->elements = mha_view_elements(&view);
    if (tensor->elements == SIZE_MAX ||
        mha_dtype_bytes(tensor->dtype, tensor->elements, &tensor->bytes, NULL) != MHA_OK)
        return mha__fail_inside(error, MHA_FORMAT, mha__entry_path(file, entry), name, where,
                                "expected a shape whose bytes can be counted, found %s of %s (at byte %" PRIu64 ")",
                                shape, mha_dtype_name(tensor->dtype), where);
    tensor->index = file->entries.count;
    tensor->reads_as = mha__block_kind_of(tensor->dtype) ? MHA_F32 : tensor->dtype;
    tensor->name = mha__file_text(file, name, name_length);
    mha__entry *place = tensor->name ? mha__list_add(&file->allocator, &file->entries) : NULL;
    if (!place)
        return mha__file_no_memory(file, error);
    *place = added;
    return MHA_OK;
}

mha_status mha__file_add_metadata(mha_file *file, const char *key, size_t key_length, const char *value,
                                  size_t value_length, mha_error *error)
{
    mha__pair added = {mha__file_text(file, key, key_length), mha__file_text(file, value, value_length)};
    mha__pair *place = added.key && added.value ? mha__list_add(&file->allocator, &file->metadata) : NULL;
    if (!place)
        return mha__file_no_memory(file, error);
    *place = added;
    return MHA_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const mha_file_tensor *left = *(const mha_file_tensor *const *)a, *right = *(const mha_file_tensor *const *)b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes; /* those without bytes first */
}

const mha_file_tensor **mha__file_by_offset(const mha_file *file, size_t first)
{
    size_t count = mha_file_count(file) - first;
    const mha_file_tensor **order = mha__allocate(&file->allocator, (count + 1) * sizeof *order);
    if (!order)
        return NULL;
    for (size_t i = 0; i < count; i++)
        order[i] = mha_file_at(file, first + i);
    qsort(order, count, sizeof *order, compare_offsets);
    return order;
}

void mha__file_release_lists(mha_file *file)
{
    for (size_t i = 0; i < file->sources.count; i++)
        mha__source_close((mha__source *)file->sources.items + i);
    mha__list_release(&file->allocator, &file->sources);
    mha__list_release(&file->allocator, &file->entries);
    mha__list_release(&file->allocator, &file->parts);
    mha__list_release(&file->allocator, &file->metadata);
    mha__arena_free(&file->texts);
}

/* ---------------------------------------------------------------- asking */

const char *mha_file_path(const mha_file *file)
{
    return file->path;
}

const char *mha_file_format(const mha_file *file)
{
    return file->format;
}

size_t mha_file_count(const mha_file *file)
{
    return file->entries.count;
}

const mha_file_tensor *mha_file_at(const mha_file *file, size_t index)
{
    return index < file->entries.count ? &((const mha__entry *)file->entries.items)[index].tensor : NULL;
}

size_t mha_file_metadata_count(const mha_file *file)
{
    return file->metadata.count;
}

void mha_file_metadata_at(const mha_file *file, size_t index, const char **key, const char **value)
{
    bool known = index < file->metadata.count;
    const mha__pair *pair = known ? (const mha__pair *)file->metadata.items + index : NULL;
    *key = known ? pair->key : NULL;
    *value = known ? pair->value : NULL;
}
