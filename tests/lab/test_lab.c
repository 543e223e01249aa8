/* What the rooms of libmha-lab share. */
#include "lab/lab.h"
#include "support/failing.h"
#include "support/unit.h"

static void arrays_grow_and_keep_what_they_hold(void **state)
{
    (void)state;
    failing counter = {0};
    const mha_allocator a = failing_allocator(&counter);
    uint32_t *items = NULL;
    size_t room = 0;
    for (uint32_t count = 0; count < 100; count++) {
        if (count == room) { /* without memory everything stays as it is */
            const size_t before = room;
            counter.fail_at = counter.calls + 1;
            assert_null(mha__array_grow(&a, items, count, &room, sizeof *items));
            assert_int_equal(room, before);
        }
        items = mha__array_grow(&a, items, count, &room, sizeof *items);
        assert_non_null(items);
        assert_true(room > count);
        for (uint32_t i = 0; i < room; i++)
            assert_int_equal(items[i], i < count ? i + 1 : 0);
        items[count] = count + 1;
    }
    assert_int_equal(counter.live_blocks, 1);
    assert_int_equal(failing_bytes_at(&counter, items), room * sizeof *items);
    size_t huge = SIZE_MAX / 64 + 2; /* twice as many of 32 bytes have no size: without the carry it is 64 */
    assert_null(mha__array_grow(&a, items, huge, &huge, 32));
    assert_int_equal(huge, SIZE_MAX / 64 + 2);
    mha__release(&a, items, room * sizeof *items);
    assert_int_equal(counter.live_blocks, 0);
    assert_int_equal(counter.bugs, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(arrays_grow_and_keep_what_they_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
