/* Weights that several tensors hold: the input chooses their names, types and shapes, and then is their data. */
#include <stdio.h>
#include <string.h>

#include "fuzz/fuzz.h"

static const char *const names[] = {"x.weight",
                                    "x.weight_scale",
                                    "x.weight_scale_inv",
                                    "x.weight_zero_point",
                                    "x.input_scale",
                                    "x.qweight",
                                    "x.qzeros",
                                    "x.scales",
                                    "x.g_idx",
                                    "x.SCB",
                                    "x.weight_blocks",
                                    "x.weight_scales",
                                    "x.weight.absmax",
                                    "x.weight.quant_map",
                                    "x.weight.nested_absmax",
                                    "x.weight.nested_quant_map",
                                    "x.weight", /* again, under a number that ends no list */
                                    "x.weight_packed",
                                    "x.weight_shape",
                                    "x.weight_g_idx",
                                    "x.weight_global_scale",
                                    "x.weight_scale_2"};
enum { NAMES = sizeof names / sizeof *names };
static const struct {
    const char *name;
    size_t bytes;
} types[] = {{"F32", 4}, {"F16", 2}, {"I32", 4}, {"U8", 1}, {"I8", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BF16", 2}};
static const size_t extents[] = {1, 2, 3, 4, 8, 16, 32, 64};

enum { MOST_BYTES = 1 << 13 };

/* A tensor for each four bytes, up to a 0: its name; its type and rank; its extents, three bits each. */
static size_t put_tensors(const uint8_t **data, size_t *size, char *header, size_t room, size_t *used)
{
    size_t end = 0;
    for (unsigned seen = 0; *size >= 4 && (*data)[0] != 0 && seen < 12; *data += 4, *size -= 4, seen++) {
        const uint8_t *at = *data;
        size_t bytes = types[at[1] & 7].bytes, shape[4], rank = (at[1] >> 3) % 5;
        for (size_t k = 0; k < rank; k++)
            bytes *= shape[k] = extents[(at[2] | at[3] << 8) >> 3 * k & 7];
        if (bytes > MOST_BYTES)
            continue;
        *used += (size_t)snprintf(header + *used, room - *used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                                  *used > 1 ? "," : "", names[at[0] % NAMES], types[at[1] & 7].name);
        for (size_t k = 0; k < rank; k++)
            *used += (size_t)snprintf(header + *used, room - *used, "%s%zu", k ? "," : "", shape[k]);
        *used += (size_t)snprintf(header + *used, room - *used, "],\"data_offsets\":[%zu,%zu]}", end, end + bytes);
        end += bytes;
    }
    if (*size > 0 && (*data)[0] == 0)
        ++*data, --*size;
    return end;
}

/* The JSON of bitsandbytes with numbers of the input, or the input itself. */
static size_t put_state(const uint8_t **data, size_t *size, char *header, size_t room, size_t *used, size_t end,
                        char *state)
{
    static const char *const kinds[] = {"nf4", "fp4"};
    const uint8_t *at = *data;
    if (*size < 5 || at[0] == 0)
        return 0;
    const size_t length = at[0] & 2
                              ? (size_t)snprintf(state, 256,
                                                 "{\"quant_type\":\"%s\",\"blocksize\":%zu,\"shape\":[%zu,%zu],"
                                                 "\"nested_blocksize\":%zu,\"nested_offset\":%d.5}",
                                                 kinds[at[0] & 1], 8 * extents[at[1] & 7], extents[at[2] & 7],
                                                 extents[at[3] & 7], extents[at[4] & 7], at[4])
                              : (*size < 256 ? *size : 255);
    if (!(at[0] & 2))
        memcpy(state, at, length);
    *data += 5;
    *size -= 5;
    *used += (size_t)snprintf(header + *used, room - *used,
                              "%s\"x.weight.quant_state.bitsandbytes__%s\":{\"dtype\":\"U8\",\"shape\":[%zu],"
                              "\"data_offsets\":[%zu,%zu]}",
                              *used > 1 ? "," : "", kinds[at[0] & 1], length, end, end + length);
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[13 * MOST_BYTES + 4096];
    char *header = (char *)file + 8, state[256];
    size_t used = 1;
    header[0] = '{';
    const size_t end = put_tensors(&data, &size, header, 4000, &used);
    const size_t length = put_state(&data, &size, header, 4000, &used, end, state);
    header[used++] = '}';
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)used >> 8 * i);
    for (size_t i = 0; i < end; i++)
        file[8 + used + i] = size ? data[i % size] : 0;
    memcpy(file + 8 + used + end, state, length);
    fuzz_open_everything(fuzz_file("", 0, file, 8 + used + end + length));
    return 0;
}
