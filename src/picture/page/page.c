/* Writes a picture as a page: the template, and the data through zlib and base64, piece by piece. */
#include "picture/page/page.h"

#include <string.h>
#include <zlib.h>

#include "formats/files/atomic_file.h"

/* The lines of page/page.html with its style and scripts; the line "@DATA@" stands for the data. */
static const char *const lines[] = {
#include "page.inc"
};

/* Bytes on their way: compressed, written as base64. */
typedef struct channel {
    mha__output *output;
    z_stream zip;
    uint8_t waiting[3]; /* of a group of base64 that is not full */
    size_t waiting_count;
    mha_error *error;
} channel;

static mha_status write_base64(channel *c, const uint8_t *bytes, size_t count, bool last)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4 * 4096];
    size_t length = 0;
    for (size_t i = 0; i < count || (last && c->waiting_count > 0);) {
        while (c->waiting_count < 3 && i < count)
            c->waiting[c->waiting_count++] = bytes[i++];
        if (c->waiting_count < 3 && !last)
            break;
        const size_t full = c->waiting_count;
        memset(c->waiting + full, 0, 3 - full);
        const uint8_t *w = c->waiting;
        text[length++] = digits[w[0] >> 2];
        text[length++] = digits[(w[0] & 3) << 4 | w[1] >> 4];
        text[length++] = full > 1 ? digits[(w[1] & 15) << 2 | w[2] >> 6] : '=';
        text[length++] = full > 2 ? digits[w[2] & 63] : '=';
        c->waiting_count = 0;
        if (length == sizeof text) {
            TRY(mha__output_write(c->output, text, length, c->error));
            length = 0;
        }
    }
    return mha__output_write(c->output, text, length, c->error);
}

static mha_status compress_bytes(channel *c, const void *bytes, size_t count, int flush)
{
    uint8_t packed[1 << 14];
    c->zip.next_in = mha__unconst(bytes);
    c->zip.avail_in = (uInt)count;
    do {
        c->zip.next_out = packed;
        c->zip.avail_out = sizeof packed;
        (void)deflate(&c->zip, flush); /* it only fails for a stream that was not set up */
        TRY(write_base64(c, packed, sizeof packed - c->zip.avail_out, flush == Z_FINISH && c->zip.avail_out > 0));
    } while (c->zip.avail_out == 0);
    return MHA_OK;
}

/* The length of the JSON in 8 bytes, the JSON with blanks up to a multiple of 8, and the pieces, each likewise. */
static mha_status write_data(channel *c, const mha__page_data *data)
{
    static const uint8_t blanks[8] = "       ";
    const size_t length = strlen(data->json), padding = (8 - length % 8) % 8;
    uint8_t head[8], buffer[8 * 1024];
    for (size_t i = 0; i < 8; i++)
        head[i] = (uint8_t)((uint64_t)(length + padding) >> 8 * i);
    TRY(compress_bytes(c, head, sizeof head, Z_NO_FLUSH));
    TRY(compress_bytes(c, data->json, length, Z_NO_FLUSH));
    TRY(compress_bytes(c, blanks, padding, Z_NO_FLUSH));
    for (size_t p = 0; p < data->piece_count; p++) {
        const mha__page_piece *piece = &data->pieces[p];
        const size_t size = mha__page_bytes(piece->type), most = sizeof buffer / size;
        for (size_t i = 0; i < piece->count; i += most) {
            const size_t count = piece->count - i < most ? piece->count - i : most;
            mha__page_encode(piece, i, count, buffer);
            TRY(compress_bytes(c, buffer, count * size, Z_NO_FLUSH));
        }
        TRY(compress_bytes(c, blanks, (8 - piece->count * size % 8) % 8, Z_NO_FLUSH));
    }
    return compress_bytes(c, "", 0, Z_FINISH);
}

static mha_status write_packed(mha__output *output, const mha__page_data *data, mha_error *error)
{
    channel c = {.output = output, .error = error};
    if (deflateInit(&c.zip, 6) != Z_OK)
        return mha__fail(error, MHA_NO_MEMORY, output->path, "no memory to compress it");
    const mha_status status = write_data(&c, data);
    deflateEnd(&c.zip);
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
            TRY(write_packed(output, data, error));
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
