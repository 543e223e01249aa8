/* An SVG drawing from its first line to its last: size, title, white paper, where it comes from. Under a name that ends
 * in .html it stands in a page, which says the same at its foot. */
#ifndef MHA_PICTURE_DRAW_DRAWING_H
#define MHA_PICTURE_DRAW_DRAWING_H

#include "picture/markup.h"
#include "picture/origin.h"

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

#endif
