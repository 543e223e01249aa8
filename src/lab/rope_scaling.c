/* How fast the pairs of a rotation turn in models whose context was stretched after training. */
#include <math.h>

#include "base/base.h"
#include "lab/settings.h"
#include "mha/positions.h"

static const char *const kinds[] = {
    [MHA_ROPE_UNSCALED] = "none", [MHA_ROPE_LINEAR] = "linear",     [MHA_ROPE_DYNAMIC] = "dynamic",
    [MHA_ROPE_YARN] = "yarn",     [MHA_ROPE_LONGROPE] = "longrope", [MHA_ROPE_LLAMA3] = "llama3",
};
_Static_assert(sizeof kinds / sizeof *kinds == MHA_ROPE_SCALING_COUNT, "a name for every kind of scaling");

const char *mha__rope_scaling_name(mha_rope_scaling_kind kind)
{
    return mha__name_at(kinds, MHA_ROPE_SCALING_COUNT, (size_t)kind);
}

bool mha__rope_scaling_find(const char *name, mha_rope_scaling_kind *kind)
{
    const int found = mha__name_find(kinds, MHA_ROPE_SCALING_COUNT, name);
    if (found >= 0)
        *kind = (mha_rope_scaling_kind)found;
    return found >= 0;
}

/* ---------------------------------------------------------------- what is asked for */

typedef struct scaled {
    const mha_rope_scaling *s;
    double F, L, base, pi2;
    size_t dim, length;
} scaled;

static const char *const prefix = "rope_scaling";

/* Refuses a number that is outside [low, high], or NaN. */
static mha_status expect(const scaled *r, const char *name, double x, double low, double high, mha_error *error)
{
    if (x >= low && x <= high)
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, prefix, "%s: expected %s between %g and %g, found %g",
                     mha__rope_scaling_name(r->s->kind), name, low, high, x);
}

static mha_status check_factors(const scaled *r, mha_error *error)
{
    const mha_rope_scaling *s = r->s;
    if (s->pairs != r->dim / 2 || s->pairs > MHA_ROPE_MAX_PAIRS)
        return mha__fail(error, MHA_INVALID, prefix, "longrope: expected %zu short and long factors, found %zu",
                         r->dim / 2, s->pairs);
    for (size_t i = 0; i < s->pairs; i++) {
        TRY(expect(r, "short factors", s->short_factors[i], 1e-9, INFINITY, error));
        TRY(expect(r, "long factors", s->long_factors[i], 1e-9, INFINITY, error));
    }
    return MHA_OK;
}

