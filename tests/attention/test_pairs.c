/* Pairs of a query and a key that sees it, which costs and throughputs are counted in: held against counting one by
 * one, and against sums that no loop reaches. */
#include "attention/work.h"
#include "support/unit.h"

static int64_t chunk_of(int64_t position, int64_t chunk)
{
    return position >= 0 ? position / chunk : -1; /* no key is at a negative position */
}

static uint64_t one_by_one(size_t T_q, size_t S, int64_t offset, bool causal, int64_t left, int64_t right,
                           int64_t chunk)
{
    uint64_t pairs = 0;
    for (int64_t i = offset; i < offset + (int64_t)T_q; i++)
        for (int64_t j = 0; j < (int64_t)S; j++)
            pairs += !(causal && j > i) && !(left >= 0 && j < i - left) && !(right >= 0 && j > i + right) &&
                     !(chunk > 0 && chunk_of(i, chunk) != chunk_of(j, chunk));
    return pairs;
}

static void pairs_are_those_that_one_counts(void **state)
{
    (void)state;
    for (size_t T_q = 0; T_q < 8; T_q++)
        for (size_t S = 0; S < 8; S++)
            for (int64_t offset = -5; offset < 9; offset++)
                for (int causal = 0; causal < 2; causal++)
                    for (int64_t left = -1; left < 5; left++)
                        for (int64_t right = -1; right < 5; right++)
                            for (int64_t chunk = 0; chunk < 5; chunk++)
                                assert_int_equal(mha__visible_pairs(T_q, S, offset, causal, left, right, chunk),
                                                 one_by_one(T_q, S, offset, causal, left, right, chunk));
}

/* 4 * 10^9 queries: a loop over them takes seconds, and a double has too few digits. */
static void long_sequences_cost_no_time_and_no_digit(void **state)
{
    (void)state;
    const size_t T = 4000000001, window = 4096;
    for (int64_t times = 0; times < 1000; times++) {
        assert_int_equal(mha__visible_pairs(T, T, 0, false, -1, -1, 0), (uint64_t)T * T);
        assert_int_equal(mha__visible_pairs(T, T, 0, true, -1, -1, 0), (uint64_t)T * (T + 1) / 2);
        assert_int_equal(mha__visible_pairs(T, T, 0, true, (int64_t)window - 1, -1, 0),
                         (uint64_t)window * (T - window) + window * (window + 1) / 2);
        assert_int_equal(mha__visible_pairs(T, T, 0, true, -1, -1, 1000),
                         (uint64_t)(T / 1000) * 500500 + 1); /* one is left over */
        assert_int_equal(mha__visible_pairs(T, T, 0, true, INT64_MAX, -1, 0), (uint64_t)T * (T + 1) / 2);
        assert_int_equal(mha__visible_pairs(T, T, 0, false, INT64_MAX, INT64_MAX, 0), (uint64_t)T * T);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_those_that_one_counts),
        cmocka_unit_test(long_sequences_cost_no_time_and_no_digit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
