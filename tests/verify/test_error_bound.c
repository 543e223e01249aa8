/* The error bound where numbers leave the range of float: errors are within it, or it is infinite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/call.h"
#include "support/isa.h"
#include "support/layer.h"
#include "support/unit.h"
#include "support/stages.h"

static const mha_path paths[] = {MHA_PATH_FAST, MHA_PATH_BLAS};

/* Runs a call on the exact path and on the others, for every instruction set; every element of `stage` whose exact
 * value is finite must be within the bound. Without `overflows` the bound must be finite. A cache is emptied before
 * every run. */
static void hold_against(const mha_layer *layer, mha_call call, mha_stage stage, bool overflows, const char *what,
                         mha_cache *exact_cache)
{
    mha_plan plan;
    mha_error error;
    double bound[MHA_STAGE_COUNT];
    mha_cache *const cache = call.cache;
    call.path = MHA_PATH_EXACT;
    call.threads = 1;
    assert_ok(mha_error_bound(layer, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
    call.cache = exact_cache;
    if (exact_cache)
        mha_cache_clear(exact_cache);
    assert_ok(mha_plan_call(layer, &call, &plan, &error), error);
    const mha_view shaped = stage_of_plan(&plan, stage, NULL, MHA_F64);
    const size_t n = mha_view_elements(&shaped);
    mha_keep list[MHA_STAGE_COUNT];
    stages_list(&call, list);
    double *exact = calloc(n, sizeof *exact);
    float *found = calloc(n, sizeof *found);
    *stage_view(&call, stage) = stage_of_plan(&plan, stage, exact, MHA_F64);
    run_call(layer, &call);
    *stage_view(&call, stage) = stage_of_plan(&plan, stage, found, MHA_F32);
    call.cache = cache;
    if (!overflows && !isfinite(bound[stage]))
        fail_msg("%s: the bound of %s is infinite", what, mha_stage_at(stage)->name);
    for (int isa = 0; isa_select(isa); isa++)
        for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
            call.path = paths[p];
            if (cache)
                mha_cache_clear(cache);
            run_call(layer, &call);
            for (size_t i = 0; i < n; i++) {
                const bool within = bound[stage] == INFINITY || fabs((double)found[i] - exact[i]) <= bound[stage];
                if (isfinite(exact[i]) ? !within : isfinite(found[i]))
                    fail_msg("%s, %s, %s: element %zu of %s is %g, exactly %g, bound %g", what, mha_isa(),
                             mha_path_name(paths[p]), i, mha_stage_at(stage)->name, (double)found[i], exact[i],
                             bound[stage]);
            }
        }
    if (cache)
        mha_cache_clear(cache);
    free(exact);
    free(found);
}

static float *random_numbers(size_t n, uint64_t stream, float size)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = size * (2 * mha__random_unit(3, stream, i) - 1);
    return x;
}

/* A scale that is put into q, where it leaves hardly a bit, times keys as large as there are. */
static void scaled_queries_may_be_subnormal(void **state)
{
    (void)state;
    static const size_t widths[] = {64, 1024, 4096};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        enum { T = 3, S = 5 };
        const size_t d = widths[w];
        float *q = malloc(T * d * sizeof *q), *k = malloc(S * d * sizeof *k), *v = random_numbers(S * 4, 2, 1);
        for (size_t i = 0; i < T * d; i++)
            q[i] = 3.4e-15f;
        for (size_t i = 0; i < S * d; i++)
            k[i] = i / d % 2 ? 3e38f : -3e38f;
        mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, 1, T, 1, d),
                         .key = mha_view_heads(k, MHA_F32, MHA_BTHD, 1, S, 1, d),
                         .value = mha_view_heads(v, MHA_F32, MHA_BTHD, 1, S, 1, 4),
                         .semantics = {.softmax = {.has_scale = true, .scale = 1e-30}}};
        hold_against(NULL, call, MHA_STAGE_HEADS, false, "subnormal queries", NULL);
        hold_against(NULL, call, MHA_STAGE_SCORES, false, "subnormal queries", NULL);
        call.semantics.softmax.scale = 3e-46; /* which is 0 or a subnormal in float */
        hold_against(NULL, call, MHA_STAGE_SCORES, false, "subnormal scale", NULL);
        free(q);
        free(k);
        free(v);
    }
}

