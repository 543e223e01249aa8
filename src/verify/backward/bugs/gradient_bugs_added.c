/* Bugs of the gradients of what is added to scores, and of queries that see nothing. */
#include <math.h>

#include "verify/backward/bugs/gradient_bugs.h"

enum { SINKS = MHA_D_WEIGHTS + MHA_SINKS };

/* What a head is about to add to replaces what heads and batch rows before it added; `step`: only batch rows do. */
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
APPLIES(is_shared, b->d[bug->mutation.site].data && (bug->mutation.site != MHA_D_MASK || mha__mask_share(b) < 1))

#define HAS(what) MHA__HAS_##what
#define LEAVES_ALL (MHA__LEAVES_Q | MHA__LEAVES_K | MHA__LEAVES_V)
#define ROW(name, what, applies, stage, function, leaves, ...) \
    {{name, what, false}, applies, MHA__BACKWARD_##stage, function, NULL, leaves, .mutation = {__VA_ARGS__}}
#define TIMES(name, what, of, base, power) \
    MHA__ROW(name, "the gradient of the " what, HEADS, LEAVES_ALL, TIMES_ALL, .site = of, .arg = MHA__##base, \
        .number = power, .needs = HAS(GRADIENT))
/* Each query adds this in place of P (dlse - D), P the weight of its sink. */
#define SINK(name, what, text, has, ...) \
    MHA__BY_LINES("sinks-" name, "the gradient of a sink is " what, ADDED, LEAVES_ALL, SINKS, text "-Ps*(dlse-D)", \
        NOTHING, .op = MHA__ADDS, .needs = HAS(SINKS) | HAS(GRADIENT) | (has), __VA_ARGS__)
#define SINK_OF(name, what, has, ...) SINK(name, what, "part*Ps*(dlse-D)", has, __VA_ARGS__)
#define BLOCKS(B) \
    SINK_OF("of-last-block-" #B, "that of the last block of " #B " queries of each batch row", HAS(QUERY_BLOCKS), \
         MHA__BY(IN_LAST_BLOCK, T, B)), \
    SINK_OF("of-first-block-" #B, "that of the first block of " #B " queries of each batch row", HAS(QUERY_BLOCKS), \
         MHA__BY(IN_FIRST_BLOCK, T, B))
#define OVERWRITTEN(name, what, of, ...) \
    ROW(name, "the gradient of " what, is_shared, PRODUCTS, overwrite, LEAVES_ALL, .site = of, __VA_ARGS__)
#define ADDED(name, what, text, has, ...) \
    MHA__BY_FORMULA("added-" name, "the gradient of what is added to scores " what, PRODUCTS, LEAVES_ALL, MHA__AT_DZ, \
        text, .needs = HAS(D_ADDED) | HAS(NO_RELATIVE) | (has), __VA_ARGS__)
#define ADDED_OF(name, what, has, ...) ADDED(name, what, "part*dZ", has, __VA_ARGS__)
#define EMPTY(name, what, stage, function, has, steps) \
    ROW("empty-rows-" name, "a query that sees no key " what, NULL, stage, function, 0, .step = steps, \
        .needs = HAS(SOFTMAX) | (has))
#define PLAIN (HAS(NO_EXTRA) | HAS(NO_RELATIVE))

static const mha__gradient_bug rows[] = {
    TIMES("sinks-zero", "sinks is 0", SINKS, NUMBER, 0),
    TIMES("sinks-negated", "sinks has the other sign", SINKS, NUMBER, -1),
    SINK_OF("of-first-batch-row", "that of the first batch row alone", HAS(BATCH), MHA__BY(THE_FIRST, B, 0)),
    SINK_OF("of-last-row", "that of the last query of each batch row", HAS(QUERIES), MHA__BY(THE_LAST, T, 0)),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    SINK("squared", "made of the square of its weight", "Ps^2*(dlse-D)", 0, 0),
    SINK("without-d", "the sum of its weights, without D", "Ps", 0, 0),
    SINK("of-1-less-d", "made of 1 - D in place of -D", "Ps*(1-D)", 0, 0),
    SINK("of-next-head", "made of the sink of the next head", "exp(sink'-lse)*(dlse-D)", HAS(HEADS), 0),
    SINK("of-scaled", "made of sinks times the scale", "exp(sink*scale-lse)*(dlse-D)", HAS(SCALE), 0),
    SINK("in-base-2", "made of sinks whose base is 2: 2^sink", "exp(sink*log(2)-lse)*(dlse-D)", 0, 0),
    SINK("without-weight", "the sum of -D, without its weight", "(dlse-D)", 0, 0),
    SINK("unnormalised", "made of e^sink in place of e^(sink - lse)", "exp(sink)*(dlse-D)", 0, 0),
    SINK("of-other-lse", "made of an lse without the sinks", "Ps*(1-Ps)^x*(dlse-D)", 0, .number = -1),
    SINK("diagonal", "sum P (1 - P) (-D): P is the weight of a sink", "Ps*(1-Ps)*(dlse-D)", 0, 0),
    SINK("without-dlse", "made without the gradient of lse", "-Ps*D", HAS(D_LSE), 0),
    TIMES("mask-zero", "mask is 0", MHA_D_MASK, NUMBER, 0),
    ROW("mask-mean", "the gradient of a mask that is broadcast is a mean, not a sum", is_shared, HEADS, NULL,
        LEAVES_ALL, .op = MHA__TIMES_ALL, .site = MHA_D_MASK, .read = 1),
    OVERWRITTEN("mask-overwritten", "a mask that heads or batch rows share is that of the last, not their sum",
                MHA_D_MASK, .step = 0),
    OVERWRITTEN("mask-of-last-batch-row", "a mask that batch rows share is that of the last one", MHA_D_MASK,
                .step = 1),
    ADDED_OF("of-first-batch-row", "(mask, slopes) is that of the first batch row alone", HAS(BATCH),
          MHA__BY(THE_FIRST, B, 0)),
    ADDED_OF("of-first-head", "is that of the first head alone", HAS(HEADS), MHA__BY(THE_FIRST, H, 0)),
    ADDED_OF("of-last-head", "is that of the last head alone", HAS(HEADS), MHA__BY(THE_LAST, H, 0)),
    ADDED("of-first-head-of-first-batch-row", "is that of the first head of the first batch row alone",
          "origin*dZ", HAS(BATCH) | HAS(HEADS), 0),
    ADDED_OF("of-last-row", "is that of the last query of each batch row", HAS(QUERIES), MHA__BY(THE_LAST, T, 0)),
    ADDED("without-d", "is P dP, without D", "P*dP", HAS(SOFTMAX), 0),
    ADDED("weighed-twice", "is P dS", "P*dZ", HAS(SOFTMAX), 0),
    ADDED("without-weights", "is dP - D, without P", "dP-D+dlse", HAS(SOFTMAX), 0),
    ADDED("of-d-weights", "is dP", "dP", HAS(SOFTMAX), 0),
    ADDED("of-weights", "is P", "P", HAS(SOFTMAX), 0),
    MHA__BY_FORMULA("alibi-slopes-of-distance", "the gradient of the ALiBi slopes takes the distance of a key without "
        "its sign", ADDED, LEAVES_ALL, MHA_D_ALIBI_SLOPES, "-(ahead+abs(ahead))*dZ", .op = MHA__ADDS,
        .needs = HAS(GRADIENT)),
    OVERWRITTEN("sinks-overwritten", "the sinks is that of the last batch row, not their sum", SINKS,
                .needs = HAS(BATCH)),
    OVERWRITTEN("alibi-slopes-overwritten", "the ALiBi slopes is that of the last batch row, not their sum",
                MHA_D_ALIBI_SLOPES, .needs = HAS(BATCH)),
    TIMES("mask-scaled", "mask is multiplied by the scale", MHA_D_MASK, SCALE, 1),
    TIMES("alibi-slopes-negated", "ALiBi slopes has the other sign", MHA_D_ALIBI_SLOPES, NUMBER, -1),
    ROW("empty-rows-nan", "dQ of a query that sees no key is NaN", NULL, ADDED, spread_nan, 0, .needs = HAS(SOFTMAX)),
    EMPTY("nan-everywhere", "makes all dK and dV of its sequence NaN", ADDED, spread_nan, 0, 1),
    EMPTY("uniform", "weighs all keys alike, as a softmax of equal numbers does", SUMS, weigh_empty, PLAIN, 0),
    EMPTY("of-ones", "has weights of 1: exp(s - lse) of -infinity less -infinity", SUMS, weigh_empty, PLAIN, 1),
};
MHA__GRADIENT_BUGS(added)
/* clang-format on */
