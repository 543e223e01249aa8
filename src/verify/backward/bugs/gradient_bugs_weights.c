/* Bugs of the weights that a backward computes once more from scores and lse. D is that of the forward's output,
 * which is right. */
#include <math.h>

#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"
#include "verify/engine/program.h"

/* Factors of P, one for each query: */
enum {
    OVER_SUM,   /* 1 over the sum of P: lse without sinks */
    LSE_TIMES,  /* lse is taken for `number` times itself */
    NO_SUM,     /* lse is the largest score, */
    NO_LARGEST, /* or lacks it */
    SINK_OF_NEXT_HEAD, SINK_TIMES_LN_2, SINK_TIMES_SCALE, SINK_TWICE /* in lse */
};

/* Slopes of the softcap, with t = tanh(s / c): */
enum { SLOPE_ONE, SLOPE_AT_CAPPED, SLOPE_1_LESS_T, SLOPE_TIMES_CAP, SLOPE_OVER_CAP, SLOPE_UNDIVIDED, SLOPE_1_PLUS_T_2,
       SLOPE_1_LESS_CAPPED_2, SLOPE_SQUARED, SLOPE_ROOT, SLOPE_UNSCALED, SLOPE_SCALED_TWICE, SLOPE_INVERSE,
       SLOPE_OF_UNCAPPED };

/* ---------------------------------------------------------------- lse */

/* Of e^lse' = e^lse - e^sink + e^sink', or one e^sink more: P = e^(z - lse'). */
static double factor_of_sink(const mha__backward *b, const mha__map *map, int how, double lse)
{
    const size_t head = how == SINK_OF_NEXT_HEAD ? (map->head + 1) % b->r->plan.h : map->head;
    const double sink = mha_view_get(&b->r->weight[MHA_SINKS], &map->head),
                 other = mha_view_get(&b->r->weight[MHA_SINKS], &head) *
                         (how == SINK_TIMES_LN_2 ? MHA__LN_2 : how == SINK_TIMES_SCALE ? b->r->plan.scale : 1),
                 P = exp(sink - lse), more = how == SINK_TWICE ? P : exp(other - lse) - P;
    return isfinite(lse) && isfinite(more) ? 1 / (1 + more) : 1;
}

static double factor_of(const mha__backward *b, const mha__map *map, const mha__mutation *m, size_t i)
{
    const double lse = map->lse[i], most = m->arg == NO_SUM || m->arg == NO_LARGEST ? mha__largest_weight(map, i) : 0;
    double sum = 0;
    for (size_t at = i * map->n; m->arg == OVER_SUM && at < (i + 1) * map->n; at++)
        sum += map->weights[at];
    switch (m->arg) {
    case OVER_SUM: return sum > 0 ? 1 / sum : 1;
    case LSE_TIMES: return isfinite(lse) ? exp(lse * (1 - m->number)) : 1;
    case NO_SUM: return most > 0 ? 1 / most : 1;
    case NO_LARGEST: return most > 0 ? most * exp(lse) : 1;
    default: return factor_of_sink(b, map, m->arg, lse);
    }
}

static void times(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double f = factor_of(b, map, &bug->mutation, i);
        for (size_t at = i * map->n; at < (i + 1) * map->n; at++)
            map->weights[at] *= f;
    }
}

/* P normalised once more, over `step` keys of a query or over all queries of a key. */
static void normalise(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const bool of_queries = bug->mutation.axis == MHA__T;
    const size_t n = map->n, T = map->s.T_q, block = of_queries ? 1 : (size_t)bug->mutation.step;
    (void)b;
    for (size_t line = 0; line < (of_queries ? 1 : T); line++)
        for (size_t from = 0; from < n; from += block) {
            const size_t width = n - from < block ? n - from : block, step = of_queries ? n : 1;
            double *P = map->weights + line * n + from, sum = 0;
            for (size_t k = 0; k < (of_queries ? T : width); k++)
                sum += P[k * step];
            for (size_t k = 0; k < (of_queries ? T : width) && sum > 0; k++)
                P[k * step] /= sum;
        }
}

/* P to the power `number`. */
static void power(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    (void)b;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->weights[at] > 0)
            map->weights[at] = pow(map->weights[at], bug->mutation.number);
}

/* ---------------------------------------------------------------- scores */

static bool other_scale(const mha__backward *b, const mha__mutation *m, double *x, mha__program *program)
{
    (void)x;
    program->s.softmax.scale = mha__scale_of(b, (mha__other_scale)m->arg);
    return mha__has_scale(b, (mha__other_scale)m->arg);
}

/* The cap `step`, or `number` times that of the call. */
static bool other_cap(const mha__backward *b, const mha__mutation *m, double *x, mha__program *program)
{
    const double cap = program->s.softmax.softcap;
    (void)b;
    *x = m->step > 0 ? (double)m->step : m->number * cap;
    return *x != cap;
}

