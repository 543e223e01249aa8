/* Bugs of dO, D, dlse and dS. */
#include <math.h>
#include <string.h>

#include "verify/backward/bugs/gradient_bugs.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static bool is_softmax(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX;
}

static bool has_d_lse(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->given->d_lse.data != NULL;
}

static bool has_scale(const mha__backward *b, const mha__gradient_bug *m)
{
    return is_softmax(b, m) && b->r->plan.scale != 1;
}

/* D times `number`. */
static void scale_sums(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->sums[i] *= m->number;
}

/* D times the scale. */
static void scaled_sums(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->sums[i] *= b->r->plan.scale;
}

/* D as a mean over the features of dO O. */
static void mean_sums(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->sums[i] /= (double)b->r->plan.d_v;
}

static void scale_d_lse(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->d_lse[i] *= m->number;
}

/* dS = dP - D */
static void leave_out_weights(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const size_t i = at / map->n;
        if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] = map->d_weights[at] - map->sums[i] + map->d_lse[i];
    }
}

/* dS = P dP - D */
static void leave_sums_outside(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const size_t i = at / map->n;
        if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] = map->weights[at] * (map->d_weights[at] + map->d_lse[i]) - map->sums[i];
    }
}

/* D of an O that is not divided by the sum of its exponentials. */
static void unnormalised_sums(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double most = 0;
        for (size_t j = 0; j < map->n; j++)
            most = fmax(most, map->weights[i * map->n + j]);
        map->sums[i] = most > 0 ? map->sums[i] / most : 0;
    }
}

/* D = sum_j dP_ij, or their mean (number 1). */
static void unweighted_sums(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double sum = 0, count = 0;
        for (size_t j = 0; j < map->n; j++)
            if (map->seen[i * map->n + j] == MHA__SEEN)
                sum += map->d_weights[i * map->n + j], count++;
        map->sums[i] = m->number > 0 && count > 0 ? sum / count : sum;
    }
}

/* dS_ij = P_ij (1 - P_ij) dP_ij */
static void keep_diagonal(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] = map->weights[at] * (1 - map->weights[at]) * map->d_weights[at];
}

/* D of each block of `number` keys: the sum of P dP over these alone. */
static void sums_of_blocks(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t block = (size_t)m->number;
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t from = 0; from < map->n; from += block) {
            const size_t first = i * map->n + from, count = map->n - from < block ? map->n - from : block;
            double sum = 0;
            for (size_t at = first; at < first + count; at++)
                sum += map->seen[at] == MHA__SEEN ? map->weights[at] * map->d_weights[at] : 0;
            for (size_t at = first; at < first + count; at++)
                if (map->seen[at] == MHA__SEEN)
                    map->d_masked[at] = map->weights[at] * (map->d_weights[at] - sum + map->d_lse[i]);
        }
}

static bool has_key_blocks(const mha__backward *b, const mha__gradient_bug *m)
{
    return is_softmax(b, m) && (double)b->r->plan.S > m->number;
}

static bool has_queries(const mha__backward *b, const mha__gradient_bug *m)
{
    return is_softmax(b, m) && b->r->plan.T_q > 1;
}

/* D of each key: the sum over its queries. */
static void sums_of_keys(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t j = 0; j < map->n; j++) {
        double sum = 0;
        for (size_t i = 0; i < map->s.T_q; i++)
            if (map->seen[i * map->n + j] == MHA__SEEN)
                sum += map->weights[i * map->n + j] * map->d_weights[i * map->n + j];
        for (size_t i = 0; i < map->s.T_q; i++) {
            const size_t at = i * map->n + j;
            if (map->seen[at] == MHA__SEEN)
                map->d_masked[at] = map->weights[at] * (map->d_weights[at] - sum + map->d_lse[i]);
        }
    }
}

/* What D is made of in place of dO O. */
typedef enum made_of {
    DO_DO,
    O_O,
    SUM_OF_O,
    SUM_OF_DO,
    FIRST_HALF,
    OTHER_WIDTH,
    NEXT_DO,
    NEXT_O,
    FIRST_FEATURES /* of which there are `other` */
} made_of;

/* Feature c of O of query i. */
static double output_at(const mha__backward *b, const mha__map *map, size_t i, size_t c)
{
    double sum = 0;
    for (size_t j = 0; j < map->n; j++)
        if (map->seen[i * map->n + j])
            sum += map->weights[i * map->n + j] * map->V[j * b->r->plan.d_v + c];
    return sum;
}

static void sums_of_others(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const made_of what = (made_of)(int)m->number;
    const size_t d_v = b->r->plan.d_v, T = map->s.T_q,
                 width = what == FIRST_HALF       ? d_v / 2
                         : what == OTHER_WIDTH    ? b->r->plan.d_k
                         : what == FIRST_FEATURES ? (size_t)m->other
                                                  : d_v;
    for (size_t i = 0; i < T; i++) {
        const size_t next = i + 1 < T ? i + 1 : 0;
        map->sums[i] = 0;
        for (size_t c = 0; c < width; c++) {
            const double dO = what == SUM_OF_O || what == O_O ? 1 : map->dO[(what == NEXT_DO ? next : i) * d_v + c],
                         O = what == DO_DO || what == SUM_OF_DO ? dO : output_at(b, map, what == NEXT_O ? next : i, c);
            map->sums[i] += what == SUM_OF_DO ? dO : what == O_O ? O * O : dO * O;
        }
    }
}

