/* Heads as a picture in a file, without a browser. The same picture gives the same bytes everywhere. */
#ifndef MHA_PICTURE_DRAW_DRAW_H
#define MHA_PICTURE_DRAW_DRAW_H

#include "picture/picture.h"

/* Sheets are drawn where the picture has some, else its heads.
 * Both: MHA_INVALID (no heads, or more pixels than can be drawn), MHA_NO_MEMORY, MHA_IO; then there is no such file. */

/* A vector drawing with titles, labels at both axes, a colour bar with numbers, and hatched hidden keys. */
mha_status mha__draw_svg(const mha__picture *picture, const char *path, mha_error *error);
/* The maps alone in 8-bit colours, with a colour bar; title and largest weight stand in text chunks. With another
 * zlib the bytes may differ, never the pixels. */
mha_status mha__draw_png(const mha__picture *picture, const char *path, mha_error *error);

#endif
