/* Random forwards from the whole space of options, on every path, against the oracle.
 * FORWARD_TRIALS=n runs n of them, FORWARD_SEED=s begins at seed s: a failure is replayed by its seed. */
#include <string.h>

#include "mha/setting.h"
#include "support/trial.h"
#include "support/unit.h"

/* Inputs of size `amplitude`; 0 leaves the choice to the draw. */
static void run(uint64_t first, uint64_t n, double amplitude)
{
    const size_t wrong = trials_that_fail(first, n, amplitude, trial_fails);
    if (wrong)
        fail_msg("%zu random forwards differ from the oracle", wrong);
}

static void random_forwards_agree_with_the_oracle(void **state)
{
    (void)state;
    uint64_t n = trial_count("FORWARD_TRIALS", 600);
    run(trial_number("FORWARD_SEED", 1), n, 0);
    print_message("%llu random forwards, every stage, every path\n", (unsigned long long)n);
}

/* Subnormal inputs, logits of 1e4 and of 1e36, products that leave float's range. */
static void forwards_at_the_edges_of_float_do_too(void **state)
{
    (void)state;
    static const double amplitudes[] = {1e-41, 1e-38, 1e-20, 100, 1e4, 1e10, 1e18, 1e30, 3e38};
    for (size_t k = 0; k < sizeof amplitudes / sizeof *amplitudes; k++)
        run(trial_number("FORWARD_SEED", 1) + 100000 * (k + 1), trial_count("FORWARD_TRIALS", 600) / 40,
            amplitudes[k]);
}

/* No row of the table is left out, whatever it is: settings that no line of the draw names come by their kind. */
static void every_setting_is_drawn(void **state)
{
    (void)state;
    enum { MOST_ROWS = 256 };
    size_t times[MOST_ROWS] = {0};
    const mha_setting *row;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        const trial t = trial_draw(seed);
        rig r;
        trial_build(&t, &r);
        for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++)
            times[i] += mha_setting_given(row, &r.call.semantics);
        trial_release(&r);
    }
    for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++)
        if (times[i] < 3)
            fail_msg("%s: drawn %zu times", row->name, times[i]);
}

/* A trial that fails for one setting is shrunk to that one, and what it needs. */
static bool has_a_window_to_the_left(const trial *t, char *text, size_t size)
{
    snprintf(text, size, "it has a window");
    return t->semantics.visible.has_window_left;
}

static void a_trial_shrinks_to_the_setting_that_fails(void **state)
{
    (void)state;
    char text[900];
    size_t shrunk = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        const trial t = trial_draw(seed);
        if (!has_a_window_to_the_left(&t, text, sizeof text))
            continue;
        const trial small = trial_shrink(&t, has_a_window_to_the_left);
        const mha_setting *row;
        for (size_t i = 0; (row = mha_setting_at(i)) != NULL; i++)
            assert_int_equal(mha_setting_given(row, &small.semantics), strcmp(row->name, "window_left") == 0);
        trial_text(&small, text, sizeof text);
        assert_non_null(strstr(text, " window_left "));
        assert_false(small.others || small.lengths || small.alibi || small.offset_each || small.poison);
        shrunk++;
    }
    assert_true(shrunk > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_forwards_agree_with_the_oracle),
                                       cmocka_unit_test(forwards_at_the_edges_of_float_do_too),
                                       cmocka_unit_test(every_setting_is_drawn),
                                       cmocka_unit_test(a_trial_shrinks_to_the_setting_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
