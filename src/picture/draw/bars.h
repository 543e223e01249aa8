/* Numbers drawn as bars beside a limit, as a part of a drawing. */
#ifndef MHA_PICTURE_DRAW_BARS_H
#define MHA_PICTURE_DRAW_BARS_H

#include "picture/markup.h"

typedef struct mha__bar {
    char label[64], note[64]; /* before the bar; behind its number */
    double value;             /* at least 0 */
} mha__bar;

enum { MHA__BARS_WIDTH = 998 };
size_t mha__bars_height(size_t count);

/* Draws a title, and one bar below the other, all from 0 on one scale, with a line at the limit; `top` pixels below the
 * upper edge. */
void mha__draw_bars(mha__markup *markup, const mha__bar *bars, size_t count, double limit, const char *title,
                    size_t top);

#endif
