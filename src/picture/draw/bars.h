/* Numbers drawn as bars beside a limit, in SVG. */
#ifndef MHA_PICTURE_DRAW_BARS_H
#define MHA_PICTURE_DRAW_BARS_H

#include "base/base.h"

typedef struct mha__bar {
    char label[64], note[64]; /* before the bar; behind its number */
    double value;             /* at least 0 */
} mha__bar;

/* Draws one bar below the other, all from 0 on one scale, with a line at the limit. MHA_INVALID (no bars),
 * MHA_NO_MEMORY, MHA_IO; then there is no such file. */
mha_status mha__draw_bars(const mha__bar *bars, size_t count, double limit, const char *title, const char *path,
                          const mha_allocator *allocator, mha_error *error);

#endif
