/* Relative position bias: rows of the table as T5 and BEiT have them, long calls and tables with infinities on every
 * path, and what is refused. Short calls of every kind are drawn (test_forward.c). */
#include <math.h>

#include "attention/core/terms/terms.h"
#include "support/trial.h"
#include "support/unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The distances at which buckets begin, of keys before the query: recorded from T5's own function in transformers. */
static void buckets_begin_where_t5_begins_them(void **state)
{
    (void)state;
    static const struct {
        mha_bias bias;
        size_t n, begins[32], count;
    } recorded[] = {
        {{.rule = MHA_BIAS_RULE_BUCKETS}, 32, {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}, 16},
        {{.rule = MHA_BIAS_RULE_BUCKETS, .one_way = true},
         32,
         {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
          16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113},
         32},
        {{.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 40}, 5, {0, 1}, 2},
        {{.rule = MHA_BIAS_RULE_BUCKETS, .one_way = true, .max_distance = 20}, 8, {0, 1, 2, 3, 4, 6, 9, 14}, 8},
    };
    for (size_t i = 0; i < COUNT(recorded); i++)
        for (int64_t d = 0, row = -1; d < 300; d++) {
            const mha_bias *bias = &recorded[i].bias;
            const size_t n = recorded[i].n;
            row += row + 1 < (int64_t)recorded[i].count && recorded[i].begins[row + 1] == (size_t)d;
            assert_int_equal(mha__bias_row(bias, n, 1000, 1000 - d), row);
            if (d > 0)
                assert_int_equal(mha__bias_row(bias, n, -7, d - 7), bias->one_way ? 0 : (int64_t)n / 2 + row);
        }
}

/* BEiT's relative_position_index for a window of 2 x 3 patches and a class token, from transformers. */
static void cells_have_the_rows_of_beit(void **state)
{
    (void)state;
    static const size_t recorded[7][7] = {
        {17, 15, 15, 15, 15, 15, 15}, {16, 7, 6, 5, 2, 1, 0},  {16, 8, 7, 6, 3, 2, 1},  {16, 9, 8, 7, 4, 3, 2},
        {16, 12, 11, 10, 7, 6, 5},    {16, 13, 12, 11, 8, 7, 6}, {16, 14, 13, 12, 9, 8, 7},
    };
    const mha_bias beit = {.rule = MHA_BIAS_RULE_GRID, .height = 2, .width = 3, .class_token = true}, none = {0};
    mha_bias swin = beit;
    swin.class_token = false;
    for (int p = 0; p < 7; p++)
        for (int q = 0; q < 7; q++) {
            assert_int_equal(mha__bias_row(&beit, 18, p, q), recorded[p][q]);
            if (p > 0 && q > 0)
                assert_int_equal(mha__bias_row(&swin, 15, p - 1, q - 1), recorded[p][q]);
        }
    assert_int_equal(mha__bias_row(&beit, 18, 7, 0), 18);
    assert_int_equal(mha__bias_row(&beit, 18, 0, -1), 18);
    assert_int_equal(mha__bias_row(&none, 18, 0, 0), 18);
}

static trial of(mha_bias bias, size_t rows, size_t T_q, size_t T_k)
{
    return (trial){.seed = 3, .config = {.d_model = 12, .n_heads = 4, .kv_heads = 2, .bias_rows = rows}, .B = 1,
                   .T_q = T_q, .T_k = T_k, .semantics.added.bias = bias};
}

/* Several segments and blocks of keys, farther apart than max_distance on both sides; a grid cut into blocks. */
static void long_calls_meet_the_oracle(void **state)
{
    (void)state;
    trial t = of((mha_bias){.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 40}, 10, 9, 1100);
    t.semantics.place.has_offset = true, t.semantics.place.offset = 600;
    assert_trial(&t);
    t.alibi = true, t.semantics.added.bias.one_way = true, t.semantics.visible.mask.kind = MHA_MASK_KEEPS;
    assert_trial(&t);
    t = of((mha_bias){.rule = MHA_BIAS_RULE_GRID, .height = 23, .width = 31, .class_token = true}, 45 * 61 + 3, 7, 714);
    assert_trial(&t);
    t.semantics.place.has_offset = true, t.semantics.place.offset = 700, t.alibi = true;
    assert_trial(&t);
}