static double slope_by(int how, double right, double score, double c, double scale)
{
    const double t = tanh(score / c), at_capped = cosh(t), undivided = cosh(t > -1 && t < 1 ? c * atanh(t) : INFINITY),
                 other = cosh(score * (how == SLOPE_SCALED_TWICE ? scale : 1 / scale) / c);
    switch (how) {
    case SLOPE_ONE: return 1;
    case SLOPE_AT_CAPPED: return 1 / (at_capped * at_capped);
    case SLOPE_1_LESS_T: return 1 - t;
    case SLOPE_TIMES_CAP: return right * c;
    case SLOPE_OVER_CAP: return right / c;
    case SLOPE_UNDIVIDED: return 1 / (undivided * undivided);
    case SLOPE_1_PLUS_T_2: return 1 + t * t;
    case SLOPE_1_LESS_CAPPED_2: return 1 - c * t * c * t;
    case SLOPE_SQUARED: return right * right;
    case SLOPE_ROOT: return sqrt(right);
    case SLOPE_INVERSE: return 1 / right;
    case SLOPE_OF_UNCAPPED: return 1 - score / c * (score / c);
    default: return 1 / (other * other);
    }
}

static void other_slope(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->n; j++) {
            double *slope = &map->slope[i * map->n + j];
            *slope = slope_by(bug->mutation.arg, *slope, mha__score_of(b, map, i, j), b->r->semantics.softmax.softcap,
                              b->r->plan.scale);
        }
}

/* clang-format off */
#define HAS(what) MHA__HAS_##what
#define ROW(name, what, applies, function, leaves, ...) \
    {{name, what, false}, applies, MHA__BACKWARD_SUMS, function, NULL, leaves, .mutation = {__VA_ARGS__}}
#define LSE(name, what, how, x, has) \
    ROW(name, what, NULL, times, 0, .arg = how, .number = x, .needs = HAS(SOFTMAX) | (has))
#define OF_BLOCKS(B) \
    ROW("lse-of-blocks-" #B, "P is normalised in each block of " #B " keys by itself, not over all keys", NULL, \
        normalise, 0, .axis = MHA__H, .step = B, .needs = HAS(SOFTMAX) | HAS(KEY_BLOCKS))
#define SINKS(name, what, how, has) \
    LSE("lse-with-sinks-" name, "P is computed from an lse " what, how, 0, HAS(SINKS) | (has))
