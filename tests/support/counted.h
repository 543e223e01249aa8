/* Parameter tables on memory that counts, and fails when told to. */
#ifndef TEST_COUNTED_H
#define TEST_COUNTED_H

#include "mha/params.h"
#include "support/failing.h"

/* The state of a test of tables or layers. */
typedef struct counted {
    failing memory;
    mha_allocator allocator;
    mha_params *table;
} counted;

int counted_set_up(void **state);
/* Fails when memory is left or was released with a wrong size. */
int counted_tear_down(void **state);

/* Calls `make` with an empty table whose first allocation fails, then the second, and so on until none does. `make`
 * releases what it makes. Each failure must give MHA_NO_MEMORY and leave no row in the table. Returns how many
 * failed. */
size_t counted_until_it_works(mha_status (*make)(mha_params *table, const void *context, mha_error *error),
                              const void *context);

#endif
