/* Any file: telling the format, the foreign ones among them. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_open_everything(fuzz_file("", 0, data, size));
    return 0;
}
