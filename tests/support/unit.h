/* cmocka with the headers it wants before it, and the other headers that every test program needs. */
#ifndef TEST_UNIT_H
#define TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/base.h"
#include "mha/status.h"

/* Skips the test that runs, and says in one line what would have to be there for it. */
#define skip_because(...)                                                                                              \
    do {                                                                                                               \
        printf("skipped: %s: ", __func__);                                                                             \
        printf(__VA_ARGS__);                                                                                           \
        putchar('\n');                                                                                                 \
        skip();                                                                                                        \
    } while (0)

/* The call must succeed; otherwise `error`, an mha_error, is shown. */
#define assert_ok(call, error)                                                                                         \
    do {                                                                                                               \
        (error).message[0] = '\0';                                                                                     \
        mha_status assert_ok_status = (call);                                                                          \
        if (assert_ok_status != MHA_OK)                                                                                \
            fail_msg("%s: %s: %s", #call, mha__status_name(assert_ok_status), (error).message);                        \
    } while (0)

/* The call must end with `expected`, and say so in *error: one line; every text given is in "NAME: MESSAGE (byte N)".
 */
#define assert_refused(call, expected, error, ...)                                                                     \
    assert_refusal((call), (expected), &(error), (const char *const[]){__VA_ARGS__, NULL}, #call, __FILE__, __LINE__)
void assert_refusal(mha_status found, mha_status expected, const mha_error *error, const char *const *texts,
                    const char *call, const char *file, int line);

/* A test that takes longer than this waits for something that never happens: alarm() ends it. The number is far
 * beyond what a test needs, so that no busy machine fails one. */
enum { HANG_SECONDS = 600 };

/* _exit for a child that was forked; which lines it ran is kept where that is measured. */
__attribute__((noreturn)) void leave(int code);

#endif
