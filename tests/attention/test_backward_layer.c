/* The backward of a layer: its gradients in the parameter table, calls that are one call said in two ways, and what it
 * refuses. test_backward.c holds the numbers against differences. */
#include <math.h>
#include <string.h>

#include "attention/core/backward/backward.h"
#include "attention/layer/layer.h"
#include "mha/gradients.h"
#include "support/unit.h"

enum { B = 2, T = 5, E = 32, H = 4 };

static float x[B * T * E], other[B * T * E];
static double d_output[B * T * E];

static mha_layer *made(mha_config config, mha_params *table, const char *prefix)
{
    mha_layer *layer;
    mha_error error;
    config.d_model = E, config.n_heads = H;
    assert_ok(mha_layer_create(&config, table, prefix, &layer, &error), error);
    mha_layer_init(layer, 3);
    for (size_t e = 0; e < B * T * E; e++)
        x[e] = (float)sin(1.0 + (double)e), other[e] = (float)cos(3.0 * (double)e), d_output[e] = sin(5.0 * (double)e);
    return layer;
}

static mha_gradients incoming(void)
{
    return (mha_gradients){.d_output = mha_view_of(d_output, MHA_F64, 3, (const size_t[]){B, T, E})};
}

/* The gradients of all weights, into their rows, and of the query. */
static void run(mha_layer *layer, const mha_call *call, mha_dtype dtype, double *d_query)
{
    mha_error error;
    mha_gradients g = incoming();
    assert_ok(mha_layer_add_gradients(layer, dtype, &error), error);
    mha_layer_lend_gradients(layer, &g);
    g.of[MHA_D_QUERY] = mha_view_of(d_query, MHA_F64, 3, (const size_t[]){B, T, E});
    assert_ok(mha_backward(layer, call, &g, &error), error);
}

static void expect_same(const mha_layer *one, const mha_layer *two)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_tensor *first = mha_layer_gradient(one, (mha_weight)w);
        if (!first)
            continue;
        const mha_view a = mha_tensor_view(first), b = mha_tensor_view(mha_layer_gradient(two, (mha_weight)w));
        assert_memory_equal(a.data, b.data, mha_view_elements(&a) * sizeof(double));
    }
}

static void gradients_lie_beside_their_weights(void **state)
{
    (void)state;
    mha_params *table;
    mha_error error;
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    mha_layer *layer = made((mha_config){.bias_q = true, .sinks = true, .q_norm = MHA_NORM_HEAD, .dtype = MHA_BF16,
                                         .bias_rows = 8}, table, "layers.3.");
    const size_t rows = mha_params_count(table);
    const mha_totals before = mha_params_totals(table, NULL);
    assert_null(mha_layer_gradient(layer, MHA_W_Q));
    assert_refused(mha_layer_add_gradients(layer, MHA_BF16, &error), MHA_INVALID, error, "F32 or F64", "BF16");
    const mha_dtype types[] = {MHA_F32, MHA_F64};
    for (int i = 0; i < 2; i++) {
        double d_query[B * T * E];
        run(layer, &(mha_call){.query = mha_rows(x, B, T, E)}, types[i], d_query);
        assert_int_equal(mha_params_count(table), 2 * rows);
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
            char name[64];
            if (!mha_layer_weight(layer, (mha_weight)w)) {
                assert_null(mha_layer_gradient(layer, (mha_weight)w));
                continue;
            }
            const mha_tensor_info of = mha_tensor_info_of(mha_layer_weight(layer, (mha_weight)w)),
                                  d = mha_tensor_info_of(mha_layer_gradient(layer, (mha_weight)w));
            snprintf(name, sizeof name, "layers.3.%s.gradient", mha_weight_at((mha_weight)w)->name);
            assert_string_equal(d.name, name);
            assert_ptr_equal(mha_params_find(table, name), mha_layer_gradient(layer, (mha_weight)w));
            assert_true(d.kind == MHA_TENSOR_DERIVED && d.dtype == types[i] && d.rank == of.rank);
            assert_memory_equal(d.shape, of.shape, sizeof d.shape);
            assert_int_equal(d.bytes, of.elements * (i ? 8 : 4));
            double largest = 0;
            const mha_view view = mha_tensor_view(mha_layer_gradient(layer, (mha_weight)w));
            for (size_t e = 0; e < of.elements; e++)
                largest = fmax(largest, fabs(i ? ((double *)view.data)[e] : (double)((float *)view.data)[e]));
            assert_true((largest > 0) == (w != MHA_BIAS_TABLE)); /* no rule reads the table */
        }
    }
    assert_int_equal(mha_params_totals(table, NULL).parameters, before.parameters);
    mha__layer_remove_gradients(layer);
    assert_int_equal(mha_params_count(table), rows);
    assert_ok(mha_layer_add_gradients(layer, MHA_F32, &error), error);
    mha_layer_destroy(layer);
    assert_int_equal(mha_params_count(table), 0);
    mha_params_destroy(table);
}

