/* How a drawing of maps begins: its size, what it is, the look of hidden keys, white paper. */
#ifndef MHA_PICTURE_DRAW_SVG_HEAD_H
#define MHA_PICTURE_DRAW_SVG_HEAD_H

#include "picture/markup.h"

/* `title` may be foreign, NULL or empty; url(#hidden) then is a hatched fill. */
void mha__svg_begin(mha__markup *markup, size_t width, size_t height, const char *title, const char *description);

#endif
