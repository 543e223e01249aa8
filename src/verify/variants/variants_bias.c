/* Variants of the relative position bias. */
#include "verify/variants/variants.h"

static bool has_rule(const mha_case *c)
{
    return c->semantics.bias.rule != MHA_BIAS_RULE_NONE;
}

static bool has_buckets(const mha_case *c)
{
    return c->semantics.bias.rule == MHA_BIAS_RULE_BUCKETS;
}

/* Whether as many buckets as the case has can serve the other number of directions, too. */
static bool serves_other_ways(const mha_case *c)
{
    const size_t n = c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0], most = c->semantics.bias.max_distance;
    return has_buckets(c) && n >= 4 && n / 2 < (most ? most : 128);
}

APPLY(missing, has_rule(c), k->position_bias = POSITION_BIAS_NONE)
APPLY(directions, has_rule(c), k->position_bias = POSITION_BIAS_REVERSED)
APPLY(scaled, has_rule(c), k->early |= ADDS_POSITION_BIAS)
APPLY(from_0, has_rule(c), k->position_bias = POSITION_BIAS_FROM_0)
APPLY(next_row, has_rule(c), k->position_bias = POSITION_BIAS_NEXT_ROW)
APPLY(transposed, has_rule(c) && c->H > 1, k->position_bias = POSITION_BIAS_TRANSPOSED)
APPLY(other_ways, serves_other_ways(c), k->position_bias = POSITION_BIAS_OTHER_WAYS)
APPLY(linear, has_buckets(c), k->position_bias = POSITION_BIAS_LINEAR)
APPLY(by_column, c->semantics.bias.rule == MHA_BIAS_RULE_GRID, k->position_bias = POSITION_BIAS_BY_COLUMN)

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
};

const mha__variant_list mha__variants_of_bias = {entries, sizeof entries / sizeof *entries, NULL, 0};