static bool has_others(const mha__backward *b, const mha__gradient_bug *m)
{
    const made_of what = (made_of)(int)m->number;
    const mha__sizes *p = &b->r->plan;
    return is_softmax(b, m) && !b->given->whole.lse.data && (what != OTHER_WIDTH || p->d_v > p->d_k) &&
           (what != FIRST_HALF || p->d_v > 1) && (what != FIRST_FEATURES || (double)p->d_v > m->other) &&
           ((what != NEXT_DO && what != NEXT_O) || p->T_q > 1);
}

/* dP of the first `number` features. */
static bool has_more_features(const mha__backward *b, const mha__gradient_bug *m)
{
    return (double)b->r->plan.d_v > m->number;
}

static void fewer_features(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t d = b->r->plan.d_v, n = map->n;
    for (size_t at = 0; at < map->s.T_q * n; at++) {
        double sum = 0;
        for (size_t c = 0; map->seen[at] && (double)c < m->number; c++)
            sum += map->dO[at / n * d + c] * map->V[at % n * d + c];
        map->d_weights[at] = sum;
    }
}

/* D over the keys alone, without the share of sinks: D / (1 - P_s). */
static bool has_sinks(const mha__backward *b, const mha__gradient_bug *m)
{
    return is_softmax(b, m) && (b->r->weight[MHA_SINKS].data || b->r->semantics.softmax.softmax_plus_one);
}

static void sums_without_sinks(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double of_keys = 0;
        for (size_t j = 0; j < map->n; j++)
            of_keys += map->weights[i * map->n + j];
        map->sums[i] /= of_keys > 0 ? of_keys : 1;
    }
}

/* dS = P (dP / cosh^2 - D): the slope of the softcap reaches dP alone. */
static bool has_softcap(const mha__backward *b, const mha__gradient_bug *m)
{
    return is_softmax(b, m) && b->r->semantics.softmax.softcap > 0;
}

static void slope_before_sums(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->seen[at] == MHA__SEEN)
            map->d_scores[at] = map->d_masked[at] =
                map->weights[at] *
                (map->slope[at] * map->d_weights[at] - map->sums[at / map->n] + map->d_lse[at / map->n]);
}

static void ones_for_d_output(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
    for (size_t e = 0; e < map->s.T_q * b->r->plan.d_v; e++)
        map->dO[e] = 1;
}

static void d_lse_times_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->d_lse[i] *= b->r->plan.scale;
}

static bool has_scaled_d_lse(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_d_lse(b, m) && has_scale(b, m);
}

/* dS = P (dP - D) + dlse */
static void leave_d_lse_outside(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] += (1 - map->weights[at]) * map->d_lse[at / map->n];
}

/* dS of exponentials that are not divided by their sum. */
static void leave_unnormalised(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b, (void)m;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double most = 0;
        for (size_t j = 0; j < map->n; j++)
            most = fmax(most, map->weights[i * map->n + j]);
        for (size_t j = 0; j < map->n && most > 0; j++)
            map->d_masked[i * map->n + j] /= most;
    }
}

