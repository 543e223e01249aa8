/* How far ahead keys are fetched: the fastest distance is chosen, from times of real calls, and results keep their
 * bits. */
#include <stdlib.h>

#include "compute/kernels/fetching.h"
#include "mha/mha.h"
#include "support/unit.h"

enum { SAMPLES = 5, T = 1536, HEADS = 4, D = 96 };

static void the_least_median_is_chosen_and_the_nearest_where_two_are_alike(void **state)
{
    (void)state;
    float times[MHA_FETCH_CHOICES * SAMPLES];
    const struct {
        float middle[MHA_FETCH_CHOICES];
        size_t groups;
    } rows[] = {{{3, 2, 1}, 7},        {{3, 1, 2}, 3},        {{1, 2, 3}, 0},     {{1, 1, 1}, 0},
                {{1.01f, 1, 1.5f}, 0}, {{1.03f, 1, 1.5f}, 3}, {{2, 1.01f, 1}, 3}, {{2, 1.03f, 1}, 7}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t c = 0; c < MHA_FETCH_CHOICES; c++)
            for (size_t i = 0; i < SAMPLES; i++) /* two of five are far off, on either side */
                times[c * SAMPLES + i] = rows[r].middle[c] * (i == 0 ? 0.01f : i == 3 ? 1000 : 1);
        assert_int_equal(mha__fetch_choice(times, SAMPLES), rows[r].groups);
    }
}

static void a_text_asks_for_a_number_of_groups(void **state)
{
    (void)state;
    const char *const wrong[] = {"", " 1", "-1", "+1", "1x", "65", "far", "1.0", "99999999999999999999999"};
    bool measured;
    assert_int_equal(mha_fetch_select("64"), MHA_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(mha_fetch_select(wrong[i]), MHA_INVALID);
    assert_int_equal(mha_fetch_select(NULL), MHA_INVALID);
    assert_int_equal(mha__fetch_groups(&measured), 64);
    assert_int_equal(mha_fetch_select("0"), MHA_OK);
    assert_int_equal(mha__fetch_groups(&measured), 0);
    assert_false(mha__fetch_tries());
    assert_int_equal(mha_fetch_select("auto"), MHA_OK);
    assert_true(mha__fetch_tries());
}

/* A call of `rows` query rows by T keys of HEADS heads, on `threads` threads. */
static void run(float *numbers, size_t rows, int threads, float *output)
{
    mha_error error;
    const mha_call call = {.query = mha_view_heads(numbers, MHA_F32, MHA_BTHD, 1, rows, HEADS, D),
                           .key = mha_view_heads(numbers + 5, MHA_F32, MHA_BTHD, 1, T, HEADS, D),
                           .value = mha_view_heads(numbers + 77, MHA_F32, MHA_BTHD, 1, T, HEADS, D),
                           .output = mha_view_rows(output, MHA_F32, MHA_BTE, 1, rows, HEADS * D),
                           .path = MHA_PATH_FAST,
                           .threads = threads};
    assert_ok(mha_run(NULL, &call, &error), error);
}

static void calls_choose_a_distance_and_keep_their_bits(void **state)
{
    (void)state;
    const size_t floats = (size_t)T * HEADS * D + 128, most = (size_t)4 * HEADS * D;
    float *numbers = malloc(floats * sizeof *numbers), *expected = malloc(most * sizeof *expected),
          *found = malloc(most * sizeof *found);
    assert_true(numbers && expected && found);
    for (size_t i = 0; i < floats; i++)
        numbers[i] = 2 * mha_random_unit(30, 0, i) - 1;
    bool measured = true;
    for (size_t rows = 1; rows <= 4; rows++)
        for (int threads = 1; threads <= 2; threads++) {
            mha__fetch_choose(0);
            run(numbers, rows, threads, expected);
            for (size_t groups = 1; groups <= MHA_FETCH_MOST; groups += 9) {
                mha__fetch_choose((int)groups);
                assert_int_equal(mha__fetch_groups(&measured), groups);
                assert_false(measured);
                run(numbers, rows, threads, found);
                assert_memory_equal(found, expected, rows * HEADS * D * sizeof *found);
            }
            assert_int_equal(mha_fetch_select("auto"), MHA_OK);
            assert_true(mha__fetch_tries());
            for (int calls = 0; calls < 200 && mha__fetch_tries(); calls++) {
                run(numbers, rows, threads, found);
                assert_memory_equal(found, expected, rows * HEADS * D * sizeof *found);
            }
            const size_t groups = mha__fetch_groups(&measured); /* one row has nothing to choose */
            assert_int_equal(measured, rows > 1);
            assert_true(groups == 0 || groups == 3 || groups == 7);
        }
    free(numbers);
    free(expected);
    free(found);
}

static void short_keys_choose_nothing(void **state)
{
    (void)state;
    assert_int_equal(mha_fetch_select("auto"), MHA_OK);
    for (int i = 0; i < 1000; i++) {
        const mha__fetch fetch = mha__fetch_begin(MHA_FETCH_LEAST_KEYS - 1);
        assert_true(fetch.sample < 0);
        mha__fetch_end(&fetch, 1);
    }
    assert_true(mha__fetch_tries());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_median_is_chosen_and_the_nearest_where_two_are_alike),
        cmocka_unit_test(a_text_asks_for_a_number_of_groups),
        cmocka_unit_test(calls_choose_a_distance_and_keep_their_bits),
        cmocka_unit_test(short_keys_choose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
