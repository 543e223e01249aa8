/* Drawings in SVG, and what is drawn with labels: bars and areas. */
#ifndef MHA_PICTURE_DRAW_DRAWING_H
#define MHA_PICTURE_DRAW_DRAWING_H

#include "picture/markup.h"
#include "picture/origin.h"
#include "base/base.h"

/* An SVG drawing from its first line to its last: size, title, white paper, where it comes from. Under a name that ends
 * in .html it stands in a page, which says the same at its foot. */

typedef struct mha__drawing {
    size_t width, height, font;
    const char *title;         /* may be foreign, NULL or empty */
    const char *description;   /* static */
    const mha__origin *origin; /* may be NULL */
    bool dark;                 /* also on dark paper, where the reader prefers that; as wide as the page allows */
    bool is_page;              /* set by mha__drawing_open */
    mha__markup markup;
} mha__drawing;

enum { MHA__INPUT_LINE = 900 };
/* One input in words, which may be foreign. Returns `line`. */
char *mha__input_line(char line[MHA__INPUT_LINE], const mha__input *input);

/* url(#hidden) is a hatched fill, the look of hidden keys. Errors: those of mha__markup_open. */
mha_status mha__drawing_open(mha__drawing *drawing, const mha_allocator *allocator, const char *path, mha_error *error);
/* As of mha__markup_close. */
mha_status mha__drawing_close(mha__drawing *drawing);

/* Charts of bars with their limits, as parts of a drawing that can be read on a phone. */

typedef struct mha__bar {
    char label[64], note[64]; /* above the bar; after its number, below it */
    double value, limit;      /* at least 0; above 0 */
} mha__bar;

typedef struct mha__chart {
    const char *title, *limit_label; /* of the numbers, with their unit; of the line across a bar */
    const mha__bar *bars;
    size_t count;
} mha__chart;

enum { MHA__BARS_WIDTH = 420 };
size_t mha__bars_height(size_t count);

/* Draws the title, and one bar below the other, all from 0 on one scale; across each of them a line at its limit, which
 * is labelled above; below them the axis; `top` pixels below the upper edge. Classes: bar, limit, axis, tick. */
void mha__draw_bars(mha__markup *markup, const mha__chart *chart, size_t top);

/* Sizes drawn as areas: a treemap in SVG, or in a page with it. */

/* A rectangle. Texts may come from files. */
typedef struct mha__area {
    const char *group; /* all of one group lie together, in one colour */
    const char *name;
    size_t elements, times; /* in all, and of how many tensors of this name's pattern */
} mha__area;

/* Draws every area that has elements, each as large as its share of all; `title` stands above, groups and their totals
 * below. Areas are ordered, largest first. `origin` may be NULL. MHA_INVALID (nothing to draw), MHA_NO_MEMORY,
 * MHA_IO; then there is no such file. */
mha_status mha__draw_areas(mha__area *areas, size_t count, const char *title, const mha__origin *origin,
                           const char *path, const mha_allocator *allocator, mha_error *error);

#endif
