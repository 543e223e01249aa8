/* One matrix in place of W_Q and W_K: the same scores, the cost, the rank, and what cannot be merged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gemm.h"
#include "models/claims/merged_qk.h"
#include "mha/random.h"
#include "support/counted.h"
#include "support/guard.h"
#include "support/unit.h"
#include "support/stages.h"

enum { B = 2, T_Q = 5, S = 7 };

static mha_layer *make(mha_params *table, mha_config config)
{
    mha_layer *layer = NULL;
    mha_error error;
    assert_ok(mha_layer_create(&config, table, NULL, &layer, &error), error);
    mha_layer_init(layer, 11);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) /* biases start at zero, which would hide their terms */
        if (mha_layer_weight(layer, (mha_weight)w)) {
            mha_view view = mha_tensor_view(mha_layer_weight(layer, (mha_weight)w));
            if (view.rank == 1)
                mha_random_fill(&view, 12, (uint64_t)w, -1, 1);
        }
    return layer;
}

static mha_view random_input(size_t T, size_t width, uint64_t stream)
{
    size_t shape[3] = {B, T, width};
    mha_view view = mha_view_of(malloc(B * T * width * sizeof(float)), MHA_F32, 3, shape);
    mha_random_fill(&view, 13, stream, -1, 1);
    return view;
}

/* The widest sum has d_q * d_kin = 40 * 25 products of size below 4 on either side; the merged matrix is rounded once
 * to the layer's dtype, float64 here: 1000 * 4 * 2^-53 < 1e-12. */
static const double tolerance = 1e-12;

static const mha_config configurations[] = {
    {.d_model = 24, .n_heads = 3, .dtype = MHA_F64},
    {.d_model = 24, .n_heads = 1, .bias_q = true, .dtype = MHA_F64},
    {.d_model = 24, .n_heads = 4, .bias_k = true, .dtype = MHA_F64},
    {.d_model = 24, .n_heads = 6, .kv_heads = 2, .bias_q = true, .bias_k = true, .bias_v = true, .dtype = MHA_F64},
    {.d_model = 40, .n_heads = 2, .d_k = 5, .d_v = 9, .d_kin = 25, .bias_q = true, .bias_k = true, .dtype = MHA_F64},
};

static void merged_scores_are_the_pairs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configurations / sizeof *configurations; i++) {
        mha_params *table;
        mha_error error;
        mha__merged *merged;
        mha_plan plan;
        assert_int_equal(mha_params_create(NULL, &table), MHA_OK);
        mha_layer *layer = make(table, configurations[i]);
        const mha_config *c = mha_layer_config(layer);
        size_t before = mha_params_totals(table, NULL).parameters;
        assert_ok(mha__merged_create(c, table, "merged.", &merged, &error), error);
        size_t cost = mha_params_totals(table, NULL).parameters - before;
        assert_int_equal(cost, c->n_heads * (c->d_q * c->d_kin + (c->bias_k ? c->d_q : 0) + (c->bias_q ? c->d_kin : 0) +
                                             (c->bias_q && c->bias_k)));
        assert_ok(mha__merged_fill(merged, layer, &error), error);

        mha_view query = random_input(T_Q, c->d_q, 0), key = random_input(S, c->d_kin, 1),
                 value = random_input(S, c->d_vin, 2);
        double pair[B * 6 * T_Q * S], *one = guard_allocate(B * c->n_heads * T_Q * S * sizeof *one, GUARD_AFTER, 0xff);
        mha_call call = {.query = query, .key = key, .value = value, .path = MHA_PATH_EXACT};
        assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
        size_t shape[4] = {B, c->n_heads, T_Q, S};
        mha_view scores = mha_view_of(one, MHA_F64, 4, shape);
        mha_keep list[MHA_STAGE_COUNT];
        stages_list(&call, list);
        *stage_view(&call, MHA_STAGE_SCORES) = mha_view_of(pair, MHA_F64, 4, shape);
        assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
        void *workspace = malloc(plan.workspace_bytes + 1);
        assert_ok(mha_forward(&plan, workspace, plan.workspace_bytes, &error), error);
        assert_ok(mha__merged_scores(merged, &query, &key, plan.scale, &scores, &error), error);
        for (size_t n = 0; n < B * c->n_heads * T_Q * S; n++)
            if (!(fabs(pair[n] - one[n]) <= tolerance))
                fail_msg("configuration %zu, score %zu: %.17g, merged %.17g", i, n, pair[n], one[n]);

        for (size_t head = 0; head < c->n_heads; head++) {
            size_t rank;
            assert_ok(mha__merged_rank(merged, head, &rank, &error), error);
            assert_int_equal(rank, c->d_k < c->d_q ? c->d_k : c->d_q);
        }
        size_t rank;
        assert_refused(mha__merged_rank(merged, c->n_heads, &rank, &error), MHA_INVALID, error, "head");
        key.shape[2]--;
        assert_refused(mha__merged_scores(merged, &query, &key, 1, &scores, &error), MHA_INVALID, error,
                       "expected query");
        free(workspace);
        guard_release(one);
        free(query.data);
        free(key.data);
        free(value.data);
        mha__merged_destroy(merged);
        assert_int_equal(mha_params_totals(table, NULL).parameters, before);
        mha_layer_destroy(layer);
        mha_params_destroy(table);
    }
}

