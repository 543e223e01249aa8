/* Variants of the output: merging of heads, projection, what is added. */
#include "verify/variants/variants.h"

APPLY(merge_interleaved, attends(c) && c->H > 1, k->merge = HEADS_INTERLEAVED)
APPLY(merge_untransposed, attends(c) && c->H > 1, k->merge = HEADS_UNTRANSPOSED)

/* What was dropped is not added twice. */
APPLY(bias_o_twice, has_weight(c, MHA_B_O) && !k->rows.no_bias[PROJECTION_O], k->bias_o_twice = 1)
APPLY(residual, c->kind == CASE_MHA && c->E_q == c->E_out, k->residual = 1)

/* ---------------------------------------------------------------- the list */

static const mha__variant_entry entries[] = {
    {{"merge-interleaved", "heads merged as (d_v, h) instead of (h, d_v)"}, merge_interleaved},
    {{"merge-untransposed", "(h, T, d_v) viewed as (T, h*d_v) without a transpose"}, merge_untransposed},
    {{"bias-o-twice", "b_O added twice"}, bias_o_twice},
    {{"residual-added", "the query input added to the output"}, residual},
};

const mha__variant_list mha__variants_of_output = {entries, sizeof entries / sizeof *entries};
