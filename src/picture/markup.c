/* A file of markup being written: buffered, escaped, and with numbers that no locale changes. */
#include "picture/markup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

mha_status mha__markup_open(mha__markup *markup, const mha_allocator *allocator, const char *path, mha_error *error)
{
    markup->allocator = *allocator;
    markup->error = error;
    markup->count = 0;
    markup->status = mha__output_open(&markup->output, path, error);
    return markup->status;
}

static void flush(mha__markup *markup)
{
    if (markup->status == MHA_OK)
        markup->status = mha__output_write(&markup->output, markup->held, markup->count, markup->error);
    markup->count = 0;
}

void mha__markup_bytes(mha__markup *markup, const char *from, size_t count)
{
    while (count > 0) {
        const size_t room = MHA__MARKUP_HELD - markup->count, now = count < room ? count : room;
        memcpy(markup->held + markup->count, from, now);
        markup->count += now;
        from += now;
        count -= now;
        if (markup->count == MHA__MARKUP_HELD)
            flush(markup);
    }
}

void mha__markup_print(mha__markup *markup, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mha__markup_bytes(markup, text, length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

char *mha__number_text(char text[32], int digits, double number)
{
    if (!isfinite(number)) {
        snprintf(text, 32, "%s", isnan(number) ? "NaN" : number > 0 ? "inf" : "-inf");
        return text;
    }
    snprintf(text, 32, "%.*g", digits, number);
    for (char *c = text; *c; c++)
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    return text;
}

void mha__markup_number(mha__markup *markup, int digits, double number)
{
    char text[32];
    mha__number_text(text, digits, number);
    mha__markup_bytes(markup, text, strlen(text));
}

void mha__markup_text(mha__markup *markup, const char *text)
{
    static const char special[] = "&<>\"'";
    static const char *const escaped[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    while (*text) {
        const size_t length = mha__text_character(text);
        const char *found = strchr(special, *text);
        char one[5] = {0};
        memcpy(one, text, length ? length : 1);
        const char *written = found ? escaped[found - special] : length ? mha__text_harmless(one) : "?";
        mha__markup_bytes(markup, written, strlen(written));
        text += length ? length : 1;
    }
}

void mha__markup_short(mha__markup *markup, const char *text, size_t most)
{
    char cut[256];
    size_t bytes = 0;
    for (size_t characters = 0; bytes < sizeof cut - 1 && text[bytes]; bytes++)
        if (((unsigned char)text[bytes] & 0xC0) != 0x80 && characters++ == most)
            break;
    bytes = text[bytes] ? mha__text_whole(text, bytes) : bytes;
    memcpy(cut, text, bytes);
    cut[bytes] = '\0';
    mha__markup_text(markup, cut);
}

void mha__markup_fail(mha__markup *markup, mha_status status, const char *message)
{
    if (markup->status == MHA_OK)
        markup->status = mha__fail(markup->error, status, markup->output.path, "%s", message);
}

mha_status mha__markup_close(mha__markup *markup)
{
    flush(markup);
    return markup->status = mha__output_finish(&markup->output, markup->status, markup->error);
}