/* clang-format off */
#define OF_BLOCKS(B) \
    {{"d-of-blocks-" #B, "D is summed up in each block of " #B " keys by itself, not over all keys", false}, \
        has_key_blocks, MHA__BACKWARD_MASKED, sums_of_blocks, B, 0, NULL, MHA__LEAVES_V, {0}}
#define MADE_OF(name, what, how) MADE_OF_SOME(name, what, how, 0)
#define MADE_OF_SOME(name, what, how, count) \
    {{"d-" name, "D is " what ", not rowsum(dO O)", false}, has_others, MHA__BACKWARD_SUMS, sums_of_others, how, \
        count, NULL, MHA__LEAVES_V | MHA__READS_ALL_QUERIES, {0}}
#define FEATURES(B) \
    MADE_OF_SOME("of-features-" #B, "the sum over the first " #B " features", FIRST_FEATURES, B), \
    {{"dp-of-features-" #B, "dP is the sum over the first " #B " features of dO and V", false}, \
        has_more_features, MHA__BACKWARD_SUMS, fewer_features, B, 0, NULL, MHA__LEAVES_V, {0}}
#define D_LSE(name, what, applies, change, number) \
    {{"dlse-" name, what, false}, applies, MHA__BACKWARD_SUMS, change, number, 0, NULL, MHA__LEAVES_V, {0}}

static const mha__gradient_bug rows[] = {
    {{"d-missing", "dS = P dP: D = rowsum(dO O) is not taken away", false},
        is_softmax, MHA__BACKWARD_SUMS, scale_sums, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"d-added", "dS = P (dP + D): D is added", false},
        is_softmax, MHA__BACKWARD_SUMS, scale_sums, -1, 0, NULL, MHA__LEAVES_V, {0}},
    {{"d-twice", "D is taken away twice", false},
        is_softmax, MHA__BACKWARD_SUMS, scale_sums, 2, 0, NULL, MHA__LEAVES_V, {0}},
    {{"d-scaled", "D is multiplied by the scale, dP is not", false}, has_scale, MHA__BACKWARD_SUMS, scaled_sums, 0,
        0, NULL, MHA__LEAVES_V, {0}},
    {{"d-mean", "D is a mean over the features, not their sum", false},
        is_softmax, MHA__BACKWARD_SUMS, mean_sums, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"d-unnormalised", "D is made of an O that is not divided by the sum of its exponentials", false},
        is_softmax, MHA__BACKWARD_SUMS, unnormalised_sums, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"d-unweighted", "D = sum dP, without P", false},
        is_softmax, MHA__BACKWARD_SUMS, unweighted_sums, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"d-mean-of-dp", "D is the mean of dP over the keys", false},
        is_softmax, MHA__BACKWARD_SUMS, unweighted_sums, 1, 0, NULL, MHA__LEAVES_V, {0}},
    {{"softmax-diagonal", "dS = P (1 - P) dP: of the derivative of softmax the diagonal alone", false},
        is_softmax, MHA__BACKWARD_MASKED, keep_diagonal, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"d-outside-weights", "dS = P dP - D, in place of P (dP - D)", false},
        is_softmax, MHA__BACKWARD_MASKED, leave_sums_outside, 0, 0, NULL, MHA__LEAVES_V, {0}},
    OF_BLOCKS(16), OF_BLOCKS(32), OF_BLOCKS(64), OF_BLOCKS(128),
    {{"d-over-queries", "D is summed up over the queries of each key, not over the keys of each query", false},
        has_queries, MHA__BACKWARD_MASKED, sums_of_keys, 0, 0, NULL, MHA__LEAVES_V | MHA__READS_ALL_QUERIES, {0}},
    MADE_OF("of-do", "rowsum(dO dO)", DO_DO),
    MADE_OF("of-output", "rowsum(O O)", O_O),
    MADE_OF("sum-of-output", "rowsum(O)", SUM_OF_O),
    MADE_OF("sum-of-do", "rowsum(dO)", SUM_OF_DO),
    MADE_OF("of-first-half", "the sum over the first half of the features", FIRST_HALF),
    MADE_OF("of-fewer-features", "the sum over d_k features", OTHER_WIDTH),
    MADE_OF("of-do-of-next-query", "rowsum(dO O) with dO of the next query", NEXT_DO),
    MADE_OF("of-output-of-next-query", "rowsum(dO O) with O of the next query", NEXT_O),
    FEATURES(8), FEATURES(16), FEATURES(32), FEATURES(64), FEATURES(128),
    {{"d-without-sinks", "D is a sum over keys whose weights add up to 1, without the share of the sinks", false},
        has_sinks, MHA__BACKWARD_SUMS, sums_without_sinks, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"softcap-slope-before-d", "dS = P (dP / cosh^2 - D): the slope of the softcap reaches dP alone", false},
        has_softcap, MHA__BACKWARD_SCORES, slope_before_sums, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"do-of-ones", "dO is taken for ones: the gradient of a sum of the output", false},
        NULL, MHA__BACKWARD_READ, ones_for_d_output, 0, 0, NULL, 0, {0}},
    {{"ds-unnormalised", "dS is made of exponentials that are not divided by their sum, dV of P", false},
        is_softmax, MHA__BACKWARD_MASKED, leave_unnormalised, 0, 0, NULL, MHA__LEAVES_V, {0}},
    D_LSE("dropped", "the gradient of lse is left out", has_d_lse, scale_d_lse, 0),
    D_LSE("subtracted", "the gradient of lse is taken away, as D is", has_d_lse, scale_d_lse, -1),
    D_LSE("twice", "the gradient of lse is added twice", has_d_lse, scale_d_lse, 2),
    D_LSE("times-log2e", "the gradient of lse is multiplied by log2(e)", has_d_lse, scale_d_lse, 1.4426950408889634),
    D_LSE("times-ln2", "the gradient of lse is multiplied by ln(2)", has_d_lse, scale_d_lse, 0.6931471805599453),
    D_LSE("scaled", "the gradient of lse is multiplied by the scale", has_scaled_d_lse, d_lse_times_scale, 0),
    {{"dlse-outside-weights", "dS = P (dP - D) + dlse, in place of P (dP - D + dlse)", false},
        has_d_lse, MHA__BACKWARD_MASKED, leave_d_lse_outside, 0, 0, NULL, MHA__LEAVES_V, {0}},
    {{"weights-missing-in-ds", "dS = dP - D, without P", false},
        is_softmax, MHA__BACKWARD_MASKED, leave_out_weights, 0, 0, NULL, MHA__LEAVES_V, {0}},
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_sums(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
