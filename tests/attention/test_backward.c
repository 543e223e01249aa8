/* Gradients of random calls and layers, from the whole space of options, against central differences of the exact
 * forward. BACKWARD_TRIALS=n draws n calls, BACKWARD_SEED=s begins at seed s. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/gradient.h"
#include "support/unit.h"

enum { LAYERS = 1200 };

static size_t calls, gradients, of_each[MHA_GRADIENT_COUNT];

/* Whether gradient `which` along a random direction is no derivative of the loss. Derivatives jump where a number is
 * limited: one of several steps must agree. */
static bool is_wrong(graded *g, int which, double size, char *text, size_t length)
{
    static const double steps[] = {1e-3, 1e-4, 1e-5, 1e-2, 1e-6, 1e-7, 1e-8};
    const mha_view *of = &g->of[which], *d = &g->gradients.of[which];
    const size_t n = mha_view_elements(of);
    double *direction = calloc(n ? n : 1, sizeof *direction), sum = 0, sizes = 0, found = 0, nearest = INFINITY;
    uint64_t state = g->r.t.seed * 977 + (uint64_t)which;
    if (!direction)
        abort();
    for (size_t e = 0; e < n; e++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        direction[e] = isfinite(((double *)of->data)[e]) ? (double)(state >> 11) * 0x1p-52 - 1 : 0;
        const double x = ((double *)d->data)[e] * direction[e];
        sum += x, sizes += fabs(x);
    }
    bool wrong = true;
    for (size_t k = 0; wrong && k < sizeof steps / sizeof *steps; k++) {
        const double slope = graded_difference(g, which, direction, steps[k]), off = fabs(slope - sum);
        wrong = !(off <= 1e-6 * sizes + 1e-9 * size + 1e-15 * size / steps[k]);
        if (off < nearest || k == 0)
            nearest = off, found = slope;
    }
    free(direction);
    gradients++, of_each[which]++;
    if (wrong)
        snprintf(text, length, "d_%s: %.12g along a direction, by differences %.12g",
                 mha_gradient_name((mha_gradient)which), sum, found);
    return wrong;
}

static bool differs(const trial *t, char *text, size_t size)
{
    graded g;
    mha_error error;
    graded_build(t, &g);
    calls++;
    bool failed = mha_backward(g.r.layer, &g.r.call, &g.gradients, &error) != MHA_OK;
    if (failed)
        snprintf(text, size, "refused: %.250s", error.message);
    double sum;
    (void)graded_loss(&g, &sum);
    for (int i = 0; i < MHA_GRADIENT_COUNT && !failed; i++)
        failed = g.of[i].data && is_wrong(&g, i, sum + 1, text, size);
    graded_release(&g);
    return failed;
}

static bool backward_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt(&t) && differs(&t, text, size);
}

static bool layer_fails(const trial *drawn, char *text, size_t size)
{
    trial t = *drawn;
    return graded_adapt_layer(&t) && differs(&t, text, size);
}

static uint64_t run(trial_failure fails, uint64_t usual, const char *what)
{
    const uint64_t n = trial_count("BACKWARD_TRIALS", usual);
    calls = gradients = 0;
    memset(of_each, 0, sizeof of_each);
    const size_t wrong = trials_that_fail(trial_number("BACKWARD_SEED", 1), n, 0, fails);
    if (wrong)
        fail_msg("the gradients of %zu random %s are no derivatives", wrong, what);
    print_message("%zu gradients of %zu random %s\n", gradients, calls, what);
    return n;
}

static void gradients_are_derivatives(void **state)
{
    (void)state;
    const uint64_t n = run(backward_fails, 2400, "calls");
    static const int expected[] = {MHA_D_QUERY, MHA_D_KEY, MHA_D_VALUE, MHA_D_MASK, MHA_D_KEY_PADDING,
                                   MHA_D_ALIBI_SLOPES, MHA_D_PAST_KEY, MHA_D_PAST_VALUE, MHA_D_WEIGHTS + MHA_B_Q,
                                   MHA_D_WEIGHTS + MHA_B_K, MHA_D_WEIGHTS + MHA_B_V, MHA_D_WEIGHTS + MHA_BIAS_K,
                                   MHA_D_WEIGHTS + MHA_BIAS_V, MHA_D_WEIGHTS + MHA_SINKS,
                                   MHA_D_WEIGHTS + MHA_Q_NORM, MHA_D_WEIGHTS + MHA_K_NORM,
                                   MHA_D_WEIGHTS + MHA_Q_NORM_BIAS, MHA_D_WEIGHTS + MHA_K_NORM_BIAS,
                                   MHA_D_WEIGHTS + MHA_BIAS_TABLE, MHA_D_WEIGHTS + MHA_RELATIVE_K,
                                   MHA_D_WEIGHTS + MHA_RELATIVE_COLUMNS, MHA_D_WEIGHTS + MHA_RELATIVE_Q};
    for (size_t i = 0; n >= 2400 && i < sizeof expected / sizeof *expected; i++)
        if (of_each[expected[i]] < 3)
            fail_msg("d_%s: %zu calls had it", mha_gradient_name((mha_gradient)expected[i]), of_each[expected[i]]);
}

static void gradients_of_layers_are_derivatives(void **state)
{
    (void)state;
    const uint64_t n = run(layer_fails, LAYERS, "layers");
    for (int g = 0; n >= LAYERS && g < MHA_GRADIENT_COUNT; g++)
        if (g != MHA_D_PAGE_KEYS && g != MHA_D_PAGE_VALUES && of_each[g] < 3)
            fail_msg("d_%s: %zu layers had it", mha_gradient_name((mha_gradient)g), of_each[g]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_derivatives),
                                       cmocka_unit_test(gradients_of_layers_are_derivatives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