static void rotated_rows_may_be_subnormal(void **state)
{
    (void)state;
    enum { T = 40, D = 16 };
    static const float sizes[] = {1e-44f, 3e-43f, 1e-38f, 1};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        float *x = random_numbers(T * D, 5, sizes[n]);
        const mha_view rows = mha_view_heads(x, MHA_F32, MHA_BTHD, 1, T, 1, D);
        mha_call call = {.query = rows, .key = rows, .value = rows, .semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT};
        hold_against(NULL, call, MHA_STAGE_Q_ROT, false, "subnormal rows", NULL);
        hold_against(NULL, call, MHA_STAGE_PRESENT_KEY, false, "subnormal rows", NULL);
        hold_against(NULL, call, MHA_STAGE_HEADS, false, "subnormal rows", NULL);
        free(x);
    }
}

static double bound_of(const mha_layer *layer, const mha_call *call, mha_stage stage)
{
    mha_error error;
    double bound[MHA_STAGE_COUNT];
    assert_ok(mha_error_bound(layer, call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
    return bound[stage];
}

/* A rotation adds two products, which may both be as large as there are. */
static void rotated_rows_may_overflow(void **state)
{
    (void)state;
    enum { T = 40, D = 16 };
    static const float sizes[] = {1e37f, 3.4e38f};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        float *x = random_numbers(T * D, 5, sizes[n]), *one = random_numbers(T * D, 6, 1);
        mha_call call = {.query = mha_view_heads(x, MHA_F32, MHA_BTHD, 1, T, 1, D),
                         .key = mha_view_heads(one, MHA_F32, MHA_BTHD, 1, T, 1, D),
                         .value = mha_view_heads(one, MHA_F32, MHA_BTHD, 1, T, 1, D),
                         .semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT};
        assert_int_equal(isinf(bound_of(NULL, &call, MHA_STAGE_Q_ROT)), n);
        assert_false(isinf(bound_of(NULL, &call, MHA_STAGE_K_ROT)));
        hold_against(NULL, call, MHA_STAGE_Q_ROT, n > 0, "large rows", NULL);
        free(x);
        free(one);
    }
}

/* A scale times a query is beyond float, while the score is not: nobody puts the scale into the query. */
static void scaled_queries_may_be_beyond_float(void **state)
{
    (void)state;
    static const size_t widths[] = {1, 2, 3, 4, 33, 64};
    static const mha_stage stages[] = {MHA_STAGE_SCORES, MHA_STAGE_HEADS, MHA_STAGE_LSE};
    enum { MOST = 64, QUERIES = 3, KEYS = 2 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t T = 1; T <= QUERIES; T++)
            for (size_t S = 1; S <= KEYS; S++) {
                const size_t d = widths[w];
                float q[QUERIES * MOST] = {0}, k[KEYS * MOST] = {0}, v[KEYS] = {1, 2};
                for (size_t i = 0; i < T; i++) /* the last feature, which a loop over several at a time leaves over */
                    q[i * d + d - 1] = 1.2e29f;
                for (size_t j = 0; j < S; j++)
                    k[j * d + d - 1] = 4e-28f;
                const mha_call call = {.query = mha_heads(q, 1, T, 1, d), .key = mha_heads(k, 1, S, 1, d),
                                       .value = mha_heads(v, 1, S, 1, 1), .semantics.softmax.scale = 5.4e10};
                for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
                    hold_against(NULL, call, stages[s], false, "large scale", NULL);
            }
}

/* The attention factor is one of the scores: with a scale that undoes it they are what they are without. */
static void an_attention_factor_counts_in_the_scores(void **state)
{
    (void)state;
    enum { T = 8, S = 32, D = 64 };
    static const double factors[] = {0.01, 1, 30, 1000, 2.8e9};
    static const mha_stage stages[] = {MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT, MHA_STAGE_SCORES, MHA_STAGE_LSE,
                                       MHA_STAGE_HEADS};
    float *q = random_numbers(T * D, 1, 2), *k = random_numbers(S * D, 2, 2), *v = random_numbers(S * D, 3, 1);
    mha_call call = {.query = mha_heads(q, 1, T, 1, D), .key = mha_heads(k, 1, S, 1, D),
                     .value = mha_heads(v, 1, S, 1, D), .semantics.qkv.rope.kind = MHA_ROPE_HALF_SPLIT};
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++)
        for (int far = 0; far < 2; far++) {
            call.semantics.qkv.rope.attention_factor = factors[f];
            call.semantics.softmax.scale = 0.125 / (factors[f] * factors[f]);
            call.semantics.place.offset = far ? 1000000 : 0; /* where angles lose much */
            for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
                hold_against(NULL, call, stages[s], false, "attention factor", NULL);
        }
    for (size_t i = 0; i < S * D; i++) /* rotated keys are beyond float, scores are not */
        k[i] = 1e33f;
    call.semantics.qkv.rope.attention_factor = 7e7, call.semantics.softmax.scale = 1e-40;
    hold_against(NULL, call, MHA_STAGE_HEADS, true, "rotated beyond float", NULL);
    assert_true(isinf(bound_of(NULL, &call, MHA_STAGE_HEADS)) && isinf(bound_of(NULL, &call, MHA_STAGE_PRESENT_KEY)));
    assert_true(isfinite(bound_of(NULL, &call, MHA_STAGE_Q_ROT)));
    free(q);
    free(k);
    free(v);
}

