/* Mistakes of the weights that a backward computes once more from scores and lse. D is that of the forward's output,
 * which is right. */
#include <math.h>

#include "verify/backward/mistakes/mistakes.h"
#include "verify/backward/mistakes/scores.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* ---------------------------------------------------------------- lse */

static bool has_softmax(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return mha__is_softmax(b);
}

static bool has_more_terms(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return mha__is_softmax(b) && (b->r->weight[MHA_SINKS].data || b->r->semantics.softmax.softmax_plus_one);
}

static void scale_query(mha__map *map, size_t i, double factor)
{
    for (size_t j = 0; j < map->n; j++)
        map->weights[i * map->n + j] *= factor;
}

static void leave_out_terms(mha__backward *b, mha__map *map, const mha__mistake *m)
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

/* The lse is taken for `number` times itself. */
static void scale_lse(mha__backward *b, mha__map *map, const mha__mistake *m)
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
static void part_of_lse(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double most = largest_weight(map, i);
        if (most > 0)
            scale_query(map, i, m->number > 0 ? most * exp(map->lse[i]) : 1 / most);
    }
}

/* P normalised over the keys of each block of `number` by itself. */
static void normalise_blocks(mha__backward *b, mha__map *map, const mha__mistake *m)
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

static bool has_key_blocks(const mha__backward *b, const mha__mistake *m)
{
    return has_softmax(b, m) && (double)b->r->plan.S > m->number;
}

static bool has_queries(const mha__backward *b, const mha__mistake *m)
{
    return has_softmax(b, m) && b->r->plan.T_q > 1;
}

/* P normalised over the queries of each key. */
static void normalise_queries(mha__backward *b, mha__map *map, const mha__mistake *m)
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
static void weights_in_base_2(mha__backward *b, mha__map *map, const mha__mistake *m)
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

static bool adds(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return mha__is_softmax(b) && has_added(b);
}

static bool caps(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return mha__is_softmax(b) && b->r->semantics.softmax.softcap > 0;
}

static bool caps_and_adds_nothing(const mha__backward *b, const mha__mistake *m)
{
    return caps(b, m) && !has_added(b);
}

/* Weights of scores without what is added to them (number 0), or without softcap (1). */
static void other_scores(mha__backward *b, mha__map *map, const mha__mistake *m)
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
static void other_slope(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const double c = b->r->semantics.softmax.softcap;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->n; j++) {
            const double score = mha__score_of(b, map, i, j), t = tanh(score / c), turn = cosh(t),
                         scale = b->r->plan.scale, other = cosh(score * (m->number == 12 ? scale : 1 / scale) / c);
            double *slope = &map->slope[i * map->n + j];
            const double undivided = cosh(t > -1 && t < 1 ? c * atanh(t) : INFINITY);
            *slope = m->number == 1   ? 1
                     : m->number == 2 ? 1 / (turn * turn)
                     : m->number == 3 ? 1 - t
                     : m->number == 4 ? *slope * c
                     : m->number == 5 ? *slope / c
                     : m->number == 6 ? 1 / (undivided * undivided)
                     : m->number == 7 ? 1 + t * t
                     : m->number == 8 ? 1 - c * t * c * t
                     : m->number == 9 ? *slope * *slope
                     : m->number == 10 ? sqrt(*slope)
                     : m->number == 13 ? 1 / *slope
                                      : 1 / (other * other);
        }
}

static void leave_out_softcap(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha__mistake scores = {.number = 1}, slope = {.number = 1};
    (void)m;
    other_scores(b, map, &scores);
    other_slope(b, map, &slope);
}

static bool has_softcap(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->semantics.softmax.softcap > 0;
}

/* clang-format off */
#define OF_BLOCKS(B) \
    {{"lse-of-blocks-" #B, "P is normalised in each block of " #B " keys by itself, not over all keys", false}, \
        has_key_blocks, MHA__BACKWARD_SUMS, normalise_blocks, B, 0, NULL, 0}
#define SLOPE(name, what, how) \
    {{"softcap-slope-" name, what, false}, has_softcap, MHA__BACKWARD_SUMS, other_slope, how, 0, NULL, MHA__LEAVES_V}

static const mha__mistake rows[] = {
    {{"lse-without-sinks", "P is computed from an lse of the keys alone, without sinks or plus-one", false},
        has_more_terms, MHA__BACKWARD_SUMS, leave_out_terms, 0, 0, NULL, 0},
    {{"lse-in-base-2", "an lse in base 2 is taken for a natural one: P = exp(s - lse / ln 2)", false},
        has_softmax, MHA__BACKWARD_SUMS, scale_lse, 1.4426950408889634, 0, NULL, 0},
    {{"lse-taken-for-base-2", "a natural lse is taken for one in base 2: P = exp(s - lse ln 2)", false},
        has_softmax, MHA__BACKWARD_SUMS, scale_lse, 0.6931471805599453, 0, NULL, 0},
    {{"lse-missing", "P is not normalised: exp(s)", false}, has_softmax, MHA__BACKWARD_SUMS, scale_lse, 0, 0, NULL, 0},
    {{"lse-is-maximum", "the largest score is taken for lse: P = exp(s - m), without the sum", false},
        has_softmax, MHA__BACKWARD_SUMS, part_of_lse, 0, 0, NULL, 0},
    {{"lse-without-maximum", "lse lacks the largest score: P = exp(s - log l)", false},
        has_softmax, MHA__BACKWARD_SUMS, part_of_lse, 1, 0, NULL, 0},
    {{"weights-in-base-2", "P = 2^(s - lse)", false},
        has_softmax, MHA__BACKWARD_SUMS, weights_in_base_2, 0.6931471805599453, 0, NULL, 0},
    {{"added-not-recomputed", "P is computed from scores without mask, ALiBi, bias or relative terms", false},
        adds, MHA__BACKWARD_SUMS, other_scores, 0, 0, NULL, 0},
    OF_BLOCKS(16), OF_BLOCKS(32), OF_BLOCKS(64), OF_BLOCKS(128),
    {{"weights-over-queries", "P is normalised over the queries of each key once more", false},
        has_queries, MHA__BACKWARD_SUMS, normalise_queries, 0, 0, NULL, MHA__READS_ALL_QUERIES},
    {{"softcap-missing", "the backward has no softcap: neither in P nor its derivative", false},
        caps_and_adds_nothing, MHA__BACKWARD_SUMS, leave_out_softcap, 0, 0, NULL, 0},
    {{"softcap-not-recomputed", "P is computed from scores without softcap", false},
        caps_and_adds_nothing, MHA__BACKWARD_SUMS, other_scores, 1, 0, NULL, 0},
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

mha__mistake_list mha__mistakes_of_weights(void)
{
    return (mha__mistake_list){rows, COUNT(rows)};
}
