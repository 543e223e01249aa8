/* How far ahead memory is fetched: the fastest distance is chosen, from times of real calls, and results keep their
 * bits. */
#include <stdlib.h>
#include <string.h>

#include "bench/machine_choices.h"
#include "compute/kernels/fetching.h"
#include "compute/kernels/kernels.h"
#include "compute/packed/packed_gemm.h"
#include "mha/mha.h"
#include "support/guard.h"
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
        assert_int_equal(mha__fetch_choice(MHA__FETCHED_KEYS, times, SAMPLES), rows[r].groups);
    }
}

static void the_usual_distance_stays_where_another_is_hardly_faster(void **state)
{
    (void)state;
    float times[MHA_FETCH_CHOICES * SAMPLES];
    const struct {
        float middle[MHA_FETCH_CHOICES];
        size_t KiB;
    } rows[] = {{{1, 1.01f, 2}, 8}, {{1, 1.03f, 2}, 0}, {{2, 1.01f, 1}, 8}, {{2, 1.03f, 1}, 16}, {{1, 1, 1}, 8}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t c = 0; c < MHA_FETCH_CHOICES; c++)
            for (size_t i = 0; i < SAMPLES; i++)
                times[c * SAMPLES + i] = rows[r].middle[c];
        assert_int_equal(mha__fetch_choice(MHA__FETCHED_ROWS, times, SAMPLES), rows[r].KiB);
    }
}

static size_t ahead_of(mha__fetched what)
{
    bool measured;
    return mha__fetch_ahead(what, &measured);
}

