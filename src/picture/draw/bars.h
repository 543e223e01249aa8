/* Charts of bars beside a limit, as parts of a drawing that can be read on a phone. */
#ifndef MHA_PICTURE_DRAW_BARS_H
#define MHA_PICTURE_DRAW_BARS_H

#include "picture/markup.h"

typedef struct mha__bar {
    char label[64], note[64]; /* above the bar; behind its number, below it */
    double value;             /* at least 0 */
} mha__bar;

typedef struct mha__chart {
    const char *title, *limit_label; /* what the numbers are; what the line at the limit is */
    double limit;
    const mha__bar *bars;
    size_t count;
} mha__chart;

enum { MHA__BARS_WIDTH = 420 };
size_t mha__bars_height(size_t count);

/* Draws the title, and one bar below the other, all from 0 on one scale; across each of them a line at the limit, which
 * is labelled above; below them the axis; `top` pixels below the upper edge. Classes: bar, limit, axis, tick. */
void mha__draw_bars(mha__markup *markup, const mha__chart *chart, size_t top);

#endif
