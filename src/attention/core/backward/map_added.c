/* The gradients of what is added to scores: masks, ALiBi, the bias table, relative terms, and sinks. */
#include <math.h>

#include "attention/call/definition.h"
#include "attention/core/backward/backward.h"
#include "attention/core/terms/terms.h"

double *mha__mask_element(const mha_view *mask, const size_t *index, int rank)
{
    size_t at = 0;
    for (int k = 0; k < mask->rank; k++)
        at = at * mask->shape[k] + (mask->shape[k] == 1 ? 0 : index[rank - mask->rank + k]);
    return (double *)mask->data + at;
}

static double factor(const mha__map *map, double x)
{
    return map->sizes ? fabs(x) : x;
}

/* The relative terms of query i and key j: gradients of the tables, of the query's and of the key's row. */
static void add_relative(const mha__backward *b, mha__map *map, size_t i, size_t j, double d)
{
    const mha__resolved *r = b->r;
    const mha_relative *rule = &mha__semantics_of(r)->added.relative;
    const size_t d_k = r->plan.d_k;
    for (int w = MHA_RELATIVE_K; rule->rule != MHA_RELATIVE_NONE && w <= MHA_RELATIVE_Q; w++) {
        const mha_view *table = &r->weight[w], *d_table = &b->d[MHA_D_WEIGHTS + w];
        if (!table->data)
            continue;
        const bool of_keys = w == MHA_RELATIVE_Q;
        const size_t row = mha__relative_row(rule, (mha_weight)w, table->shape[0], map->s.offset + (int64_t)i,
                                            r->first_key + (int64_t)j),
                     column = table->shape[1] == d_k ? 0 : map->head * d_k;
        const double given = of_keys ? rule->q_scale : rule->k_scale,
                     times = factor(map, given != 0 ? given : r->plan.scale) * d;
        const double *x = of_keys ? map->K + j * d_k : map->Q + i * d_k;
        double *dx = of_keys ? map->dK + j * d_k : map->dQ + i * d_k;
        for (size_t c = 0; c < d_k; c++) {
            dx[c] += times * factor(map, mha_view_get(table, (size_t[]){row, column + c}));
            if (d_table->data)
                ((double *)d_table->data)[row * table->shape[1] + column + c] += times * x[c];
        }
    }
}

/* d sink = sum_i e^(sink - lse_i) (dlse_i - D_i) */
static void add_sinks(const mha__backward *b, const mha__map *map)
{
    const mha_view *d_sinks = &b->d[MHA_D_WEIGHTS + MHA_SINKS];
    if (!d_sinks->data || !b->r->weight[MHA_SINKS].data)
        return;
    const double sink = mha_view_get(&b->r->weight[MHA_SINKS], &map->head);
    for (size_t i = 0; i < map->s.T_q && sink != -INFINITY; i++)
        if (map->lse[i] > -INFINITY) /* a query of padding has no sink */
            ((double *)d_sinks->data)[map->head] += exp(sink - map->lse[i]) * (map->d_lse[i] - map->sums[i]);
}

/* The terms of the score of query i and key j. */
static void add_pair(const mha__backward *b, mha__map *map, size_t i, size_t j)
{
    const mha__resolved *r = b->r;
    const mha_bias *rule = &mha__semantics_of(r)->added.bias;
    const mha_view *mask = &b->d[MHA_D_MASK], *padding = &b->d[MHA_D_KEY_PADDING], *slopes = &b->d[MHA_D_ALIBI_SLOPES],
                   *table = &b->d[MHA_D_WEIGHTS + MHA_BIAS_TABLE];
    const int64_t p = map->s.offset + (int64_t)i, key = r->first_key + (int64_t)j;
    const double d = map->d_masked[i * map->n + j];
    if (mask->data)
        *mha__mask_element(mask, (const size_t[]){map->b, map->head, i, j}, 4) += d;
    if (padding->data)
        *mha__mask_element(padding, (const size_t[]){map->b, j}, 2) += d;
    if (slopes->data)
        ((double *)slopes->data)[map->head] += d * factor(map, (double)(key - p));
    if (table->data && rule->rule != MHA_BIAS_RULE_NONE)
        ((double *)table->data)[mha__bias_row(rule, table->shape[0], p, key) * r->plan.h + map->head] += d;
    add_relative(b, map, i, j, d);
}

void mha__map_added(const mha__backward *b, mha__map *map)
{
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++)
            if (map->seen[i * map->n + j] == MHA__SEEN)
                add_pair(b, map, i, j);
    if (!map->sizes)
        add_sinks(b, map);
}