static void a_text_asks_for_distances(void **state)
{
    (void)state;
    const char *const wrong[] = {"",
                                 " 1",
                                 "-1",
                                 "+1",
                                 "1x",
                                 "65",
                                 "far",
                                 "1.0",
                                 "99999999999999999999999",
                                 "keys",
                                 "keys=",
                                 "keys=65",
                                 "key=1",
                                 "keys=1,",
                                 ",keys=1",
                                 "keys=1,2",
                                 "keys=1,,row=2",
                                 "keys=1 ",
                                 "=1",
                                 "keys==1",
                                 "KEYS=1",
                                 "row=8,keys=x",
                                 "auto,row=1"};
    assert_int_equal(mha__fetch_select("keys=64,row=1,rows=2,half=3,blocks=4"), MHA_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (mha__fetch_select(wrong[i]) != MHA_INVALID)
            fail_msg("\"%s\" is not refused", wrong[i]);
    assert_int_equal(mha__fetch_select(NULL), MHA_INVALID);
    const size_t expected[MHA__FETCHED_COUNT] = {64, 1, 2, 3, 4};
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        assert_int_equal(ahead_of((mha__fetched)what), expected[what]);
    assert_int_equal(mha__fetch_select("0"), MHA_OK);
    assert_int_equal(ahead_of(MHA__FETCHED_KEYS), 0);
    assert_int_equal(ahead_of(MHA__FETCHED_ROW), 1);
    assert_int_equal(mha__fetch_select("blocks=64,half=auto"), MHA_OK);
    assert_int_equal(ahead_of(MHA__FETCHED_BLOCKS), 64);
    assert_true(mha__fetch_tries(MHA__FETCHED_HALF));
    assert_false(mha__fetch_tries(MHA__FETCHED_KEYS));
    assert_int_equal(mha__fetch_select("auto"), MHA_OK);
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        assert_true(mha__fetch_tries((mha__fetched)what));
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
        numbers[i] = 2 * mha__random_unit(30, 0, i) - 1;
    bool measured = true;
    for (size_t rows = 1; rows <= 4; rows++)
        for (int threads = 1; threads <= 2; threads++) {
            mha__fetch_choose(MHA__FETCHED_KEYS, 0);
            run(numbers, rows, threads, expected);
            for (size_t groups = 1; groups <= MHA_FETCH_MOST; groups += 9) {
                mha__fetch_choose(MHA__FETCHED_KEYS, (int)groups);
                assert_int_equal(mha__fetch_ahead(MHA__FETCHED_KEYS, &measured), groups);
                assert_false(measured);
                run(numbers, rows, threads, found);
                assert_memory_equal(found, expected, rows * HEADS * D * sizeof *found);
            }
            assert_int_equal(mha__fetch_select("auto"), MHA_OK);
            assert_true(mha__fetch_tries(MHA__FETCHED_KEYS));
            for (int calls = 0; calls < 200 && mha__fetch_tries(MHA__FETCHED_KEYS); calls++) {
                run(numbers, rows, threads, found);
                assert_memory_equal(found, expected, rows * HEADS * D * sizeof *found);
            }
            const size_t groups = mha__fetch_ahead(MHA__FETCHED_KEYS, &measured); /* one row has nothing to choose */
            assert_int_equal(measured, rows > 1);
            assert_true(groups == 0 || groups == 3 || groups == 7);
        }
    free(numbers);
    free(expected);
    free(found);
}

enum { K = 2048, N = 4096 + MHA_PANEL, MOST_ROWS = 17, MOST_THREADS = 2 };

/* Y (rows, N) = X W, of panels of any numbers; they need mean nothing. */
static void multiply(const float *X, const unsigned char *panels, mha_dtype dtype, size_t rows, int threads, float *Y)
{
    const size_t scratch = (mha__packed_scratch(rows, K, dtype) + 63) / 64 * 64;
    mha__packed_product product = {.m = rows, .k = K, .ldx = K, .X = X, .n_outputs = 1};
    product.outputs[0] = (mha__packed_output){.n = N, .ldy = N, .panels = panels, .dtype = dtype, .Y = Y};
    mha__packed_run(&product, 1, threads, guard_allocate(scratch * (size_t)threads, GUARD_AFTER, 0));
}

/* Packed weights of more than 4 MiB of each kind: any distance, and those that are tried in turns, give the same bits,
 * and products of few rows choose one of the three. */
static void weights_choose_a_distance_and_keep_their_bits(void **state)
{
    (void)state;
    const struct {
        mha_dtype dtype;
        size_t rows;
        mha__fetched what; /* MHA__FETCHED_COUNT: nothing is tried */
        size_t choices[MHA_FETCH_CHOICES];
    } of[] = {{MHA_F32, 1, MHA__FETCHED_ROW, {0, 8, 16}},    {MHA_F32, 2, MHA__FETCHED_ROWS, {0, 8, 16}},
              {MHA_F32, 17, MHA__FETCHED_COUNT, {0}},        {MHA_BF16, 1, MHA__FETCHED_HALF, {0, 8, 48}},
              {MHA_F16, 7, MHA__FETCHED_HALF, {0, 8, 48}},   {MHA_BF16, 8, MHA__FETCHED_COUNT, {0}},
              {MHA_Q8_0, 1, MHA__FETCHED_BLOCKS, {1, 2, 4}}, {MHA_Q4_K, 9, MHA__FETCHED_BLOCKS, {1, 2, 4}}};
    const size_t bytes = (size_t)K * N * sizeof(float);
    unsigned char *panels = guard_allocate(bytes, GUARD_AFTER, 0);
    float *X = guard_allocate(MOST_ROWS * K * sizeof *X, GUARD_AFTER, 0);
    float *expected = guard_allocate(MOST_ROWS * N * sizeof *expected, GUARD_AFTER, 0);
    float *found = guard_allocate(MOST_ROWS * N * sizeof *found, GUARD_AFTER, 0);
    for (size_t i = 0; i < bytes; i++) /* floats, and numbers of 16 bits, of middling size */
        panels[i] = (unsigned char)(i % 2 ? 0x3c : i * 37 % 251);
    for (size_t i = 0; i < MOST_ROWS * K; i++)
        X[i] = 2 * mha__random_unit(31, 0, i) - 1;
    for (size_t o = 0; o < sizeof of / sizeof *of; o++) {
        const size_t most = of[o].rows * N * sizeof *found;
        assert_int_equal(mha__fetch_select("row=0,rows=0,half=0,blocks=0"), MHA_OK);
        multiply(X, panels, of[o].dtype, of[o].rows, 1, expected);
        for (int ahead = 1; ahead <= MHA_FETCH_MOST && of[o].what != MHA__FETCHED_COUNT; ahead += 21) {
            mha__fetch_choose(of[o].what, ahead);
            multiply(X, panels, of[o].dtype, of[o].rows, 2, found);
            assert_memory_equal(found, expected, most);
        }
        assert_int_equal(mha__fetch_select("auto"), MHA_OK);
        for (int calls = 0; calls < 4; calls++) {
            multiply(X, panels, of[o].dtype, of[o].rows, 1 + calls % 2, found);
            assert_memory_equal(found, expected, most);
        }
        for (int what = MHA__FETCHED_KEYS + 1; what < MHA__FETCHED_COUNT; what++)
            assert_int_equal(mha__fetch_tries((mha__fetched)what), what != (int)of[o].what);
        if (of[o].what == MHA__FETCHED_COUNT)
            continue;
        const size_t *c = of[o].choices, ahead = ahead_of(of[o].what);
        assert_true(ahead == c[0] || ahead == c[1] || ahead == c[2]);
    }
    guard_release_all();
}

/* What was measured with one instruction set is measured anew with another; what was asked for stays. */
static void another_instruction_set_is_measured_anew(void **state)
{
    (void)state;
    const char *best = mha_isa_at(0);
    assert_int_equal(mha_isa_select(best, NULL), MHA_OK);
    assert_int_equal(mha__fetch_select("auto"), MHA_OK);
    assert_int_equal(mha__fetch_select("keys=5"), MHA_OK);
    const mha__choices chosen = mha__machine_choices();
    assert_int_equal(chosen.ahead[MHA__FETCHED_KEYS], 5);
    assert_false(chosen.measured[MHA__FETCHED_KEYS]);
    for (int what = MHA__FETCHED_KEYS + 1; what < MHA__FETCHED_COUNT; what++)
        assert_true(chosen.measured[what]);
    assert_int_equal(mha_isa_select(best, NULL), MHA_OK); /* the same one */
    assert_false(mha__fetch_tries(MHA__FETCHED_ROW));
    assert_int_equal(mha_isa_select("scalar", NULL), MHA_OK);
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        assert_int_equal(mha__fetch_tries((mha__fetched)what),
                         what != MHA__FETCHED_KEYS && strcmp(best, "scalar") != 0);
    assert_int_equal(ahead_of(MHA__FETCHED_KEYS), 5);
    assert_int_equal(mha_isa_select(best, NULL), MHA_OK);
}

static void short_keys_choose_nothing(void **state)
{
    (void)state;
    assert_int_equal(mha__fetch_select("auto"), MHA_OK);
    for (int i = 0; i < 1000; i++) {
        const mha__fetch fetch = mha__fetch_begin(MHA__FETCHED_KEYS, mha__fetch_least(MHA__FETCHED_KEYS) - 1);
        assert_true(fetch.sample < 0);
        mha__fetch_end(&fetch, 1);
    }
    assert_true(mha__fetch_tries(MHA__FETCHED_KEYS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_median_is_chosen_and_the_nearest_where_two_are_alike),
        cmocka_unit_test(the_usual_distance_stays_where_another_is_hardly_faster),
        cmocka_unit_test(a_text_asks_for_distances),
        cmocka_unit_test(calls_choose_a_distance_and_keep_their_bits),
        cmocka_unit_test(weights_choose_a_distance_and_keep_their_bits),
        cmocka_unit_test(another_instruction_set_is_measured_anew),
        cmocka_unit_test(short_keys_choose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
