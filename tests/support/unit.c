/* Checks that several test programs share. */
#include <string.h>
#include <unistd.h>

#include "support/unit.h"

extern void __gcov_dump(void) __attribute__((weak));

void leave(int code)
{
    if (__gcov_dump)
        __gcov_dump();
    _exit(code);
}

void assert_refusal(mha_status found, mha_status expected, const mha_error *error, const char *const *texts,
                    const char *call, const char *file, int line)
{
    if (found != expected) {
        print_error("%s:%d: %s: expected \"%s\", found \"%s\" (%s)\n", file, line, call, mha__status_name(expected),
                    mha__status_name(found), found ? error->message : "");
        _fail(file, line);
    }
    if (error->status != expected || error->message[0] == '\0' || strchr(error->message, '\n')) {
        print_error("%s:%d: %s: the error does not carry its status and one line: \"%s\"\n", file, line, call,
                    error->message);
        _fail(file, line);
    }
    char text[sizeof *error];
    mha_error_text(text, sizeof text, error);
    for (; *texts; texts++)
        if (!strstr(text, *texts)) {
            print_error("%s:%d: %s: expected \"%s\" in \"%s\"\n", file, line, call, *texts, text);
            _fail(file, line);
        }
}
