/* Statuses in words, text that is cut between characters, and the one place where an error is written. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

static const struct {
    const char *name, *meaning;
    int exit_code;
} statuses[] = {
#define STATUS_ROW(code, name, meaning, exit_code) [code] = {name, meaning, exit_code},
    MHA_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static bool known(mha_status status)
{
    return (size_t)status < sizeof statuses / sizeof *statuses;
}

const char *mha_status_name(mha_status status)
{
    return known(status) ? statuses[status].name : "unknown";
}

const char *mha_status_meaning(mha_status status)
{
    return known(status) ? statuses[status].meaning : "unknown";
}

int mha_status_exit_code(mha_status status)
{
    return known(status) ? statuses[status].exit_code : 3;
}

/* ---------------------------------------------------------------- text */

size_t mha__text_whole(const char *text, size_t length)
{
    size_t first = length, most = length < 4 ? length : 4;
    while (first > length - most && ((unsigned char)text[first - 1] & 0xc0) == 0x80)
        first--;
    if (first == length - most) /* empty, or no UTF-8 */
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
    if (vsnprintf(text, size, format, arguments) >= (int)size)
        text[mha__text_whole(text, size - 1)] = '\0';
}

void mha__text_print(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    mha__text_vprint(text, size, format, arguments);
    va_end(arguments);
}

/* ---------------------------------------------------------------- errors */

static mha_status fail(mha_error *error, mha_status status, const char *name, uint64_t offset, const char *format,
                       va_list arguments)
{
    if (error) {
        error->status = status;
        error->offset = offset;
        mha__text_print(error->name, sizeof error->name, "%s", name ? name : "");
        mha__text_vprint(error->message, sizeof error->message, format, arguments);
        for (char *c = error->message; *c; c++) /* names from files must not break the line or the terminal */
            if ((unsigned char)*c < 32 || *c == 127)
                *c = '?';
    }
    return status;
}

mha_status mha__fail(mha_error *error, mha_status status, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(error, status, name, 0, format, arguments);
    va_end(arguments);
    return status;
}

mha_status mha__fail_at(mha_error *error, mha_status status, const char *name, uint64_t offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(error, status, name, offset, format, arguments);
    va_end(arguments);
    return status;
}
