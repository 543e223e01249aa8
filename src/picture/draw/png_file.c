/* Writes a PNG file: chunks, text, and pixels through zlib. */
#include "picture/draw/figure.h"

#include <string.h>
#include <zlib.h>

#include "formats/files/atomic_file.h"
#include "mha/system.h"
#include "picture/draw/drawing.h"

/* ---------------------------------------------------------------- chunks */

/* A file on its way. */
typedef struct writing {
    mha__output output;
    mha_error *error;
} writing;

static void put_big_endian(unsigned char *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(number >> (24 - 8 * i));
}

static mha_status write_chunk(writing *p, const char type[4], const void *data, size_t bytes)
{
    unsigned char head[8], tail[4];
    put_big_endian(head, (uint32_t)bytes);
    memcpy(head + 4, type, 4);
    const uLong sum = crc32(crc32(0, head + 4, 4), bytes ? data : head, (uInt)bytes);
    put_big_endian(tail, (uint32_t)sum);
    TRY(mha__output_write(&p->output, head, sizeof head, p->error));
    TRY(mha__output_write(&p->output, data, bytes, p->error));
    return mha__output_write(&p->output, tail, sizeof tail, p->error);
}

/* A text under an English keyword, in UTF-8 (iTXt). Viewers show it as text: it is never markup. */
static mha_status write_text(writing *p, const char *keyword, const char *text)
{
    char chunk[1024] = {0};
    const size_t at = strlen(keyword) + 5; /* no compression, no language, no translated keyword */
    memcpy(chunk, keyword, strlen(keyword));
    mha__text_print(chunk + at, sizeof chunk - at, "%s", text);
    mha__text_harmless(chunk + at);
    return chunk[at] ? write_chunk(p, "iTXt", chunk, at + strlen(chunk + at)) : MHA_OK;
}

/* ---------------------------------------------------------------- the file */

static mha_status write_pixels(writing *p, const mha__png *png, const mha_allocator *allocator)
{
    const size_t line = png->width + 1, bytes = png->height * line, room = compressBound(bytes);
    unsigned char *lines = mha__allocate(allocator, bytes), *packed = mha__allocate(allocator, room);
    uLongf count = room;
    for (size_t y = 0; lines && y < png->height; y++) /* each begins with a 0: it is not predicted from others */
        png->paint(png->context, y, lines + y * line + 1);
    const mha_status status =
        lines && packed && compress2(packed, &count, lines, bytes, Z_BEST_COMPRESSION) == Z_OK
            ? write_chunk(p, "IDAT", packed, count)
            : mha__fail(p->error, MHA_NO_MEMORY, p->output.path, "no memory to draw it");
    mha__release(allocator, lines, bytes);
    mha__release(allocator, packed, room);
    return status;
}

static mha_status write_head(writing *p, const mha__png *png)
{
    unsigned char head[13] = {[8] = 8, [9] = 3}, colours[3 * 256];
    char software[64];
    put_big_endian(head, (uint32_t)png->width);
    put_big_endian(head + 4, (uint32_t)png->height);
    for (size_t i = 0; i < png->colour_count; i++) {
        const mha__colour c = png->colours[i];
        memcpy(colours + 3 * i, (unsigned char[]){c.red, c.green, c.blue}, 3);
    }
    TRY(mha__output_write(&p->output, "\x89PNG\r\n\x1a\n", 8, p->error));
    TRY(write_chunk(p, "IHDR", head, sizeof head));
    TRY(write_text(p, "Title", png->title));
    TRY(write_text(p, "Description", png->description));
    mha__text_print(software, sizeof software, "mha %s", mha_version());
    TRY(write_text(p, "Software", software));
    TRY(write_text(p, "Comment", png->origin->command ? png->origin->command : ""));
    for (size_t i = 0; i < png->origin->input_count; i++) {
        char line[MHA__INPUT_LINE];
        TRY(write_text(p, "Source", mha__input_line(line, &png->origin->inputs[i])));
    }
    return write_chunk(p, "PLTE", colours, 3 * png->colour_count);
}

mha_status mha__png_write(const mha__png *png, const mha_allocator *allocator, const char *path, mha_error *error)
{
    writing p = {.error = error};
    TRY(mha__output_open(&p.output, path, error));
    mha_status status = write_head(&p, png);
    if (status == MHA_OK)
        status = write_pixels(&p, png, allocator);
    if (status == MHA_OK)
        status = write_chunk(&p, "IEND", NULL, 0);
    return mha__output_finish(&p.output, status, error);
}
