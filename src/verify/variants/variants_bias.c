/* Variants of the relative position bias and of relative terms. */
#include "verify/variants/variants.h"

static bool has_rule(const mha__knobs *k)
{
    return k->s.added.bias.rule != MHA_BIAS_RULE_NONE;
}

static bool has_buckets(const mha__knobs *k)
{
    return k->s.added.bias.rule == MHA_BIAS_RULE_BUCKETS;
}

/* Whether as many buckets as the case has can serve the other number of directions, too. */
static bool serves_other_ways(const mha_case *c, const mha__knobs *k)
{
    const size_t n = c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0], most = c->semantics.added.bias.max_distance;
    return has_buckets(k) && n >= 4 && n / 2 < (most ? most : 128);
}

APPLY(missing, has_rule(k), k->s.added.bias.rule = MHA_BIAS_RULE_NONE)
APPLY(directions, has_rule(k), k->position_bias = POSITION_BIAS_REVERSED)
APPLY(scaled, has_rule(k), k->early |= ADDS_POSITION_BIAS)
APPLY(from_0, has_rule(k), k->position_bias = POSITION_BIAS_FROM_0)
APPLY(next_row, has_rule(k), k->position_bias = POSITION_BIAS_NEXT_ROW)
APPLY(transposed, has_rule(k) && c->H > 1, k->position_bias = POSITION_BIAS_TRANSPOSED)
APPLY(other_ways, serves_other_ways(c, k), k->position_bias = POSITION_BIAS_OTHER_WAYS)
APPLY(linear, has_buckets(k), k->position_bias = POSITION_BIAS_LINEAR)
APPLY(by_column, k->s.added.bias.rule == MHA_BIAS_RULE_GRID, k->position_bias = POSITION_BIAS_BY_COLUMN)

static bool has_terms(const mha__knobs *k)
{
    return k->s.added.relative.rule != MHA_RELATIVE_NONE;
}

static bool has_table(const mha_case *c, const mha__knobs *k, mha_weight table)
{
    return has_terms(k) && c->weights[CASE_RECORDED][table].data;
}

static bool has_both(const mha_case *c, const mha__knobs *k)
{
    return has_table(c, k, MHA_RELATIVE_K) && has_table(c, k, MHA_RELATIVE_Q);
}

/* Whether terms have the scale of q.k, which is given. */
static bool shares_scale(const mha_case *c, const mha__knobs *k)
{
    const mha_relative *relative = &k->s.added.relative;
    return has_terms(k) && c->semantics.softmax.scale != 0 && relative->k_scale == 0 && relative->q_scale == 0;
}

static bool has_columns(const mha_case *c, const mha__knobs *k)
{
    for (int w = MHA_RELATIVE_K; has_terms(k) && c->H > 1 && w <= MHA_RELATIVE_Q; w++)
        if (has_table(c, k, (mha_weight)w))
            return c->weights[CASE_RECORDED][w].shape[1] != c->d_k;
    return false;
}

APPLY(no_terms, has_terms(k), k->s.added.relative.rule = MHA_RELATIVE_NONE)
APPLY(no_k, has_both(c, k), k->relative = RELATIVE_NO_K)
APPLY(no_q, has_both(c, k), k->relative = RELATIVE_NO_Q)
APPLY(exchanged, has_terms(k), k->relative = RELATIVE_REVERSED)
APPLY(other_way, has_both(c, k), k->relative = RELATIVE_OTHER_WAY)
APPLY(terms_from_0, has_terms(k), k->relative = RELATIVE_FROM_0)
APPLY(terms_next_row, has_terms(k), k->relative = RELATIVE_NEXT_ROW)
APPLY(no_log, k->s.added.relative.rule == MHA_RELATIVE_LOG_BUCKETS, k->relative = RELATIVE_LINEAR)
APPLY(wrapped, k->s.added.relative.rule == MHA_RELATIVE_DISTANCE, k->relative = RELATIVE_WRAPPED)
APPLY(cells_by_column, k->s.added.relative.rule == MHA_RELATIVE_GRID, k->relative = RELATIVE_BY_COLUMN)
APPLY(head_0, has_columns(c, k), k->relative = RELATIVE_HEAD_0)
APPLY(scaled_twice, has_terms(k), k->relative_scale = RELATIVE_SCALE_TWICE)
APPLY(unscaled, has_terms(k), k->relative_scale = RELATIVE_SCALE_ONE)
APPLY(lone_scale, shares_scale(c, k), k->relative_scale = RELATIVE_SCALE_LONE)

static const mha__variant_entry entries[] = {
    {{"position-bias-missing", "no relative position bias"}, missing},
    {{"position-bias-reversed", "position bias with query and key exchanged"}, directions},
    {{"position-bias-scaled", "position bias added before the scale"}, scaled},
    {{"position-bias-from-0", "position bias with queries counted from 0: cached rows forgotten"}, from_0},
    {{"position-bias-next-row", "the row of the table behind the right one, the last one for the last"}, next_row},
    {{"position-bias-transposed", "the memory of the table read as (h, n)"}, transposed},
    {{"position-bias-other-ways", "buckets for one direction instead of two, or for two instead of one"}, other_ways},
    {{"position-bias-linear", "each distance a bucket of its own, as far as there are buckets"}, linear},
    {{"position-bias-by-column", "the cells of the grid counted column by column"}, by_column},
    {{"relative-missing", "no relative terms"}, no_terms},
    {{"relative-k-missing", "of relative terms those of the key alone (p2c)"}, no_k},
    {{"relative-q-missing", "of relative terms those of the query alone (c2p)"}, no_q},
    {{"relative-reversed", "relative terms with query and key exchanged: by j - i for i - j"}, exchanged},
    {{"relative-q-other-way", "relative terms of the key by its distance to the query, not negated"}, other_way},
    {{"relative-from-0", "relative terms with queries counted from 0: cached rows forgotten"}, terms_from_0},
    {{"relative-next-row", "the row of the tables behind the right one, the last one for the last"}, terms_next_row},
    {{"relative-linear", "buckets of relative terms without their logarithm: the distance, clamped"}, no_log},
    {{"relative-wrapped", "rows before the first one counted from the end of the table, not clamped"}, wrapped},
    {{"relative-by-column", "cells counted column by column: rows and columns of the grid swapped"}, cells_by_column},
    {{"relative-head-0", "the first head's columns of the tables for all heads"}, head_0},
    {{"relative-scaled", "relative terms of a query, or a key, that is scaled as for q.k, once more"}, scaled_twice},
    {{"relative-unscaled", "relative terms without a scale"}, unscaled},
    {{"relative-lone-scale", "relative terms times 1/sqrt(d_k), whatever the scale of q.k"}, lone_scale},
};

const mha__variant_list mha__variants_of_bias = {entries, sizeof entries / sizeof *entries, NULL, 0};
