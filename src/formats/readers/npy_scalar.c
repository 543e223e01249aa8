/* An npy array without extents as text: how an npz holds metadata (np.savez(path, ..., num_heads=4, kind="mha")). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/files/chunks.h"
#include "formats/readers/readers.h"

/* The fewest digits that give the same double when they are read again. */
static void print_real(char *text, size_t size, double x)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            return;
    }
}

static void print_number(mha_dtype dtype, unsigned char bytes[8], bool big_endian, char *text, size_t size)
{
    const size_t width = mha__element_bytes(dtype);
    if (big_endian != mha__host_is_big_endian())
        mha__swap_bytes(bytes, dtype, 1);
    union {
        unsigned char bytes[8];
        int64_t i64;
        uint64_t u64;
        double f64;
        float f32;
    } number = {{0}};
    memcpy(number.bytes, bytes, width);
    if (dtype == MHA_I64)
        snprintf(text, size, "%" PRId64, number.i64);
    else if (dtype == MHA_U64)
        snprintf(text, size, "%" PRIu64, number.u64);
    else if (dtype == MHA_BOOL)
        snprintf(text, size, "%s", number.bytes[0] ? "true" : "false");
    else {
        const mha_view view = mha_view_of(number.bytes, dtype, 0, NULL);
        print_real(text, size, mha_view_get(&view, (const size_t[]){0}));
    }
}

/* Appends a character in UTF-8; false when `c` is no Unicode character. */
static bool append_utf8(char *text, size_t *used, uint32_t c)
{
    if (c == 0 || (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF)
        return false;
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes after the first */
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    text[(*used)++] = (char)(first[more] | c >> 6 * more);
    for (int i = more - 1; i >= 0; i--)
        text[(*used)++] = (char)(0x80 | (c >> 6 * i & 0x3F));
    return true;
}

/* Characters before the zeros with which NumPy fills a text up. */
static size_t count_characters(const unsigned char *bytes, size_t count, size_t width)
{
    static const unsigned char zeros[4];
    while (count > 0 && memcmp(bytes + (count - 1) * width, zeros, width) == 0)
        count--;
    return count;
}

static uint32_t character(const unsigned char *at, size_t width, bool big_endian)
{
    if (width == 1)
        return at[0] < 0x80 ? at[0] : 0; /* 0: not ASCII */
    if (big_endian)
        return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    return (uint32_t)mha__little_endian(at, 4);
}

size_t mha__npy_scalar_bytes(const mha__npy_header *header)
{
    return header->character_bytes ? header->characters * header->character_bytes
                                   : mha__element_bytes(header->entry.tensor.dtype);
}

mha_status mha__npy_scalar_add(mha_file *file, const char *key, size_t key_length, const mha__npy_header *header,
                               unsigned char *bytes, const char *name, mha_error *error)
{
    const size_t width = header->character_bytes;
    if (width == 0) {
        char number[40];
        print_number(header->entry.tensor.dtype, bytes, header->entry.big_endian, number, sizeof number);
        return mha__file_add_metadata(file, key, key_length, number, strlen(number), error);
    }
    const size_t count = count_characters(bytes, header->characters, width), room = 4 * count + 1;
    char *text = mha__allocate(&file->allocator, room);
    if (!text)
        return mha__file_no_memory(file, error);
    size_t used = 0;
    bool sound = true;
    for (size_t i = 0; i < count && sound; i++)
        sound = append_utf8(text, &used, character(bytes + i * width, width, header->entry.big_endian));
    const mha_status status = sound ? mha__file_add_metadata(file, key, key_length, text, used, error)
                                    : mha__fail(error, MHA_FORMAT, name,
                                                "expected text (Unicode, or ASCII in an S array), found a number that"
                                                " is no character");
    mha__release(&file->allocator, text, room);
    return status;
}
