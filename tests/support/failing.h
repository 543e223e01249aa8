/* An allocator that counts everything, checks what it gets back, and fails when told to. */
#ifndef TEST_FAILING_H
#define TEST_FAILING_H

#include <stdbool.h>
#include <stddef.h>

#include "mha/status.h"

typedef struct failing_block failing_block;

/* Zero-initialised: counts, never fails. Blocks come filled with 0xA5, so that zeros in them are the
 * library's work, and are overwritten with 0x5A when released. */
typedef struct failing {
    size_t fail_at;  /* the call that fails, counted from 1; 0: none */
    bool then_all;   /* every later call fails too */
    size_t limit;    /* a single request above this many bytes fails; 0: none */
    size_t calls;    /* of allocate, failed ones included */
    size_t live_blocks, live_bytes, peak_bytes;
    size_t largest;  /* request */
    size_t bugs;     /* unknown block or wrong size given back, no power-of-two alignment, zero bytes asked */
    failing_block *blocks;
} failing;

mha_allocator failing_allocator(failing *f);
/* Bytes of the live block that starts at `data`; 0 when there is none. */
size_t failing_bytes_at(const failing *f, const void *data);

#endif
