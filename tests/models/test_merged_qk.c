/* W_QK = W_Q W_K^T of each head: its rank for each type and size of weights, and its scores. */
#include "models/claims/claims.h"
#include "support/counted.h"
#include "support/unit.h"

static mha__merged_qk merge(const mha_layer *layer)
{
    mha__merged_qk merged;
    mha_error error;
    assert_ok(mha__merge_qk(layer, &merged, &error), error);
    return merged;
}

static mha_layer *make(mha_params *table, mha_config config)
{
    mha_layer *layer = NULL;
    mha_error error;
    assert_ok(mha_layer_create(&config, table, NULL, &layer, &error), error);
    mha_layer_init(layer, 11);
    return layer;
}

static void random_layers_have_the_rank_of_their_shape(void **state)
{
    counted *c = *state;
    static const struct {
        mha_config config;
        size_t rank;
    } cases[] = {
        {{.d_model = 24, .n_heads = 1}, 24},
        {{.d_model = 24, .n_heads = 4, .dtype = MHA_F64, .bias_q = true}, 6},
        {{.d_model = 24, .n_heads = 6, .kv_heads = 2, .dtype = MHA_F16}, 4},
        {{.d_model = 40, .n_heads = 2, .d_k = 5, .d_kin = 25, .dtype = MHA_BF16}, 5},
        {{.d_model = 8, .n_heads = 2, .d_k = 11}, 8},
        {{.d_model = 8, .n_heads = 2, .d_k = 11, .d_kin = 3}, 3},
        {{.d_model = 8, .n_heads = 2, .d_k = 11, .d_q = 2}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_layer *layer = make(c->table, cases[i].config);
        const mha__merged_qk merged = merge(layer);
        assert_int_equal(merged.rank, cases[i].rank);
        assert_true(merged.equal);
        mha_layer_destroy(layer);
    }
}

/* Column 3 of W_Q in one head is a sum of columns 1 and 2, exact in each type. Row 0 of W_K is 0: so is column 0 of
 * W_QK. */
static void dependent_columns_lower_the_rank(void **state)
{
    counted *c = *state;
    static const mha_dtype dtypes[] = {MHA_F64, MHA_F32, MHA_BF16, MHA_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        mha_layer *layer = make(c->table, (mha_config){.d_model = 12, .n_heads = 3, .d_q = 16, .dtype = dtypes[i]});
        const mha_view w_q = mha_layer_head(layer, MHA_W_Q, 1), w_k = mha_layer_head(layer, MHA_W_K, 1);
        for (size_t row = 0; row < w_q.shape[0]; row++) {
            const double one = (double)(row + 1) / 8, other = (double)(row * row % 7) / -2;
            mha_view_set(&w_q, (const size_t[]){row, 1}, one);
            mha_view_set(&w_q, (const size_t[]){row, 2}, other);
            mha_view_set(&w_q, (const size_t[]){row, 3}, one + other);
        }
        for (size_t column = 0; column < 4; column++)
            mha_view_set(&w_k, (const size_t[]){0, column}, 0);
        const mha__merged_qk merged = merge(layer);
        assert_int_equal(merged.rank, 3);
        assert_true(merged.equal);
        mha_layer_destroy(layer);
    }
}

/* Columns 2^60 times larger or smaller than others count: no sum is rounded. */
static void small_columns_count(void **state)
{
    counted *c = *state;
    mha_layer *layer = make(c->table, (mha_config){.d_model = 12, .n_heads = 2});
    for (size_t head = 0; head < 2; head++) {
        const mha_view w = mha_layer_head(layer, MHA_W_K, head);
        for (size_t row = 0; row < w.shape[0]; row++)
            mha_view_set(&w, (const size_t[]){row, 2},
                         mha_view_get(&w, (const size_t[]){row, 2}) * (head ? 0x1p-60 : 0x1p60));
    }
    assert_int_equal(merge(layer).rank, 6);
    mha_layer_destroy(layer);
}

static void zeros_have_rank_0(void **state)
{
    counted *c = *state;
    mha_error error;
    mha_layer *layer = NULL;
    assert_ok(mha_layer_create(&(mha_config){.d_model = 8, .n_heads = 2}, c->table, NULL, &layer, &error), error);
    assert_int_equal(merge(layer).rank, 0);
    mha_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_layers_have_the_rank_of_their_shape, counted_set_up, counted_tear_down),
        cmocka_unit_test_setup_teardown(dependent_columns_lower_the_rank, counted_set_up, counted_tear_down),
        cmocka_unit_test_setup_teardown(small_columns_count, counted_set_up, counted_tear_down),
        cmocka_unit_test_setup_teardown(zeros_have_rank_0, counted_set_up, counted_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
