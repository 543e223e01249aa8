/* Bugs of the gradients of what is added to scores, and of queries that see nothing. */
#include <math.h>

#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* ---------------------------------------------------------------- what is added */

static bool has_gradient(const mha__backward *b, const mha__gradient_bug *m)
{
    return b->d[(int)m->number].data != NULL;
}

static void times(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha_view *d = &b->d[(int)m->number];
    (void)map;
    for (size_t e = 0; d->data && e < mha_view_elements(d); e++)
        ((double *)d->data)[e] *= m->other;
}

static bool has_broadcast(const mha__backward *b, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    return has_gradient(b, m) && mha_view_elements(&b->d[MHA_D_MASK]) < p->B * p->h * p->T_q * p->S;
}

/* A mean in place of the sum over what shares an element of the mask. */
static void mean(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    const double all = (double)p->B * (double)p->h * (double)p->T_q * (double)p->S;
    const mha__gradient_bug part = {.number = m->number, .other = (double)mha_view_elements(&b->d[MHA_D_MASK]) / all};
    times(b, map, &part);
}

static void times_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__gradient_bug part = {.number = m->number, .other = b->r->plan.scale};
    times(b, map, &part);
}

static bool is_shared(const mha__backward *b, const mha__gradient_bug *m)
{
    return m->number == MHA_D_MASK ? has_broadcast(b, m) : has_gradient(b, m) && b->r->plan.B > 1;
}

/* What a head is about to add to replaces what heads and batch rows before it added; `other`: batch rows alone do. */
static void overwrite(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha_view *d = &b->d[(int)m->number];
    if (m->other > 0 && map->head > 0)
        return;
    if (m->number != MHA_D_MASK)
        ((double *)d->data)[map->head] = 0;
    for (size_t i = 0; m->number == MHA_D_MASK && i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++)
            *mha__mask_element(d, (const size_t[]){map->b, map->head, i, j}, 4) = 0;
}

typedef enum share {
    FIRST_BATCH_ROW,
    FIRST_HEAD,
    LAST_HEAD,
    FIRST_OF_ALL, /* the first head of the first batch row */
    LAST_ROW,
    WITHOUT_SUMS, /* P dP, without D */
    OF_D_WEIGHTS, /* dP */
    OF_WEIGHTS    /* P */
} share;

/* Heads or batch rows share what is added to scores, and the sum over them is all of its gradient. */
static bool is_sum(const mha__backward *b, const mha__gradient_bug *m)
{
    const mha_semantics *s = &b->r->semantics;
    const bool any = b->d[MHA_D_MASK].data || b->d[MHA_D_ALIBI_SLOPES].data || b->d[MHA_D_KEY_PADDING].data;
    return any && s->added.relative.rule == MHA_RELATIVE_NONE &&
           (m->number == FIRST_BATCH_ROW ? b->r->plan.B > 1
            : m->number == FIRST_OF_ALL  ? b->r->plan.B > 1 && b->r->plan.h > 1
            : m->number == LAST_ROW      ? b->r->plan.T_q > 1
            : m->number >= WITHOUT_SUMS  ? b->r->semantics.softmax.normaliser == MHA_SOFTMAX
                                         : b->r->plan.h > 1);
}

/* What other heads, batch rows or queries would add is left out. */
static void leave_out(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const share of = (share)m->number;
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        if (of >= WITHOUT_SUMS) {
            const double P = map->weights[at], dP = map->d_weights[at];
            const double made = of == WITHOUT_SUMS ? P * dP : of == OF_WEIGHTS ? P : dP;
            map->d_masked[at] = map->seen[at] == MHA__SEEN ? made : 0;
            continue;
        }
        const bool counts = of == FIRST_BATCH_ROW ? map->b == 0
                            : of == FIRST_HEAD    ? map->head == 0
                            : of == FIRST_OF_ALL  ? map->b == 0 && map->head == 0
                            : of == LAST_ROW      ? at / map->n + 1 == map->s.T_q
                                                  : map->head + 1 == b->r->plan.h;
        map->d_masked[at] *= counts;
    }
}

