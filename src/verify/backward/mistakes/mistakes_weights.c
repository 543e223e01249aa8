/* Mistakes of the weights that a backward computes once more from scores and lse. D is that of the forward's output,
 * which is right. */
#include <math.h>

#include "verify/backward/mistakes/mistakes.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static bool is_softmax(const mha__backward *b)
{
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX;
}

/* ---------------------------------------------------------------- lse */

static bool has_softmax(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return is_softmax(b);
}

static bool has_more_terms(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return is_softmax(b) && (b->r->weight[MHA_SINKS].data || b->r->semantics.softmax.softmax_plus_one);
}

static bool has_two_queries(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return is_softmax(b) && b->r->plan.T_q > 1;
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

static void other_lse(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b;
    const size_t T = map->s.T_q;
    for (size_t i = 0; i < T && T > 1; i++) {
        const size_t of = m->number > 0 ? (i + 1 < T ? i + 1 : 0) : (i > 0 ? i - 1 : T - 1);
        if (isfinite(map->lse[i]) && isfinite(map->lse[of]))
            scale_query(map, i, exp(map->lse[i] - map->lse[of]));
    }
}

static bool has_two_heads(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return is_softmax(b) && b->r->plan.h > 1 && !b->r->semantics.place.cu_seqlens_q;
}

/* The lse of the next head (number 0), or that of an array (batch, heads, T) which is read as (batch, T, heads). */
static void lse_elsewhere(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t h = b->r->plan.h, T = map->s.T_q;
    for (size_t i = 0; i < T; i++) {
        const size_t at = i * h + map->head, head = m->number > 0 ? at / T : (map->head + 1) % h,
                     query = m->number > 0 ? at % T : i;
        const double lse = mha_view_get(&b->stages[MHA_STAGE_LSE], (size_t[]){map->b, head, query});
        if (isfinite(map->lse[i]) && isfinite(lse))
            scale_query(map, i, exp(map->lse[i] - lse));
    }
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

/* 2^(s - lse) */
static void weights_in_base_2(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->weights[at] > 0)
            map->weights[at] = pow(map->weights[at], m->number);
}

/* ---------------------------------------------------------------- scores */

static double softcapped(const mha__backward *b, double score)
{
    const double c = b->r->semantics.softmax.softcap;
    return c > 0 ? c * tanh(score / c) : score;
}

static double score_of(const mha__backward *b, const mha__map *map, size_t i, size_t j)
{
    const size_t d = b->r->plan.d_k;
    double sum = 0;
    for (size_t c = 0; c < d; c++)
        sum += map->Q[i * d + c] * map->K[j * d + c];
    return sum * b->r->plan.scale;
}

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
    return is_softmax(b) && has_added(b);
}

static bool caps(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return is_softmax(b) && b->r->semantics.softmax.softcap > 0;
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
            const double s = score_of(b, map, i, j);
            if (map->seen[i * map->n + j] == MHA__SEEN)
                map->weights[i * map->n + j] = exp((m->number > 0 ? s : softcapped(b, s)) - map->lse[i]);
        }
}

/* 1: no slope; 2: the slope at the capped score; 3: 1 - tanh in place of 1 - tanh^2; 4: times c; 5: over c; 6: that at
 * a score which is not divided by c; 7: 1 + tanh^2; 8: 1 - capped^2; 9: twice; 10: its root */
static void other_slope(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const double c = b->r->semantics.softmax.softcap;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->n; j++) {
            const double t = tanh(score_of(b, map, i, j) / c), turn = cosh(t);
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
                                      : sqrt(*slope);
        }
}

static bool has_softcap(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->semantics.softmax.softcap > 0;
}

/* ---------------------------------------------------------------- which keys are seen */

/* What hides keys, if it alone does. */
enum { BY_CAUSAL = 1, BY_WINDOW = 2, BY_LENGTHS = 4, BY_MASK = 8, BY_OTHERS = 16 };

