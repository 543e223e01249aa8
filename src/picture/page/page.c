/* Writes a picture as a page: the template, and the data through zlib and base64. */
#include "picture/page/page.h"

#include <string.h>
#include <zlib.h>

#include "picture/markup.h"

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

static void write_base64(mha__markup *m, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        const size_t left = count - i;
        const uint8_t w[3] = {bytes[i], left > 1 ? bytes[i + 1] : 0, left > 2 ? bytes[i + 2] : 0};
        const char text[] = {digits[w[0] >> 2], digits[(w[0] & 3) << 4 | w[1] >> 4],
                             left > 1 ? digits[(w[1] & 15) << 2 | w[2] >> 6] : '=', left > 2 ? digits[w[2] & 63] : '='};
        mha__markup_bytes(m, text, sizeof text);
    }
}

static void write_data(mha__markup *m, const mha__page_data *data)
{
    const mha_allocator *allocator = &data->memory.allocator;
    const size_t count = bytes_of(data), most = compressBound(count);
    uLongf length = most;
    uint8_t *bytes = mha__allocate(allocator, count), *packed = mha__allocate(allocator, most);
    if (bytes && packed)
        gather(data, bytes, count);
    if (bytes && packed && compress2(packed, &length, bytes, count, 6) == Z_OK)
        write_base64(m, packed, length);
    else
        mha__markup_fail(m, MHA_NO_MEMORY, "no memory to compress it");
    mha__release(allocator, packed, most);
    mha__release(allocator, bytes, count);
}

mha_status mha__page_write(const mha__picture *picture, const char *path, mha_error *error)
{
    mha__page_data data;
    mha__markup m;
    mha_status status = mha__page_describe(&data, picture, error);
    if (status == MHA_OK)
        status = mha__markup_open(&m, &data.memory.allocator, path, error);
    for (size_t i = 0; status == MHA_OK && i < sizeof lines / sizeof *lines; i++)
        if (strcmp(lines[i], "@DATA@\n") == 0)
            write_data(&m, &data);
        else
            mha__markup_bytes(&m, lines[i], strlen(lines[i]));
    if (status == MHA_OK)
        status = mha__markup_close(&m);
    mha__page_clear(&data);
    return status;
}
