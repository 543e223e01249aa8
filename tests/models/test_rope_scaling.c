/* Frequencies of rotations for long contexts: their definitions once more, in long double, crossed at random; what is
 * refused. Results of another library are checked in tests/vectors. */
#include "lab/settings.h"
#include "support/unit.h"

#include <math.h>
#include <string.h>

#include "mha/mha.h"
#include "mha/positions.h"

enum { MOST = 40 };

/* One of a few numbers, drawn from the seed and a place. */
static double draw(uint64_t seed, uint64_t place, double low, double high)
{
    return low + (high - low) * (double)mha__random_unit(seed, place, 0);
}

static long double between(long double x, long double low, long double high)
{
    return x < low ? low : x > high ? high : x;
}

/* The pair that makes `turns` turns in L positions, whole where it is cut. */
static long double turning(const mha_rope_scaling *s, long double base, size_t dim, long double turns)
{
    return (long double)dim / 2 * logl(s->original_length / (turns * 2 * acosl(-1))) / logl(base);
}

static long double expected(const mha_rope_scaling *s, size_t dim, long double base, size_t n, size_t i)
{
    const long double F = s->factor, L = s->original_length, d = (long double)dim;
    long double f = powl(base, -2.0L * (long double)i / d);
    switch (s->kind) {
    case MHA_ROPE_LINEAR: return f / F;
    case MHA_ROPE_DYNAMIC:
        if ((long double)n > L)
            f = powl(base * powl(F * (long double)n / L - F + 1, d / (d - 2)), -2.0L * (long double)i / d);
        return f;
    case MHA_ROPE_YARN: {
        long double low = turning(s, base, dim, s->beta_fast), high = turning(s, base, dim, s->beta_slow);
        low = fmaxl(s->untruncated ? low : floorl(low), 0);
        high = fminl(s->untruncated ? high : ceill(high), d - 1);
        const long double slow = between(((long double)i - low) / (high - low + (high == low ? 0.001L : 0)), 0, 1);
        return f * (1 - slow + slow / F);
    }
    case MHA_ROPE_LONGROPE: return f / ((long double)n > L ? s->long_factors[i] : s->short_factors[i]);
    case MHA_ROPE_LLAMA3: {
        const long double wavelength = 2 * acosl(-1) / f, low = s->low_frequency_factor,
                          high = s->high_frequency_factor;
        if (wavelength > L / low)
            return f / F;
        if (wavelength < L / high)
            return f;
        const long double smooth = (L / wavelength - low) / (high - low);
        return (1 - smooth) * f / F + smooth * f;
    }
    default: return f;
    }
}

static long double expected_factor(const mha_rope_scaling *s)
{
    const long double F = logl(s->factor);
    if (s->attention_factor != 0)
        return s->attention_factor;
    if (s->kind != MHA_ROPE_YARN && s->kind != MHA_ROPE_LONGROPE)
        return 1;
    if (s->kind == MHA_ROPE_LONGROPE)
        return sqrtl(1 + F / logl(s->original_length));
    return s->mscale_all_dim > 0 ? (0.1L * s->mscale * F + 1) / (0.1L * s->mscale_all_dim * F + 1) : 0.1L * F + 1;
}

static mha_rope_scaling drawn(uint64_t seed, size_t dim)
{
    mha_rope_scaling s = {.kind = (mha_rope_scaling_kind)(seed % MHA_ROPE_SCALING_COUNT),
                          .factor = draw(seed, 1, 1, 40),
                          .original_length = floor(draw(seed, 2, 2, 9000)),
                          .beta_fast = draw(seed, 3, 8, 64),
                          .beta_slow = draw(seed, 4, 0.25, 4),
                          .untruncated = seed / 7 % 2,
                          .mscale = draw(seed, 5, 0.1, 2),
                          .mscale_all_dim = seed / 14 % 2 ? draw(seed, 6, 0.1, 2) : 0,
                          .low_frequency_factor = draw(seed, 7, 0.5, 2),
                          .high_frequency_factor = draw(seed, 8, 2.5, 8),
                          .attention_factor = seed / 28 % 2 ? draw(seed, 9, 0.5, 2) : 0,
                          .pairs = dim / 2};
    for (size_t i = 0; i < s.pairs; i++)
        s.short_factors[i] = draw(seed, 100 + i, 1, 4), s.long_factors[i] = draw(seed, 200 + i, 4, 60);
    return s;
}

/* A frequency is a power whose exponent, at most ln f, is off by three roundings, and some ten operations on it; the
 * ramp of yarn, of a span of at least 0.001 pairs, by ten roundings of a pair's number over the span. */
