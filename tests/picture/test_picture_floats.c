/* The picture of a call in float32 beside the exact one: maps, largest weights and statistics agree within what
 * rounding explains, for recorded cases, random calls and long sequences, however many heads are projected together. */
#include <dirent.h>
#include <math.h>
#include <string.h>

#include "mha/case.h"
#include "mha/layer.h"
#include "mha/precision.h"
#include "mha/random.h"
#include "picture/head.h"
#include "support/layer.h"
#include "support/trial.h"
#include "support/unit.h"
#include "verify/tolerance/tolerance.h"

/* Errors of float32: of a weight, absolutely; and of a score. An exponential adds an ULP or two to a weight, which is
 * as if its score were off by as much. */
typedef struct allowed {
    double weight, score;
} allowed;

static allowed allowed_of(const mha_layer *layer, const mha_call *call, const mha_view past[2])
{
    mha__two_runs runs = {0};
    mha__tolerance t;
    mha_error error = {0};
    const mha__request request = {.layer = layer, .call = call, .past_key = past[0], .past_value = past[1]};
    const bool wanted[MHA_STAGE_COUNT] = {[MHA_STAGE_WEIGHTS] = true, [MHA_STAGE_MASKED] = true};
    assert_ok(mha__tolerance_of(&request, MHA_BTE, wanted, &runs, &t, &error), error);
    mha__two_runs_free(&runs);
    return (allowed){t.atol[0][MHA_STAGE_WEIGHTS], t.atol[0][MHA_STAGE_MASKED] + 0x1p-21};
}

static bool near(double found, double expected, double by)
{
    return found == expected || (isnan(found) && isnan(expected)) || fabs(found - expected) <= by;
}

/* The largest weights, in order, are those of the exact map within the bound; and so are their keys, where others are
 * farther away than two bounds. */
static void check_top(const mha__head *found, const mha__head *exact, double by)
{
    assert_int_equal(found->top, exact->top);
    for (size_t i = 0; i < found->queries * found->top; i++) {
        const double *w = exact->top_weights;
        assert_true(near(found->top_weights[i], w[i], by));
        const bool apart = i % found->top > 0 && i % found->top + 1 < found->top && w[i - 1] - w[i] > 2 * by &&
                           w[i] - w[i + 1] > 2 * by;
        assert_true(!apart || found->top_keys[i] == exact->top_keys[i]);
    }
}

/* With scores off by e, each weight changes by a factor of at most exp(2 e); the entropy log(sum) - sum of weight times
 * score, scores counted from the largest, by 2 e and by as much of the second sum, which is at most log(S'). */
static void check_statistics(mha__head found, mha__head exact, size_t keys, double e)
{
    const double share = expm1(2 * e), n = (double)keys;
    const double by[MHA__STATISTICS] = {(4 * e + share * (log(n) + 1)) / log(2), share * exact.statistics.distance,
                                        share, share, share, share + n * 0x1p-50, share};
    assert_int_equal(found.statistics.queries, exact.statistics.queries);
    assert_int_equal(found.statistics.empty, exact.statistics.empty);
    assert_int_equal(found.statistics.broken, exact.statistics.broken);
    for (size_t i = 0; i < MHA__STATISTICS; i++) {
        const double a = *mha__statistic_at(&found.statistics, i), b = *mha__statistic_at(&exact.statistics, i);
        if (!near(a, b, by[i] + 1e-12 * n))
            fail_msg("%s of head %zu is %.12g, expected %.12g within %g", mha__statistic_name(i), exact.head, a, b,
                     by[i]);
    }
}

/* Returns the heads that were compared: none where the fast path does not take the call. */
static size_t check(const mha_layer *layer, const mha_call *given, const mha_view past[2],
                    mha__picture_choice choice)
{
    mha__picture found = {0}, exact = {0};
    mha_error error = {0};
    mha_call call = *given;
    choice.maps_alone = true;
    call.path = MHA_PATH_FAST;
    assert_ok(mha__picture_add_call(&found, "", layer, &call, past, &choice, &error), error);
    const mha__picture_layer *a = &found.layers[0];
    const size_t heads = strcmp(a->path, "blas") == 0 ? a->head_count : 0;
    if (heads > 0) {
        const allowed by = allowed_of(layer, &call, past);
        call.path = MHA_PATH_EXACT;
        assert_ok(mha__picture_add_call(&exact, "", layer, &call, past, &choice, &error), error);
        const mha__picture_layer *b = &exact.layers[0];
        assert_int_equal(heads, b->head_count);
        for (size_t n = 0; n < heads; n++) {
            const mha__head *x = &a->heads[n], *y = &b->heads[n];
            assert_true(x->sequence == y->sequence && x->head == y->head && x->rows == y->rows && !x->masked);
            for (size_t i = 0; i < x->rows * x->columns; i++)
                if (!near(x->weights[i], y->weights[i], by.weight))
                    fail_msg("cell %zu of head %zu is %.9g, expected %.9g within %g", i, n, x->weights[i],
                             y->weights[i], by.weight);
            check_top(x, y, by.weight);
            check_statistics(*x, *y, y->keys + b->S_extra + 1, by.score);
        }
    }
    mha__picture_free(&found);
    mha__picture_free(&exact);
    return heads;
}

