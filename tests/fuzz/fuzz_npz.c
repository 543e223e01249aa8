/* npz: the input follows the magic number of a zip archive. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_open_everything(fuzz_file("PK\x03\x04", 4, data, size));
    return 0;
}