static void float_weights_have_the_rank_too(void **state)
{
    (void)state;
    mha_params *table;
    mha_error error;
    mha__merged *merged;
    size_t rank;
    assert_int_equal(mha_params_create(NULL, &table), MHA_OK);
    mha_layer *layer = make(table, (mha_config){.d_model = 96, .n_heads = 8});
    assert_ok(mha__merged_create(mha_layer_config(layer), table, NULL, &merged, &error), error);
    assert_ok(mha__merged_rank(merged, 0, &rank, &error), error);
    assert_int_equal(rank, 0); /* zeros */
    assert_ok(mha__merged_fill(merged, layer, &error), error);
    assert_ok(mha__merged_rank(merged, 7, &rank, &error), error);
    assert_int_equal(rank, 12);
    mha__merged_destroy(merged);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

static void what_cannot_be_merged_is_refused(void **state)
{
    (void)state;
    mha_params *table;
    mha_error error;
    mha__merged *merged;
    assert_int_equal(mha_params_create(NULL, &table), MHA_OK);
    mha_config config = {.d_model = 8, .n_heads = 2, .k_norm = MHA_NORM_HEAD};
    assert_refused(mha__merged_create(&config, table, NULL, &merged, &error), MHA_UNSUPPORTED, error, "norm");
    config = (mha_config){.d_model = 8, .n_heads = 2, .bias_kv = true};
    assert_refused(mha__merged_create(&config, table, NULL, &merged, &error), MHA_UNSUPPORTED, error, "bias_k");
    config = (mha_config){.d_model = 8, .n_heads = 3};
    assert_refused(mha__merged_create(&config, table, NULL, &merged, &error), MHA_INVALID, error, "8", "3");
    assert_int_equal(mha_params_count(table), 0);
    config = (mha_config){.d_model = 8, .n_heads = 2};
    mha_layer *layer = make(table, (mha_config){.d_model = 8, .n_heads = 4});
    assert_ok(mha__merged_create(&config, table, NULL, &merged, &error), error);
    assert_refused(mha__merged_fill(merged, layer, &error), MHA_INVALID, error, "configuration");
    mha__merged_destroy(merged);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

/* A layer that differs in one thing from the configuration that the matrices were made for. */
static void another_layer_is_refused(void **state)
{
    (void)state;
    const mha_config made = {.d_model = 8, .n_heads = 4, .d_k = 2};
    const mha_config others[] = {{.d_model = 8, .n_heads = 2, .d_k = 2, .kv_heads = 2},
                                 {.d_model = 8, .n_heads = 4, .d_k = 2, .kv_heads = 2},
                                 {.d_model = 8, .n_heads = 4, .d_k = 3},
                                 {.d_model = 8, .n_heads = 4, .d_k = 2, .d_q = 6},
                                 {.d_model = 8, .n_heads = 4, .d_k = 2, .d_kin = 6},
                                 {.d_model = 8, .n_heads = 4, .d_k = 2, .bias_q = true},
                                 {.d_model = 8, .n_heads = 4, .d_k = 2, .bias_k = true},
                                 {.d_model = 8, .n_heads = 4, .d_k = 2, .d_v = 5, .bias_v = true}};
    const size_t n = sizeof others / sizeof *others;
    for (size_t i = 0; i < n; i++) {
        mha_params *table;
        mha_error error;
        mha__merged *merged;
        assert_int_equal(mha_params_create(NULL, &table), MHA_OK);
        assert_ok(mha__merged_create(&made, table, "merged.", &merged, &error), error);
        mha_layer *layer = make(table, others[i]);
        if (i + 1 < n)
            assert_refused(mha__merged_fill(merged, layer, &error), MHA_INVALID, error, "configuration");
        else /* values are of no concern to it */
            assert_ok(mha__merged_fill(merged, layer, &error), error);
        mha__merged_destroy(merged);
        mha_layer_destroy(layer);
        mha_params_destroy(table);
    }
}

/* One extent wrong at a time, in the query, the key and where the scores go. */
static void scores_of_other_shapes_are_refused(void **state)
{
    (void)state;
    mha_params *table;
    mha_error error;
    mha__merged *merged;
    static double out[2 * B * 4 * T_Q * S];
    const mha_config config = {.d_model = 8, .n_heads = 2, .d_kin = 6};
    assert_int_equal(mha_params_create(NULL, &table), MHA_OK);
    assert_ok(mha__merged_create(&config, table, NULL, &merged, &error), error);
    const mha_view query = random_input(T_Q, 8, 0), key = random_input(S, 6, 1);
    const mha_view scores = mha_view_of(out, MHA_F64, 4, (const size_t[]){B, 2, T_Q, S});
    assert_ok(mha__merged_scores(merged, &query, &key, 1, &scores, &error), error);
    for (int which = 0; which < 3; which++)
        for (int axis = -1; axis < (which == 2 ? 4 : 3); axis++) {
            mha_view views[3] = {query, key, scores};
            if (axis < 0)
                views[which].rank--;
            else
                views[which].shape[axis]--;
            if (which == 2 && axis < 0)
                continue; /* the shape behind the rank is still there */
            assert_refused(mha__merged_scores(merged, &views[0], &views[1], 1, &views[2], &error), MHA_INVALID, error,
                           "expected query");
        }
    free(query.data);
    free(key.data);
    mha__merged_destroy(merged);
    mha_params_destroy(table);
}

static void prefixes_too_long_are_refused(void **state)
{
    (void)state;
    mha_params *table;
    mha_error error;
    mha__merged *merged;
    char prefix[600];
    memset(prefix, 'p', sizeof prefix - 1);
    prefix[sizeof prefix - 1] = '\0';
    const mha_config config = {.d_model = 8, .n_heads = 2};
    assert_int_equal(mha_params_create(NULL, &table), MHA_OK);
    assert_refused(mha__merged_create(&config, table, prefix, &merged, &error), MHA_INVALID, error, "prefix",
                   "too long", "603");
    assert_int_equal(mha_params_count(table), 0);
    mha_params_destroy(table);
    mha__merged_destroy(NULL);
}

/* What is not of full rank: one column twice, and rounding of each type must not hide it. */
static void the_rank_sees_through_rounding(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_F64, MHA_F32, MHA_BF16, MHA_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        mha_params *table;
        mha_error error;
        mha__merged *merged;
        size_t rank;
        assert_int_equal(mha_params_create(NULL, &table), MHA_OK);
        mha_layer *layer = make(table, (mha_config){.d_model = 12, .n_heads = 3, .d_q = 16, .dtype = dtypes[i]});
        mha_view w = mha_layer_head(layer, MHA_W_Q, 1);
        for (size_t row = 0; row < w.shape[0]; row++) /* head 1: columns 1 and 3 say the same */
            mha_view_set(&w, (const size_t[]){row, 3}, mha_view_get(&w, (const size_t[]){row, 1}));
        assert_ok(mha__merged_create(mha_layer_config(layer), table, "merged.", &merged, &error), error);
        assert_ok(mha__merged_fill(merged, layer, &error), error);
        for (size_t head = 0; head < 3; head++) {
            assert_ok(mha__merged_rank(merged, head, &rank, &error), error);
            assert_int_equal(rank, head == 1 ? 3 : 4);
        }
        mha__merged_destroy(merged);
        mha_layer_destroy(layer);
        mha_params_destroy(table);
    }
}

/* Matrices whose storages end with their last element: one element too far meets the page behind them. */
static void filling_ends_where_the_matrices_end(void **state)
{
    (void)state;
    const mha_allocator allocator = guard_allocator(GUARD_AFTER);
    mha_params *table;
    mha_error error;
    mha__merged *merged;
    assert_int_equal(mha_params_create(&allocator, &table), MHA_OK);
    mha_layer *layer =
        make(table, (mha_config){.d_model = 8, .n_heads = 8, .bias_q = true, .bias_k = true, .dtype = MHA_F64});
    assert_ok(mha__merged_create(mha_layer_config(layer), table, "merged.", &merged, &error), error);
    assert_ok(mha__merged_fill(merged, layer, &error), error);
    mha__merged_destroy(merged);
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

static mha_status make_rows(mha_params *table, const void *context, mha_error *error)
{
    mha__merged *merged = NULL;
    const mha_status status = mha__merged_create(context, table, NULL, &merged, error);
    mha__merged_destroy(merged);
    return status;
}

/* What LAPACK counts with is an int, and it takes no empty matrix. */
static void matrices_lapack_cannot_take_are_refused(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{0, 3}, {3, 0}, {(size_t)1 << 31, 3}, {3, (size_t)1 << 31}};
    double A[9] = {0}, values[3];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        mha_error error;
        assert_refused(mha__singular_values(A, shapes[i][0], shapes[i][1], values, &error), MHA_INVALID, error,
                       "rank: expected a matrix of 1 to 2147483647 rows and columns");
    }
}

static void every_failing_allocation_leaves_no_row(void **state)
{
    (void)state;
    mha_config config = {.d_model = 8, .n_heads = 2, .bias_q = true, .bias_k = true};
    assert_true(counted_until_it_works(make_rows, &config) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_scores_are_the_pairs),
        cmocka_unit_test(float_weights_have_the_rank_too),
        cmocka_unit_test(what_cannot_be_merged_is_refused),
        cmocka_unit_test(another_layer_is_refused),
        cmocka_unit_test(scores_of_other_shapes_are_refused),
        cmocka_unit_test(prefixes_too_long_are_refused),
        cmocka_unit_test(the_rank_sees_through_rounding),
        cmocka_unit_test(matrices_lapack_cannot_take_are_refused),
        cmocka_unit_test_teardown(filling_ends_where_the_matrices_end, guard_teardown),
        cmocka_unit_test(every_failing_allocation_leaves_no_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
