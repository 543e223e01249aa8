/* Terms of the denominator without a key, next to keys that nobody sees or whose scores are all -inf: finite sinks and
 * softmax-plus-one are a maximum like any other, -inf is no sink, +inf and NaN take the row with them. Against the
 * oracle, on every path, in one segment of keys and in several. */
#include <math.h>
#include <string.h>

#include "support/compare.h"
#include "support/trial.h"
#include "support/unit.h"
#include "support/stages.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct denominator {
    const char *name;
    bool has_sinks;
    float sinks[4]; /* of the heads */
    bool plus_one;
} denominator;

static const denominator denominators[] = {
    {"no sink", false, {0}, false},
    {"plus one", false, {0}, true},
    {"finite sinks", true, {0.0f, -3.0f, 40.0f, -100.0f}, false},
    {"sinks of -inf", true, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, false},
    {"sinks of -inf and plus one", true, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, true},
    {"sinks of some heads", true, {-INFINITY, 1.0f, -INFINITY, 0.0f}, false},
    {"infinite sinks", true, {INFINITY, 0.0f, NAN, -INFINITY}, false},
    {"infinite sinks and plus one", true, {INFINITY, 0.0f, NAN, -INFINITY}, true},
};

/* Where scores are -inf: keys [from, to) of each batch row. Segments are 1024 keys long, blocks 256 or less. */
typedef struct pattern {
    size_t T_q, T_k, from, to;
    bool infinite_values; /* value rows of key `from` hold infinity: its weight is 0, and 0 times it is NaN */
} pattern;

static const pattern patterns[] = {
    {2, 1, 0, 1, false},         {9, 300, 0, 300, false},    {9, 300, 0, 299, false},      {9, 300, 1, 300, false},
    {1, 1100, 0, 1100, false},   {1, 1100, 0, 1050, false},  {1, 1100, 1000, 1100, false}, {1, 1100, 0, 1100, true},
    {1, 1100, 1030, 1100, true}, {9, 300, 280, 300, true},
};

/* Batch row 1 sees no key at all, row 2 only the first two. */
static const int64_t lengths[] = {INT64_MAX, 0, 2};

static trial trial_of(const denominator *d, const pattern *p, mha_empty_rows rule)
{
    return (trial){.seed = 3, .B = 3, .T_q = p->T_q, .T_k = p->T_k, .bare = true, .lengths = true,
                   .config = {.n_heads = 4, .kv_heads = 2, .d_k = 32, .d_v = 32, .sinks = d->has_sinks},
                   .semantics = {.softmax = {.softmax_plus_one = d->plus_one, .empty_rows = rule}}};
}

static void set_up(rig *r, const denominator *d, const pattern *p, int64_t *own)
{
    for (size_t b = 0; b < 3; b++)
        own[b] = lengths[b] > (int64_t)p->T_k ? (int64_t)p->T_k : lengths[b];
    r->call.semantics.visible.kv_lengths = own;
    if (d->has_sinks)
        memcpy(r->weights[MHA_SINKS].data, d->sinks, sizeof d->sinks);
    const mha_view *q = &r->call.query, *k = &r->call.key, *v = &r->call.value;
    for (size_t b = 0; b < 3; b++) {
        for (size_t i = 0; i < p->T_q; i++)
            for (size_t h = 0; h < 4; h++)
                mha_view_set(q, (size_t[]){b, i, h, 0}, 0.5);
        for (size_t j = p->from; j < p->to; j++)
            for (size_t g = 0; g < 2; g++)
                mha_view_set(k, (size_t[]){b, j, g, 0}, -(double)INFINITY);
        for (size_t g = 0; g < 2 && p->infinite_values; g++)
            mha_view_set(v, (size_t[]){b, p->from, g, 7}, (double)INFINITY);
    }
}

static void scores_of_minus_infinity(void **state)
{
    (void)state;
    const unsigned shown = 1u << MHA_STAGE_LSE | 1u << MHA_STAGE_HEADS | TRIAL_OUTPUT;
    for (size_t i = 0; i < COUNT(denominators); i++)
        for (size_t k = 0; k < COUNT(patterns); k++) {
            const int rule = (i + k) % 2 ? MHA_EMPTY_ZERO : MHA_EMPTY_NAN;
            trial t = trial_of(&denominators[i], &patterns[k], (mha_empty_rows)rule);
            rig r;
            int64_t own[3];
            mha_error error;
            char text[400];
            trial_build(&t, &r);
            set_up(&r, &denominators[i], &patterns[k], own);
            for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++)
                for (int threads = 1; threads <= (p == MHA_PATH_FAST ? 4 : 1); threads += 3) {
                    assert_ok(trial_run(&r, (mha_path)p, threads,
                                        p == MHA_PATH_FAST && threads == 1 ? shown : trial_stages(&r), MHA_F32, &error),
                              error);
                    if (!trial_check(&r, (mha_path)p, text, sizeof text))
                        fail_msg("%s, %d threads, %s, pattern %zu, rule %d: %s", mha_path_name((mha_path)p), threads,
                                 denominators[i].name, k, rule, text);
                }
            trial_release(&r);
        }
}

/* Whether every element of a kept stage of batch row 1 and head `head` is x. */
static bool all_are(rig *r, mha_stage stage, size_t head, double x)
{
    const mha_view *v = stage_view(&r->call, stage);
    bool are = true;
    for (size_t i = 0; i < r->t.T_q; i++)
        for (size_t j = 0; j < (stage == MHA_STAGE_LSE ? 1 : stage == MHA_STAGE_WEIGHTS ? r->t.T_k : 32); j++) {
            const size_t by_head[4] = {1, head, i, j}, by_column[3] = {1, i, head * 32 + j};
            const double found = mha_view_get(v, stage == MHA_STAGE_HEADS ? by_column : by_head);
            are &= isnan(x) ? isnan(found) : found == x;
        }
    return are;
}

