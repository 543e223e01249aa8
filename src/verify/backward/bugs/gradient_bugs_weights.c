/* Bugs of the weights that a backward computes once more from scores and lse. D is that of the forward's output,
 * which is right. */
#include <math.h>

#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* ---------------------------------------------------------------- lse */

static bool has_softmax(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return mha__is_softmax(b);
}

static bool has_more_terms(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return mha__is_softmax(b) && (b->r->weight[MHA_SINKS].data || b->r->semantics.softmax.softmax_plus_one);
}

/* What is taken for the sinks in lse. */
typedef enum other_sink { OF_NEXT_HEAD, IN_BASE_2, SCALED, COUNTED_TWICE } other_sink;

static bool has_sinks(const mha__backward *b, const mha__gradient_bug *m)
{
    const other_sink how = (other_sink)(int)m->number;
    return mha__is_softmax(b) && b->r->weight[MHA_SINKS].data && (how != OF_NEXT_HEAD || b->r->plan.h > 1) &&
           (how != SCALED || b->r->plan.scale != 1);
}

static void scale_query(mha__map *map, size_t i, double factor)
{
    for (size_t j = 0; j < map->n; j++)
        map->weights[i * map->n + j] *= factor;
}

static void leave_out_terms(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double sum = 0;
        for (size_t j = 0; j < map->n; j++)
            sum += map->weights[i * map->n + j];
        if (sum > 0)
            scale_query(map, i, 1 / sum);
    }
}

/* P = e^(z - lse') with e^lse' = e^lse - e^sink + e^sink', or one e^sink more. */
static void take_other_sinks(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const other_sink how = (other_sink)(int)m->number;
    const size_t next = (map->head + 1) % b->r->plan.h;
    const double sink = mha_view_get(&b->r->weight[MHA_SINKS], &map->head),
                 of_next = mha_view_get(&b->r->weight[MHA_SINKS], &next),
                 other = how == OF_NEXT_HEAD ? of_next
                         : how == IN_BASE_2  ? sink * 0.6931471805599453
                                             : sink * b->r->plan.scale;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double P = exp(sink - map->lse[i]), more = how == COUNTED_TWICE ? P : exp(other - map->lse[i]) - P;
        if (isfinite(map->lse[i]) && isfinite(more))
            scale_query(map, i, 1 / (1 + more));
    }
}

/* The lse is taken for `number` times itself. */
static void scale_lse(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++)
        if (isfinite(map->lse[i]))
            scale_query(map, i, exp(map->lse[i] * (1 - m->number)));
}

/* The largest weight of a query: exp(m - lse), m its largest masked score. */
static double largest_weight(const mha__map *map, size_t i)
{
    double most = 0;
    for (size_t j = 0; j < map->n; j++)
        most = fmax(most, map->weights[i * map->n + j]);
    return most;
}

/* m alone in place of lse = m + log l (number 0), or log l alone (1). */
static void part_of_lse(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double most = largest_weight(map, i);
        if (most > 0)
            scale_query(map, i, m->number > 0 ? most * exp(map->lse[i]) : 1 / most);
    }
}

/* P normalised over the keys of each block of `number` by itself. */
static void normalise_blocks(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t block = (size_t)m->number;
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t from = 0; from < map->n; from += block) {
            const size_t end = from + block < map->n ? from + block : map->n;
            double *P = map->weights + i * map->n, sum = 0;
            for (size_t j = from; j < end; j++)
                sum += P[j];
            for (size_t j = from; j < end && sum > 0; j++)
                P[j] /= sum;
        }
}

static bool has_key_blocks(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_softmax(b, m) && (double)b->r->plan.S > m->number;
}

static bool has_queries(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_softmax(b, m) && b->r->plan.T_q > 1;
}

/* P normalised over the queries of each key. */
static void normalise_queries(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t j = 0; j < map->n; j++) {
        double sum = 0;
        for (size_t i = 0; i < map->s.T_q; i++)
            sum += map->weights[i * map->n + j];
        for (size_t i = 0; i < map->s.T_q && sum > 0; i++)
            map->weights[i * map->n + j] /= sum;
    }
}

/* 2^(s - lse) */
static void weights_in_base_2(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->weights[at] > 0)
            map->weights[at] = pow(map->weights[at], m->number);
}

