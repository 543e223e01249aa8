/* A file of markup (SVG, HTML) being written, and the one place where text from outside is made harmless for it. */
#ifndef MHA_PICTURE_MARKUP_H
#define MHA_PICTURE_MARKUP_H

#include "formats/files/atomic_file.h"

enum { MHA__MARKUP_HELD = 1 << 14 };

/* After the first error nothing more is written; mha__markup_close returns it. */
typedef struct mha__markup {
    mha_allocator allocator;
    mha__output output;
    mha_status status;
    mha_error *error; /* may be NULL */
    size_t count;     /* bytes of `held` that wait to be written */
    char held[MHA__MARKUP_HELD];
} mha__markup;

/* Begins a file: the errors are those of mha__output_open. */
mha_status mha__markup_open(mha__markup *markup, const mha_allocator *allocator, const char *path, mha_error *error);
/* Writes markup of our own: no text from outside. Numbers are whole: those with a point go through
 * mha__markup_number, which no locale changes. At most a kilobyte. */
__attribute__((format(printf, 2, 3))) void mha__markup_print(mha__markup *markup, const char *format, ...);
/* Writes so many bytes of our own as they are. */
void mha__markup_bytes(mha__markup *markup, const char *from, size_t count);
/* Writes text from outside, as text or inside the quotes of an attribute: what has a meaning in markup is escaped,
 * what controls a terminal or changes the direction of a line becomes '?', and so do bytes that are not UTF-8. */
void mha__markup_text(mha__markup *markup, const char *text);
/* Writes at most the first `most` characters of it, up to 255 bytes. */
void mha__markup_short(mha__markup *markup, const char *text, size_t most);
/* Writes a number with at most `digits` significant digits; NaN and infinities as words. */
void mha__markup_number(mha__markup *markup, int digits, double number);
/* The text of that number, for everything that is laid out before it is written. Returns `text`. */
char *mha__number_text(char text[32], int digits, double number);
/* Notes an error that is not one of writing; the first one is kept. */
void mha__markup_fail(mha__markup *markup, mha_status status, const char *message);
/* Ends the file. After an error, here or before, no file of that name has been created or changed. */
mha_status mha__markup_close(mha__markup *markup);

#endif
