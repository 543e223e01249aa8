/* The work of a call: its pairs of a query and a key that sees it, in which costs and throughputs are counted, compared
 * with counting one by one, with the keys that the exact path sees, and with sums that no loop reaches; and its stages,
 * compared with the numbers that the exact path keeps. */
#include <math.h>
#include <stdlib.h>

#include "attention/core/exact/exact_visible.h"
#include "bench/work.h"
#include "mha/random.h"
#include "support/rerun.h"
#include "support/trial.h"
#include "support/unit.h"

static int64_t chunk_of(int64_t position, int64_t chunk)
{
    return position / chunk - (position % chunk < 0);
}

static bool sees(const mha_visible *v, int64_t i, int64_t j)
{
    const int64_t left = v->has_window_left ? v->window_left : -1,
                  right = v->has_window_right ? v->window_right : -1;
    return !(v->causal && j > i && j >= v->prefix) && !(left >= 0 && j < i - left && j >= v->window_keep) &&
           !(right >= 0 && j > i + right) && !(v->chunk > 0 && chunk_of(i, v->chunk) != chunk_of(j, v->chunk));
}

static uint64_t one_by_one(int64_t query, size_t T_q, int64_t key, size_t S, const mha_visible *v)
{
    uint64_t pairs = 0;
    for (int64_t i = query; i < query + (int64_t)T_q; i++)
        for (int64_t j = key; j < key + (int64_t)S; j++)
            pairs += sees(v, i, j);
    return pairs;
}

static uint64_t counted(int64_t query, size_t T_q, int64_t key, size_t S, const mha_visible *given)
{
    const mha_semantics semantics = {.visible = *given};
    const mha__visibility v = mha__visibility_of(&semantics, key);
    return mha__visible_pairs(&v, query, T_q, S);
}

static void pairs_are_those_that_one_counts(void **state)
{
    (void)state;
    mha_visible v = {0};
    for (size_t T_q = 0; T_q < 8; T_q++)
        for (size_t S = 0; S < 8; S++)
            for (int64_t query = -5; query < 9; query++)
                for (int causal = 0; causal < 2; causal++)
                    for (int left = -1; left < 5; left++)
                        for (int right = -1; right < 5; right++)
                            for (v.chunk = 0; v.chunk < 5; v.chunk++) {
                                v.causal = causal;
                                v.has_window_left = left >= 0, v.window_left = left;
                                v.has_window_right = right >= 0, v.window_right = right;
                                assert_int_equal(counted(query, T_q, 0, S, &v),
                                                 one_by_one(query, T_q, 0, S, &v));
                            }
}

/* The same of random rules, all together, and of keys that begin at any position. */
static void so_are_those_of_random_rules(void **state)
{
    (void)state;
    enum { RULES = 200000 };
    for (uint64_t i = 0; i < RULES; i++) {
        uint64_t bits = mha__random_bits(5, 5, i);
        int64_t draw[10];
        static const uint64_t below[10] = {12, 12, 30, 15, 2, 20, 2, 8, 8, 12};
        for (int k = 0; k < 10; k++)
            draw[k] = (int64_t)(bits % below[k]), bits /= below[k];
        const uint64_t more = mha__random_bits(5, 6, i);
        const mha_visible v = {.causal = draw[4], .prefix = draw[5], .has_window_left = draw[6] && draw[7],
                               .has_window_right = draw[6] && draw[8], .window_left = draw[7] - 1,
                               .window_right = draw[8] - 1, .window_keep = draw[9], .chunk = (int64_t)(more % 9)};
        const int64_t query = draw[2] - 6, key = draw[3] - 4;
        if (counted(query, (size_t)draw[0], key, (size_t)draw[1], &v) !=
            one_by_one(query, (size_t)draw[0], key, (size_t)draw[1], &v))
            fail_msg("rules %llu: %lld queries at %lld, %lld keys at %lld", (unsigned long long)i, (long long)draw[0],
                     (long long)query, (long long)draw[1], (long long)key);
    }
}

/* The exact path's visibility of a call, by rules of positions and lengths only. */
static uint64_t seen_by_the_exact_path(const mha_plan *plan)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    unsigned char *seen = malloc(plan->S + 1);
    double *added = malloc((plan->S + 1) * sizeof *added);
    uint64_t pairs = 0;
    for (size_t b = 0; b < plan->B; b++) {
        const mha__sequence s = mha__resolved_sequence(r, b);
        for (size_t i = 0; i < s.T_q; i++) {
            mha__exact_see(r, &s, b, 0, i, seen, added);
            for (size_t j = 0; j < s.S; j++)
                pairs += seen[j];
        }
        pairs += s.T_q * plan->S_extra;
    }
    free(added);
    free(seen);
    return pairs;
}