/* ---------------------------------------------------------------- scores */

static bool has_added_beside_mask(const mha__backward *b)
{
    const mha_semantics *s = &b->r->semantics;
    return s->visible.key_padding.kind == MHA_MASK_ADDITIVE || s->visible.has_padding_fill || s->added.alibi_slopes ||
           s->added.bias.rule != MHA_BIAS_RULE_NONE || s->added.relative.rule != MHA_RELATIVE_NONE;
}

static bool has_added(const mha__backward *b)
{
    return b->r->semantics.visible.mask.kind == MHA_MASK_ADDITIVE || has_added_beside_mask(b);
}

static bool adds(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return mha__is_softmax(b) && has_added(b);
}

static bool caps(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return mha__is_softmax(b) && b->r->semantics.softmax.softcap > 0;
}

static bool caps_and_adds_nothing(const mha__backward *b, const mha__gradient_bug *m)
{
    return caps(b, m) && !has_added(b);
}

/* Scores are those that are computed again: of keys that are attended to, without relative terms. */
static bool has_plain_scores(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return mha__can_weigh_again(b);
}

static bool has_other_scale(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_plain_scores(b, m) && mha__has_scale(b, (mha__other_scale)(int)m->number);
}

/* P has another scale; `other` 1: dQ and dK, too. */
static void other_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const double scale = mha__scale_of(b, (mha__other_scale)(int)m->number);
    mha__weigh_otherwise(b, map, scale / b->r->plan.scale, b->r->semantics.softmax.softcap);
    if (m->other > 0)
        map->q_scale = map->k_scale = scale;
}

static bool has_other_cap(const mha__backward *b, const mha__gradient_bug *m)
{
    const double cap = b->r->semantics.softmax.softcap;
    return has_plain_scores(b, m) && cap > 0 && (m->number > 0 ? m->number != cap : m->other > 0);
}

/* The cap `number`, or `other` times that of the call. */
static void other_cap(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    mha__weigh_otherwise(b, map, 1, m->number > 0 ? m->number : m->other * b->r->semantics.softmax.softcap);
}

/* P of tanh(s / c), not c tanh(s / c). */
static void leave_out_factor(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const double cap = b->r->semantics.softmax.softcap;
    (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->seen[at] == MHA__SEEN) {
            const double score = mha__softcapped(b, mha__score_of(b, map, at / map->n, at % map->n));
            map->weights[at] *= exp(score / cap - score);
        }
}

/* Of scores over the first `number` features. */
static bool has_more_features(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_plain_scores(b, m) && (double)b->r->plan.d_k > m->number;
}

static void fewer_features(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t d = b->r->plan.d_k, width = (size_t)m->number;
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const double *Q = map->Q + at / map->n * d, *K = map->K + at % map->n * d;
        double sum = 0;
        for (size_t c = 0; c < width; c++)
            sum += Q[c] * K[c];
        if (map->seen[at] == MHA__SEEN)
            map->weights[at] *= exp(mha__softcapped(b, b->r->plan.scale * sum) -
                                    mha__softcapped(b, mha__score_of(b, map, at / map->n, at % map->n)));
    }
}

/* Weights of scores without what is added to them (number 0), or without softcap (1). */
static void other_scores(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->n; j++) {
            const double s = mha__score_of(b, map, i, j);
            if (map->seen[i * map->n + j] == MHA__SEEN)
                map->weights[i * map->n + j] = exp((m->number > 0 ? s : mha__softcapped(b, s)) - map->lse[i]);
        }
}

/* 1: no slope; 2: the slope at the capped score; 3: 1 - tanh in place of 1 - tanh^2; 4: times c; 5: over c; 6: that at
 * a score which is not divided by c; 7: 1 + tanh^2; 8: 1 - capped^2; 9: twice; 10: its root; 11: that of scores without
 * their scale; 12: of scores with the scale twice; 13: its inverse */
