/* Heads as a picture in a file, without a browser. The same picture gives the same bytes everywhere. */
#ifndef MHA_PICTURE_DRAW_DRAW_H
#define MHA_PICTURE_DRAW_DRAW_H

#include "picture/picture.h"

typedef struct mha__drawing {
    bool logarithmic;  /* the colours show six decades below the largest weight */
    const char *about; /* the command and the program that drew it, for the foot; NULL: none */
} mha__drawing;

/* A vector drawing with titles, labels at both axes, a colour bar with numbers, and hatched hidden keys. */
mha_status mha__draw_svg(const mha__picture *picture, const mha__drawing *drawing, const char *path, mha_error *error);
/* The maps alone in 8-bit colours, with a colour bar; title, largest weight and `about` stand in text chunks. */
mha_status mha__draw_png(const mha__picture *picture, const mha__drawing *drawing, const char *path, mha_error *error);

#endif