/* A key that is left out is the query: its gradient is the sum of those of three inputs with the same numbers. */
static void inputs_that_are_left_out_add_up(void **state)
{
    (void)state;
    mha_layer *layer = made((mha_config){.kv_heads = 2, .bias_q = true}, NULL, NULL);
    mha_error error;
    double all[B * T * E], d[3][B * T * E], two[2][B * T * E];
    mha_call call = {.query = mha_rows(x, B, T, E)};
    run(layer, &call, MHA_F64, all);
    mha_gradients g = incoming(), none = incoming();
    none.of[MHA_D_KEY] = mha_view_of(d[0], MHA_F64, 3, (const size_t[]){B, T, E});
    assert_refused(mha_backward(layer, &call, &none, &error), MHA_INVALID, error, "d_key", "no such gradient");
    call.key = call.query;
    for (int i = 0; i < 2; i++)
        g.of[i] = mha_view_of(two[i], MHA_F64, 3, (const size_t[]){B, T, E});
    assert_ok(mha_backward(layer, &call, &g, &error), error);
    none = incoming();
    none.of[MHA_D_VALUE] = g.of[MHA_D_KEY];
    assert_refused(mha_backward(layer, &call, &none, &error), MHA_INVALID, error, "d_value", "no such gradient");
    call.value = call.query;
    for (int i = 0; i < 3; i++)
        g.of[i] = mha_view_of(d[i], MHA_F64, 3, (const size_t[]){B, T, E});
    assert_ok(mha_backward(layer, &call, &g, &error), error);
    for (size_t e = 0; e < B * T * E; e++) {
        assert_true(fabs(all[e] - (d[0][e] + d[1][e] + d[2][e])) < 1e-13);
        assert_true(two[0][e] == d[0][e] && fabs(two[1][e] - (d[1][e] + d[2][e])) < 1e-13);
    }
    mha_layer_destroy(layer);
}

static void a_layer_said_in_two_ways_has_one_gradient(void **state)
{
    (void)state;
    double one[B * T * E], two[B * T * E];
    /* attending to latents */
    mha_layer *layer = made((mha_config){.d_k = 6, .d_v = 5, .kv_rank = 7, .q_rank = 4, .d_rope = 2}, NULL, NULL),
              *again = made((mha_config){.d_k = 6, .d_v = 5, .kv_rank = 7, .q_rank = 4, .d_rope = 2}, NULL, NULL);
    mha_call call = {.query = mha_rows(x, B, T, E), .key = mha_rows(other, B, T, E)};
    run(layer, &call, MHA_F64, one);
    call.absorbed = true;
    run(again, &call, MHA_F64, two);
    expect_same(layer, again);
    assert_memory_equal(one, two, sizeof one);
    mha_layer_destroy(layer), mha_layer_destroy(again);

    /* queries that see no key, whose heads are NaN or 0, and padding with NaN in its rows */
    layer = made((mha_config){.gate = MHA_GATE_HEAD, .bias_o = true}, NULL, NULL);
    again = made((mha_config){.gate = MHA_GATE_HEAD, .bias_o = true}, NULL, NULL);
    const int64_t lengths[B] = {0, 3};
    call.absorbed = false, call.semantics.visible.kv_lengths = lengths;
    run(layer, &call, MHA_F64, one);
    call.semantics.softmax.empty_rows = MHA_EMPTY_NAN;
    for (size_t e = 0; e < T * E; e++)
        other[e] = NAN;
    run(again, &call, MHA_F64, two);
    expect_same(layer, again);
    assert_memory_equal(one, two, sizeof one);
    mha_layer_destroy(layer), mha_layer_destroy(again);

    /* blocks, and the numbers that they stand for */
    layer = made((mha_config){.dtype = MHA_Q8_0, .bias_v = true}, NULL, NULL);
    again = made((mha_config){.dtype = MHA_F64, .bias_v = true}, NULL, NULL);
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        mha_error error;
        if (!mha_layer_weight(layer, (mha_weight)w))
            continue;
        const mha_view values = mha_tensor_view(mha_layer_weight(layer, (mha_weight)w));
        assert_ok(mha_layer_set(again, (mha_weight)w, &values, &error), error);
    }
    call = (mha_call){.query = mha_rows(x, B, T, E)};
    run(layer, &call, MHA_F64, one);
    run(again, &call, MHA_F64, two);
    expect_same(layer, again);
    assert_memory_equal(one, two, sizeof one);
    mha_layer_destroy(layer), mha_layer_destroy(again);
}

