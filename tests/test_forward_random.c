/* Random forwards from the whole space of options, on every path, against the oracle.
 * FORWARD_TRIALS=n runs n of them, FORWARD_SEED=s begins at seed s: a failure is replayed by its seed. */
#include <stdio.h>
#include <stdlib.h>

#include "support/trial.h"
#include "support/unit.h"

static bool fails(const trial *t)
{
    char text[400];
    return trial_fails(t, text, sizeof text);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* Shows a trial that fails, and the smallest like it. */
static void report(const trial *t)
{
    char text[400], words[900];
    trial small = trial_shrink(t, fails);
    const trial *both[2] = {t, &small};
    for (int k = 0; k < 2; k++) {
        trial_fails(both[k], text, sizeof text);
        trial_text(both[k], words, sizeof words);
        print_error("%s%s\n  %s\n", k ? "  smaller: " : "", text, words);
    }
}

/* Inputs of size `amplitude`; 0 leaves the choice to the draw. */
static void run(uint64_t first, uint64_t n, double amplitude)
{
    size_t wrong = 0;
    for (uint64_t seed = first; seed < first + n && wrong < 5; seed++) {
        trial t = trial_draw(seed);
        if (amplitude > 0)
            t.amplitude = amplitude;
        if (fails(&t)) {
            report(&t);
            wrong++;
        }
    }
    if (wrong)
        fail_msg("%zu random forwards differ from the oracle", wrong);
}

static void random_forwards_agree_with_the_oracle(void **state)
{
    (void)state;
    uint64_t n = number("FORWARD_TRIALS", 600);
    run(number("FORWARD_SEED", 1), n, 0);
    print_message("%llu random forwards, every stage, every path\n", (unsigned long long)n);
}

/* Subnormal inputs, logits of 1e4 and of 1e36, products that leave float's range. */
static void forwards_at_the_edges_of_float_do_too(void **state)
{
    (void)state;
    static const double amplitudes[] = {1e-41, 1e-38, 1e-20, 100, 1e4, 1e10, 1e18, 1e30, 3e38};
    for (size_t k = 0; k < sizeof amplitudes / sizeof *amplitudes; k++)
        run(number("FORWARD_SEED", 1) + 100000 * (k + 1), number("FORWARD_TRIALS", 600) / 40, amplitudes[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_forwards_agree_with_the_oracle),
                                       cmocka_unit_test(forwards_at_the_edges_of_float_do_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