static void other_slope(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const double c = b->r->semantics.softmax.softcap;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->n; j++) {
            const double score = mha__score_of(b, map, i, j), t = tanh(score / c), turn = cosh(t),
                         scale = b->r->plan.scale, other = cosh(score * (m->number == 12 ? scale : 1 / scale) / c);
            double *slope = &map->slope[i * map->n + j];
            const double undivided = cosh(t > -1 && t < 1 ? c * atanh(t) : INFINITY);
            *slope = m->number == 1    ? 1
                     : m->number == 2  ? 1 / (turn * turn)
                     : m->number == 3  ? 1 - t
                     : m->number == 4  ? *slope * c
                     : m->number == 5  ? *slope / c
                     : m->number == 6  ? 1 / (undivided * undivided)
                     : m->number == 7  ? 1 + t * t
                     : m->number == 8  ? 1 - c * t * c * t
                     : m->number == 9  ? *slope * *slope
                     : m->number == 10 ? sqrt(*slope)
                     : m->number == 13 ? 1 / *slope
                                       : 1 / (other * other);
        }
}

static void leave_out_softcap(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__gradient_bug scores = {.number = 1}, slope = {.number = 1};
    (void)m;
    other_scores(b, map, &scores);
    other_slope(b, map, &slope);
}

static bool has_softcap(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->semantics.softmax.softcap > 0;
}

