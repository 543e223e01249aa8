/* Cells of maps in files: each has a colour of a palette, in which hidden keys are hatched. */
#ifndef MHA_PICTURE_DRAW_CELLS_H
#define MHA_PICTURE_DRAW_CELLS_H

#include "picture/draw/shade.h"
#include "picture/markup.h"

/* SVG: a path for each colour that a cell has, in runs along the rows. `shades`: (rows, columns). */
void mha__cells_draw(mha__markup *markup, const unsigned char *shades, size_t rows, size_t columns, size_t width,
                     size_t height, const mha__colour *palette);
/* PNG: pixels [x, x + count) of line y, which all belong to one cell, from `pixels` on. */
void mha__cells_paint(unsigned char *pixels, size_t count, int shade, size_t x, size_t y);

#endif