/* d slope = -sum_ij |p_i - q_j| dZ_ij */
static void measure_distance(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    double *d = (double *)b->d[MHA_D_ALIBI_SLOPES].data + map->head;
    (void)m;
    for (size_t at = 0; !map->sizes && at < map->s.T_q * map->n; at++) {
        const double ahead =
            (double)(b->r->first_key + (int64_t)(at % map->n) - map->s.offset - (int64_t)(at / map->n));
        if (map->seen[at] == MHA__SEEN && ahead > 0)
            *d -= 2 * ahead * map->d_masked[at];
    }
}

/* ---------------------------------------------------------------- sinks: d sink = sum_i P_s (dlse_i - D_i) */

typedef enum sink {
    OF_FIRST_BATCH_ROW,
    OF_LAST_ROW,
    OF_LAST_BLOCK, /* of `other` queries */
    OF_FIRST_BLOCK,
    SQUARED,        /* P_s^2 (dlse - D) */
    WITHOUT_D,      /* P_s */
    WITHOUT_P,      /* dlse - D */
    EXPONENTIAL,    /* e^sink (dlse - D) */
    WITHOUT_ITSELF, /* P_s of an lse of the keys alone */
    DIAGONAL,       /* P_s (1 - P_s) (dlse - D) */
    WITHOUT_D_LSE
} sink;

static bool has_sinks(const mha__backward *b, const mha__gradient_bug *m)
{
    const sink how = (sink)(int)m->number;
    const mha__sizes *p = &b->r->plan;
    return b->d[MHA_D_WEIGHTS + MHA_SINKS].data && b->r->weight[MHA_SINKS].data &&
           (how != OF_FIRST_BATCH_ROW || p->B > 1) && (how != OF_LAST_ROW || p->T_q > 1) &&
           ((how != OF_LAST_BLOCK && how != OF_FIRST_BLOCK) || (double)p->T_q > m->other) &&
           (how != WITHOUT_D_LSE || b->given->d_lse.data);
}

/* What query i adds to the gradient of a sink of weight P. */
static double sink_part(const mha__map *map, const mha__gradient_bug *m, size_t i, double sink_value, double P)
{
    const sink how = (sink)(int)m->number;
    const double X = map->d_lse[i] - map->sums[i];
    const size_t T = map->s.T_q, block = (size_t)m->other;
    switch (how) {
    case OF_FIRST_BATCH_ROW: return map->b == 0 ? P * X : 0;
    case OF_LAST_ROW: return i + 1 == T ? P * X : 0;
    case OF_LAST_BLOCK: return i >= (T - 1) / block * block ? P * X : 0;
    case OF_FIRST_BLOCK: return i < block ? P * X : 0;
    case SQUARED: return P * P * X;
    case WITHOUT_D: return P;
    case WITHOUT_P: return X;
    case EXPONENTIAL: return exp(sink_value) * X;
    case WITHOUT_ITSELF: return P / (1 - P) * X;
    case DIAGONAL: return P * (1 - P) * X;
    case WITHOUT_D_LSE: return -P * map->sums[i];
    }
    return 0;
}

/* Puts these in place of what has been added. */
static void add_otherwise(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const double value = mha_view_get(&b->r->weight[MHA_SINKS], &map->head);
    double *d = (double *)b->d[MHA_D_WEIGHTS + MHA_SINKS].data + map->head;
    for (size_t i = 0; !map->sizes && value != -INFINITY && i < map->s.T_q; i++) {
        const double P = exp(value - map->lse[i]);
        if (map->lse[i] > -INFINITY)
            *d += sink_part(map, m, i, value, P) - P * (map->d_lse[i] - map->sums[i]);
    }
}

/* ---------------------------------------------------------------- queries that see nothing */

static bool is_empty(const mha__map *map, size_t i)
{
    bool empty = true;
    for (size_t j = 0; j < map->n; j++)
        empty = empty && map->seen[i * map->n + j] != MHA__SEEN;
    return empty;
}

static bool has_softmax(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX;
}