static int hiders(const mha__backward *b)
{
    const mha_visible *v = &b->r->semantics.visible;
    const mha_pattern *p = &v->pattern;
    const bool others = v->key_padding.kind || v->chunk || v->prefix || mha__kept_keys(&b->r->semantics) > 0 ||
                        p->q_segments.data || p->query_padding.kind || p->key_lists.data || p->blocks.kind;
    return (v->causal ? BY_CAUSAL : 0) | (v->window ? BY_WINDOW : 0) | (v->kv_lengths ? BY_LENGTHS : 0) |
           (v->mask.kind ? BY_MASK : 0) | (others ? BY_OTHERS : 0);
}

/* The call has what `number` names, and nothing else decides what is seen. */
static bool hides_by(const mha__backward *b, const mha__mistake *m)
{
    const mha_visible *v = &b->r->semantics.visible;
    return hiders(b) == (int)m->number && !has_added(b) && is_softmax(b) &&
           ((int)m->number != BY_WINDOW || v->window_left >= 0);
}

/* The pair is hidden, or seen with the weight that its score has. */
static void show_pair(const mha__backward *b, mha__map *map, size_t i, size_t j, bool shows)
{
    const size_t at = i * map->n + j, d_v = b->r->plan.d_v;
    const double score = score_of(b, map, i, j), c = b->r->semantics.softmax.softcap;
    if ((map->seen[at] == MHA__SEEN) == shows || !isfinite(map->lse[i]) || !isfinite(score))
        return;
    map->seen[at] = shows ? MHA__SEEN : MHA__HIDDEN;
    map->weights[at] = shows ? exp(softcapped(b, score) - map->lse[i]) : 0;
    map->slope[at] = c > 0 ? 1 / (cosh(score / c) * cosh(score / c)) : 1;
    map->d_weights[at] = 0;
    for (size_t k = 0; k < d_v; k++)
        map->d_weights[at] += map->dO[i * d_v + k] * map->V[j * d_v + k];
}

/* Moves the last key that is seen by `other` keys; 99: all keys are seen. */
static void move_last(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++) {
            const int64_t past = b->r->first_key + (int64_t)j - map->s.offset - (int64_t)i;
            if (m->other == 99)
                show_pair(b, map, i, j, true);
            else if (m->other > 0 ? past == 1 : past == 0)
                show_pair(b, map, i, j, m->other > 0);
        }
}

/* Queries are the first ones of the keys (number 0 of `other`), or the last ones: aligned top-left, or bottom-right. */
static void align(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const int64_t first = m->other > 0 ? (int64_t)map->s.S - (int64_t)map->s.T_q : 0;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++)
            show_pair(b, map, i, j, (int64_t)j <= (int64_t)i + first);
}

static bool is_causal_aside(const mha__backward *b, const mha__mistake *m)
{
    return hides_by(b, m) && b->r->plan.T_q != b->r->plan.S;
}

/* Blocks of `other` keys that begin before a query are seen whole. */
static void show_blocks(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const int64_t block = (int64_t)m->other;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++)
            if ((b->r->first_key + (int64_t)j) / block <= (map->s.offset + (int64_t)i) / block)
                show_pair(b, map, i, j, true);
}

/* The same of the first key that a window shows. */
static void move_first(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const int64_t left = b->r->semantics.visible.window_left;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++) {
            const int64_t before = map->s.offset + (int64_t)i - b->r->first_key - (int64_t)j;
            if (before == (m->other > 0 ? left + 1 : left))
                show_pair(b, map, i, j, m->other > 0);
        }
}

/* A mask alone decides what is seen and what is added, and has as many queries as keys. */
static bool has_square_mask(const mha__backward *b, const mha__mistake *m)
{
    const mha__sizes *p = &b->r->plan;
    return has_two_queries(b, m) && hiders(b) == BY_MASK && !has_added_beside_mask(b) && p->T_q == p->S &&
           p->S_extra == 0 && !b->r->semantics.place.cu_seqlens_q;
}