/* Sinks and the bias row belong to another part of the keys: their gradients are 0, beside a row of zeros, too. */
static void weights_that_a_call_leaves_out_have_0(void **state)
{
    (void)state;
    mha_layer *layer = made((mha_config){.sinks = true, .bias_kv = true}, NULL, NULL);
    double d_query[B * T * E];
    mha_call call = {.query = mha_rows(x, B, T, E), .semantics.place = {.keys_only = true, .has_key_offset = true}};
    run(layer, &call, MHA_F64, d_query);
    for (int w = MHA_BIAS_K; w <= MHA_SINKS; w++) {
        const mha_view d = mha_tensor_view(mha_layer_gradient(layer, (mha_weight)w));
        for (size_t e = 0; e < mha_view_elements(&d); e++)
            assert_true(((double *)d.data)[e] == 0);
    }
    mha_layer_destroy(layer);
}

/* A search runs one backward many times. */
static void a_backward_that_runs_again_gives_the_same(void **state)
{
    (void)state;
    const mha_config configs[] = {
        {.d_k = 6, .d_v = 5, .kv_rank = 7, .q_rank = 4, .d_rope = 2, .gate = MHA_GATE_FEATURE},
        {.q_norm = MHA_NORM_ROW, .sinks = true}};
    for (int i = 0; i < 2; i++) {
        mha_layer *layer = made(configs[i], NULL, NULL);
        const mha_call call = {.query = mha_rows(x, B, T, E), .key = mha_rows(other, B, T, E)};
        mha_gradients g = incoming();
        mha__backward b;
        mha_error error;
        double first[B * T * E];
        assert_ok(mha_layer_add_gradients(layer, MHA_F64, &error), error);
        mha_layer_lend_gradients(layer, &g);
        assert_ok(mha__backward_begin(&b, layer, &call, &g, NULL, &error), error);
        mha__backward_run(&b);
        for (int k = 0; k < MHA_WEIGHT_COUNT; k++)
            if (b.d[MHA_D_WEIGHTS + k].data)
                (void)mha_view_copy(&g.of[MHA_D_WEIGHTS + k], &b.d[MHA_D_WEIGHTS + k], NULL);
        memcpy(first, b.d_x[1].data, sizeof first);
        mha__backward_run(&b);
        assert_memory_equal(first, b.d_x[1].data, sizeof first);
        for (int k = 0; k < MHA_WEIGHT_COUNT; k++)
            if (b.d[MHA_D_WEIGHTS + k].data)
                assert_memory_equal(b.d[MHA_D_WEIGHTS + k].data, g.of[MHA_D_WEIGHTS + k].data,
                                    mha_view_elements(&b.d[MHA_D_WEIGHTS + k]) * sizeof(double));
        mha__backward_free(&b);
        mha_layer_destroy(layer);
    }
}

/* One query, two keys, a head of one feature, by hand: q = 0, k = (2, 10), v = (3, 9), P = (1/2, 1/2), heads = 6,
 * out = 6 * 5 + 1. dO = 1: dW_O = 6, db_O = 1, dP = (15, 45), D = 30, dS = (-7.5, 7.5), dq = 60, dk = 0, dv = 2.5. */
