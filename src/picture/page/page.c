/* Writes a picture as a page: the template, and the data through zlib and base64. */
#include "picture/page/page.h"

#include <string.h>
#include <zlib.h>

#include "formats/files/atomic_file.h"

/* The lines of page/page.html with its style and scripts; the line "@DATA@" stands for the data. */
static const char *const lines[] = {
#include "page.inc"
};

static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static size_t bytes_of(const mha__page_data *data)
{
    size_t bytes = 8 + padded(strlen(data->json));
    for (size_t i = 0; i < data->piece_count; i++)
        bytes += padded(data->pieces[i].count * mha__page_bytes(data->pieces[i].type));
    return bytes;
}

/* The length of the JSON in 8 bytes, the JSON with blanks up to a multiple of 8, and the pieces, each likewise. */
static void gather(const mha__page_data *data, uint8_t *bytes, size_t count)
{
    const size_t length = strlen(data->json);
    uint8_t *at = bytes + 8 + padded(length);
    memset(bytes, ' ', count);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)padded(length) >> 8 * i);
    memcpy(bytes + 8, data->json, length);
    for (size_t i = 0; i < data->piece_count; i++) {
        const mha__page_piece *piece = &data->pieces[i];
        mha__page_encode(piece, at);
        at += padded(piece->count * mha__page_bytes(piece->type));
    }
}

static mha_status write_base64(mha__output *output, const uint8_t *bytes, size_t count, mha_error *error)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4 * 4096];
    size_t length = 0;
    for (size_t i = 0; i < count; i += 3) {
        const size_t left = count - i;
        const uint8_t w[3] = {bytes[i], left > 1 ? bytes[i + 1] : 0, left > 2 ? bytes[i + 2] : 0};
        text[length++] = digits[w[0] >> 2];
        text[length++] = digits[(w[0] & 3) << 4 | w[1] >> 4];
        text[length++] = left > 1 ? digits[(w[1] & 15) << 2 | w[2] >> 6] : '=';
        text[length++] = left > 2 ? digits[w[2] & 63] : '=';
        if (length == sizeof text) {
            TRY(mha__output_write(output, text, length, error));
            length = 0;
        }
    }
    return mha__output_write(output, text, length, error);
}

static mha_status write_data(mha__output *output, const mha__page_data *data, mha_error *error)
{
    const mha_allocator *allocator = &data->memory.allocator;
    const size_t count = bytes_of(data), most = compressBound(count);
    uLongf length = most;
    uint8_t *bytes = mha__allocate(allocator, count), *packed = mha__allocate(allocator, most);
    mha_status status = MHA_NO_MEMORY;
    if (bytes && packed) {
        gather(data, bytes, count);
        status = compress2(packed, &length, bytes, count, 6) == Z_OK ? MHA_OK : MHA_NO_MEMORY;
    }
    status = status == MHA_OK ? write_base64(output, packed, length, error)
                              : mha__fail(error, status, output->path, "no memory to compress it");
    mha__release(allocator, packed, most);
    mha__release(allocator, bytes, count);
    return status;
}

/* Lines are short and many: they are gathered, so that the system is asked once for thousands of bytes. */
static mha_status write_page(mha__output *output, const mha__page_data *data, mha_error *error)
{
    char held[1 << 14];
    size_t count = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const size_t length = strlen(lines[i]);
        const bool of_data = strcmp(lines[i], "@DATA@\n") == 0;
        if (of_data || count + length > sizeof held) {
            TRY(mha__output_write(output, held, count, error));
            count = 0;
        }
        if (of_data) {
            TRY(write_data(output, data, error));
        } else {
            memcpy(held + count, lines[i], length);
            count += length;
        }
    }
    return mha__output_write(output, held, count, error);
}

mha_status mha__page_write(const mha__picture *picture, const char *path, mha_error *error)
{
    mha__page_data data;
    mha__output output;
    mha_status status = mha__page_describe(&data, picture, error);
    if (status == MHA_OK)
        status = mha__output_open(&output, path, error);
    if (status == MHA_OK)
        status = mha__output_finish(&output, write_page(&output, &data, error), error);
    mha__page_clear(&data);
    return status;
}