/* dQ of such a query is NaN (number 0); dK and dV of its sequence, too (1). */
static void spread_nan(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t d_k = b->r->plan.d_k, d_v = b->r->plan.d_v;
    for (size_t i = 0; i < map->s.T_q; i++) {
        if (!is_empty(map, i))
            continue;
        for (size_t c = 0; c < d_k; c++)
            map->dQ[i * d_k + c] = NAN;
        for (size_t e = 0; m->number > 0 && e < map->n * d_k; e++)
            map->dK[e] = NAN;
        for (size_t e = 0; m->number > 0 && e < map->n * d_v; e++)
            map->dV[e] = NAN;
    }
}

/* P of such a query is 1 / n for each of n keys (number 0), or 1; its O, and D, are 0. */
static void weigh_empty(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t d_v = b->r->plan.d_v;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const bool empty = is_empty(map, i);
        for (size_t j = 0; j < map->s.S && empty; j++) {
            const size_t at = i * map->n + j;
            if (!mha__has_terms(b, map, i, j))
                continue;
            map->seen[at] = MHA__SEEN, map->slope[at] = 1;
            map->weights[at] = m->number > 0 ? 1 : 1 / (double)map->s.S;
            map->d_weights[at] = mha__d_weight_of(b, map->dO + i * d_v, map->V + j * d_v);
        }
    }
}

static bool has_plain_softmax(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_softmax(b, m) && b->r->plan.S_extra == 0 && b->r->semantics.added.relative.rule == MHA_RELATIVE_NONE;
}

#define SINKS (MHA_D_WEIGHTS + MHA_SINKS)
#define LEAVES_ALL (MHA__LEAVES_Q | MHA__LEAVES_K | MHA__LEAVES_V)

/* clang-format off */
#define SINK(name, what, how, other) \
    {{"sinks-" name, "the gradient of a sink is " what, false}, has_sinks, MHA__BACKWARD_ADDED, add_otherwise, how, \
        other, NULL, LEAVES_ALL, {0}}
