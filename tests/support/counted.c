/* Parameter tables on memory that counts, and fails when told to. */
#include <stdlib.h>

#include "support/counted.h"
#include "support/unit.h"

int counted_set_up(void **state)
{
    counted *f = calloc(1, sizeof *f);
    f->allocator = failing_allocator(&f->memory);
    *state = f;
    return mha_params_create(&f->allocator, &f->table, NULL) == MHA_OK ? 0 : -1;
}

int counted_tear_down(void **state)
{
    counted *f = *state;
    mha_params_destroy(f->table);
    const bool clean = f->memory.live_blocks == 0 && f->memory.live_bytes == 0 && f->memory.bugs == 0;
    if (!clean)
        print_error("left: %zu blocks, %zu bytes, %zu bugs\n", f->memory.live_blocks, f->memory.live_bytes,
                    f->memory.bugs);
    free(f);
    return clean ? 0 : -1;
}

size_t counted_until_it_works(mha_status (*make)(mha_params *table, const void *context, mha_error *error),
                              const void *context)
{
    mha_status status = MHA_NO_MEMORY;
    size_t failed = 0;
    for (; status == MHA_NO_MEMORY; failed += status == MHA_NO_MEMORY) {
        failing memory = {0};
        mha_allocator allocator = failing_allocator(&memory);
        mha_params *table;
        mha_error error;
        assert_int_equal(mha_params_create(&allocator, &table, NULL), MHA_OK);
        memory.fail_at = memory.calls + failed + 1;
        status = make(table, context, &error);
        if (status)
            assert_int_equal(mha_params_count(table), 0);
        mha_params_destroy(table);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.bugs, 0);
    }
    assert_int_equal(status, MHA_OK);
    return failed;
}
