/* GGUF: the input follows the magic number. What its metadata say of a layer is read, too. */
#include "fuzz/fuzz.h"
#include "mha/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("GGUF", 4, data, size);
    mha_file *file;
    mha_model_facts facts;
    fuzz_open_everything(path);
    if (mha_file_open(path, &file, NULL) != MHA_OK)
        return 0;
    const mha_status status = mha_model_read_metadata(file, "blk.0", &facts, NULL);
    fuzz_require(status == MHA_OK || status == MHA_NOT_FOUND);
    mha_file_close(file);
    return 0;
}
