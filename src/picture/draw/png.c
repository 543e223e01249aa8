/* Draws heads as PNG: 8 bits for each pixel, which number a colour, compressed line by line. */
#include <string.h>
#include <zlib.h>

#include "mha/system.h"
#include "picture/draw/draw.h"
#include "picture/draw/figure.h"
#include "picture/markup.h"

enum { HELD = 1 << 15, HATCH = 6 };

/* ---------------------------------------------------------------- chunks */

typedef struct png {
    mha__output output;
    mha_error *error;
    z_stream stream;
    unsigned char held[HELD]; /* compressed bytes of the next chunk */
} png;

static void put_big_endian(unsigned char *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(number >> (24 - 8 * i));
}

static mha_status write_chunk(png *p, const char type[4], const void *data, size_t bytes)
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
static mha_status write_text(png *p, const char *keyword, const char *text)
{
    char chunk[1024] = {0};
    const size_t at = strlen(keyword) + 5; /* no compression, no language, no translated keyword */
    memcpy(chunk, keyword, strlen(keyword));
    mha__text_print(chunk + at, sizeof chunk - at, "%s", text);
    mha__text_harmless(chunk + at);
    return chunk[at] ? write_chunk(p, "iTXt", chunk, at + strlen(chunk + at)) : MHA_OK;
}

/* Compresses `bytes` more, and writes a chunk whenever one is full; at the end, what is left. */
static mha_status compress_bytes(png *p, const unsigned char *data, size_t bytes, bool end)
{
    p->stream.next_in = mha__unconst(data);
    p->stream.avail_in = (uInt)bytes;
    int code = Z_OK;
    while (code == Z_OK && (p->stream.avail_in > 0 || end)) {
        code = deflate(&p->stream, end ? Z_FINISH : Z_NO_FLUSH);
        if (p->stream.avail_out > 0 && !end)
            break;
        TRY(write_chunk(p, "IDAT", p->held, HELD - p->stream.avail_out));
        p->stream.next_out = p->held;
        p->stream.avail_out = HELD;
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- pixels */

static void paint(unsigned char *line, size_t from, size_t count, int level, size_t y)
{
    for (size_t x = from; x < from + count; x++)
        line[x] = (unsigned char)(level == MHA__HIDDEN_GROUND && (x + y) % HATCH == 0 ? MHA__HIDDEN_LINE : level);
}

/* The pixels of line y. */
static void paint_line(const mha__figure *f, size_t y, unsigned char *line)
{
    memset(line, MHA__PAPER, f->width);
    for (size_t l = 0; l < f->picture->layer_count; l++)
        for (size_t i = 0; i < f->picture->layers[l].head_count; i++) {
            const mha__head *head = &f->picture->layers[l].heads[i];
            size_t left, top;
            mha__figure_place(f, l, i, &left, &top);
            if (y < top || y >= top + head->rows * f->cell)
                continue;
            for (size_t c = 0; c < head->columns; c++)
                paint(line, left + c * f->cell, f->cell, mha__figure_level(f, head, (y - top) / f->cell, c), y);
        }
    if (y >= f->bar_top && y < f->bar_top + f->bar_height)
        paint(line, f->bar_left, f->bar_width, (int)(f->bar_height - 1 - (y - f->bar_top)), y);
}

static mha_status write_pixels(png *p, const mha__figure *f, unsigned char *line)
{
    if (deflateInit(&p->stream, Z_BEST_COMPRESSION) != Z_OK)
        return mha__fail(p->error, MHA_NO_MEMORY, p->output.path, "no memory to compress it");
    p->stream.next_out = p->held;
    p->stream.avail_out = HELD;
    mha_status status = MHA_OK;
    for (size_t y = 0; y < f->height && status == MHA_OK; y++) {
        line[0] = 0; /* the line is not predicted from others */
        paint_line(f, y, line + 1);
        status = compress_bytes(p, line, f->width + 1, false);
    }
    if (status == MHA_OK)
        status = compress_bytes(p, line, 0, true);
    deflateEnd(&p->stream);
    return status;
}

/* ---------------------------------------------------------------- the file */

static mha_status write_head(png *p, const mha__figure *f)
{
    unsigned char head[13] = {[8] = 8, [9] = 3}, colours[3 * MHA__PALETTE];
    mha__colour palette[MHA__PALETTE];
    char number[32], scale[128];
    put_big_endian(head, (uint32_t)f->width);
    put_big_endian(head + 4, (uint32_t)f->height);
    mha__palette(palette);
    for (size_t i = 0; i < MHA__PALETTE; i++)
        memcpy(colours + 3 * i, (unsigned char[]){palette[i].red, palette[i].green, palette[i].blue}, 3);
    mha__text_print(scale, sizeof scale, "colours from 0 to %d: weights from 0 to %s%s", MHA__LEVELS - 1,
                    mha__number_text(number, 6, f->shading.largest), f->shading.logarithmic ? ", logarithmic" : "");
    TRY(mha__output_write(&p->output, "\x89PNG\r\n\x1a\n", 8, p->error));
    TRY(write_chunk(p, "IHDR", head, sizeof head));
    TRY(write_text(p, "Title", f->picture->title ? f->picture->title : ""));
    TRY(write_text(p, "Description", scale));
    mha__text_print(scale, sizeof scale, "mha %s", mha_version());
    TRY(write_text(p, "Software", scale));
    return write_chunk(p, "PLTE", colours, sizeof colours);
}

mha_status mha__draw_png(const mha__picture *picture, const char *path, mha_error *error)
{
    mha__figure f;
    png p = {.error = error};
    const mha_allocator *allocator = &picture->memory.allocator;
    TRY(mha__figure_of(picture, false, &f, error));
    TRY(mha__output_open(&p.output, allocator, path, error));
    unsigned char *line = mha__allocate(allocator, f.width + 1);
    mha_status status = line ? write_head(&p, &f) : mha__fail(error, MHA_NO_MEMORY, path, "no memory to draw it");
    if (status == MHA_OK)
        status = write_pixels(&p, &f, line);
    if (status == MHA_OK)
        status = write_chunk(&p, "IEND", NULL, 0);
    mha__release(allocator, line, f.width + 1);
    if (status == MHA_OK)
        return mha__output_finish(&p.output, error);
    mha__output_abandon(&p.output);
    return status;
}