static void frequencies_are_those_of_their_definition(void **state)
{
    (void)state;
    size_t of_kind[MHA_ROPE_SCALING_COUNT] = {0};
    for (uint64_t seed = 0; seed < 1200; seed++) {
        const size_t dim = 2 * (1 + (size_t)(seed * 31 % MOST / 2)), drawn_n = (size_t)draw(seed, 10, 1, 20000);
        const double base = seed % 5 == 0 ? 0 : draw(seed, 11, 50, 1e6);
        const mha_rope_scaling s = drawn(seed, dim);
        const size_t n = seed / 6 % 8 == 0 ? (size_t)s.original_length : drawn_n; /* exactly as long as in training */
        double f[MOST], factor = 0;
        mha_error error;
        assert_ok(mha_rope_frequencies(&s, dim, base, n, f, &factor, &error), error);
        for (size_t i = 0; i < dim / 2; i++) {
            if (s.kind == MHA_ROPE_DYNAMIC && dim == 2)
                continue; /* the definition divides by 0 */
            const long double want = expected(&s, dim, base > 0 ? base : 10000, n, i);
            const double ramp = s.kind == MHA_ROPE_YARN ? (double)dim / 0.001 : 0;
            const double off = 0x1p-53 * (double)want * (10 * s.factor + 6 * fabs(log((double)want)) + 10 * ramp);
            if (!(fabs((double)(f[i] - want)) <= off))
                fail_msg("%s, seed %d, pair %zu of %zu: %.17g instead of %.17Lg", mha__rope_scaling_name(s.kind),
                         (int)seed, i, dim / 2, f[i], want);
        }
        assert_true(fabs((double)(factor - expected_factor(&s))) <= 0x1p-50 * factor);
        of_kind[s.kind]++;
    }
    for (int kind = 0; kind < MHA_ROPE_SCALING_COUNT; kind++)
        assert_true(of_kind[kind] > 100);
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    static const struct {
        mha_rope_scaling scaling;
        const char *name, *said;
        size_t dim;
        double base;
    } rows[] = {
        {{.kind = MHA_ROPE_SCALING_COUNT}, "rope_scaling", "mha_rope_scaling_kind", 8, 0},
        {{.kind = MHA_ROPE_UNSCALED}, "rope_dim", "found 7", 7, 0},
        {{.kind = MHA_ROPE_UNSCALED}, "rope_base", "above 1, found 1", 8, 1},
        {{.kind = MHA_ROPE_UNSCALED}, "rope_base", "found inf", 8, INFINITY},
        {{.kind = MHA_ROPE_UNSCALED, .attention_factor = -1}, "rope_scaling", "none: expected an attention", 8, 0},
        {{.kind = MHA_ROPE_LINEAR}, "rope_scaling", "linear: expected a factor", 8, 0},
        {{.kind = MHA_ROPE_LINEAR, .factor = 0.5}, "rope_scaling", "found 0.5", 8, 0},
        {{.kind = MHA_ROPE_LINEAR, .factor = NAN}, "rope_scaling", "found nan", 8, 0},
        {{.kind = MHA_ROPE_DYNAMIC, .factor = 2}, "rope_scaling", "an original length", 8, 0},
        {{.kind = MHA_ROPE_YARN, .factor = 2, .original_length = 8, .attention_factor = -1},
         "rope_scaling",
         "an attention factor",
         8,
         0},
        {{.kind = MHA_ROPE_YARN, .factor = 2, .original_length = 8, .beta_fast = -1},
         "rope_scaling",
         "beta_fast",
         8,
         0},
        {{.kind = MHA_ROPE_YARN, .factor = 2, .original_length = 8, .beta_slow = -1},
         "rope_scaling",
         "beta_slow",
         8,
         0},
        {{.kind = MHA_ROPE_YARN, .factor = 2, .original_length = 8, .mscale = -1}, "rope_scaling", "mscale", 8, 0},
        {{.kind = MHA_ROPE_YARN, .factor = 2, .original_length = 8, .mscale_all_dim = -1},
         "rope_scaling",
         "mscale_all",
         8,
         0},
        {{.kind = MHA_ROPE_LLAMA3, .factor = 2, .original_length = 8}, "rope_scaling", "low frequency", 8, 0},
        {{.kind = MHA_ROPE_LLAMA3,
          .factor = 2,
          .original_length = 8,
          .low_frequency_factor = 2,
          .high_frequency_factor = 2},
         "rope_scaling",
         "above the low one",
         8,
         0},
        {{.kind = MHA_ROPE_LONGROPE, .original_length = 8, .pairs = 3}, "rope_scaling", "expected 4 short", 8, 0},
        {{.kind = MHA_ROPE_LONGROPE, .original_length = 8, .pairs = 1}, "rope_scaling", "short factors", 2, 0},
        {{.kind = MHA_ROPE_LONGROPE, .original_length = 8, .pairs = 1, .short_factors = {1}},
         "rope_scaling",
         "long factors",
         2,
         0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double f[4] = {7, 7, 7, 7}, factor = 7;
        mha_error error;
        assert_refused(mha_rope_frequencies(&rows[i].scaling, rows[i].dim, rows[i].base, 9, f, &factor, &error),
                       MHA_INVALID, error, rows[i].name, rows[i].said);
        assert_true(f[0] == 7 && factor == 7);
    }
    mha_rope_scaling_kind kind = MHA_ROPE_UNSCALED;
    assert_true(mha__rope_scaling_find("yarn", &kind) && kind == MHA_ROPE_YARN);
    assert_false(mha__rope_scaling_find("su", &kind));
    assert_string_equal(mha__rope_scaling_name(MHA_ROPE_SCALING_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_those_of_their_definition),
        cmocka_unit_test(what_has_no_meaning_is_refused),
    };
    return cmocka_run_group_tests_name("rope_scaling", tests, NULL, NULL);
}
