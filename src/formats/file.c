/* Opening a file of tensors: recognising its format, calling the reader, looking up names. */
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "formats/file.h"
#include "formats/readers/readers.h"

/* ---------------------------------------------------------------- names */

/* For qsort: a and b point to pointers to items. An item of either list begins with its name. */
static int compare_names(const void *a, const void *b)
{
    const char *const *left = *(const void *const *)a, *const *right = *(const void *const *)b;
    return strcmp(*left, *right);
}

/* Pointers to the items of `list` in order of their names. *twice: a name that occurs twice, or NULL. */
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
        return mha__fail_inside(error, MHA_FORMAT, file->path, twice, 0,
                                "expected every tensor to be named once, found this name twice");
    file->by_key = sort_by_name(file, &file->metadata, &twice, error);
    if (!file->by_key)
        return MHA_NO_MEMORY;
    if (twice)
        return mha__fail_inside(error, MHA_FORMAT, file->path, twice, 0,
                                "expected every metadata key once, found this key twice");
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

/* JSON is the index of a set of files. Any other text or data without a magic number is read as safetensors. */
static mha_status parse(mha_file *file, mha_error *error)
{
    unsigned char start[17] = {0};
    const mha__source *source = mha__file_source(file, 0);
    size_t available = source->size < 16 ? (size_t)source->size : 16;
    TRY(mha__source_read(source, 0, start, available, error));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (available >= formats[i].magic_bytes && memcmp(start, formats[i].magic, formats[i].magic_bytes) == 0) {
            file->format = formats[i].name;
            return formats[i].parse(file, 0, error);
        }
    file->format = "safetensors";
    if (available > 8 && start[8] == '{')
        return mha__safetensors_parse(file, 0, error);
    if (start[strspn((const char *)start, " \t\r\n")] == '{')
        return mha__shards_parse(file, 0, error);
    TRY(mha__foreign_refuse(source, error));
    return mha__safetensors_parse(file, 0, error);
}

mha_status mha__file_open_using(const mha_allocator *allocator, const char *path, mha_file **file, mha_error *error)
{
    *file = NULL;
    mha_allocator memory = mha__allocator_or_default(allocator);
    mha_file *opened = mha__allocate(&memory, sizeof *opened);
    if (!opened)
        return mha__fail(error, MHA_NO_MEMORY, path, "no memory to open it");
    opened->allocator = memory;
    opened->sources.item_bytes = sizeof(mha__source);
    opened->entries.item_bytes = sizeof(mha__entry);
    opened->metadata.item_bytes = sizeof(mha__pair);
    const char *own = mha__file_text(opened, path, strlen(path));
    opened->path = own ? mha__source_name(own) : NULL;
    mha_status status = opened->path ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, path, "no memory to open it");

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
        status = index_names(opened, error);
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
    mha__release(&memory, file->by_name, (file->entries.count + 1) * sizeof *file->by_name);
    mha__release(&memory, file->by_key, (file->metadata.count + 1) * sizeof *file->by_key);
    mha__file_release_lists(file);
    mha__release(&memory, file, sizeof *file);
}

/* ---------------------------------------------------------------- asking */

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
