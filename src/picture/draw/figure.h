/* How maps and sheets are drawn: colours, places, cells, files of PNG. */
#ifndef MHA_PICTURE_DRAW_FIGURE_H
#define MHA_PICTURE_DRAW_FIGURE_H

#include "picture/colour.h"
#include "picture/picture.h"
#include "picture/markup.h"
#include "base/base.h"
#include "picture/origin.h"

/* The colour of a cell of a map: a level of the scale, or one of the looks that stand for no weight. */

/* Colours of a picture. Hidden keys are hatched: lines on a ground. */
enum {
    MHA__LEVELS = 240, /* levels of the scale of weights, from 0 */
    MHA__SHADES,       /* shades of numbers of both signs: 0 has the one in the middle */
    MHA__HIDDEN_GROUND = MHA__SHADES,
    MHA__HIDDEN_LINE,
    MHA__BROKEN, /* NaN or infinite */
    MHA__PAPER,
    MHA__MARK, /* the frame of a cell */
    MHA__PALETTE
};

/* Fills in all of them. Of weights level 0 is palest, the last one darkest; of numbers of both signs the shade in the
 * middle is palest. */
void mha__palette(mha__colour palette[MHA__PALETTE]);
void mha__palette_of_signs(mha__colour palette[MHA__PALETTE]);

enum { MHA__DECADES = 6 }; /* what a logarithmic scale shows */

/* How weights become levels: level 0 at 0, the last one at `largest`. */
typedef struct mha__shading {
    double largest;
    bool logarithmic; /* level 0 also for weights below largest * 10^-MHA__DECADES */
} mha__shading;

/* The largest weight in a cell of a map of which so many rows and columns are joined; hidden if all of them are, NaN if
 * one is. */
double mha__pooled(const mha__head *head, size_t row, size_t column, size_t rows, size_t columns);

/* The shading under which the largest weight of all heads has the last level; 1 where no weight is above 0. */
mha__shading mha__shading_of(const mha__picture *picture);
/* The level of a weight, or MHA__HIDDEN_GROUND or MHA__BROKEN. */
int mha__level(const mha__shading *shading, double weight);
/* The least weight that has a level, but for rounding. */
double mha__level_weight(const mha__shading *shading, double level);

/* Where everything of a drawing lies, in pixels: computed here, drawn by svg.c and png.c. */

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
/* The level of one of them (mha__level). */
int mha__figure_level(const mha__figure *figure, const mha__head *head, size_t row, size_t column);
/* The left upper corner of the map of head `index` of a layer. */
void mha__figure_place(const mha__figure *figure, size_t layer, size_t index, size_t *x, size_t *y);

/* Cells of maps in files: each has a colour of a palette, in which hidden keys are hatched. */

/* SVG: a path for each colour that a cell has, in runs along the rows. `shades`: (rows, columns). */
void mha__cells_draw(mha__markup *markup, const unsigned char *shades, size_t rows, size_t columns, size_t width,
                     size_t height, const mha__colour *palette);
/* PNG: pixels [x, x + count) of line y, which all belong to one cell, from `pixels` on. */
void mha__cells_paint(unsigned char *pixels, size_t count, int shade, size_t x, size_t y);

/* A PNG file: 8 bits for each pixel, which number a colour, compressed line by line. */

typedef struct mha__png {
    size_t width, height;
    const mha__colour *colours;
    size_t colour_count;            /* at most 256 */
    const char *title, *description; /* may be foreign; "" for none */
    const mha__origin *origin;
    void (*paint)(const void *context, size_t y, unsigned char *line); /* the pixels of line y */
    const void *context;
} mha__png;

/* With another zlib the bytes may differ, never the pixels. MHA_NO_MEMORY, MHA_IO; then there is no such file. */
mha_status mha__png_write(const mha__png *png, const mha_allocator *allocator, const char *path, mha_error *error);

/* Tensors beside each other, drawn without a browser: a line of maps for each. */

/* For each sheet its a, b and a - b, in the map where they differ most, or its a alone; colours are those of numbers of
 * both signs. Errors as of mha__draw_svg. */
mha_status mha__draw_sheets_svg(const mha__picture *picture, const char *path, mha_error *error);
mha_status mha__draw_sheets_png(const mha__picture *picture, const char *path, mha_error *error);

#endif