static void recorded_cases(void **state)
{
    (void)state;
    DIR *directory = opendir("tests/vectors");
    assert_non_null(directory);
    size_t heads = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[512];
        mha_error error = {0};
        mha_case *c;
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        snprintf(path, sizeof path, "tests/vectors/%s", entry->d_name);
        assert_ok(mha_case_open(path, NULL, &c, &error), error);
        mha_call call = mha_case_call(c);
        if (!mha_case_skip_reason(c) && strcmp(mha_case_kind(c), "rope") != 0 &&
            memcmp(&call.precision, &(mha_precision){0}, sizeof call.precision) == 0) {
            mha_view past[2];
            mha_case_past(c, &past[0], &past[1]);
            heads += check(mha_case_layer(c), &call, past, (mha__picture_choice){.projected = 1});
        }
        mha_case_close(c);
    }
    closedir(directory);
    assert_true(heads >= 150);
}

static void random_calls(void **state)
{
    (void)state;
    static const mha_view none[2];
    size_t heads = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        trial t = trial_draw(seed);
        t.dropout = 0; /* only the exact path has it */
        rig r;
        if (t.use_cache)
            continue;
        trial_build(&t, &r);
        heads += check(r.layer, &r.call, none, (mha__picture_choice){.projected = seed % 2});
        trial_release(&r);
    }
    assert_true(heads >= 80);
}

/* More queries than a stretch has, pooled maps, features beyond one step of a product. */
static void long_sequences(void **state)
{
    (void)state;
    static float x[1060 * 16];
    static const mha_view none[2];
    mha_layer *small = made_layer((mha_config){.d_model = 16, .n_heads = 2, .kv_heads = 1, .sinks = true}, 5),
              *wide = made_layer((mha_config){.d_model = 16, .n_heads = 1, .d_k = 600, .bias_kv = true}, 5);
    mha_call call = {.query = mha_rows(x, 1, 1060, 16), .semantics = {.visible.causal = true}};
    mha_random_fill(&call.query, 5, 32, -2, 2);
    assert_int_equal(check(small, &call, none, (mha__picture_choice){0}), 2);
    assert_int_equal(check(small, &call, none, (mha__picture_choice){.projected = 1, .one_head = true, .head = 1,
                                                                     .rows = {10, 1050}, .keys = {4, 1055}}), 1);
    call.query = mha_rows(x, 2, 40, 16);
    call.semantics = (mha_semantics){
        .visible = {.window_left = 9}, .softmax.zero_row = true};
    assert_int_equal(check(wide, &call, none, (mha__picture_choice){0}), 2);
    mha_layer_destroy(small);
    mha_layer_destroy(wide);
}

/* The same bits for any number of threads. */
static void threads_change_nothing(void **state)
{
    (void)state;
    static float x[2200 * 8];
    mha_layer *layer = made_layer((mha_config){.d_model = 8, .n_heads = 2}, 5);
    mha__picture pictures[2] = {{.token_count = 0}};
    for (int i = 0; i < 2; i++) {
        mha_error error = {0};
        mha_call call = {.query = mha_rows(x, 1, 2200, 8), .path = MHA_PATH_FAST, .threads = 1 + 3 * i};
        mha_random_fill(&call.query, 5, 32, -2, 2);
        const mha__picture_choice all = {0};
        assert_ok(mha__picture_add_call(&pictures[i], "", layer, &call, NULL, &all, &error), error);
    }
    for (size_t n = 0; n < 2; n++) {
        const mha__head *a = &pictures[0].layers[0].heads[n], *b = &pictures[1].layers[0].heads[n];
        assert_memory_equal(a->weights, b->weights, a->rows * a->columns * sizeof *a->weights);
        assert_memory_equal(a->top_weights, b->top_weights, a->queries * a->top * sizeof *a->top_weights);
        assert_memory_equal(&a->statistics, &b->statistics, sizeof a->statistics);
    }
    mha__picture_free(&pictures[0]);
    mha__picture_free(&pictures[1]);
    mha_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_cases),
        cmocka_unit_test(random_calls),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests_name("picture_floats", tests, NULL, NULL);
}