/* clang-format off */
#define OF_BLOCKS(B) \
    {{"lse-of-blocks-" #B, "P is normalised in each block of " #B " keys by itself, not over all keys", false}, \
        has_key_blocks, MHA__BACKWARD_SUMS, normalise_blocks, B, 0, NULL, 0, {0}}
#define SCALED_BY(name, what, how) \
    {{"scores-" name, "P is computed from scores with the scale " what, false}, \
        has_other_scale, MHA__BACKWARD_SUMS, other_scale, how, 0, NULL, 0, {0}}, \
    {{"all-" name, "P, dQ and dK have the scale " what, false}, \
        has_other_scale, MHA__BACKWARD_SUMS, other_scale, how, 1, NULL, 0, {0}}
#define CAP(name, what, number, times) \
    {{"softcap-" name, "the softcap of the backward is " what, false}, \
        has_other_cap, MHA__BACKWARD_SUMS, other_cap, number, times, NULL, 0, {0}}
#define FEATURES(B) \
    {{"scores-of-features-" #B, "P is computed from scores that are sums over the first " #B " features", false}, \
        has_more_features, MHA__BACKWARD_SUMS, fewer_features, B, 0, NULL, 0, {0}}
#define SINKS(name, what, how) \
    {{"lse-with-sinks-" name, "P is computed from an lse " what, false}, \
        has_sinks, MHA__BACKWARD_SUMS, take_other_sinks, how, 0, NULL, 0, {0}}
#define SLOPE(name, what, how) \
    {{"softcap-slope-" name, what, false}, has_softcap, MHA__BACKWARD_SUMS, other_slope, how, 0, NULL, \
        MHA__LEAVES_V, {0}}

static const mha__gradient_bug rows[] = {
    {{"lse-without-sinks", "P is computed from an lse of the keys alone, without sinks or plus-one", false},
        has_more_terms, MHA__BACKWARD_SUMS, leave_out_terms, 0, 0, NULL, 0, {0}},
    {{"lse-in-base-2", "an lse in base 2 is taken for a natural one: P = exp(s - lse / ln 2)", false},
        has_softmax, MHA__BACKWARD_SUMS, scale_lse, 1.4426950408889634, 0, NULL, 0, {0}},
    {{"lse-taken-for-base-2", "a natural lse is taken for one in base 2: P = exp(s - lse ln 2)", false},
        has_softmax, MHA__BACKWARD_SUMS, scale_lse, 0.6931471805599453, 0, NULL, 0, {0}},
    {{"lse-missing", "P is not normalised: exp(s)", false}, has_softmax, MHA__BACKWARD_SUMS, scale_lse, 0, 0,
        NULL, 0, {0}},
    {{"lse-is-maximum", "the largest score is taken for lse: P = exp(s - m), without the sum", false},
        has_softmax, MHA__BACKWARD_SUMS, part_of_lse, 0, 0, NULL, 0, {0}},
    {{"lse-without-maximum", "lse lacks the largest score: P = exp(s - log l)", false},
        has_softmax, MHA__BACKWARD_SUMS, part_of_lse, 1, 0, NULL, 0, {0}},
    {{"weights-in-base-2", "P = 2^(s - lse)", false},
        has_softmax, MHA__BACKWARD_SUMS, weights_in_base_2, 0.6931471805599453, 0, NULL, 0, {0}},
    {{"added-not-recomputed", "P is computed from scores without mask, ALiBi, bias or relative terms", false},
        adds, MHA__BACKWARD_SUMS, other_scores, 0, 0, NULL, 0, {0}},
    OF_BLOCKS(16), OF_BLOCKS(32), OF_BLOCKS(64), OF_BLOCKS(128),
    {{"weights-over-queries", "P is normalised over the queries of each key once more", false},
        has_queries, MHA__BACKWARD_SUMS, normalise_queries, 0, 0, NULL, MHA__READS_ALL_QUERIES, {0}},
    SINKS("of-next-head", "with the sink of the next head", OF_NEXT_HEAD),
    SINKS("in-base-2", "with sinks whose base is 2: 2^sink", IN_BASE_2),
    SINKS("scaled", "with sinks times the scale", SCALED),
    SINKS("twice", "in which sinks count twice", COUNTED_TWICE),
    SCALED_BY("scale-missing", "1: it is left out", MHA__SCALE_MISSING),
    SCALED_BY("scale-twice", "twice", MHA__SCALE_TWICE),
    SCALED_BY("scale-default", "1/sqrt(d_k), the forward has another", MHA__SCALE_DEFAULT),
    SCALED_BY("scale-of-values", "1/sqrt(d_v)", MHA__SCALE_OF_VALUES),
    SCALED_BY("scale-of-padded", "1/sqrt(n), n the power of two to which d_k is padded", MHA__SCALE_OF_PADDED),
    SCALED_BY("scale-of-model", "1/sqrt(h d_k)", MHA__SCALE_OF_MODEL),
    SCALED_BY("scale-over-width", "1/d_k", MHA__SCALE_OVER_WIDTH),
    SCALED_BY("scale-times-log2e", "times log2(e), which belongs to the exponent", MHA__SCALE_TIMES_LOG2E),
    SCALED_BY("scale-times-ln2", "times ln(2)", MHA__SCALE_TIMES_LN2),
    FEATURES(8), FEATURES(16), FEATURES(32), FEATURES(64), FEATURES(128),
    CAP("twice", "twice that of the forward", 0, 2),
    CAP("half", "half of that of the forward", 0, 0.5),
    CAP("of-50", "50", 50, 0),
    CAP("of-30", "30", 30, 0),
    {{"softcap-without-factor", "P is computed from tanh(s / c), not c tanh(s / c)", false},
        caps, MHA__BACKWARD_SUMS, leave_out_factor, 0, 0, NULL, 0, {0}},
    {{"softcap-missing", "the backward has no softcap: neither in P nor its derivative", false},
        caps_and_adds_nothing, MHA__BACKWARD_SUMS, leave_out_softcap, 0, 0, NULL, 0, {0}},
    {{"softcap-not-recomputed", "P is computed from scores without softcap", false},
        caps_and_adds_nothing, MHA__BACKWARD_SUMS, other_scores, 1, 0, NULL, 0, {0}},
    SLOPE("missing", "dS lacks the derivative of the softcap", 1),
    SLOPE("of-capped", "the derivative of the softcap is taken at the capped score", 2),
    SLOPE("unsquared", "the derivative of the softcap is taken for 1 - tanh, not 1 - tanh^2", 3),
    SLOPE("times-cap", "the derivative of the softcap is multiplied by the cap", 4),
    SLOPE("over-cap", "the derivative of the softcap is divided by the cap", 5),
    SLOPE("undivided", "the derivative of the softcap is 1 - tanh^2 of the score, not of score / cap", 6),
    SLOPE("plus", "the derivative of the softcap is taken for 1 + tanh^2", 7),
    SLOPE("of-capped-squared", "the derivative of the softcap is taken for 1 - s^2, s the capped score", 8),
    SLOPE("twice", "dS has the derivative of the softcap twice", 9),
    SLOPE("root", "the derivative of the softcap is taken for 1 / cosh, not 1 / cosh^2", 10),
    SLOPE("of-unscaled", "the derivative of the softcap is taken at scores without their scale", 11),
    SLOPE("of-scaled-twice", "the derivative of the softcap is taken at scores with the scale twice", 12),
    SLOPE("inverse", "the derivative of the softcap is taken for cosh^2, not 1 / cosh^2", 13),
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_weights(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
