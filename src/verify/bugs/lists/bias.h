/* Bugs of the relative position bias and of relative terms (list.h). */
/* clang-format off */

/* ---------------------------------------------------------------- bias by position */

PAIRED("position-bias-missing", "no relative position bias", has_rule(k), k->s.added.bias.rule = MHA_BIAS_RULE_NONE)
PAIRED("position-bias-reversed", "position bias with query and key exchanged",
    has_rule(k), k->position_bias = POSITION_BIAS_REVERSED)
ALONE("position-bias-scaled", "position bias added before the scale", has_rule(k), k->early |= ADDS_POSITION_BIAS)
PAIRED("position-bias-from-0", "position bias with queries counted from 0: cached rows forgotten",
    has_rule(k), k->position_bias = POSITION_BIAS_FROM_0)
ALONE("position-bias-next-row", "the row of the table behind the right one, the last one for the last",
    has_rule(k), k->position_bias = POSITION_BIAS_NEXT_ROW)
ALONE("position-bias-row-before", "the row of the table before the right one, the first one for the first",
    has_rule(k), k->position_bias = POSITION_BIAS_ROW_BEFORE)
ALONE("position-bias-head-0", "the column of the first head for all", has_rule(k) && c->H > 1,
    k->position_bias = POSITION_BIAS_HEAD_0)
ALONE("position-bias-heads-reversed", "the columns of the heads in reverse order", has_rule(k) && c->H > 1,
    k->position_bias = POSITION_BIAS_HEADS_REVERSED)
FITTED("position-bias-times", "position bias times a number: the number", has_rule(k), k->position_bias_times = *x,
    SOLVE_FREE, -100, 100)
ALONE("position-bias-transposed", "the memory of the table read as (h, n)",
    has_rule(k) && c->H > 1, k->position_bias = POSITION_BIAS_TRANSPOSED)
ALONE("position-bias-other-ways", "buckets for one direction instead of two, or for two instead of one",
    serves_other_ways(c, k), k->position_bias = POSITION_BIAS_OTHER_WAYS)
LISTED("position-bias-distance-other", "buckets that end at another distance: which",
    has_buckets(k) && *x <= 65536 && *x > (double)c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0] / 2,
    k->s.added.bias.max_distance = (size_t)*x, any_distance)
ALONE("position-bias-linear", "each distance a bucket of its own, as far as there are buckets",
    has_buckets(k), k->position_bias = POSITION_BIAS_LINEAR)
ALONE("position-bias-by-column", "the cells of the grid counted column by column",
    k->s.added.bias.rule == MHA_BIAS_RULE_GRID, k->position_bias = POSITION_BIAS_BY_COLUMN)

/* ---------------------------------------------------------------- relative terms */

PAIRED("relative-missing", "no relative terms", has_terms(k), k->s.added.relative.rule = MHA_RELATIVE_NONE)
ALONE("relative-k-missing", "of relative terms those of the key alone (p2c)",
    has_both(c, k), k->relative = RELATIVE_NO_K)
ALONE("relative-q-missing", "of relative terms those of the query alone (c2p)",
    has_both(c, k), k->relative = RELATIVE_NO_Q)
PAIRED("relative-reversed", "relative terms with query and key exchanged: by j - i for i - j",
    has_terms(k), k->relative = RELATIVE_REVERSED)
ALONE("relative-q-other-way", "relative terms of the key by its distance to the query, not negated",
    has_both(c, k), k->relative = RELATIVE_OTHER_WAY)
ALONE("relative-from-0", "relative terms with queries counted from 0: cached rows forgotten",
    has_terms(k), k->relative = RELATIVE_FROM_0)
ALONE("relative-next-row", "the row of the tables behind the right one, the last one for the last",
    has_terms(k), k->relative = RELATIVE_NEXT_ROW)
ALONE("relative-linear", "buckets of relative terms without their logarithm: the distance, clamped",
    k->s.added.relative.rule == MHA_RELATIVE_LOG_BUCKETS, k->relative = RELATIVE_LINEAR)
ALONE("relative-wrapped", "rows before the first one counted from the end of the table, not clamped",
    k->s.added.relative.rule == MHA_RELATIVE_DISTANCE, k->relative = RELATIVE_WRAPPED)
ALONE("relative-by-column", "cells counted column by column: rows and columns of the grid swapped",
    k->s.added.relative.rule == MHA_RELATIVE_GRID, k->relative = RELATIVE_BY_COLUMN)
ALONE("relative-head-0", "the first head's columns of the tables for all heads",
    has_columns(c, k), k->relative = RELATIVE_HEAD_0)
ALONE("relative-scaled", "relative terms of a query, or a key, that is scaled as for q.k, once more",
    has_terms(k), k->relative_scale = RELATIVE_SCALE_TWICE)
ALONE("relative-unscaled", "relative terms without a scale", has_terms(k), k->relative_scale = RELATIVE_SCALE_ONE)
ALONE("relative-lone-scale", "relative terms times 1/sqrt(d_k), whatever the scale of q.k",
    shares_scale(c, k), k->relative_scale = RELATIVE_SCALE_LONE)

/* clang-format on */