/* -inf in the table hides keys, as in a mask; +inf makes the row NaN. */
static void infinities_in_the_table(void **state)
{
    (void)state;
    trial t = of((mha_bias){.rule = MHA_BIAS_RULE_BUCKETS, .one_way = true, .max_distance = 8}, 4, 9, 9);
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (int hides = 0; hides < 2; hides++) {
            rig r;
            mha_error error;
            trial_build(&t, &r);
            for (size_t head = 0; head < 4; head++)
                mha_view_set(&r.weights[MHA_BIAS_TABLE], (size_t[]){0, head}, hides ? -INFINITY : INFINITY);
            assert_ok(trial_run(&r, (mha_path)path, 1, 1u << MHA_STAGE_WEIGHTS, MHA_F32, &error), error);
            const mha_view *weights = stage_view(&r.call, MHA_STAGE_WEIGHTS);
            for (size_t i = 0; i < 9; i++) {
                const double first = mha_view_get(weights, (size_t[]){0, 1, i, 0});
                assert_true(hides ? mha_view_get(weights, (size_t[]){0, 1, i, i}) == 0 : isnan(first));
                assert_true(!hides || (first > 0) == (i > 0)); /* query 0 sees no key: weight 0 */
            }
            trial_release(&r);
        }
}

/* A table without a bucket each way, or with a farthest distance that has no meaning, has no row. */
static void tables_without_a_meaning_have_no_row(void **state)
{
    (void)state;
    mha_bias bias = {.rule = MHA_BIAS_RULE_BUCKETS};
    for (size_t n = 0; n < 4; n++)
        assert_int_equal(mha__bias_row(&bias, n, 5, 2), n);
    bias.one_way = true;
    for (size_t n = 0; n < 2; n++)
        assert_int_equal(mha__bias_row(&bias, n, 5, 2), n);
    const size_t farthest[] = {16, (size_t)1 << 50, SIZE_MAX};
    for (size_t i = 0; i < 3; i++) {
        bias.max_distance = farthest[i];
        assert_int_equal(mha__bias_row(&bias, 32, INT64_MAX, INT64_MIN), 32);
    }
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    const mha_bias t5 = {.rule = MHA_BIAS_RULE_BUCKETS}, grid = {.rule = MHA_BIAS_RULE_GRID, .height = 2, .width = 3};
    const struct {
        mha_bias bias;
        size_t rows;
        int64_t offset;
        const char *name, *words[2];
    } wrong[] = {
        {t5, 0, 0, "bias_table", {"found none"}},
        {t5, 3, 0, "bias_table", {"expected 4 buckets", "3 rows"}},
        {{.rule = MHA_BIAS_RULE_BUCKETS, .one_way = true}, 1, 0, "bias_table", {"expected 2 buckets"}},
        {{.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 2}, 8, 0, "bias_max_distance", {"more than the 2", "found 2"}},
        {{.rule = MHA_BIAS_RULE_BUCKETS, .max_distance = 65537}, 8, 0, "bias_max_distance", {"65537"}},
        {{.rule = MHA_BIAS_RULE_GRID}, 8, 0, "bias_grid", {"1 to 65536", "0 x 0"}},
        {grid, 14, 0, "bias_table", {"expected 15 rows", "found 14"}},
        {grid, 15, 1, "bias_grid", {"positions from 0 to 5", "queries from 1 to 6"}},
        {grid, 15, -1, "bias_grid", {"queries from -1"}},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        trial t = of(wrong[i].bias, wrong[i].rows, 6, 6);
        rig r;
        mha_plan plan;
        mha_error error;
        trial_build(&t, &r);
        r.call.semantics.place.offset = wrong[i].offset;
        assert_refused(mha_plan_call(r.layer, &r.call, &plan, &error), MHA_INVALID, error, wrong[i].name,
                       wrong[i].words[0], wrong[i].words[1]);
        trial_release(&r);
    }
    mha_config many = {.bias_rows = 65537};
    mha_error error;
    assert_refused(mha_config_resolve(&many, &error), MHA_INVALID, error, "65537");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_begin_where_t5_begins_them),
        cmocka_unit_test(cells_have_the_rows_of_beit),
        cmocka_unit_test(long_calls_meet_the_oracle),
        cmocka_unit_test(infinities_in_the_table),
        cmocka_unit_test(tables_without_a_meaning_have_no_row),
        cmocka_unit_test(what_has_no_meaning_is_refused),
    };
    return cmocka_run_group_tests_name("bias", tests, NULL, NULL);
}
