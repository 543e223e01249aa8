/* Relative terms: rows as their owners have them, long calls and wide heads on every path, tables with infinities, and
 * what is refused. Short calls of every kind are drawn (test_differential.c). */
#include <math.h>

#include "support/trial.h"
#include "support/unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* T_q queries and T_k keys of 4 heads on 2, of d_k features, with tables of these rows. */
static trial of(mha_relative relative, size_t k_rows, size_t column_rows, size_t q_rows, size_t T_q, size_t T_k)
{
    return (trial){.seed = 3,
                   .config = {.d_model = 12, .n_heads = 4, .kv_heads = 2, .relative_k_rows = k_rows,
                              .relative_column_rows = column_rows, .relative_q_rows = q_rows},
                   .B = 1, .T_q = T_q, .T_k = T_k, .semantics.added.relative = relative};
}

/* Several segments and blocks of keys, farther apart than the tables reach on both sides; a grid cut into blocks. */
static void long_calls_meet_the_oracle(void **state)
{
    (void)state;
    trial t = of((mha_relative){.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 300}, 40, 0, 40, 9, 1100);
    t.semantics.place.has_offset = true, t.semantics.place.offset = 600;
    assert_trial(&t);
    t.alibi = true, t.config.relative_by_head = true, t.semantics.visible.mask.kind = MHA_MASK_KEEPS;
    assert_trial(&t);
    t = of((mha_relative){.rule = MHA_RELATIVE_DISTANCE, .reversed = true, .q_scale = 0.75}, 33, 0, 33, 7, 1030);
    t.semantics.place.has_offset = true, t.semantics.place.offset = 515, t.semantics.visible.causal = true;
    assert_trial(&t);
    t = of((mha_relative){.rule = MHA_RELATIVE_GRID, .height = 23, .width = 31, .k_scale = 1}, 45, 61, 0, 7, 713);
    t.semantics.place.has_offset = true, t.semantics.place.offset = 700;
    assert_trial(&t);
    t.semantics.added.bias = (mha_bias){.rule = MHA_BIAS_RULE_GRID, .height = 23, .width = 31},
    t.config.bias_rows = 45 * 61;
    assert_trial(&t);
}

/* More queries than a task of the fast path has, and more features than a product takes at once. */
static void long_queries_and_wide_heads_meet_the_oracle(void **state)
{
    (void)state;
    trial t = of((mha_relative){.rule = MHA_RELATIVE_DISTANCE}, 64, 0, 64, 300, 70);
    t.config.relative_by_head = true;
    assert_trial(&t);
    t = of((mha_relative){.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 20}, 8, 0, 8, 3, 5);
    t.config.d_k = 519, t.config.d_v = 2;
    assert_trial(&t);
}

/* Distances next to each other whose rows lie far apart: a few pairs need most of a table. */
static void buckets_may_skip_rows(void **state)
{
    (void)state;
    const mha_relative skips = {.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 40};
    static const size_t sizes[][2] = {{1, 8}, {3, 8}, {9, 2}, {40, 3}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int tables = 1; tables < 4; tables++) {
            trial t = of(skips, tables & 1 ? 128 : 0, 0, tables & 2 ? 128 : 0, sizes[i][0], sizes[i][1]);
            t.semantics.place.has_offset = true, t.semantics.place.offset = 40;
            assert_trial(&t);
            t.semantics.added.relative.reversed = true;
            assert_trial(&t);
        }
}

/* Infinite products count as large ones: they hide nothing, and NaN stays NaN. */
static void infinities_in_a_table_hide_nothing(void **state)
{
    (void)state;
    const double values[] = {-INFINITY, INFINITY, NAN};
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (size_t v = 0; v < COUNT(values); v++) {
            trial t = of((mha_relative){.rule = MHA_RELATIVE_DISTANCE}, 1, 0, 0, 3, 4);
            rig r;
            mha_error error;
            t.config.d_k = 1;
            trial_build(&t, &r);
            mha_view_set(&r.weights[MHA_RELATIVE_K], (size_t[]){0, 0}, values[v]);
            assert_ok(trial_run(&r, (mha_path)path, 1, 1u << MHA_STAGE_WEIGHTS, MHA_F32, &error), error);
            const mha_view *weights = stage_view(&r.call, MHA_STAGE_WEIGHTS);
            for (size_t j = 0; j < 4; j++) {
                const double w = mha_view_get(weights, (size_t[]){0, 1, 2, j});
                assert_true(isnan(values[v]) ? isnan(w) : w == 0.25);
            }
            trial_release(&r);
        }
}

