/* Opening a file of tensors: recognising its format, calling the reader. */
#include <string.h>
#include <zip.h>

#include "formats/file.h"
#include "formats/quantised/packings.h"
#include "formats/readers/readers.h"

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

/* Several tensors that hold one become that one; the parts then have an index of their own. */
static mha_status join_parts(mha_file *file, mha_error *error)
{
    mha__joining joining = {0};
    mha_status status = mha__packings_find(file, &joining, error);
    if (status == MHA_OK && joining.found.count > 0) {
        mha__names_forget(file);
        status = mha__packings_apply(file, &joining, error);
        if (status == MHA_OK)
            status = mha__names_index(file, error);
    }
    mha__joining_release(file, &joining);
    return status;
}

mha_status mha__file_open_using(const mha_allocator *allocator, const char *path, mha_file **file, mha_error *error)
{
    *file = NULL;
    mha_allocator memory = mha__allocator_or_default(allocator);
    mha_file *opened = mha__allocate(&memory, sizeof *opened);
    if (!opened)
        return mha__fail(error, MHA_NO_MEMORY, path, "no memory to open it");
    opened->allocator = opened->texts.allocator = memory;
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
        status = mha__names_index(opened, error);
    if (status == MHA_OK && !opened->archive && strcmp(opened->format, "safetensors") == 0)
        status = join_parts(opened, error);
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
    mha__names_forget(file);
    mha__file_release_lists(file);
    mha__release(&memory, file, sizeof *file);
}
