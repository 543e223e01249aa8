/* Parameter tables on memory that counts, and fails when told to. */
#ifndef TEST_COUNTED_H
#define TEST_COUNTED_H

#include "mha/params.h"
#include "support/failing.h"

/* What tests of tables and of layers start from; *state of the test. */
typedef struct counted {
    failing memory;
    mha_allocator allocator;
    mha_params *table;
} counted;

int counted_set_up(void **state);
/* Every test ends with nothing left and no wrong size given back. */
int counted_tear_down(void **state);

/* Calls `make` with an empty table whose first allocation fails, then the second, and so on until none does; what it
 * makes it gives back. Each time that must be MHA_NO_MEMORY, and no row may stay in the table. How many failed. */
size_t counted_until_it_works(mha_status (*make)(mha_params *table, const void *context, mha_error *error),
                              const void *context);

#endif
