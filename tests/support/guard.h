/* Memory that ends, or begins, exactly where the next page forbids all access. */
#ifndef TEST_GUARD_H
#define TEST_GUARD_H

#include <stddef.h>

#include "mha/status.h"

typedef enum guard_side {
    GUARD_AFTER, /* the byte after the block faults: reading or writing too far */
    GUARD_BEFORE /* the byte before the block faults: starting too early */
} guard_side;

/* `bytes` bytes (0 is allowed), filled with `fill`; the address is as unaligned as the size makes it
 * for GUARD_AFTER, and page aligned for GUARD_BEFORE. Ends the program when there is no memory. */
void *guard_allocate(size_t bytes, guard_side side, unsigned char fill);
/* Takes any block of guard_allocate back; NULL is allowed. */
void guard_release(void *block);
/* An allocator of such blocks, filled with 0xFF; as aligned as it is asked for: a block ends up to that far before the
 * page. */
mha_allocator guard_allocator(guard_side side);
/* From now on writing to the block faults (`writable` 0), or no longer does. Whole pages only: a
 * guard block shares its pages with nobody. */
void guard_protect(void *block, int writable);
/* Takes back every block still held. */
void guard_release_all(void);
/* The same as a cmocka teardown: an assertion that fails jumps out of its test. */
int guard_teardown(void **state);

#endif