/* A limit before the rotation makes the rows that are normalised after it short, and what they lost before large. */
static void limits_count_in_a_norm_behind_the_rotation(void **state)
{
    (void)state;
    enum { T = 4000, S = 2, WIDTH = 8 };
    static const double limits[] = {0, 1, 1e-4};
    const mha_config config = {.d_model = WIDTH, .n_heads = 1, .q_norm = MHA_NORM_HEAD};
    mha_layer *layer = made_layer(config, 1);
    float *x = random_numbers(T * WIDTH, 1, 1), *k = random_numbers(S * WIDTH, 2, 1);
    mha_call call = {
        .query = mha_rows(x, 1, T, WIDTH),
        .key = mha_rows(k, 1, S, WIDTH),
        .semantics = {.qkv.norm = {.after_rope = true}, .qkv.rope.kind = MHA_ROPE_INTERLEAVED, .qkv.norm_eps = 1e-12}};
    for (size_t n = 0; n < sizeof limits / sizeof *limits; n++) {
        call.semantics.qkv.clip_qkv = limits[n];
        hold_against(layer, call, MHA_STAGE_Q_ROT, false, "limited rows", NULL);
    }
    free(x);
    free(k);
    mha_layer_destroy(layer);
}

/* A sink may be farther from 0 than all scores: the log of the sum is then about the sink. */
static void sinks_count_in_the_log_of_the_sum(void **state)
{
    (void)state;
    enum { T = 5, D = 8 };
    static const float sizes[] = {1, 1e3f, 1e10f, -1e10f, 3e38f};
    float *x = random_numbers(T * D, 1, 1);
    const mha_view rows = mha_heads(x, 1, T, 1, D);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        const float sink = 1.23456789f * sizes[n];
        mha_view weights[MHA_WEIGHT_COUNT] = {{0}};
        double held = (double)(n == 4 ? sizes[n] : sink) * (1 + 0x1p-26); /* which is no float */
        weights[MHA_SINKS] = mha_view_of(&held, MHA_F64, 1, (size_t[]){1});
        const mha_call call = {.query = rows, .key = rows, .value = rows, .weights = weights,
                               .weight_count = MHA_WEIGHT_COUNT};
        hold_against(NULL, call, MHA_STAGE_LSE, false, "sinks", NULL);
        hold_against(NULL, call, MHA_STAGE_HEADS, false, "sinks", NULL);
    }
    free(x);
}

