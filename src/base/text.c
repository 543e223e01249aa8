/* Text: names of enums, hashes, cutting between characters, shapes in words. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

uint64_t mha__text_hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h ^ h >> 32;
}

int mha__name_find(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0)
            return (int)i;
    return -1;
}

const char *mha__name_at(const char *const *names, size_t count, size_t index)
{
    return index < count ? names[index] : "?";
}

size_t mha__text_whole(const char *text, size_t length)
{
    size_t first = length, most = length < 4 ? length : 4;
    while (first > length - most && ((unsigned char)text[first - 1] & 0xc0) == 0x80)
        first--;
    if (first == length - most) /* empty, or not UTF-8 */
        return length;
    const unsigned char lead = (unsigned char)text[first - 1];
    const size_t needed = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return length - first + 1 < needed ? first - 1 : length;
}

int mha__text_precision(const char *text, size_t most)
{
    const size_t length = strnlen(text, most);
    return (int)(text[length] ? mha__text_whole(text, length) : length);
}

void mha__text_vprint(char *text, size_t size, const char *format, va_list arguments)
{
    if (vsnprintf(text, size, format, arguments) >= (int)size && size > 0)
        text[mha__text_whole(text, size - 1)] = '\0';
}

void mha__text_print(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    mha__text_vprint(text, size, format, arguments);
    va_end(arguments);
}

/* The longest end of `text` of whole characters that fits a field of `size` bytes after "...". */
static const char *end_that_fits(const char *text, size_t size)
{
    const char *end = text + strlen(text) - (size - sizeof "...");
    while (((unsigned char)*end & 0xc0) == 0x80)
        end++;
    return end;
}

void mha__text_end(char *field, size_t size, const char *text)
{
    if (strlen(text) < size)
        memcpy(field, text, strlen(text) + 1);
    else
        mha__text_print(field, size, "...%s", end_that_fits(text, size));
}

size_t mha__text_character(const char *at)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *text = (const unsigned char *)at;
    const size_t length = *text < 0x80 ? 1 : *text >> 5 == 6 ? 2 : *text >> 4 == 14 ? 3 : *text >> 3 == 30 ? 4 : 0;
    uint32_t c = length > 1 ? *text & (0xFFu >> (length + 1)) : *text;
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2)
            return 0;
        c = c << 6 | (text[i] & 0x3F);
    }
    const bool is_character = c >= least[length] && c <= 0x10FFFF && c >> 11 != 0x1B && (c & 0xFFFE) != 0xFFFE;
    return is_character ? length : 0;
}

/* The bytes of the character at `c` if it is one that mha__text_harmless replaces, else 0. */
static size_t harm_at(const unsigned char *c)
{
    if (mha__text_character((const char *)c) == 0)
        return 1;
    if (c[0] == 0xc2)
        return c[1] >= 0x80 && c[1] <= 0x9f ? 2 : 0;
    if (c[0] == 0xd8) /* U+061C */
        return c[1] == 0x9c ? 2 : 0;
    if (c[0] == 0xe2 && c[1] == 0x80) /* U+200E, U+200F, U+2028 to U+202E */
        return c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae) ? 3 : 0;
    if (c[0] == 0xe2 && c[1] == 0x81) /* U+2066 to U+2069 */
        return c[2] >= 0xa6 && c[2] <= 0xa9 ? 3 : 0;
    return c[0] < 32 || c[0] == 127;
}

char *mha__text_harmless(char *text)
{
    unsigned char *to = (unsigned char *)text;
    for (const unsigned char *from = to; *from;) {
        const size_t harm = harm_at(from), bytes = harm ? harm : mha__text_character((const char *)from);
        if (harm)
            *to++ = '?';
        for (size_t i = 0; i < bytes && !harm; i++)
            *to++ = from[i];
        from += bytes;
    }
    *to = '\0';
    return text;
}

char *mha__shape_text(char *text, size_t size, const size_t *shape, int rank)
{
    size_t used = 0;
    text[0] = '\0';
    if (rank < 0 || rank > MHA_MAX_RANK) {
        snprintf(text, size, "rank %d", rank);
        return text;
    }
    for (int k = 0; k < rank && used < size; k++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu", k ? ", " : "(", shape[k]);
    if (used < size)
        snprintf(text + used, size - used, "%s", rank == 0 ? "()" : rank == 1 ? ",)" : ")");
    return text;
}
