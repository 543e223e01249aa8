/* GGUF: the input follows the magic number. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_open_everything(fuzz_file("GGUF", 4, data, size));
    return 0;
}
