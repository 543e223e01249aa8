/* Files in memory, and a walk over everything an opened file offers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "mha/file.h"

static void require(int condition)
{
    if (!condition)
        abort();
}

const char *fuzz_file(const void *head, size_t head_bytes, const uint8_t *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    require(ftruncate(file, 0) == 0);
    require(pwrite(file, head, head_bytes, 0) == (ssize_t)head_bytes);
    require(pwrite(file, data, size, (off_t)head_bytes) == (ssize_t)size);
    return path;
}

static void read_tensor(const mha_file *file, const mha_file_tensor *tensor)
{
    mha_error error = {0};
    float one;
    mha_view narrow = mha_view_of(&one, MHA_F32, 0, NULL);
    if (tensor->elements != 1)
        require(mha_file_read(file, tensor, &narrow, &error) == MHA_INVALID);
    require(tensor->rank >= 0 && tensor->rank <= MHA_MAX_RANK);
    double *values = malloc(tensor->elements * sizeof *values + 1);
    mha_view view = mha_view_of(values, MHA_F64, tensor->rank, tensor->shape);
    require(mha_view_elements(&view) == tensor->elements);
    mha_status status = mha_file_read(file, tensor, &view, &error);
    require(status == MHA_OK || (error.status == status && error.message[0] != '\0'));
    free(values);
}

void fuzz_open_everything(const char *path)
{
    mha_file *file = NULL;
    mha_error error = {0};
    mha_status status = mha_file_open(path, &file, &error);
    if (status != MHA_OK) {
        require(!file && error.status == status && error.message[0] != '\0' && !strchr(error.message, '\n'));
        return;
    }
    require(mha_file_format(file)[0] != '\0');
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const mha_file_tensor *tensor = mha_file_at(file, i);
        require(mha_file_find(file, tensor->name) == tensor);
        read_tensor(file, tensor);
    }
    for (size_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        mha_file_metadata_at(file, i, &key, &value);
        require(mha_file_metadata(file, key) == value);
    }
    mha_file_close(file);
}