/* Caches with evicted rows, ragged batches, offsets of each row, parts of the keys, lengths. */
static void a_plan_counts_what_its_queries_see(void **state)
{
    (void)state;
    enum { PLANS = 4000 };
    size_t planned = 0, fewer = 0;
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        const trial t = trial_draw(seed);
        rig r;
        trial_build(&t, &r);
        mha_call call = r.call;
        call.semantics.visible.mask = call.semantics.visible.key_padding = (mha_mask){0};
        call.semantics.visible.has_padding_fill = false, call.semantics.visible.padding_fill = 0;
        call.semantics.visible.pattern = (mha_pattern){0};
        call.semantics.added = (mha_added){0};
        call.path = MHA_PATH_EXACT;
        mha_plan plan;
        mha_error error;
        if (mha_plan_call(r.layer, &call, &plan, &error) == MHA_OK) {
            const uint64_t pairs = mha__plan_pairs(&plan);
            char text[900];
            trial_text(&t, text, sizeof text);
            if (pairs != seen_by_the_exact_path(&plan))
                fail_msg("%s: %llu pairs, not %llu", text, (unsigned long long)pairs,
                         (unsigned long long)seen_by_the_exact_path(&plan));
            planned++, fewer += pairs < plan.B * plan.T_q * (plan.S + plan.S_extra);
        }
        trial_release(&r);
    }
    print_message("%zu calls counted, in %zu some keys are hidden\n", planned, fewer);
    assert_true(planned > PLANS / 2 && fewer > PLANS / 4);
}

/* Random calls of every setting: a stage that has other numbers than the one before is one that happens. */
static void a_stage_that_differs_happens(void **state)
{
    (void)state;
    enum { CALLS = 2000 };
    static const mha_stage stages[][2] = {{MHA_STAGE_Q, MHA_STAGE_Q_ROT}, {MHA_STAGE_K, MHA_STAGE_K_ROT},
                                          {MHA_STAGE_SCORES, MHA_STAGE_CAPPED}, {MHA_STAGE_CAPPED, MHA_STAGE_MASKED}};
    size_t differs[4] = {0}, same[4] = {0};
    for (uint64_t seed = 1; seed <= CALLS; seed++) {
        const trial t = trial_draw(seed);
        rig g;
        rerun r;
        mha_error error;
        unsigned keep = 0;
        trial_build(&t, &g);
        rerun_init(&r, g.layer, &g.call, &g.past.keys, &g.past.values);
        for (size_t k = 0; k < 4; k++)
            keep |= 1u << stages[k][0] | 1u << stages[k][1];
        assert_ok(rerun_run(&r, MHA_PATH_EXACT, 1, keep, &error), error);
        for (size_t k = 0; k < 4; k++) {
            const mha_view *before = &r.stages[stages[k][0]], *after = &r.stages[stages[k][1]];
            const double *x = before->data, *y = after->data;
            bool other = false;
            for (size_t e = 0; e < mha_view_elements(after); e++)
                other |= x[e] != y[e] && !(isnan(x[e]) && isnan(y[e]));
            char text[900];
            trial_text(&t, text, sizeof text);
            if (other && !mha__stage_happens(&r.plan, stages[k][1]))
                fail_msg("%s: %s differs", text, mha_stage_at(stages[k][1])->name);
            differs[k] += other, same[k] += !mha__stage_happens(&r.plan, stages[k][1]);
        }
        rerun_free(&r);
        trial_release(&g);
    }
    for (size_t k = 0; k < 4; k++)
        assert_true(differs[k] > 100 && same[k] > 20);
}

/* 4 * 10^9 queries: a loop over them takes seconds, and a double has too few digits. */
static void long_sequences_cost_no_time_and_no_digit(void **state)
{
    (void)state;
    const size_t T = 4000000001, window = 4096;
    const int64_t left = (int64_t)window - 1;
    const struct {
        mha_visible v;
        uint64_t pairs;
    } rules[] = {
        {{.causal = false}, (uint64_t)T * T},
        {{.causal = true}, (uint64_t)T * (T + 1) / 2},
        {{.causal = true, .has_window_left = true, .window_left = left},
         (uint64_t)window * (T - window) + window * (window + 1) / 2},
        {{.causal = true, .chunk = 1000}, (uint64_t)(T / 1000) * 500500 + 1}, /* one is left over */
        {{.causal = true, .has_window_left = true, .window_left = INT64_MAX}, (uint64_t)T * (T + 1) / 2},
        {{.has_window_left = true, .has_window_right = true, .window_left = INT64_MAX, .window_right = INT64_MAX},
         (uint64_t)T * T},
        /* of the prefix those that come later, and the kept one of all but the queries whose window has it */
        {{.causal = true, .prefix = 10}, (uint64_t)T * (T + 1) / 2 + 45},
        {{.causal = true, .has_window_left = true, .window_left = left, .window_keep = 1},
         (uint64_t)window * (T - window) + window * (window + 1) / 2 + T - window},
    };
    for (int times = 0; times < 1000; times++)
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            assert_int_equal(counted(0, T, 0, T, &rules[i].v), rules[i].pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_those_that_one_counts),
        cmocka_unit_test(so_are_those_of_random_rules),
        cmocka_unit_test(a_plan_counts_what_its_queries_see),
        cmocka_unit_test(a_stage_that_differs_happens),
        cmocka_unit_test(long_sequences_cost_no_time_and_no_digit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