/* What the mask adds to a pair: minus infinity where it hides. */
static double mask_at(const mha__backward *b, const mha__map *map, size_t i, size_t j)
{
    const size_t at = i * map->n + j;
    return map->seen[at] == MHA__SEEN ? log(map->weights[at]) + map->lse[i] - softcapped(b, score_of(b, map, i, j))
                                      : -INFINITY;
}

/* P with the mask of query j and key i in place of that of query i and key j, pair by pair. */
static void transpose_mask(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    for (size_t i = 0; i < map->n; i++)
        for (size_t j = 0; j < i; j++) {
            const double mine = mask_at(b, map, i, j), other = mask_at(b, map, j, i);
            show_pair(b, map, i, j, other > -INFINITY);
            show_pair(b, map, j, i, mine > -INFINITY);
            if (map->seen[i * map->n + j] == MHA__SEEN)
                map->weights[i * map->n + j] = exp(softcapped(b, score_of(b, map, i, j)) + other - map->lse[i]);
            if (map->seen[j * map->n + i] == MHA__SEEN)
                map->weights[j * map->n + i] = exp(softcapped(b, score_of(b, map, j, i)) + mine - map->lse[j]);
        }
}

/* clang-format off */
#define BLOCKS(B) \
    {{"causal-by-blocks-" #B, "the backward is causal by blocks of " #B " keys: within the last one it hides none", \
      false}, hides_by, MHA__BACKWARD_SUMS, show_blocks, BY_CAUSAL, B, NULL}

