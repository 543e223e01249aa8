/* Sorts the tensors and the metadata of a file by name, finds them, and refuses a name that stands twice. */
#include <stdlib.h>
#include <string.h>

#include "formats/files/tensor_list.h"
#include "lab/lab.h"

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

static void forget(const mha_file *file, const void ***index, const mha__list *list)
{
    mha__release(&file->allocator, *index, (list->count + 1) * sizeof **index);
    *index = NULL;
}

void mha__names_forget(mha_file *file)
{
    forget(file, &file->by_name, &file->entries);
    forget(file, &file->by_part, &file->parts);
    forget(file, &file->by_key, &file->metadata);
}

mha_status mha__names_index(mha_file *file, mha_error *error)
{
    const char *twice = NULL;
    if (!(file->by_name = sort_by_name(file, &file->entries, &twice, error)))
        return MHA_NO_MEMORY;
    if (twice)
        return mha__fail_inside(error, MHA_FORMAT, file->path, twice, 0,
                                "expected every tensor to be named once, found this name twice");
    if (!(file->by_part = sort_by_name(file, &file->parts, &twice, error)) ||
        !(file->by_key = sort_by_name(file, &file->metadata, &twice, error)))
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

const mha_file_tensor *mha_file_find(const mha_file *file, const char *name)
{
    const mha__entry *entry = look_up(file->by_name, file->entries.count, name);
    if (!entry)
        entry = look_up(file->by_part, file->parts.count, name);
    return entry ? &entry->tensor : NULL;
}

const char *mha_file_metadata(const mha_file *file, const char *key)
{
    const mha__pair *pair = look_up(file->by_key, file->metadata.count, key);
    return pair ? pair->value : NULL;
}
