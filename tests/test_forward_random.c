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

static void random_forwards_agree_with_the_oracle(void **state)
{
    (void)state;
    uint64_t first = number("FORWARD_SEED", 1), n = number("FORWARD_TRIALS", 600);
    size_t wrong = 0;
    for (uint64_t seed = first; seed < first + n && wrong < 5; seed++) {
        char text[400], words[900];
        trial t = trial_draw(seed);
        if (!trial_fails(&t, text, sizeof text))
            continue;
        wrong++;
        trial_text(&t, words, sizeof words);
        print_error("%s\n  %s\n", text, words);
        trial small = trial_shrink(&t, fails);
        trial_fails(&small, text, sizeof text);
        trial_text(&small, words, sizeof words);
        print_error("  smaller: %s\n  %s\n", text, words);
    }
    if (wrong)
        fail_msg("%zu random forwards differ from the oracle", wrong);
    print_message("%llu random forwards, every stage, two paths\n", (unsigned long long)n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_forwards_agree_with_the_oracle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
