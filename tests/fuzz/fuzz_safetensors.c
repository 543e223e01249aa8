/* safetensors: the input is a header in JSON up to its last '}', then data. The header's length is put
 * in front, so that the fuzzer spends its time behind that check. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[8] = {0};
    size_t length = size;
    while (length > 0 && data[length - 1] != '}')
        length--;
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)((uint64_t)length >> 8 * i);
    fuzz_open_everything(fuzz_file(head, sizeof head, data, size));
    return 0;
}
