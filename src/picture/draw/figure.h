/* Where everything of a drawing lies, in pixels: computed here, drawn by svg.c and png.c. */
#ifndef MHA_PICTURE_DRAW_FIGURE_H
#define MHA_PICTURE_DRAW_FIGURE_H

#include "picture/draw/shade.h"

/* Heads stand in tiles, `across` of them in a row; each layer begins a new row, unless every layer has only one head.
 * The colour bar stands at the right. */
typedef struct mha__figure {
    const mha__picture *picture;
    mha__shading shading;
    size_t across, down;      /* tiles in a row, rows of tiles */
    bool one_each;            /* no layer has more than one head */
    size_t pool;              /* rows and columns of a map that one cell stands for: the largest of their weights */
    size_t cell;              /* width and height of a cell */
    size_t label;             /* characters of the longest label of a cell; 0: cells are too small */
    size_t margin, head_line; /* around everything; of the line above all tiles (0: none) */
    size_t map_left, map_top; /* of a map in its tile */
    size_t tile_width, tile_height;
    size_t bar_left, bar_top, bar_width, bar_height;
    size_t width, height; /* of it all */
} mha__figure;

/* With text there is room for titles, labels and the numbers of the colour bar, and maps with more cells than pixels
 * are pooled; without, every cell has its pixel. MHA_INVALID: a picture without heads;
 * one that would be wider or higher than 2^16 pixels. */
mha_status mha__figure_of(const mha__picture *picture, bool text, mha__figure *figure, mha_error *error);
/* The cells that are drawn of a head. */
size_t mha__figure_rows(const mha__figure *figure, const mha__head *head);
size_t mha__figure_columns(const mha__figure *figure, const mha__head *head);
/* The level of one of them (shade.h). */
int mha__figure_level(const mha__figure *figure, const mha__head *head, size_t row, size_t column);
/* The left upper corner of the map of head `index` of a layer. */
void mha__figure_place(const mha__figure *figure, size_t layer, size_t index, size_t *x, size_t *y);

#endif
