/* Bugs of the gradients of what is added to scores, and of queries that see nothing. */
#include <math.h>

#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

enum { SINKS = MHA_D_WEIGHTS + MHA_SINKS };

/* Sites are gradients. What lies outside a part of the queries, heads or batch rows is left out, or a formula taken: */
enum { IN_PART,
       SHARE, /* the elements of the mask over the pairs: a mean, not a sum */
       /* of dZ, with P and dP of the pair, */
       WITHOUT_SUMS, /* P dP, without D */
       OF_D_WEIGHTS, OF_WEIGHTS,
       /* of d sink = sum_i P_s (dlse_i - D_i) */
       SQUARED, /* P_s^2 (dlse - D) */
       WITHOUT_D, WITHOUT_P,
       EXPONENTIAL,    /* e^sink (dlse - D) */
       WITHOUT_ITSELF, /* P_s of an lse of the keys alone */
       DIAGONAL,       /* P_s (1 - P_s) (dlse - D) */
       WITHOUT_D_LSE };
/* The part of the first head of the first batch row. */
enum { OF_ALL = MHA__OTHER_WIDTH + 1 };

/* How many elements a mask has for each pair. */
static double share_of(const mha__backward *b)
{
    const mha__sizes *p = &b->r->plan;
    return (double)mha_view_elements(&b->d[MHA_D_MASK]) / ((double)p->B * (double)p->h * (double)p->T_q * (double)p->S);
}

static void times(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha_view *d = &b->d[bug->mutation.site];
    const double f = bug->mutation.op == SHARE ? share_of(b) : mha__factor(&bug->mutation, b->r);
    (void)map;
    for (size_t e = 0; d->data && e < mha_view_elements(d); e++)
        ((double *)d->data)[e] *= f;
}

/* What a head is about to add to replaces what heads and batch rows before it added; `step`: batch rows alone do. */
static void overwrite(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const int site = bug->mutation.site;
    if (bug->mutation.step > 0 && map->head > 0)
        return;
    if (site != MHA_D_MASK)
        ((double *)b->d[site].data)[map->head] = 0;
    for (size_t i = 0; site == MHA_D_MASK && i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++)
            if (mha__has_terms(b, map, i, j))
                *mha__mask_element(&b->d[site], (const size_t[]){map->b, map->head, i, j}, 4) = 0;
}

/* Whether query i of a map belongs to a part. */
static bool counts(const mha__backward *b, const mha__map *map, const mha__mutation *m, size_t i)
{
    const size_t at[] = {map->b, i, map->head}, n[] = {b->r->plan.B, map->s.T_q, b->r->plan.h};
    if (m->arg == OF_ALL)
        return map->b == 0 && map->head == 0;
    return mha__part_has((mha__axis_part)m->arg, (size_t)m->step, at[m->axis], n[m->axis]);
}

static void leave_out(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const double P = map->weights[at], dP = map->d_weights[at];
        if (m->op == IN_PART)
            map->d_masked[at] *= counts(b, map, m, at / map->n);
        else if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] = m->op == WITHOUT_SUMS ? P * dP : m->op == OF_WEIGHTS ? P : dP;
        else
            map->d_masked[at] = 0;
    }
}

/* d slope = -sum_ij |p_i - q_j| dZ_ij */
static void measure_distance(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    double *d = (double *)b->d[MHA_D_ALIBI_SLOPES].data + map->head;
    (void)bug;
    for (size_t at = 0; !map->sizes && at < map->s.T_q * map->n; at++) {
        const double ahead =
            (double)(b->r->first_key + (int64_t)(at % map->n) - map->s.offset - (int64_t)(at / map->n));
        if (map->seen[at] == MHA__SEEN && ahead > 0)
            *d -= 2 * ahead * map->d_masked[at];
    }
}

/* ---------------------------------------------------------------- sinks */

/* What query i adds to the gradient of a sink of weight P. */
static double sink_part(const mha__backward *b, const mha__map *map, const mha__mutation *m, size_t i,
                        double sink_value, double P)
{
    const double X = map->d_lse[i] - map->sums[i];
    switch (m->op) {
    case SQUARED: return P * P * X;
    case WITHOUT_D: return P;
    case WITHOUT_P: return X;
    case EXPONENTIAL: return exp(sink_value) * X;
    case WITHOUT_ITSELF: return P / (1 - P) * X;
    case DIAGONAL: return P * (1 - P) * X;
    case WITHOUT_D_LSE: return -P * map->sums[i];
    default: return counts(b, map, m, i) ? P * X : 0;
    }
}