static const mha__mistake rows[] = {
    {{"mask-transposed", "the mask of the backward is transposed: that of query j and key i hides key j from query i",
      false},
        has_square_mask, MHA__BACKWARD_SUMS, transpose_mask, 0, 0, NULL},
    {{"lse-without-sinks", "P is computed from an lse of the keys alone, without sinks or plus-one", false},
        has_more_terms, MHA__BACKWARD_SUMS, leave_out_terms, 0, 0, NULL},
    {{"lse-in-base-2", "an lse in base 2 is taken for a natural one: P = exp(s - lse / ln 2)", false},
        has_softmax, MHA__BACKWARD_SUMS, scale_lse, 1.4426950408889634, 0, NULL},
    {{"lse-taken-for-base-2", "a natural lse is taken for one in base 2: P = exp(s - lse ln 2)", false},
        has_softmax, MHA__BACKWARD_SUMS, scale_lse, 0.6931471805599453, 0, NULL},
    {{"lse-missing", "P is not normalised: exp(s)", false}, has_softmax, MHA__BACKWARD_SUMS, scale_lse, 0, 0, NULL},
    {{"lse-is-maximum", "the largest score is taken for lse: P = exp(s - m), without the sum", false},
        has_softmax, MHA__BACKWARD_SUMS, part_of_lse, 0, 0, NULL},
    {{"lse-without-maximum", "lse lacks the largest score: P = exp(s - log l)", false},
        has_softmax, MHA__BACKWARD_SUMS, part_of_lse, 1, 0, NULL},
    {{"weights-in-base-2", "P = 2^(s - lse)", false},
        has_softmax, MHA__BACKWARD_SUMS, weights_in_base_2, 0.6931471805599453, 0, NULL},
    {{"lse-of-next-query", "P of a query is computed from the lse of the next one", false},
        has_two_queries, MHA__BACKWARD_SUMS, other_lse, 1, 0, NULL},
    {{"lse-of-previous-query", "P of a query is computed from the lse of the one before", false},
        has_two_queries, MHA__BACKWARD_SUMS, other_lse, -1, 0, NULL},
    {{"lse-of-next-head", "P of a head is computed from the lse of the next one", false},
        has_two_heads, MHA__BACKWARD_SUMS, lse_elsewhere, 0, 0, NULL},
    {{"lse-of-other-order", "lse is read as (batch, T, heads) and is (batch, heads, T)", false},
        has_two_heads, MHA__BACKWARD_SUMS, lse_elsewhere, 1, 0, NULL},
    {{"added-not-recomputed", "P is computed from scores without mask, ALiBi, bias or relative terms", false},
        adds, MHA__BACKWARD_SUMS, other_scores, 0, 0, NULL},
    {{"softcap-not-recomputed", "P is computed from scores without softcap", false},
        caps_and_adds_nothing, MHA__BACKWARD_SUMS, other_scores, 1, 0, NULL},
    {{"softcap-slope-missing", "dS lacks the derivative of the softcap", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 1, 0, NULL},
    {{"softcap-slope-of-capped", "the derivative of the softcap is taken at the capped score", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 2, 0, NULL},
    {{"softcap-slope-unsquared", "the derivative of the softcap is taken for 1 - tanh, not 1 - tanh^2", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 3, 0, NULL},
    {{"softcap-slope-times-cap", "the derivative of the softcap is multiplied by the cap", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 4, 0, NULL},
    {{"softcap-slope-over-cap", "the derivative of the softcap is divided by the cap", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 5, 0, NULL},
    {{"softcap-slope-undivided", "the derivative of the softcap is 1 - tanh^2 of the score, not of score / cap", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 6, 0, NULL},
    {{"softcap-slope-plus", "the derivative of the softcap is taken for 1 + tanh^2", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 7, 0, NULL},
    {{"softcap-slope-of-capped-squared", "the derivative of the softcap is taken for 1 - s^2, s the capped score",
      false}, has_softcap, MHA__BACKWARD_SUMS, other_slope, 8, 0, NULL},
    {{"softcap-slope-twice", "dS has the derivative of the softcap twice", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 9, 0, NULL},
    {{"softcap-slope-root", "the derivative of the softcap is taken for 1 / cosh, not 1 / cosh^2", false},
        has_softcap, MHA__BACKWARD_SUMS, other_slope, 10, 0, NULL},
    {{"causal-missing", "the backward is not causal, the forward is", false},
        hides_by, MHA__BACKWARD_SUMS, move_last, BY_CAUSAL, 99, NULL},
    {{"causal-one-more", "the backward is causal with one key more: j <= i + 1", false},
        hides_by, MHA__BACKWARD_SUMS, move_last, BY_CAUSAL, 1, NULL},
    {{"causal-strict", "the backward is causal without the query's own position: j < i", false},
        hides_by, MHA__BACKWARD_SUMS, move_last, BY_CAUSAL, -1, NULL},
    {{"causal-top-left", "the backward is causal as if the queries were the first tokens", false},
        is_causal_aside, MHA__BACKWARD_SUMS, align, BY_CAUSAL, 0, NULL},
    {{"causal-bottom-right", "the backward is causal as if the queries were the last tokens", false},
        is_causal_aside, MHA__BACKWARD_SUMS, align, BY_CAUSAL, 1, NULL},
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    {{"window-missing", "the backward has no window, the forward has one", false},
        hides_by, MHA__BACKWARD_SUMS, move_last, BY_WINDOW, 99, NULL},
    {{"window-one-more", "the window of the backward begins one key earlier", false},
        hides_by, MHA__BACKWARD_SUMS, move_first, BY_WINDOW, 1, NULL},
    {{"window-one-less", "the window of the backward begins one key later", false},
        hides_by, MHA__BACKWARD_SUMS, move_first, BY_WINDOW, -1, NULL},
    {{"mask-missing", "the backward has no mask of flags, the forward has one", false},
        hides_by, MHA__BACKWARD_SUMS, move_last, BY_MASK, 99, NULL},
    {{"lengths-missing", "the backward counts keys behind the length of their sequence", false},
        hides_by, MHA__BACKWARD_SUMS, move_last, BY_LENGTHS, 99, NULL},
};
/* clang-format on */

mha__mistake_list mha__mistakes_of_weights(void)
{
    return (mha__mistake_list){rows, COUNT(rows)};
}