/* The last queries of a block see no key, while its keys begin later: no address before the block's terms is made. */
static void queries_without_keys_in_a_block_of_later_keys_have_no_terms(void **state)
{
    (void)state;
    trial t = of((mha_relative){.rule = MHA_RELATIVE_DISTANCE}, 8, 0, 8, 8, 8);
    t.semantics.visible.has_window_left = t.semantics.visible.has_window_right = true;
    t.semantics.visible.mask.kind = MHA_MASK_ADDITIVE;
    t.semantics.place.has_offset = true, t.semantics.place.offset = 4;
    assert_trial(&t);
    t.semantics.added.relative = (mha_relative){0};
    t.config.relative_k_rows = t.config.relative_q_rows = 0;
    assert_trial(&t);
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    const mha_relative near = {.rule = MHA_RELATIVE_DISTANCE}, log = {.rule = MHA_RELATIVE_LOG_BUCKETS},
                       grid = {.rule = MHA_RELATIVE_GRID, .height = 2, .width = 3};
    mha_relative far = log;
    far.max_distance = 65537;
    const struct {
        mha_relative relative;
        size_t rows[3];
        int64_t offset;
        const char *name, *words[2];
    } wrong[] = {
        {{.rule = MHA_RELATIVE_DISTANCE, .q_scale = 1}, {4}, 0, "relative_q_scale", {"expected relative_q with it"}},
        {{.rule = MHA_RELATIVE_DISTANCE, .k_scale = 1}, {0, 0, 4}, 0, "relative_k_scale", {"relative_k with it"}},
        {near, {0}, 0, "relative_k", {"found none"}},
        {near, {4, 4}, 0, "relative_columns", {"grid"}},
        {near, {4, 0, 5}, 0, "relative_q", {"4, found 5"}},
        {log, {5}, 0, "relative_k", {"even number", "found 5"}},
        {log, {0, 0, 2}, 0, "relative_q", {"even number", "found 2"}},
        {far, {8}, 0, "relative_max_distance", {"65537"}},
        {{.rule = MHA_RELATIVE_LOG_BUCKETS, .max_distance = 5}, {16}, 0, "relative_max_distance", {"more than 5"}},
        {{.rule = MHA_RELATIVE_GRID}, {4, 4}, 0, "relative_grid", {"0 x 0"}},
        {grid, {0, 5}, 0, "relative_k", {"3 rows", "found none"}},
        {grid, {3, 4}, 0, "relative_columns", {"5 rows", "found 4"}},
        {grid, {3, 5}, 1, "relative_grid", {"positions from 0 to 5", "queries from 1 to 6"}},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        trial t = of(wrong[i].relative, wrong[i].rows[0], wrong[i].rows[1], wrong[i].rows[2], 6, 6);
        rig r;
        mha_plan plan;
        mha_error error;
        trial_build(&t, &r);
        r.call.semantics.place.offset = wrong[i].offset;
        assert_refused(mha_plan_call(r.layer, &r.call, &plan, &error), MHA_INVALID, error, wrong[i].name,
                       wrong[i].words[0], wrong[i].words[1]);
        trial_release(&r);
    }
    trial t = of(grid, 3, 5, 5, 6, 6);
    rig r;
    mha_plan plan;
    mha_error error;
    trial_build(&t, &r);
    assert_refused(mha_plan_call(r.layer, &r.call, &plan, &error), MHA_UNSUPPORTED, error, "relative_q", "grid");
    trial_release(&r);
    t = of(near, 4, 0, 0, 2, 2), t.inputs = TRIAL_SELF;
    t.config = (mha_config){.d_model = 12, .n_heads = 2, .kv_rank = 4, .d_rope = 2, .relative_k_rows = 4};
    trial_build(&t, &r);
    assert_refused(mha_plan_call(r.layer, &r.call, &plan, &error), MHA_UNSUPPORTED, error, "relative", "latent");
    trial_release(&r);
    mha_config many = {.relative_q_rows = 65537}, by_head = {.relative_by_head = true};
    assert_refused(mha_config_resolve(&many, &error), MHA_INVALID, error, "relative_q_rows", "65537");
    assert_refused(mha_config_resolve(&by_head, &error), MHA_INVALID, error, "relative_by_head", "relative_k_rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_calls_meet_the_oracle),
        cmocka_unit_test(long_queries_and_wide_heads_meet_the_oracle),
        cmocka_unit_test(buckets_may_skip_rows),
        cmocka_unit_test(infinities_in_a_table_hide_nothing),
        cmocka_unit_test(queries_without_keys_in_a_block_of_later_keys_have_no_terms),
        cmocka_unit_test(what_has_no_meaning_is_refused),
    };
    return cmocka_run_group_tests_name("relative", tests, NULL, NULL);
}
