/* A PNG file: 8 bits for each pixel, which number a colour, compressed line by line. */
#ifndef MHA_PICTURE_DRAW_PNG_FILE_H
#define MHA_PICTURE_DRAW_PNG_FILE_H

#include "base/base.h"
#include "picture/colour.h"
#include "picture/origin.h"

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

#endif