#define LAST_BLOCK(B) \
    SINK("of-last-block-" #B, "that of the last block of " #B " queries of each batch row", OF_LAST_BLOCK, B), \
    SINK("of-first-block-" #B, "that of the first block of " #B " queries of each batch row", OF_FIRST_BLOCK, B)

static const mha__gradient_bug rows[] = {
    {{"sinks-zero", "the gradient of the sinks is 0", false},
        has_gradient, MHA__BACKWARD_HEADS, times, SINKS, 0, NULL, LEAVES_ALL, {0}},
    {{"sinks-negated", "the gradient of the sinks has the other sign", false},
        has_gradient, MHA__BACKWARD_HEADS, times, SINKS, -1, NULL, LEAVES_ALL, {0}},
    SINK("of-first-batch-row", "that of the first batch row alone", OF_FIRST_BATCH_ROW, 0),
    SINK("of-last-row", "that of the last query of each batch row", OF_LAST_ROW, 0),
    LAST_BLOCK(16), LAST_BLOCK(32), LAST_BLOCK(64), LAST_BLOCK(128),
    SINK("squared", "made of the square of its weight", SQUARED, 0),
    SINK("without-d", "the sum of its weights, without D", WITHOUT_D, 0),
    SINK("without-weight", "the sum of -D, without its weight", WITHOUT_P, 0),
    SINK("unnormalised", "made of e^sink in place of e^(sink - lse)", EXPONENTIAL, 0),
    SINK("of-other-lse", "made of an lse without the sinks", WITHOUT_ITSELF, 0),
    SINK("diagonal", "sum P (1 - P) (-D): P is the weight of a sink", DIAGONAL, 0),
    SINK("without-dlse", "made without the gradient of lse", WITHOUT_D_LSE, 0),
    {{"mask-zero", "the gradient of the mask is 0", false}, has_gradient, MHA__BACKWARD_HEADS, times, MHA_D_MASK, 0,
        NULL, LEAVES_ALL, {0}},
    {{"mask-mean", "the gradient of a mask that is broadcast is a mean, not a sum", false},
        has_broadcast, MHA__BACKWARD_HEADS, mean, MHA_D_MASK, 0, NULL, LEAVES_ALL, {0}},
    {{"mask-overwritten", "the gradient of a mask that heads or batch rows share is that of the last, not their sum",
      false}, is_shared, MHA__BACKWARD_PRODUCTS, overwrite, MHA_D_MASK, 0, NULL, LEAVES_ALL, {0}},
    {{"mask-of-last-batch-row", "the gradient of a mask that batch rows share is that of the last one", false},
        is_shared, MHA__BACKWARD_PRODUCTS, overwrite, MHA_D_MASK, 1, NULL, LEAVES_ALL, {0}},
    {{"added-of-first-batch-row",
      "the gradient of what is added to scores (mask, slopes) is that of the first batch row alone", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, FIRST_BATCH_ROW, 0, NULL, LEAVES_ALL, {0}},
    {{"added-of-first-head", "the gradient of what is added to scores is that of the first head alone", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, FIRST_HEAD, 0, NULL, LEAVES_ALL, {0}},
    {{"added-of-last-head", "the gradient of what is added to scores is that of the last head alone", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, LAST_HEAD, 0, NULL, LEAVES_ALL, {0}},
    {{"added-of-first-head-of-first-batch-row",
      "the gradient of what is added to scores is that of the first head of the first batch row alone", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, FIRST_OF_ALL, 0, NULL, LEAVES_ALL, {0}},
    {{"added-of-last-row", "the gradient of what is added to scores is that of the last query of each batch row",
      false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, LAST_ROW, 0, NULL, LEAVES_ALL, {0}},
    {{"added-without-d", "the gradient of what is added to scores is P dP, without D", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, WITHOUT_SUMS, 0, NULL, LEAVES_ALL, {0}},
    {{"added-of-d-weights", "the gradient of what is added to scores is dP", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, OF_D_WEIGHTS, 0, NULL, LEAVES_ALL, {0}},
    {{"added-of-weights", "the gradient of what is added to scores is P", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, OF_WEIGHTS, 0, NULL, LEAVES_ALL, {0}},
    {{"alibi-slopes-of-distance", "the gradient of the ALiBi slopes takes the distance of a key without its sign",
      false}, has_gradient, MHA__BACKWARD_ADDED, measure_distance, MHA_D_ALIBI_SLOPES, 0, NULL, LEAVES_ALL, {0}},
    {{"sinks-overwritten", "the gradient of the sinks is that of the last batch row, not their sum", false},
        is_shared, MHA__BACKWARD_PRODUCTS, overwrite, SINKS, 0, NULL, LEAVES_ALL, {0}},
    {{"alibi-slopes-overwritten", "the gradient of the ALiBi slopes is that of the last batch row, not their sum",
      false}, is_shared, MHA__BACKWARD_PRODUCTS, overwrite, MHA_D_ALIBI_SLOPES, 0, NULL, LEAVES_ALL, {0}},
    {{"mask-scaled", "the gradient of the mask is multiplied by the scale", false},
        has_gradient, MHA__BACKWARD_HEADS, times_scale, MHA_D_MASK, 0, NULL, LEAVES_ALL, {0}},
    {{"alibi-slopes-negated", "the gradient of the ALiBi slopes has the other sign", false},
        has_gradient, MHA__BACKWARD_HEADS, times, MHA_D_ALIBI_SLOPES, -1, NULL, LEAVES_ALL, {0}},
    {{"empty-rows-nan", "dQ of a query that sees no key is NaN", false},
        has_softmax, MHA__BACKWARD_ADDED, spread_nan, 0, 0, NULL, 0, {0}},
    {{"empty-rows-nan-everywhere", "a query that sees no key makes all dK and dV of its sequence NaN", false},
        has_softmax, MHA__BACKWARD_ADDED, spread_nan, 1, 0, NULL, 0, {0}},
    {{"empty-rows-uniform", "a query that sees no key weighs all keys alike, as a softmax of equal numbers does",
      false},
        has_plain_softmax, MHA__BACKWARD_SUMS, weigh_empty, 0, 0, NULL, 0, {0}},
    {{"empty-rows-of-ones", "a query that sees no key has weights of 1: exp(s - lse) of -infinity less -infinity",
      false},
        has_plain_softmax, MHA__BACKWARD_SUMS, weigh_empty, 1, 0, NULL, 0, {0}},
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_added(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