#define SCALED_BY(name, what, how) \
    MHA__P_OF("scores-scale-" name, "P is computed from scores with the scale " what, NULL, other_scale, \
        .arg = MHA__SCALE_##how, .readers = MHA__SAME_PAIRS), \
    MHA__P_OF("all-scale-" name, "P, dQ and dK have the scale " what, NULL, other_scale, .arg = MHA__SCALE_##how, \
        .readers = MHA__SAME_PAIRS | MHA__SCALES_ALL)
#define FEATURES(B) \
    MHA__P_OF("scores-of-features-" #B, "P is computed from scores that are sums over the first " #B " features", \
        "features-scored " #B, NULL, .readers = MHA__SAME_PAIRS)
#define CAP(name, what, cap, times) \
    MHA__P_OF("softcap-" name, "the softcap of the backward is " what, "softcap-other", other_cap, .step = cap, \
        .number = times, .readers = MHA__SAME_PAIRS)
#define SLOPE(name, what, how) \
    ROW("softcap-slope-" name, what, NULL, other_slope, MHA__LEAVES_V, .arg = how, .needs = HAS(SOFTCAP))

static const mha__gradient_bug rows[] = {
    LSE("lse-without-sinks", "P is computed from an lse of the keys alone, without sinks or plus-one", OVER_SUM, 0,
        HAS(MORE_TERMS)),
    LSE("lse-in-base-2", "an lse in base 2 is taken for a natural one: P = exp(s - lse / ln 2)", LSE_TIMES,
        MHA__LOG2_E, 0),
    LSE("lse-taken-for-base-2", "a natural lse is taken for one in base 2: P = exp(s - lse ln 2)", LSE_TIMES,
        MHA__LN_2, 0),
    LSE("lse-missing", "P is not normalised: exp(s)", LSE_TIMES, 0, 0),
    LSE("lse-is-maximum", "the largest score is taken for lse: P = exp(s - m), without the sum", NO_SUM, 0, 0),
    LSE("lse-without-maximum", "lse lacks the largest score: P = exp(s - log l)", NO_LARGEST, 0, 0),
    ROW("weights-in-base-2", "P = 2^(s - lse)", NULL, power, 0, .number = MHA__LN_2, .needs = HAS(SOFTMAX)),
    MHA__P_OF("added-not-recomputed", "P is computed from scores without mask, ALiBi, bias or relative terms", NULL,
        NULL, .needs = HAS(ADDED), .readers = MHA__SAME_PAIRS | MHA__NOTHING_ADDED),
    OF_BLOCKS(16), OF_BLOCKS(32), OF_BLOCKS(64), OF_BLOCKS(128),
    ROW("weights-over-queries", "P is normalised over the queries of each key once more", NULL, normalise,
        MHA__READS_ALL_QUERIES, .axis = MHA__T, .needs = HAS(SOFTMAX) | HAS(QUERIES)),
    SINKS("of-next-head", "with the sink of the next head", SINK_OF_NEXT_HEAD, HAS(HEADS)),
    SINKS("in-base-2", "with sinks whose base is 2: 2^sink", SINK_TIMES_LN_2, 0),
    SINKS("scaled", "with sinks times the scale", SINK_TIMES_SCALE, HAS(SCALE)),
    SINKS("twice", "in which sinks count twice", SINK_TWICE, 0),
    SCALED_BY("missing", "1: it is left out", MISSING),
    SCALED_BY("twice", "twice", TWICE),
    SCALED_BY("default", "1/sqrt(d_k), the forward has another", DEFAULT),
    SCALED_BY("of-values", "1/sqrt(d_v)", OF_VALUES),
    SCALED_BY("of-padded", "1/sqrt(n), n the power of two to which d_k is padded", OF_PADDED),
    SCALED_BY("of-model", "1/sqrt(h d_k)", OF_MODEL),
    SCALED_BY("over-width", "1/d_k", OVER_WIDTH),
    SCALED_BY("times-log2e", "times log2(e), which belongs to the exponent", TIMES_LOG2E),
    SCALED_BY("times-ln2", "times ln(2)", TIMES_LN2),
    FEATURES(8), FEATURES(16), FEATURES(32), FEATURES(64), FEATURES(128),
    CAP("twice", "twice that of the forward", 0, 2), CAP("half", "half of that of the forward", 0, 0.5),
    CAP("of-50", "50", 50, 0), CAP("of-30", "30", 30, 0),
    MHA__P_OF("softcap-without-factor", "P is computed from tanh(s / c), not c tanh(s / c)",
        "softcap-no-factor", NULL, .readers = MHA__SAME_PAIRS),
    MHA__P_OF("softcap-missing", "the backward has no softcap: neither in P nor its derivative", "softcap-missing",
        NULL, .readers = MHA__SAME_PAIRS),
    MHA__P_OF("softcap-not-recomputed", "P is computed from scores without softcap", "softcap-missing", NULL,
        .readers = MHA__SAME_PAIRS | MHA__SAME_SLOPE),
    SLOPE("missing", "dS lacks the derivative of the softcap", SLOPE_ONE),
    SLOPE("of-capped", "the derivative of the softcap is taken at the capped score", SLOPE_AT_CAPPED),
    SLOPE("unsquared", "the derivative of the softcap is taken for 1 - tanh, not 1 - tanh^2", SLOPE_1_LESS_T),
    SLOPE("times-cap", "the derivative of the softcap is multiplied by the cap", SLOPE_TIMES_CAP),
    SLOPE("over-cap", "the derivative of the softcap is divided by the cap", SLOPE_OVER_CAP),
    SLOPE("undivided", "the derivative of the softcap is 1 - tanh^2 of the score, not of score / cap", SLOPE_UNDIVIDED),
    SLOPE("plus", "the derivative of the softcap is taken for 1 + tanh^2", SLOPE_1_PLUS_T_2),
    SLOPE("of-capped-squared", "the derivative of the softcap is taken for 1 - s^2, s the capped score",
          SLOPE_1_LESS_CAPPED_2),
    SLOPE("of-uncapped", "the derivative of the softcap is taken for 1 - (s / cap)^2, s the score before the softcap",
          SLOPE_OF_UNCAPPED),
    SLOPE("twice", "dS has the derivative of the softcap twice", SLOPE_SQUARED),
    SLOPE("root", "the derivative of the softcap is taken for 1 / cosh, not 1 / cosh^2", SLOPE_ROOT),
    SLOPE("of-unscaled", "the derivative of the softcap is taken at scores without their scale", SLOPE_UNSCALED),
    SLOPE("of-scaled-twice", "the derivative of the softcap is taken at scores with the scale twice",
          SLOPE_SCALED_TWICE),
    SLOPE("inverse", "the derivative of the softcap is taken for cosh^2, not 1 / cosh^2", SLOPE_INVERSE),
};
MHA__GRADIENT_BUGS(weights)
/* clang-format on */
