/* Shared helpers of the rooms of libmha-lab. */
#include <string.h>

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

static void an_error_about_a_file_names_tensor_and_byte(void **state)
{
    (void)state;
    mha_error error;
    assert_int_equal(mha__fail_at(&error, MHA_FORMAT, "a.npy", 17, "expected %d", 3), MHA_FORMAT);
    assert_string_equal(error.message, "expected 3");
    assert_int_equal(error.offset, 17);
    assert_int_equal(mha__fail_inside(&error, MHA_IO, "a.npz", "W_Q", 5, "expected %d", 4), MHA_IO);
    assert_string_equal(error.name, "a.npz: W_Q");
    assert_int_equal(error.offset, 5);
    char inside[256], directory[400], tensor[300];
    memset(directory, 'd', sizeof directory - 1), directory[sizeof directory - 1] = 0;
    memset(tensor, 't', sizeof tensor - 1), tensor[sizeof tensor - 1] = 0;
    assert_string_equal(mha__name_inside(inside, sizeof inside, "a.npz", "W_Q"), "a.npz: W_Q");
    mha__name_inside(inside, sizeof inside, directory, "W_Q");
    assert_int_equal(strlen(inside), sizeof inside - 1);
    assert_memory_equal(inside, "...ddd", 6);
    assert_string_equal(inside + sizeof inside - 7, "d: W_Q");
    mha__name_inside(inside, sizeof inside, directory, tensor);
    assert_int_equal(strlen(inside), sizeof inside - 1);
    assert_memory_equal(inside, "...dddddddddddd: ttt", 20);
}

static void the_distance_of_two_texts_counts_their_edits(void **state)
{
    (void)state;
    assert_int_equal(mha__text_distance("", ""), 0);
    assert_int_equal(mha__text_distance("heads", "head"), 1);
    assert_int_equal(mha__text_distance("", "abc"), 3);
    assert_int_equal(mha__text_distance("abc", ""), 3);
    assert_int_equal(mha__text_distance("kitten", "sitting"), 3);
    char a[300], b[300];
    memset(a, 'a', sizeof a - 1), a[sizeof a - 1] = 0;
    memset(b, 'b', sizeof b - 1), b[sizeof b - 1] = 0;
    assert_int_equal(mha__text_distance(a, b), 128);
}

static void every_dtype_is_found_by_its_name(void **state)
{
    (void)state;
    mha_dtype found = MHA_I16;
    assert_false(mha__dtype_find("f32", &found));
    assert_false(mha__dtype_find("", &found));
    assert_int_equal(found, MHA_I16);
    for (int d = 0; d < MHA_DTYPE_COUNT; d++) {
        assert_true(mha__dtype_find(mha_dtype_name((mha_dtype)d), &found));
        assert_int_equal(found, d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_grow_and_keep_what_they_hold),
        cmocka_unit_test(an_error_about_a_file_names_tensor_and_byte),
        cmocka_unit_test(the_distance_of_two_texts_counts_their_edits),
        cmocka_unit_test(every_dtype_is_found_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
