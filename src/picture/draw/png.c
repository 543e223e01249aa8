/* Draws heads as PNG: their maps alone, and a colour bar. */
#include <string.h>

#include "picture/draw/figure.h"
#include "picture/markup.h"

/* The pixels of line y. */
static void paint_line(const void *context, size_t y, unsigned char *line)
{
    const mha__figure *f = context;
    memset(line, MHA__PAPER, f->width);
    for (size_t l = 0; l < f->picture->layer_count; l++)
        for (size_t i = 0; i < f->picture->layers[l].head_count; i++) {
            const mha__head *head = &f->picture->layers[l].heads[i];
            size_t left, top;
            mha__figure_place(f, l, i, &left, &top);
            if (y < top || y >= top + head->rows * f->cell)
                continue;
            for (size_t c = 0; c < head->columns; c++)
                mha__cells_paint(line + left + c * f->cell, f->cell,
                                 mha__figure_level(f, head, (y - top) / f->cell, c), left + c * f->cell, y);
        }
    if (y >= f->bar_top && y < f->bar_top + f->bar_height)
        mha__cells_paint(line + f->bar_left, f->bar_width, (int)(f->bar_height - 1 - (y - f->bar_top)), f->bar_left, y);
}

mha_status mha__draw_png(const mha__picture *picture, const char *path, mha_error *error)
{
    mha__figure f;
    mha__colour palette[MHA__PALETTE];
    char number[32], scale[128];
    if (picture->sheet_count > 0)
        return mha__draw_sheets_png(picture, path, error);
    TRY(mha__figure_of(picture, false, &f, error));
    mha__palette(palette);
    mha__text_print(scale, sizeof scale, "colours from 0 to %d: weights from 0 to %s%s", MHA__LEVELS - 1,
                    mha__number_text(number, 6, f.shading.largest), f.shading.logarithmic ? ", logarithmic" : "");
    const mha__png png = {.width = f.width,
                          .height = f.height,
                          .colours = palette,
                          .colour_count = MHA__PALETTE,
                          .title = picture->title ? picture->title : "",
                          .description = scale,
                          .origin = &picture->origin,
                          .paint = paint_line,
                          .context = &f};
    return mha__png_write(&png, &picture->memory.allocator, path, error);
}