static mha_status check(const scaled *r, mha_error *error)
{
    const mha_rope_scaling *s = r->s;
    if ((unsigned)s->kind >= MHA_ROPE_SCALING_COUNT)
        return mha__fail(error, MHA_INVALID, prefix, "expected a value of mha_rope_scaling_kind, found number %d",
                         (int)s->kind);
    if (r->dim % 2 != 0)
        return mha__fail(error, MHA_INVALID, "rope_dim", "expected an even number of features, found %zu", r->dim);
    if (!(r->base > 1) || !isfinite(r->base))
        return mha__fail(error, MHA_INVALID, "rope_base", "expected a base above 1, found %g", r->base);
    TRY(expect(r, "an attention factor", s->attention_factor != 0 ? s->attention_factor : 1, 1e-9, 1e9, error));
    if (s->kind == MHA_ROPE_UNSCALED)
        return MHA_OK;
    TRY(expect(r, "a factor", r->F, 1, 1e9, error));
    if (s->kind != MHA_ROPE_LINEAR)
        TRY(expect(r, "an original length", r->L, 2, 0x1p40, error));
    if (s->kind == MHA_ROPE_LONGROPE)
        return check_factors(r, error);
    if (s->kind == MHA_ROPE_LLAMA3) {
        TRY(expect(r, "a low frequency factor", s->low_frequency_factor, 1e-9, 1e9, error));
        TRY(expect(r, "a high frequency factor above the low one", s->high_frequency_factor,
                   nextafter(s->low_frequency_factor, INFINITY), 1e9, error));
    }
    if (s->kind == MHA_ROPE_YARN) {
        TRY(expect(r, "beta_fast", s->beta_fast, 0, 1e9, error));
        TRY(expect(r, "beta_slow", s->beta_slow, 0, 1e9, error));
        TRY(expect(r, "mscale", s->mscale, 0, 1e9, error));
        TRY(expect(r, "mscale_all_dim", s->mscale_all_dim, 0, 1e9, error));
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- frequencies */

/* The pair, not rounded, that turns `turns` times within the original length. */
static double pair_of_turns(const scaled *r, double turns)
{
    return (double)r->dim * log(r->L / (turns * r->pi2)) / (2 * log(r->base));
}

/* Yarn's share of the divided frequency in pair i: 0 for those that turn fast, 1 for those that turn slowly. */
static double ramp(const scaled *r, size_t i)
{
    const mha_rope_scaling *s = r->s;
    double low = pair_of_turns(r, s->beta_fast > 0 ? s->beta_fast : 32),
           high = pair_of_turns(r, s->beta_slow > 0 ? s->beta_slow : 1);
    if (!s->untruncated)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, (double)r->dim - 1);
    if (low == high)
        high += 0.001;
    return fmin(fmax(((double)i - low) / (high - low), 0), 1);
}

static double llama3(const scaled *r, double f)
{
    const double low = r->s->low_frequency_factor, high = r->s->high_frequency_factor, turns = r->L * f / r->pi2;
    const double share = fmin(fmax((turns - low) / (high - low), 0), 1); /* of the frequency as it was */
    return (1 - share) * f / r->F + share * f;
}

static double frequency(const scaled *r, size_t i)
{
    const double d = (double)r->dim, n = (double)r->length;
    double base = r->base;
    if (r->s->kind == MHA_ROPE_DYNAMIC && n > r->L && r->dim > 2) /* one pair has frequency 1 for every base */
        base *= pow(r->F * n / r->L - (r->F - 1), d / (d - 2));
    const double f = pow(base, -2 * (double)i / d);
    switch (r->s->kind) {
    case MHA_ROPE_LINEAR: return f / r->F;
    case MHA_ROPE_YARN: return f / r->F * ramp(r, i) + f * (1 - ramp(r, i));
    case MHA_ROPE_LONGROPE: return f / (n > r->L ? r->s->long_factors[i] : r->s->short_factors[i]);
    case MHA_ROPE_LLAMA3: return llama3(r, f);
    default: return f;
    }
}

/* 0.1 m ln F + 1 */
static double mscale(const scaled *r, double m)
{
    return 0.1 * m * log(r->F) + 1;
}

static double factor_of(const scaled *r)
{
    const mha_rope_scaling *s = r->s;
    if (s->attention_factor != 0)
        return s->attention_factor;
    if (s->kind != MHA_ROPE_YARN && s->kind != MHA_ROPE_LONGROPE)
        return 1;
    if (s->kind == MHA_ROPE_LONGROPE)
        return sqrt(1 + log(r->F) / log(r->L));
    return s->mscale > 0 && s->mscale_all_dim > 0 ? mscale(r, s->mscale) / mscale(r, s->mscale_all_dim) : mscale(r, 1);
}

mha_status mha_rope_frequencies(const mha_rope_scaling *scaling, size_t dim, double base, size_t length,
                                double *frequencies, double *attention_factor, mha_error *error)
{
    const bool without = scaling->kind == MHA_ROPE_LONGROPE && scaling->factor == 0;
    const scaled r = {.s = scaling,
                      .F = without ? 1 : scaling->factor,
                      .L = scaling->original_length,
                      .base = base != 0 ? base : 10000,
                      .pi2 = 2 * acos(-1),
                      .dim = dim,
                      .length = length};
    TRY(check(&r, error));
    for (size_t i = 0; i < dim / 2; i++)
        frequencies[i] = frequency(&r, i);
    *attention_factor = factor_of(&r);
    return MHA_OK;
}