/* A bias takes scores beyond all exponentials back to where a sigmoid is neither 0 nor 1. */
static void a_bias_counts_in_the_largest_weight_of_a_sigmoid(void **state)
{
    (void)state;
    enum { T = 5, D = 4 };
    static const double sizes[] = {1, 300, 2000, 1e5};
    float *x = random_numbers(T * D, 1, 1), *k = random_numbers(T * D, 2, 1);
    for (size_t i = 0; i < T * D; i++) /* scores near 1 */
        x[i] = 1 + 1e-3f * x[i], k[i] = 1 + 1e-3f * k[i];
    mha_call call = {.query = mha_heads(x, 1, T, 1, D), .key = mha_heads(k, 1, T, 1, D),
                     .value = mha_heads(k, 1, T, 1, D), .semantics.softmax.normaliser = MHA_SIGMOID};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        call.semantics.softmax.scale = sizes[n] / D, call.semantics.softmax.sigmoid_bias = -sizes[n];
        hold_against(NULL, call, MHA_STAGE_WEIGHTS, false, "sigmoid bias", NULL);
        hold_against(NULL, call, MHA_STAGE_HEADS, false, "sigmoid bias", NULL);
    }
    free(x);
    free(k);
}

/* A norm's weight times the root of its terms may be beyond float; and zeros divided by next to nothing, anything. */
static void norms_may_have_no_bound(void **state)
{
    (void)state;
    enum { T = 3, WIDTH = 8 };
    static const struct {
        double input, weight, eps;
        bool bounded;
    } rows[] = {{1, 1, 1e-6, true}, {1, 3.4e38, 1e-6, false}, {0, 1, 1e-6, true}, {0, 1, 1e-300, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mha_layer *layer;
        const mha_config config = {.d_model = WIDTH, .n_heads = 2, .q_norm = MHA_NORM_ROW};
        layer = made_layer(config, 1);
        const mha_view weight = mha_tensor_view(mha_layer_weight(layer, MHA_Q_NORM));
        for (size_t k = 0; k < WIDTH; k++)
            mha_view_set(&weight, &k, rows[i].weight);
        float *x = random_numbers(T * WIDTH, 7, (float)rows[i].input);
        const mha_call call = {.query = mha_rows(x, 1, T, WIDTH), .semantics.qkv.norm_eps = rows[i].eps};
        assert_int_equal(isfinite(bound_of(layer, &call, MHA_STAGE_Q_ROT)), rows[i].bounded);
        assert_true(isfinite(bound_of(layer, &call, MHA_STAGE_Q))); /* before the norm */
        hold_against(layer, call, MHA_STAGE_Q_ROT, !rows[i].bounded, "norm", NULL);
        free(x);
        mha_layer_destroy(layer);
    }
}

/* Products that are beyond float and cancel. */
static void projections_may_overflow_on_the_way(void **state)
{
    (void)state;
    enum { T = 3, WIDTH = 8 };
    static const mha_weight weights[] = {MHA_W_Q, MHA_W_K, MHA_W_V, MHA_W_O};
    static const mha_stage stages[] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V, MHA_STAGE_OUTPUT};
    const mha_config config = {.d_model = WIDTH, .n_heads = 2};
    for (size_t w = 0; w < 4; w++)
        for (int large = 0; large < 2; large++) {
            mha_error error;
            mha_params *table;
            mha_layer *layer;
            assert_ok(mha_params_create(NULL, &table, NULL), error);
            assert_ok(mha_layer_create(&config, table, "", &layer, &error), error);
            mha_layer_init(layer, 4);
            float matrix[WIDTH * WIDTH], x[T * WIDTH], ones[T * WIDTH];
            for (size_t i = 0; i < WIDTH * WIDTH; i++) /* columns whose numbers cancel each other */
                matrix[i] = (i / WIDTH % 2 ? -1.0f : 1.0f) * (large ? 1e10f : 1);
            for (size_t i = 0; i < T * WIDTH; i++)
                x[i] = large ? 1e30f : 1, ones[i] = 1;
            const mha_view view = mha_view_of(matrix, MHA_F32, 2, (size_t[]){WIDTH, WIDTH});
            assert_ok(mha_layer_set(layer, weights[w], &view, &error), error);
            if (w == 3) { /* heads are large because values are */
                float identity[WIDTH * WIDTH] = {0};
                for (size_t i = 0; i < WIDTH; i++)
                    identity[i * WIDTH + i] = 1;
                const mha_view one = mha_view_of(identity, MHA_F32, 2, (size_t[]){WIDTH, WIDTH});
                assert_ok(mha_layer_set(layer, MHA_W_V, &one, &error), error);
            }
            mha_call call = {.query = mha_view_rows(w == 0 ? x : ones, MHA_F32, MHA_BTE, 1, T, WIDTH),
                             .key = mha_view_rows(w == 1 ? x : ones, MHA_F32, MHA_BTE, 1, T, WIDTH),
                             .value = mha_view_rows(w >= 2 ? x : ones, MHA_F32, MHA_BTE, 1, T, WIDTH)};
            hold_against(layer, call, stages[w], large, "overflow", NULL);
            hold_against(layer, call, MHA_STAGE_WEIGHTS, large, "overflow", NULL);
            hold_against(layer, call, MHA_STAGE_OUTPUT, large, "overflow", NULL);
            mha_layer_destroy(layer);
            mha_params_destroy(table);
        }
}