/* The same rules without an oracle, for the queries of batch row 1, which see no key. */
static void rows_that_see_no_key(void **state)
{
    (void)state;
    const unsigned shown = 1u << MHA_STAGE_LSE | 1u << MHA_STAGE_HEADS | 1u << MHA_STAGE_WEIGHTS;
    static const struct {
        float sink;
        bool plus_one;
        double weight, lse;         /* with the rule zero */
        double weight_nan, lse_nan; /* with the rule nan */
    } rows[] = {
        {-INFINITY, false, 0, -(double)INFINITY, (double)NAN, (double)NAN},
        {-INFINITY, true, 0, 0, 0, 0},
        {-2.0f, false, 0, -2, 0, -2},
        {INFINITY, false, (double)NAN, (double)NAN, (double)NAN, (double)NAN},
        {NAN, false, (double)NAN, (double)NAN, (double)NAN, (double)NAN},
        {NAN, true, (double)NAN, (double)NAN, (double)NAN, (double)NAN},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int rule = MHA_EMPTY_ZERO; rule <= MHA_EMPTY_NAN; rule++)
            for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
                denominator d = {"", true, {rows[i].sink, rows[i].sink, rows[i].sink, rows[i].sink}, rows[i].plus_one};
                const pattern plain = {3, 5, 0, 0, false};
                trial t = trial_of(&d, &plain, (mha_empty_rows)rule);
                rig r;
                int64_t own[3];
                mha_error error;
                trial_build(&t, &r);
                set_up(&r, &d, &plain, own);
                assert_ok(trial_run(&r, (mha_path)p, 1, shown, MHA_F64, &error), error);
                for (size_t head = 0; head < 4; head++) {
                    assert_true(all_are(&r, MHA_STAGE_WEIGHTS, head, rule ? rows[i].weight_nan : rows[i].weight));
                    assert_true(all_are(&r, MHA_STAGE_HEADS, head, rule ? rows[i].weight_nan : rows[i].weight));
                    assert_true(all_are(&r, MHA_STAGE_LSE, head, rule ? rows[i].lse_nan : rows[i].lse));
                }
                trial_release(&r);
            }
}

/* A finite sink below every float is one all the same: the row is not empty. */
static void sinks_of_doubles_stay_finite(void **state)
{
    (void)state;
    double sinks[4] = {-1e300, -1e300, -1e300, -1e300};
    const denominator d = {"", true, {0}, false};
    const pattern plain = {3, 5, 0, 0, false};
    for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++) {
        trial t = trial_of(&d, &plain, MHA_EMPTY_NAN);
        rig r;
        int64_t own[3];
        mha_error error;
        trial_build(&t, &r);
        set_up(&r, &d, &plain, own);
        mha_view weights[MHA_WEIGHT_COUNT];
        memcpy(weights, r.weights, sizeof weights);
        r.call.weights = weights, r.call.weight_count = MHA_WEIGHT_COUNT;
        weights[MHA_SINKS] = mha_view_of(sinks, MHA_F64, 1, (size_t[]){4});
        assert_ok(trial_run(&r, (mha_path)p, 1, 1u << MHA_STAGE_LSE | 1u << MHA_STAGE_HEADS, MHA_F64, &error), error);
        for (size_t head = 0; head < 4; head++) {
            assert_true(all_are(&r, MHA_STAGE_HEADS, head, 0));
            assert_true(mha_view_get(stage_view(&r.call, MHA_STAGE_LSE), (size_t[]){1, head, 0}) < -1e38);
        }
        trial_release(&r);
    }
}

/* A weight of 0 times an infinite value is NaN, in whichever segment of the keys it happens. */
static void infinite_values_of_weight_zero(void **state)
{
    (void)state;
    static const pattern places[] = {{1, 1100, 1024, 1100, true}, {1, 1100, 1030, 1100, true},
                                     {1, 1100, 0, 1050, true}, {1, 1100, 0, 5, true}, {9, 300, 280, 300, true}};
    for (size_t k = 0; k < COUNT(places); k++)
        for (int p = MHA_PATH_FAST; p <= MHA_PATH_EXACT; p++)
            for (int threads = 1; threads <= 4; threads += 3) {
                trial t = trial_of(&denominators[0], &places[k], MHA_EMPTY_ZERO);
                rig r;
                int64_t own[3];
                mha_error error;
                trial_build(&t, &r);
                set_up(&r, &denominators[0], &places[k], own);
                assert_ok(trial_run(&r, (mha_path)p, threads, 1u << MHA_STAGE_HEADS, MHA_F32, &error), error);
                for (size_t i = 0; i < t.T_q; i++)
                    for (size_t c = 0; c < 4 * 32; c++) {
                        const double found = mha_view_get(stage_view(&r.call, MHA_STAGE_HEADS), (size_t[]){0, i, c});
                        if (c % 32 == 7 ? !isnan(found) : !isfinite(found))
                            fail_msg("%s, pattern %zu, %d threads, row %zu, column %zu: %g", mha_path_name((mha_path)p),
                                     k, threads, i, c, found);
                    }
                trial_release(&r);
            }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, guard_teardown)
    const struct CMUnitTest tests[] = {
        TEST(scores_of_minus_infinity),
        TEST(rows_that_see_no_key),
        TEST(infinite_values_of_weight_zero),
        TEST(sinks_of_doubles_stay_finite),
    };
    return cmocka_run_group_tests_name("sinks", tests, NULL, NULL);
}
