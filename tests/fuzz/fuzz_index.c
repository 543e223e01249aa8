/* The index of a set of safetensors files: the input is its text, the files next to it are two that it
 * may name, one.safetensors with the tensor "a" and two.safetensors with "b". */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char one[] = "\x35\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}xx";
    static const char two[] = "\x35\0\0\0\0\0\0\0{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}xx";
    fuzz_file_at("fuzz:/one.safetensors", one, sizeof one - 1);
    fuzz_file_at("fuzz:/two.safetensors", two, sizeof two - 1);
    fuzz_open_everything(fuzz_file("", 0, data, size));
    return 0;
}