static void a_layer_by_hand(void **state)
{
    (void)state;
    const mha_config config = {.d_model = 1, .n_heads = 1, .bias_o = true, .dtype = MHA_F64};
    const float query[] = {0}, key[] = {1, 5}, value[] = {1, 3}, weights[] = {7, 2, 3, 5, 1}, d[] = {1};
    static const mha_weight which[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O, MHA_B_O};
    const double expected[] = {0, 0, 10, 6, 1};
    double dx[3][2];
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    for (int i = 0; i < 5; i++) {
        const mha_view of = mha_tensor_view(mha_layer_weight(layer, which[i]));
        *(double *)of.data = weights[i];
    }
    const mha_call call = {.query = mha_rows(query, 1, 1, 1), .key = mha_rows(key, 1, 2, 1),
                           .value = mha_rows(value, 1, 2, 1)};
    mha_gradients g = {.d_output = mha_rows(d, 1, 1, 1)};
    assert_ok(mha_layer_add_gradients(layer, MHA_F64, &error), error);
    mha_layer_lend_gradients(layer, &g);
    for (int i = 0; i < 3; i++)
        g.of[i] = mha_view_of(dx[i], MHA_F64, 3, (const size_t[]){1, i ? 2 : 1, 1});
    assert_ok(mha_backward(layer, &call, &g, &error), error);
    for (int i = 0; i < 5; i++)
        assert_true(*(double *)mha_tensor_view(mha_layer_gradient(layer, which[i])).data == expected[i]);
    assert_true(dx[0][0] == 420 && dx[1][0] == 0 && dx[1][1] == 0 && dx[2][0] == 7.5 && dx[2][1] == 7.5);
    mha_layer_destroy(layer);
}

static void what_a_layer_cannot_have_is_refused(void **state)
{
    (void)state;
    mha_layer *layer = made((mha_config){.bias_q = true}, NULL, NULL);
    mha_error error;
    double d[B * T * E];
    const mha_call call = {.query = mha_rows(x, B, T, E)};
    mha_gradients g = incoming();
    g.of[MHA_D_QUERY] = mha_view_of(d, MHA_F64, 3, (const size_t[]){B, T, E});
    g.precision = mha_backward_precision_of(MHA_BF16);
    assert_refused(mha_backward(layer, &call, &g, &error), MHA_UNSUPPORTED, error, "precision", "layer");
    assert_refused(mha_gradient_bound(layer, &call, &g, 0x1p-24, &error), MHA_UNSUPPORTED, error, "precision", "layer");
    g = incoming();
    g.d_output.shape[2] = E - 1;
    assert_refused(mha_backward(layer, &call, &g, &error), MHA_INVALID, error, "d_output", "(2, 5, 32)");
    g = incoming();
    g.of[MHA_D_WEIGHTS + MHA_B_K] = mha_view_of(d, MHA_F64, 1, (const size_t[]){E});
    assert_refused(mha_backward(layer, &call, &g, &error), MHA_INVALID, error, "d_b_K", "no such gradient");
    mha_layer_destroy(layer);
}

/* Keys and values of latents in a cache have gradients; latents themselves have none. */
static void latents_in_a_cache_are_refused(void **state)
{
    (void)state;
    static const mha_config config = {.d_model = E, .n_heads = 4, .kv_rank = 6, .d_rope = 2};
    mha_error error;
    mha_layer *layer;
    double d[B * T * E];
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    mha_layer_init(layer, 1);
    for (int absorbed = 0; absorbed < 2; absorbed++) {
        mha_cache_spec spec = {.batch = B, .kv_heads = absorbed ? 1 : 4, .d_k = absorbed ? 8 : E / 4,
                               .d_v = absorbed ? 0 : E / 4, .capacity = T, .dtype = MHA_F64};
        mha_cache *cache;
        assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
        const mha_call call = {.query = mha_rows(x, B, T, E), .cache = cache, .absorbed = absorbed,
                               .semantics.qkv.rope = {.kind = MHA_ROPE_INTERLEAVED, .dim = 2, .last = true}};
        mha_gradients g = incoming();
        g.of[MHA_D_QUERY] = mha_view_of(d, MHA_F64, 3, (const size_t[]){B, T, E});
        if (absorbed)
            assert_refused(mha_backward(layer, &call, &g, &error), MHA_UNSUPPORTED, error, "absorbed",
                           "their keys and values");
        else
            assert_ok(mha_backward(layer, &call, &g, &error), error);
        mha_cache_destroy(cache);
    }
    mha_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_lie_beside_their_weights), cmocka_unit_test(inputs_that_are_left_out_add_up),
        cmocka_unit_test(a_layer_said_in_two_ways_has_one_gradient),
        cmocka_unit_test(a_backward_that_runs_again_gives_the_same),
        cmocka_unit_test(weights_that_a_call_leaves_out_have_0), cmocka_unit_test(a_layer_by_hand),
        cmocka_unit_test(what_a_layer_cannot_have_is_refused), cmocka_unit_test(latents_in_a_cache_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
