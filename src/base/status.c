/* Statuses in words, and the one place where an error is written. */
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

static mha_status fail(mha_error *error, mha_status status, const char *name, uint64_t offset, const char *format,
                       va_list arguments)
{
    if (error) {
        error->status = status;
        error->offset = offset;
        snprintf(error->name, sizeof error->name, "%s", name ? name : "");
        vsnprintf(error->message, sizeof error->message, format, arguments);
        for (char *c = error->message; *c; c++) /* names from files must not break the line or the terminal */
            if ((unsigned char)*c < 32 || *c == 127)
                *c = '?';
    }
    return status;
}

mha_status mha_fail(mha_error *error, mha_status status, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(error, status, name, 0, format, arguments);
    va_end(arguments);
    return status;
}

mha_status mha_fail_at(mha_error *error, mha_status status, const char *name, uint64_t offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(error, status, name, offset, format, arguments);
    va_end(arguments);
    return status;
}
