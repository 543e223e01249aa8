/* Errors about files: at a byte, about a tensor inside. */
#include <errno.h>
#include <string.h>

#include "lab/lab.h"

bool mha__names_no_file(int why)
{
    return why == ENOENT || why == ENOTDIR || why == EISDIR || why == ELOOP || why == ENAMETOOLONG;
}

mha_status mha__fail_at(mha_error *error, mha_status status, const char *name, uint64_t offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    mha__vfail(error, status, name, offset, format, arguments);
    va_end(arguments);
    return status;
}

mha_status mha__fail_inside(mha_error *error, mha_status status, const char *file, const char *tensor, uint64_t offset,
                            const char *format, ...)
{
    char name[sizeof error->name];
    va_list arguments;
    va_start(arguments, format);
    mha__vfail(error, status, mha__name_inside(name, sizeof name, file, tensor), offset, format, arguments);
    va_end(arguments);
    return status;
}

char *mha__name_inside(char *text, size_t size, const char *file, const char *tensor)
{
    if (!tensor || *tensor == '\0') {
        mha__text_end(text, size, file);
        return text;
    }
    const size_t length = strlen(tensor), separator = sizeof ": " - 1;
    char shown[sizeof(((mha_error *)NULL)->name)];
    const size_t room = length + separator + 16 < size ? size - length - separator : 16;
    mha__text_end(shown, room < sizeof shown ? room : sizeof shown, file);
    mha__text_print(text, size, "%s: %s", shown, tensor);
    return text;
}