/* Values so large that some of them cannot be added up, though their mean is a float. */
static void weighted_values_may_overflow_on_the_way(void **state)
{
    (void)state;
    enum { T = 3, S = 20, D = 4 };
    for (int large = 0; large < 2; large++) {
        float *q = random_numbers(T * D, 1, 1), *k = random_numbers(S * D, 2, 1), *v = random_numbers(S * D, 3, 1e30f);
        for (size_t i = 0; large && i < S * D; i++)
            v[i] = 3e38f;
        const mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, 1, T, 1, D),
                               .key = mha_view_heads(k, MHA_F32, MHA_BTHD, 1, S, 1, D),
                               .value = mha_view_heads(v, MHA_F32, MHA_BTHD, 1, S, 1, D)};
        hold_against(NULL, call, MHA_STAGE_HEADS, large, "large values", NULL);
        free(q);
        free(k);
        free(v);
    }
}

/* Against exact rows that are not rounded, and against exact rows that are. */
static void caches_of_16_bits_are_within_the_bound(void **state)
{
    (void)state;
    enum { T = 30, D = 16 };
    static const mha_dtype dtypes[] = {MHA_F16, MHA_BF16};
    static const mha_stage stages[] = {MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE, MHA_STAGE_HEADS, MHA_STAGE_LSE};
    static const float sizes[] = {1, 1e-6f, 30000};
    for (size_t t = 0; t < 2; t++)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
                mha_error error;
                mha_cache *cache, *exact[2];
                mha_cache_spec spec = {
                    .batch = 1, .kv_heads = 1, .d_k = D, .d_v = D, .capacity = T, .dtype = dtypes[t]};
                assert_ok(mha_cache_create(&spec, NULL, &cache, &error), error);
                assert_ok(mha_cache_create(&spec, NULL, &exact[0], &error), error);
                spec.dtype = MHA_F64;
                assert_ok(mha_cache_create(&spec, NULL, &exact[1], &error), error);
                float *q = random_numbers(T * D, 6, 1), *k = random_numbers(T * D, 7, sizes[n]),
                      *v = random_numbers(T * D, 8, sizes[n]);
                const mha_call call = {.query = mha_view_heads(q, MHA_F32, MHA_BTHD, 1, T, 1, D),
                                       .key = mha_view_heads(k, MHA_F32, MHA_BTHD, 1, T, 1, D),
                                       .value = mha_view_heads(v, MHA_F32, MHA_BTHD, 1, T, 1, D),
                                       .cache = cache,
                                       .semantics = {.visible.causal = true, .qkv.rope.kind = MHA_ROPE_INTERLEAVED}};
                for (int way = 0; way < 2; way++) /* rows of 30000 have a norm beyond F16, and may be beyond it */
                    hold_against(NULL, call, stages[s], n == 2 && t == 0, mha_dtype_name(dtypes[t]), exact[way]);
                mha_cache_destroy(cache);
                mha_cache_destroy(exact[0]);
                mha_cache_destroy(exact[1]);
                free(q);
                free(k);
                free(v);
            }
}

