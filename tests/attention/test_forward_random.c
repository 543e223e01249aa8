/* Random forwards from the whole space of options, on every path, against the oracle.
 * FORWARD_TRIALS=n runs n of them, FORWARD_SEED=s begins at seed s: a failure is replayed by its seed. */
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
    uint64_t n = trial_number("FORWARD_TRIALS", 600);
    run(trial_number("FORWARD_SEED", 1), n, 0);
    print_message("%llu random forwards, every stage, every path\n", (unsigned long long)n);
}

/* Subnormal inputs, logits of 1e4 and of 1e36, products that leave float's range. */
static void forwards_at_the_edges_of_float_do_too(void **state)
{
    (void)state;
    static const double amplitudes[] = {1e-41, 1e-38, 1e-20, 100, 1e4, 1e10, 1e18, 1e30, 3e38};
    for (size_t k = 0; k < sizeof amplitudes / sizeof *amplitudes; k++)
        run(trial_number("FORWARD_SEED", 1) + 100000 * (k + 1), trial_number("FORWARD_TRIALS", 600) / 40,
            amplitudes[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_forwards_agree_with_the_oracle),
                                       cmocka_unit_test(forwards_at_the_edges_of_float_do_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
