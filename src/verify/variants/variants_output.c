/* Variants of the output: merging of heads, projection, what is added. */
#include <math.h>

#include "verify/variants/variants.h"

static bool merges(const mha_case *c)
{
    return attends(c) && c->H > 1;
}

APPLY(merge_interleaved, merges(c), k->merge = HEADS_INTERLEAVED)
APPLY(merge_reversed, merges(c), k->merge = HEADS_REVERSED)
APPLY(merge_untransposed, merges(c), k->merge = HEADS_UNTRANSPOSED)
APPLY(merge_features_first, attends(c), k->merge = HEADS_FEATURES_FIRST)
APPLY(merge_turned, attends(c), k->merge = HEADS_TURNED)

/* What was dropped is not added twice, and needs no other place. */
static bool adds_bias_o(const mha_case *c, const mha__knobs *k)
{
    return has_weight(c, MHA_B_O) && !k->no_bias[PROJECTION_O];
}

/* Whether the merged heads are as wide as the output. */
static bool is_as_wide(const mha_case *c)
{
    return c->kind == CASE_MHA && c->H * c->d_v == c->E_out;
}

APPLY(output_unprojected, is_as_wide(c), k->output_unprojected = 1)
APPLY(bias_o_before, is_as_wide(c) && adds_bias_o(c, k), k->bias_o_before = 1)
APPLY(bias_o_twice, adds_bias_o(c, k), k->bias_o_times = 2)
APPLY(bias_o_per_head, adds_bias_o(c, k) && c->H > 1, k->bias_o_times = (double)c->H)
APPLY(residual, c->kind == CASE_MHA && c->q_rank == 0 && c->E_q == c->E_out, k->residual = 1)

/* Whether each of n numbers is the index of one of n. */
static bool are_indices(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && x[i] < (double)n && x[i] == floor(x[i])))
            return false;
    return true;
}

SOLVE(merge_permuted, merges(c) && are_indices(x, c->H), k->merge_order = x)
SOLVE(batch_permuted, attends(c) && c->B > 1 && c->semantics.place.n_sequences == 0 && are_indices(x, c->B),
      k->batch_order = x)
SOLVE(output_times, attends(c), k->output_times = *x)

APPLY(gate_missing, has_weight(c, MHA_W_G), k->gate = GATE_NOT)
APPLY(gate_plain, has_weight(c, MHA_W_G), k->gate = GATE_PLAIN)
APPLY(gate_silu, has_weight(c, MHA_W_G), k->gate = GATE_SILU)

/* ---------------------------------------------------------------- the list */

static const mha__variant_entry entries[] = {
    {{"merge-interleaved", "heads merged as (d_v, h) instead of (h, d_v)"}, merge_interleaved},
    {{"merge-reversed", "heads merged in reverse order"}, merge_reversed},
    {{"merge-untransposed", "(h, T, d_v) viewed as (T, h*d_v) without a transpose"}, merge_untransposed},
    {{"merge-features-first", "(h, d_v, T) viewed as (T, h*d_v) without a transpose"}, merge_features_first},
    {{"merge-turned", "in each head, (d_v, T) viewed as (T, d_v)"}, merge_turned},
    {{"gate-missing", "the gate of the heads left out"}, gate_missing},
    {{"gate-no-sigmoid", "the heads multiplied by x W_G + b_G without a sigmoid"}, gate_plain},
    {{"gate-silu", "the gate a SiLU, z * sigmoid(z), instead of sigmoid(z)"}, gate_silu},
    {{"output-unprojected", "W_O left out"}, output_unprojected},
    {{"bias-o-before", "b_O added before W_O"}, bias_o_before},
    {{"bias-o-twice", "b_O added twice"}, bias_o_twice},
    {{"bias-o-per-head", "b_O added once for each head"}, bias_o_per_head},
    {{"residual-added", "the query input added to the output"}, residual},
};

static const mha__solved_entry solved[] = {
    {{"merge-permuted", "heads merged in another order: which head is in each place"},
     merge_permuted,
     SOLVE_HEADS,
     0,
     0,
     NULL},
    {{"batch-permuted", "batch rows in another order: which batch row is in each place"},
     batch_permuted,
     SOLVE_BATCHES,
     0,
     0,
     NULL},
    {{"output-times", "the output multiplied: the number"}, output_times, SOLVE_SIGNED, 1e-4, 1e4, NULL},
};

const mha__variant_list mha__variants_of_output = {entries, sizeof entries / sizeof *entries, solved,
                                                   sizeof solved / sizeof *solved};