/* Terms that keys_only leaves to another part do not count, however large they are. */
static void rows_of_another_part_do_not_count(void **state)
{
    (void)state;
    enum { T = 5, D = 8 };
    float *x = random_numbers(T * D, 1, 1), row[D], sink = 1e30f;
    for (size_t i = 0; i < D; i++)
        row[i] = 1e9f;
    const mha_view rows = mha_heads(x, 1, T, 1, D), beside = mha_view_of(row, MHA_F32, 1, (size_t[]){D});
    mha_view weights[MHA_WEIGHT_COUNT] = {[MHA_BIAS_K] = beside, [MHA_BIAS_V] = beside,
                                          [MHA_SINKS] = mha_view_of(&sink, MHA_F32, 1, (size_t[]){1})};
    mha_call call = {.query = rows, .key = rows, .value = rows, .semantics.place.keys_only = true};
    static const mha_stage stages[] = {MHA_STAGE_SCORES, MHA_STAGE_LSE, MHA_STAGE_HEADS};
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        call.weights = NULL, call.weight_count = 0;
        const double without = bound_of(NULL, &call, stages[s]);
        call.weights = weights, call.weight_count = MHA_WEIGHT_COUNT;
        assert_true(without > 0 && bound_of(NULL, &call, stages[s]) == without);
        hold_against(NULL, call, stages[s], false, "keys only", NULL);
    }
    free(x);
}

/* Only a number between 0 and 1 is a roundoff. */
static void a_unit_that_is_none_is_refused(void **state)
{
    (void)state;
    const float row[4] = {1};
    const mha_view one = mha_heads(row, 1, 1, 1, 4);
    const mha_call call = {.query = one, .key = one, .value = one};
    const double units[] = {0, -0x1p-24, 1, INFINITY, NAN};
    double bound[MHA_STAGE_COUNT];
    mha_error error;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        assert_refused(mha_error_bound(NULL, &call, units[i], bound, MHA_STAGE_COUNT, &error), MHA_INVALID, error,
                       "unit");
    assert_ok(mha_error_bound(NULL, &call, 0x1p-24, bound, MHA_STAGE_COUNT, &error), error);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, isa_teardown)
    const struct CMUnitTest tests[] = {
        TEST(scaled_queries_may_be_subnormal),
        TEST(rotated_rows_may_be_subnormal),
        TEST(rotated_rows_may_overflow),
        TEST(scaled_queries_may_be_beyond_float),
        TEST(an_attention_factor_counts_in_the_scores),
        TEST(limits_count_in_a_norm_behind_the_rotation),
        TEST(sinks_count_in_the_log_of_the_sum),
        TEST(a_bias_counts_in_the_largest_weight_of_a_sigmoid),
        TEST(norms_may_have_no_bound),
        TEST(projections_may_overflow_on_the_way),
        TEST(weighted_values_may_overflow_on_the_way),
        TEST(caches_of_16_bits_are_within_the_bound),
        TEST(rows_of_another_part_do_not_count),
        TEST(a_unit_that_is_none_is_refused),
    };
    return cmocka_run_group_tests_name("error bound", tests, NULL, NULL);
}
