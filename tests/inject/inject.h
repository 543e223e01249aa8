/* A machine that fails on demand: the n-th call to the system from the program or from the libraries it
 * parses with (jansson, libzip, libc itself) fails once, as the real one would. Linked into a test program,
 * it stands in front of the C library's own functions. The BLAS and the thread pool are let through:
 * what they do without memory is theirs. */
#ifndef INJECT_H
#define INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum inject_mode {
    INJECT_NOTHING = 0, /* only counts */
    INJECT_FAILURE,     /* the call does nothing and fails: no memory, input/output error, ... */
    INJECT_INTERRUPT,   /* read, pread and write do nothing and say EINTR */
    INJECT_SHORT        /* read, pread and write transfer one byte less than asked, at least one */
} inject_mode;

/* Counts calls from here on and makes number `at`, counted from 1, fail. */
void inject_arm(inject_mode mode, size_t at);
void inject_disarm(void);
void inject_resume(void); /* goes on counting after inject_disarm */

/* False under a sanitizer: then only calls of the program itself are counted and fail, and what is handed over to a
 * library, which gives it back on its own, seems to be held for ever. */
bool inject_reaches_libraries(void);

size_t inject_calls(void);      /* counted since inject_arm */
/* Hash of the call stack of call `at`, counted from 1 since inject_arm(INJECT_NOTHING); 0 after the last call.
 * `transfers`: counts only the calls that inject_arm(INJECT_INTERRUPT) counts. */
uint64_t inject_stack(size_t at, bool transfers);
const char *inject_fired(void); /* the function that failed since inject_arm; NULL: none */
/* Blocks, mappings and descriptors obtained since inject_arm and not given back, without one that libzip forgets. */
long inject_live(void);

/* The end of a child that was forked: inject_disarm and leave (support/unit.h). */
__attribute__((noreturn)) void inject_exit(int code);

#endif
