/* A walk over everything an opened file offers. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "mha/file.h"

void fuzz_require(int condition)
{
    if (!condition)
        abort();
}

void fuzz_require_reason(mha_status status, const mha_error *error)
{
    fuzz_require(error->status == status && error->message[0] != '\0' && !strchr(error->message, '\n'));
}

static void read_tensor(const mha_file *file, const mha_file_tensor *tensor)
{
    mha_error error = {0};
    float one;
    mha_view narrow = mha_view_of(&one, MHA_F32, 0, NULL);
    if (tensor->elements != 1)
        fuzz_require(mha_file_read(file, tensor, &narrow, &error) == MHA_INVALID);
    fuzz_require(tensor->rank >= 0 && tensor->rank <= MHA_MAX_RANK);
    double *values = malloc(tensor->elements * sizeof *values + 1);
    mha_view view = mha_view_of(values, MHA_F64, tensor->rank, tensor->shape);
    fuzz_require(mha_view_elements(&view) == tensor->elements);
    mha_status status = mha_file_read(file, tensor, &view, &error);
    if (status != MHA_OK)
        fuzz_require_reason(status, &error);
    free(values);
}

void fuzz_open_everything(const char *path)
{
    mha_file *file = NULL;
    mha_error error = {0};
    mha_status status = mha_file_open(path, &file, &error);
    if (status != MHA_OK) {
        fuzz_require(!file && fuzz_open_descriptors() == 0);
        fuzz_require_reason(status, &error);
        return;
    }
    fuzz_require(mha_file_format(file)[0] != '\0');
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const mha_file_tensor *tensor = mha_file_at(file, i);
        fuzz_require(mha_file_find(file, tensor->name) == tensor);
        read_tensor(file, tensor);
    }
    for (size_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        mha_file_metadata_at(file, i, &key, &value);
        fuzz_require(mha_file_metadata(file, key) == value);
    }
    mha_file_close(file);
    fuzz_require(fuzz_open_descriptors() == 0);
}
