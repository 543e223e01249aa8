/* An open file of tensors: telling the format, the list of tensors and metadata, looking up by name. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "formats/tensor_list.h"

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

struct mha__text_block {
    struct mha__text_block *next;
    size_t bytes, used; /* of the block, this head included */
};

enum { TEXT_BLOCK = 4096 };

char *mha__file_text(mha_file *file, const char *text, size_t length)
{
    struct mha__text_block *block = file->text;
    if (!block || block->bytes - block->used <= length) {
        size_t bytes = length < TEXT_BLOCK / 2 ? TEXT_BLOCK : sizeof *block + length + 1;
        block = bytes > length ? mha__allocate(&file->allocator, bytes) : NULL;
        if (!block)
            return NULL;
        *block = (struct mha__text_block){file->text, bytes, sizeof *block};
        file->text = block;
    }
    char *copy = (char *)block + block->used;
    if (text)
        memcpy(copy, text, length);
    block->used += length + 1;
    return copy;
}

mha_status mha__file_no_memory(const mha_file *file, mha_error *error)
{
    return mha__fail_named(error, MHA_NO_MEMORY, file->path, "no memory for the list of %zu tensors",
                          file->entries.count);
}

/* ---------------------------------------------------------------- filling */

mha_status mha__file_add_source(mha_file *file, const char *path, size_t *index, mha_error *error)
{
    mha__source source;
    mha_status status = mha__source_open(&source, path, error);
    if (status != MHA_OK)
        return status;
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

mha_status mha__file_add_tensor(mha_file *file, const char *name, size_t name_length, const mha__entry *entry,
                               uint64_t where, mha_error *error)
{
    mha__entry added = *entry;
    mha_file_tensor *tensor = &added.tensor;
    char shape[200];
    mha__shape_text(shape, sizeof shape, tensor->shape, tensor->rank);
    mha_view view = mha_view_of(NULL, tensor->dtype, tensor->rank, tensor->shape);
    tensor->elements = mha_view_elements(&view);
    if (tensor->elements == SIZE_MAX || mha_dtype_bytes(tensor->dtype, tensor->elements, &tensor->bytes) != MHA_OK)
        return mha__fail_named_at(error, MHA_FORMAT, name, where,
                                 "expected a shape whose bytes can be counted, found %s of %s (at byte %" PRIu64 ")",
                                 shape, mha_dtype_name(tensor->dtype), where);
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

/* ---------------------------------------------------------------- names */

/* a and b point to pointers to items; items of both lists begin with the string they are looked up by. */
static int compare_names(const void *a, const void *b)
{
    const char *const *left = *(const void *const *)a, *const *right = *(const void *const *)b;
    return strcmp(*left, *right);
}

/* Pointers to the items of `list` in order of their names. *twice is a name that occurs twice. */
static const void **sort_by_name(const mha_file *file, const mha__list *list, const char **twice, mha_error *error)
{
    const void **index = mha__allocate(&file->allocator, (list->count + 1) * sizeof *index);
    if (!index) {
        mha__file_no_memory(file, error);
        return NULL;
    }
    for (size_t i = 0; i < list->count; i++)
        index[i] = (const char *)list->items + i * list->item_bytes;
    qsort(index, list->count, sizeof *index, compare_names);
    for (size_t i = 1; i < list->count && !*twice; i++)
        if (compare_names(&index[i - 1], &index[i]) == 0)
            *twice = *(const char *const *)index[i];
    return index;
}

static mha_status index_names(mha_file *file, mha_error *error)
{
    const char *twice = NULL;
    file->by_name = sort_by_name(file, &file->entries, &twice, error);
    if (!file->by_name)
        return MHA_NO_MEMORY;
    if (twice)
        return mha__fail_named(error, MHA_FORMAT, twice,
                              "expected every tensor to be named once, found this name twice");
    file->by_key = sort_by_name(file, &file->metadata, &twice, error);
    if (!file->by_key)
        return MHA_NO_MEMORY;
    if (twice)
        return mha__fail_named(error, MHA_FORMAT, twice, "expected every metadata key once, found this key twice");
    return MHA_OK;
}

/* The item of that name among `count` sorted ones. */
static const void *look_up(const void **index, size_t count, const char *name)
{
    if (!name || count == 0)
        return NULL;
    const void *key = &name;
    const void *const *found = bsearch(&key, index, count, sizeof *index, compare_names);
    return found ? *found : NULL;
}

/* ---------------------------------------------------------------- opening */

static const struct {
    const char *name;
    const char *magic;
    size_t magic_bytes;
    mha_status (*parse)(mha_file *file, size_t index, mha_error *error);
} formats[] = {
    {"gguf", "GGUF", 4, mha__gguf_parse},
    {"npy", "\x93NUMPY", 6, mha__npy_parse},
    {"npz", "PK\x03\x04", 4, mha__npz_parse},
    {"npz", "PK\x05\x06", 4, mha__npz_parse}, /* an archive without members */
};

/* JSON is the index of a set of files; whatever else has no magic number is held against safetensors,
 * which has none either. */
static mha_status parse(mha_file *file, mha_error *error)
{
    unsigned char start[17] = {0};
    const mha__source *source = mha__file_source(file, 0);
    size_t available = source->size < 16 ? (size_t)source->size : 16;
    mha_status status = mha__source_read(source, 0, start, available, error);
    if (status != MHA_OK)
        return status;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (available >= formats[i].magic_bytes && memcmp(start, formats[i].magic, formats[i].magic_bytes) == 0) {
            file->format = formats[i].name;
            return mha__fail_in(error, formats[i].parse(file, 0, error), source->path);
        }
    file->format = "safetensors";
    if (available > 8 && start[8] == '{')
        return mha__fail_in(error, mha__safetensors_parse(file, 0, error), source->path);
    if (start[strspn((const char *)start, " \t\r\n")] == '{')
        return mha__fail_in(error, mha__shards_parse(file, 0, error), source->path);
    status = mha__foreign_refuse(source, error);
    if (status == MHA_OK)
        status = mha__safetensors_parse(file, 0, error);
    return mha__fail_in(error, status, source->path);
}

mha_status mha__file_open_using(const mha_allocator *allocator, const char *path, mha_file **file, mha_error *error)
{
    *file = NULL;
    mha_allocator memory = mha__allocator_or_default(allocator);
    mha_file *opened = mha__allocate(&memory, sizeof *opened);
    if (!opened)
        return mha__fail_named(error, MHA_NO_MEMORY, path, "no memory to open it");
    opened->allocator = memory;
    opened->sources.item_bytes = sizeof(mha__source);
    opened->entries.item_bytes = sizeof(mha__entry);
    opened->metadata.item_bytes = sizeof(mha__pair);
    const char *own = mha__file_text(opened, path, strlen(path));
    opened->path = own ? mha__source_name(own) : NULL;
    mha_status status = opened->path ? MHA_OK : mha__fail_named(error, MHA_NO_MEMORY, path, "no memory to open it");

    bool directory = false;
    const char *first = own;
    size_t index;
    if (status == MHA_OK)
        status = mha__source_is_directory(path, &directory, error);
    if (status == MHA_OK && directory)
        status = mha__shards_find(opened, opened->path, &first, error);
    if (status == MHA_OK)
        status = mha__file_add_source(opened, first, &index, error);
    if (status == MHA_OK)
        status = parse(opened, error);
    if (status == MHA_OK)
        status = mha__fail_in(error, index_names(opened, error), opened->path);
    if (status != MHA_OK)
        mha_file_close(opened);
    else
        *file = opened;
    return status;
}

mha_status mha_file_open(const char *path, mha_file **file, mha_error *error)
{
    return mha__file_open_using(NULL, path, file, error);
}

void mha_file_close(mha_file *file)
{
    if (!file)
        return;
    mha_allocator memory = file->allocator;
    if (file->archive)
        zip_discard(file->archive);
    for (size_t i = 0; i < file->sources.count; i++)
        mha__source_close((mha__source *)file->sources.items + i);
    mha__release(&memory, file->by_name, (file->entries.count + 1) * sizeof *file->by_name);
    mha__release(&memory, file->by_key, (file->metadata.count + 1) * sizeof *file->by_key);
    mha__list_release(&memory, &file->sources);
    mha__list_release(&memory, &file->entries);
    mha__list_release(&memory, &file->metadata);
    for (struct mha__text_block *block = file->text, *next; block; block = next) {
        next = block->next;
        mha__release(&memory, block, block->bytes);
    }
    mha__release(&memory, file, sizeof *file);
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

const mha_file_tensor *mha_file_find(const mha_file *file, const char *name)
{
    const mha__entry *entry = look_up(file->by_name, file->entries.count, name);
    return entry ? &entry->tensor : NULL;
}

const char *mha_file_metadata(const mha_file *file, const char *key)
{
    const mha__pair *pair = look_up(file->by_key, file->metadata.count, key);
    return pair ? pair->value : NULL;
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