/* Puts these in place of what has been added. */
static void add_otherwise(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const double value = mha_view_get(&b->r->weight[MHA_SINKS], &map->head);
    double *d = (double *)b->d[SINKS].data + map->head;
    for (size_t i = 0; !map->sizes && value != -INFINITY && i < map->s.T_q; i++) {
        const double P = exp(value - map->lse[i]);
        if (map->lse[i] > -INFINITY)
            *d += sink_part(b, map, &bug->mutation, i, value, P) - P * (map->d_lse[i] - map->sums[i]);
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

/* dQ of such a query is NaN; with `step` dK and dV of its sequence, too. */
static void spread_nan(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const size_t d_k = b->r->plan.d_k, d_v = b->r->plan.d_v;
    for (size_t i = 0; i < map->s.T_q; i++) {
        if (!is_empty(map, i))
            continue;
        for (size_t c = 0; c < d_k; c++)
            map->dQ[i * d_k + c] = NAN;
        for (size_t e = 0; bug->mutation.step > 0 && e < map->n * d_k; e++)
            map->dK[e] = NAN;
        for (size_t e = 0; bug->mutation.step > 0 && e < map->n * d_v; e++)
            map->dV[e] = NAN;
    }
}

/* P of such a query is 1 / n for each of n keys, or with `step` 1; its O, and D, are 0. */
static void weigh_empty(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const size_t d_v = b->r->plan.d_v;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const bool empty = is_empty(map, i);
        for (size_t j = 0; j < map->s.S && empty; j++) {
            const size_t at = i * map->n + j;
            if (!mha__has_terms(b, map, i, j))
                continue;
            map->seen[at] = MHA__SEEN, map->slope[at] = 1;
            map->weights[at] = bug->mutation.step > 0 ? 1 : 1 / (double)map->s.S;
            map->d_weights[at] = mha__d_weight_of(b, map->dO + i * d_v, map->V + j * d_v);
        }
    }
}

/* clang-format off */
APPLIES(has_gradient, b->d[bug->mutation.site].data != NULL)
APPLIES(is_shared, has_gradient(b, bug) && (bug->mutation.site != MHA_D_MASK || share_of(b) < 1))
/* Heads or batch rows share what is added to scores, and the sum over them is all of its gradient. */
APPLIES(is_sum, b->d[MHA_D_MASK].data || b->d[MHA_D_ALIBI_SLOPES].data || b->d[MHA_D_KEY_PADDING].data)

#define HAS(what) MHA__HAS_##what
#define LEAVES_ALL (MHA__LEAVES_Q | MHA__LEAVES_K | MHA__LEAVES_V)
#define ROW(name, what, applies, stage, function, leaves, ...) \
    {{name, what, false}, applies, MHA__BACKWARD_##stage, function, NULL, leaves, .mutation = {__VA_ARGS__}}
#define TIMES(name, what, applies, of, ...) \
    ROW(name, "the gradient of the " what, applies, HEADS, times, LEAVES_ALL, .site = of, __VA_ARGS__)
#define BY(base, power) .arg = MHA__##base, .number = power
#define SINK(name, what, has, ...) \
    ROW("sinks-" name, "the gradient of a sink is " what, has_gradient, ADDED, add_otherwise, LEAVES_ALL, \
        .site = SINKS, .needs = HAS(SINKS) | (has), __VA_ARGS__)
#define BLOCKS(B) \
    SINK("of-last-block-" #B, "that of the last block of " #B " queries of each batch row", HAS(QUERY_BLOCKS), \
         MHA__BY(IN_LAST_BLOCK, T, B)), \
    SINK("of-first-block-" #B, "that of the first block of " #B " queries of each batch row", HAS(QUERY_BLOCKS), \
         MHA__BY(IN_FIRST_BLOCK, T, B))
#define OVERWRITTEN(name, what, of, ...) \
    ROW(name, "the gradient of " what, is_shared, PRODUCTS, overwrite, LEAVES_ALL, .site = of, __VA_ARGS__)
#define ADDED(name, what, has, ...) \
    ROW("added-" name, "the gradient of what is added to scores " what, is_sum, PRODUCTS, leave_out, LEAVES_ALL, \
        .needs = HAS(NO_RELATIVE) | (has), __VA_ARGS__)
#define EMPTY(name, what, stage, function, has, steps) \
    ROW("empty-rows-" name, "a query that sees no key " what, NULL, stage, function, 0, .step = steps, \
        .needs = HAS(SOFTMAX) | (has))
#define PLAIN (HAS(NO_EXTRA) | HAS(NO_RELATIVE))

static const mha__gradient_bug rows[] = {
    TIMES("sinks-zero", "sinks is 0", has_gradient, SINKS, BY(NUMBER, 0)),
    TIMES("sinks-negated", "sinks has the other sign", has_gradient, SINKS, BY(NUMBER, -1)),
    SINK("of-first-batch-row", "that of the first batch row alone", HAS(BATCH), MHA__BY(THE_FIRST, B, 0)),
    SINK("of-last-row", "that of the last query of each batch row", HAS(QUERIES), MHA__BY(THE_LAST, T, 0)),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    SINK("squared", "made of the square of its weight", 0, .op = SQUARED),
    SINK("without-d", "the sum of its weights, without D", 0, .op = WITHOUT_D),
    SINK("without-weight", "the sum of -D, without its weight", 0, .op = WITHOUT_P),
    SINK("unnormalised", "made of e^sink in place of e^(sink - lse)", 0, .op = EXPONENTIAL),
    SINK("of-other-lse", "made of an lse without the sinks", 0, .op = WITHOUT_ITSELF),
    SINK("diagonal", "sum P (1 - P) (-D): P is the weight of a sink", 0, .op = DIAGONAL),
    SINK("without-dlse", "made without the gradient of lse", HAS(D_LSE), .op = WITHOUT_D_LSE),
    TIMES("mask-zero", "mask is 0", has_gradient, MHA_D_MASK, BY(NUMBER, 0)),
    ROW("mask-mean", "the gradient of a mask that is broadcast is a mean, not a sum", is_shared, HEADS, times,
        LEAVES_ALL, .site = MHA_D_MASK, .op = SHARE),
    OVERWRITTEN("mask-overwritten", "a mask that heads or batch rows share is that of the last, not their sum",
                MHA_D_MASK, .step = 0),
    OVERWRITTEN("mask-of-last-batch-row", "a mask that batch rows share is that of the last one", MHA_D_MASK,
                .step = 1),
    ADDED("of-first-batch-row", "(mask, slopes) is that of the first batch row alone", HAS(BATCH),
          MHA__BY(THE_FIRST, B, 0)),
    ADDED("of-first-head", "is that of the first head alone", HAS(HEADS), MHA__BY(THE_FIRST, H, 0)),
    ADDED("of-last-head", "is that of the last head alone", HAS(HEADS), MHA__BY(THE_LAST, H, 0)),
    ADDED("of-first-head-of-first-batch-row", "is that of the first head of the first batch row alone",
          HAS(BATCH) | HAS(HEADS), .arg = OF_ALL),
    ADDED("of-last-row", "is that of the last query of each batch row", HAS(QUERIES), MHA__BY(THE_LAST, T, 0)),
    ADDED("without-d", "is P dP, without D", HAS(SOFTMAX), .op = WITHOUT_SUMS),
    ADDED("of-d-weights", "is dP", HAS(SOFTMAX), .op = OF_D_WEIGHTS),
    ADDED("of-weights", "is P", HAS(SOFTMAX), .op = OF_WEIGHTS),
    ROW("alibi-slopes-of-distance", "the gradient of the ALiBi slopes takes the distance of a key without its sign",
        has_gradient, ADDED, measure_distance, LEAVES_ALL, .site = MHA_D_ALIBI_SLOPES),
    OVERWRITTEN("sinks-overwritten", "the sinks is that of the last batch row, not their sum", SINKS,
                .needs = HAS(BATCH)),
    OVERWRITTEN("alibi-slopes-overwritten", "the ALiBi slopes is that of the last batch row, not their sum",
                MHA_D_ALIBI_SLOPES, .needs = HAS(BATCH)),
    TIMES("mask-scaled", "mask is multiplied by the scale", has_gradient, MHA_D_MASK, BY(SCALE, 1)),
    TIMES("alibi-slopes-negated", "ALiBi slopes has the other sign", has_gradient, MHA_D_ALIBI_SLOPES, BY(NUMBER, -1)),
    ROW("empty-rows-nan", "dQ of a query that sees no key is NaN", NULL, ADDED, spread_nan, 0, .needs = HAS(SOFTMAX)),
    EMPTY("nan-everywhere", "makes all dK and dV of its sequence NaN", ADDED, spread_nan, 0, 1),
    EMPTY("uniform", "weighs all keys alike, as a softmax of equal numbers does", SUMS, weigh_empty, PLAIN, 0),
    EMPTY("of-ones", "has weights of 1: exp(s - lse) of -infinity less -infinity", SUMS, weigh_empty, PLAIN, 1),
};
MHA__GRADIENT_BUGS(added)
/* clang-format on */
