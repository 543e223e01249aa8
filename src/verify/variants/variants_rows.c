/* Variants of the rows of q, k and v: projections, splitting into heads, rotation. */
#include <string.h>

#include "attention/resolved.h"
#include "verify/variants/variants.h"

/* ---------------------------------------------------------------- what a case has */

static bool has_layer(const mha_case *c)
{
    return c->kind == CASE_MHA;
}

static bool is_square(const mha_case *c, mha_weight w)
{
    const mha_view *v = &c->weights[CASE_RECORDED][w];
    return v->data && v->rank == 2 && v->shape[0] == v->shape[1];
}

/* Whether q, k and v can be mistaken for each other: they have one width, and inputs of one shape. */
static bool is_packable(const mha_case *c)
{
    bool same = c->kind != CASE_ROPE && c->kv_rank == 0;
    same = same && c->H == c->H_kv && c->d_k == c->d_v && c->E_q == c->E_k && c->E_k == c->E_v;
    return same && (has_layer(c) || c->T_q == c->T_k);
}

/* Whether the tables still have a row for every position moved by `shift`. */
static bool tables_reach(const mha_case *c, int64_t shift)
{
    const mha_rope *r = &c->semantics.qkv.rope;
    if (!r->cos_table.data)
        return true;
    const mha_view *ids = &r->q_positions;
    if (r->cos_table.rank != 2)
        return false;
    int64_t rows = (int64_t)r->cos_table.shape[0], most = (int64_t)(c->P + (c->T_q > c->T_k ? c->T_q : c->T_k)) - 1;
    for (size_t i = 0; ids->data && i < mha_view_elements(ids); i++) {
        int64_t at = ((const int64_t *)ids->data)[i];
        if (at + shift < 0 || at + shift >= rows)
            return false;
    }
    return ids->data || most + shift < rows;
}

/* ---------------------------------------------------------------- projections, splitting into heads */

APPLY(transpose_q, is_square(c, MHA_W_Q), k->transposed[PROJECTION_Q] = 1)
APPLY(transpose_k, is_square(c, MHA_W_K), k->transposed[PROJECTION_K] = 1)
APPLY(transpose_v, is_square(c, MHA_W_V), k->transposed[PROJECTION_V] = 1)
APPLY(transpose_o, is_square(c, MHA_W_O), k->transposed[PROJECTION_O] = 1)

static bool transpose_all(const mha_case *c, mha__knobs *k)
{
    return transpose_q(c, k) && transpose_k(c, k) && transpose_v(c, k) && transpose_o(c, k);
}

static bool order(const mha_case *c, mha__knobs *knobs, int q, int k, int v)
{
    if (!is_packable(c))
        return false;
    const int source[] = {q, k, v};
    memcpy(knobs->source, source, sizeof source);
    return true;
}

static bool order_kqv(const mha_case *c, mha__knobs *k)
{
    return order(c, k, 1, 0, 2);
}
static bool order_qvk(const mha_case *c, mha__knobs *k)
{
    return order(c, k, 0, 2, 1);
}
static bool order_vkq(const mha_case *c, mha__knobs *k)
{
    return order(c, k, 2, 1, 0);
}
static bool order_kvq(const mha_case *c, mha__knobs *k)
{
    return order(c, k, 1, 2, 0);
}
static bool order_vqk(const mha_case *c, mha__knobs *k)
{
    return order(c, k, 2, 0, 1);
}
APPLY(packed_interleaved, is_packable(c) && c->H > 1, k->packing = PACKING_READ_INTERLEAVED)
APPLY(packed_blocks, is_packable(c) && c->H > 1, k->packing = PACKING_READ_BLOCKS)

APPLY(no_bias_q, has_weight(c, MHA_B_Q), k->no_bias[PROJECTION_Q] = 1)
APPLY(no_bias_k, has_weight(c, MHA_B_K), k->no_bias[PROJECTION_K] = 1)
APPLY(no_bias_v, has_weight(c, MHA_B_V), k->no_bias[PROJECTION_V] = 1)
APPLY(no_bias_o, has_weight(c, MHA_B_O), k->no_bias[PROJECTION_O] = 1)

static bool no_bias(const mha_case *c, mha__knobs *k)
{
    int n = no_bias_q(c, k);
    n += no_bias_k(c, k);
    n += no_bias_v(c, k);
    return n + no_bias_o(c, k) > 1;
}

/* Cached latents are read once, with the weights of the case. */
static bool has_own_rows(const mha_case *c)
{
    return has_layer(c) && !(c->absorbed && c->P > 0);
}

static int latent_of(const mha_case *c, int latent)
{
    return c->kv_rank ? latent : LATENT_RIGHT;
}

APPLY(weights_f16, has_own_rows(c), k->round_weights = ROUND_F16; k->latent = latent_of(c, LATENT_F16))
APPLY(weights_bf16, has_own_rows(c), k->round_weights = ROUND_BF16; k->latent = latent_of(c, LATENT_BF16))
APPLY(weights_cut, has_own_rows(c), k->round_weights = ROUND_BF16_CUT;
      k->latent = latent_of(c, LATENT_BF16_CUT))
APPLY(inputs_f16, c->kv_rank == 0, k->round_inputs = ROUND_F16)
APPLY(inputs_bf16, c->kv_rank == 0, k->round_inputs = ROUND_BF16)
APPLY(inputs_cut, c->kv_rank == 0, k->round_inputs = ROUND_BF16_CUT)

APPLY(input_layer_norm, has_layer(c) && c->kv_rank == 0, k->input_norm = INPUT_NORM_LAYER)
APPLY(input_rms_norm, has_layer(c) && c->kv_rank == 0, k->input_norm = INPUT_NORM_RMS)
static bool has_shared(const mha_case *c)
{
    return c->kv_rank > 0 && c->d_rope > 0;
}

APPLY(latent_q_unnormed, c->q_rank > 0, k->latent = LATENT_Q_UNNORMED)
APPLY(latent_kv_unnormed, c->kv_rank > 0, k->latent = LATENT_KV_UNNORMED)
APPLY(latent_shared_normed, has_shared(c), k->latent = LATENT_K_R_NORMED)
APPLY(latent_shared_first, has_shared(c), k->latent = LATENT_K_R_FIRST)
APPLY(latent_not_shared, has_shared(c) && c->H > 1, k->latent = LATENT_K_R_FIRST_HEAD)
APPLY(latent_swapped, c->kv_rank > 0, k->latent = LATENT_KVB_SWAPPED)
APPLY(latent_blocks, c->kv_rank > 0 && c->H > 1, k->latent = LATENT_KVB_BLOCKS)
APPLY(latent_no_bias, has_weight(c, MHA_B_KVA), k->latent = LATENT_NO_BIAS)

APPLY(inputs_reversed, attends(c), k->inputs_reversed = 1)

APPLY(batch_as_time, mha__case_exchanges(c), k->reading = READING_OTHER)

APPLY(heads_as_time, mha__case_turns(c), k->reading = READING_HEADS_FOR_TIME)

/* Whether the sequences of a ragged batch can be taken for one, which then begins where the first does. */
static bool can_join(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return attends(c) && s->place.n_sequences > 1 && !s->visible.kv_lengths && !s->visible.mask.kind &&
           !s->visible.key_padding.kind && !mha__case_has_pattern(c);
}

APPLY(sequences_joined, can_join(c), k->reading = READING_OTHER)

/* A head of two features has one pair, whatever the pairing. */
static bool has_pairs(const mha_case *c)
{
    return c->d_k % 2 == 0 && c->d_k > 2;
}

APPLY(permute_q, has_pairs(c), k->permuted_q = PERMUTED_TO_PAIRS)
APPLY(permute_k, has_pairs(c) && attends(c), k->permuted_k = PERMUTED_TO_PAIRS)
APPLY(permute_qk, has_pairs(c) && attends(c), k->permuted_q = k->permuted_k = PERMUTED_TO_PAIRS)
APPLY(unpermute_q, has_pairs(c), k->permuted_q = PERMUTED_TO_HALVES)
APPLY(unpermute_k, has_pairs(c) && attends(c), k->permuted_k = PERMUTED_TO_HALVES)
APPLY(unpermute_qk, has_pairs(c) && attends(c), k->permuted_q = k->permuted_k = PERMUTED_TO_HALVES)

/* A norm takes the factor away again. */
APPLY(bias_q_unscaled, has_weight(c, MHA_B_Q) && !has_weight(c, MHA_Q_NORM) && !c->semantics.qkv.norm.unweighted &&
      attends(c) && k->s.softmax.scale != 0,
      k->bias_q_times = 1 / k->s.softmax.scale)

static bool has_bias_qk(const mha_case *c)
{
    return has_weight(c, MHA_B_Q) || has_weight(c, MHA_B_K);
}

APPLY(split_interleaved, c->H > 1, k->split = HEADS_INTERLEAVED)
APPLY(split_untransposed, c->H > 1, k->split = HEADS_UNTRANSPOSED)

/* ---------------------------------------------------------------- rotation */

APPLY(bias_after_norm, has_bias_qk(c) && has_norm(c) && !mha__clips(&c->semantics),
      k->bias_place = BIAS_AFTER_NORM)
APPLY(bias_after_rope, has_bias_qk(c) && has_rope(c) && !mha__clips(&c->semantics),
      k->bias_place = BIAS_AFTER_ROPE)

static mha_rope_kind other_pairing(mha_rope_kind kind)
{
    return kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
}

APPLY(rope_missing, has_rope(c), k->s.qkv.rope.kind = MHA_ROPE_NONE)
APPLY(rope_pairing, has_rope(c), k->s.qkv.rope.kind = other_pairing(k->s.qkv.rope.kind))
APPLY(rope_inverse, has_rope(c), k->rope_inverse = 1)
APPLY(rope_query_ahead, has_rope(c) && attends(c) && tables_reach(c, 1), k->rope_shift_q += 1)
APPLY(rope_query_behind, has_rope(c) && attends(c) && tables_reach(c, -1), k->rope_shift_q -= 1)
APPLY(rope_from_1, has_rope(c) && tables_reach(c, 1), k->rope_shift_q += 1; k->rope_shift_k += 1)

static bool has_positions(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return c->P > 0 || s->place.position_offset || s->place.has_key_offset || s->qkv.rope.q_positions.data;
}

APPLY(rope_restart, has_rope(c) && has_positions(c) && tables_reach(c, 0), k->rope_restart = 1)
APPLY(rope_queries_only, has_rope(c) && attends(c), k->rope_not = 2)
APPLY(rope_keys_only, has_rope(c) && attends(c), k->rope_not = 1)
APPLY(rope_reversed, has_rope(c), k->rope_reversed = 1)
APPLY(rope_swapped, has_rope(c), k->rope_swapped = 1)
APPLY(rope_mixed, has_rope(c) && k->s.qkv.rope.dim > 2, k->rope_mixed = 1)
APPLY(rope_regrouped, has_rope(c) && k->s.qkv.rope.dim > 2, k->rope_regrouped = 1)
APPLY(rope_last, has_rope(c) && k->s.qkv.rope.dim < c->d_k, k->s.qkv.rope.last = !k->s.qkv.rope.last)
APPLY(rope_half, has_rope(c) && k->s.qkv.rope.dim % 4 == 0, k->s.qkv.rope.dim /= 2; k->rope_formula = 1)
APPLY(rope_width_model, has_rope(c) && c->H * c->d_k > k->s.qkv.rope.dim,
      k->rope_width = (int)(c->H * c->d_k);
      k->rope_formula = 1)
APPLY(rope_width_head, has_rope(c) && k->s.qkv.rope.dim < c->d_k, k->rope_width = (int)c->d_k;
      k->rope_formula = 1)
APPLY(rope_unscaled, has_rope(c) && c->semantics.qkv.rope.frequencies.data, k->rope_formula = 1)
APPLY(rope_no_factor, has_rope(c) && k->s.qkv.rope.attention_factor != 1, k->s.qkv.rope.attention_factor = 1)
APPLY(rope_values, has_rope(c) && attends(c), k->rope_values = 1)
APPLY(rope_full, has_rope(c) && k->s.qkv.rope.dim < c->d_k && c->d_k % 2 == 0, k->s.qkv.rope.dim = c->d_k;
      k->rope_formula = 1)

/* Whether there are axes that a mistake can change: as many, with two sections of their own size. */
static bool has_axes(const mha_case *c, size_t least)
{
    return has_rope(c) && c->semantics.qkv.rope.origin.axes.axes >= least;
}

static bool has_uneven_axes(const mha_case *c)
{
    const mha_rope_axes *a = &c->semantics.qkv.rope.origin.axes;
    bool uneven = false;
    for (size_t i = 0; i < a->axes; i++)
        uneven |= a->sections[i] != a->sections[a->axes - 1 - i];
    return has_axes(c, 2) && uneven;
}

/* Whether frequencies can restart in each block: several axes, and frequencies that are computed, not given. */
static bool has_free_blocks(const mha_case *c)
{
    const mha_rope_origin *o = &c->semantics.qkv.rope.origin;
    return has_axes(c, 2) && !o->frequencies.data &&
           (o->axes.kind == MHA_ROPE_AXES_BLOCKS || o->axes.kind == MHA_ROPE_AXES_REPEATED);
}

static bool takes_turns(const mha_case *c)
{
    const mha_rope_axes_kind kind = c->semantics.qkv.rope.origin.axes.kind;
    return has_axes(c, 2) && (kind == MHA_ROPE_AXES_BLOCKS || kind == MHA_ROPE_AXES_INTERLEAVED);
}

/* Whether queries and keys of a text had the numbers of their rows. */
static bool counts_rows(const mha_case *c)
{
    return c->semantics.place.n_sequences == 0 && !c->semantics.place.position_offset;
}

APPLY(axes_text, has_axes(c, 1) && counts_rows(c), k->rope_axes = AXES_TEXT)
APPLY(axes_first, has_axes(c, 2), k->rope_axes = AXES_FIRST)
APPLY(axes_swapped, has_axes(c, 2), k->rope_axes = AXES_SWAPPED)
APPLY(axes_reversed, has_uneven_axes(c), k->rope_axes = AXES_REVERSED)
APPLY(axes_dealt, takes_turns(c), k->rope_axes = AXES_DEALT)
APPLY(axes_restart, has_free_blocks(c), k->rope_axes = AXES_RESTART)

static bool rope_base(const mha_case *c, mha__knobs *k, double base)
{
    const mha_rope *r = &c->semantics.qkv.rope;
    if (!has_rope(c) || (!r->cos_table.data && !r->frequencies.data && k->s.qkv.rope.base == base))
        return false;
    k->s.qkv.rope.base = base;
    k->rope_formula = 1;
    return true;
}

static bool rope_base_1e4(const mha_case *c, mha__knobs *k)
{
    return rope_base(c, k, 1e4);
}
static bool rope_base_5e5(const mha_case *c, mha__knobs *k)
{
    return rope_base(c, k, 5e5);
}
static bool rope_base_1e6(const mha_case *c, mha__knobs *k)
{
    return rope_base(c, k, 1e6);
}

/* ---------------------------------------------------------------- what the case does not have, or with a number */

SOLVE(rope_base_other, has_rope(c) && k->s.qkv.rope.dim > 2, k->s.qkv.rope.base = *x; k->rope_formula = 1)

/* With one pair, another base does not matter, but positions that are divided do. */
SOLVE(rope_divisor_other, has_rope(c) && !c->semantics.qkv.rope.cos_table.data, k->rope_divisor = *x)

static bool lacks_rope(const mha_case *c, mha__knobs *k, mha_rope_kind kind, size_t dim, double base)
{
    if (has_rope(c) || dim == 0 || dim % 2 > 0 || dim > c->d_k)
        return false;
    k->s.qkv.rope.kind = kind;
    k->s.qkv.rope.dim = dim;
    k->s.qkv.rope.base = base;
    return true;
}

SOLVE(lacks_rope_halves, lacks_rope(c, k, MHA_ROPE_HALF_SPLIT, c->d_k, *x), )
SOLVE(lacks_rope_pairs, lacks_rope(c, k, MHA_ROPE_INTERLEAVED, c->d_k, *x), )
SOLVE(lacks_rope_halves_part, *x < (double)c->d_k && lacks_rope(c, k, MHA_ROPE_HALF_SPLIT, (size_t)*x, 1e4), )
SOLVE(lacks_rope_pairs_part, *x < (double)c->d_k && lacks_rope(c, k, MHA_ROPE_INTERLEAVED, (size_t)*x, 1e4), )

/* Even numbers of features, fewer than a head has. */
static bool any_part(const mha_case *c, size_t index, double *x)
{
    *x = 2 * (double)(index + 1);
    return *x < (double)c->d_k;
}

/* ---------------------------------------------------------------- the list */

static const mha__variant_entry entries[] = {
    {{"inputs-f16", "inputs rounded to float16"}, inputs_f16},
    {{"inputs-bf16", "inputs rounded to bfloat16"}, inputs_bf16},
    {{"inputs-bf16-cut", "inputs cut to bfloat16, not rounded to the nearest"}, inputs_cut},
    {{"weights-f16", "all weights rounded to float16 on the way"}, weights_f16},
    {{"weights-bf16", "all weights rounded to bfloat16 on the way"}, weights_bf16},
    {{"weights-bf16-cut", "all weights cut to bfloat16, not rounded to the nearest"}, weights_cut},
    {{"transpose-q", "W_Q transposed"}, transpose_q},
    {{"transpose-k", "W_K transposed"}, transpose_k},
    {{"transpose-v", "W_V transposed"}, transpose_v},
    {{"transpose-o", "W_O transposed"}, transpose_o},
    {{"transpose-all", "all four matrices transposed"}, transpose_all},
    {{"order-kqv", "q and k taken for each other"}, order_kqv},
    {{"order-qvk", "k and v taken for each other"}, order_qvk},
    {{"order-vkq", "q and v taken for each other"}, order_vkq},
    {{"order-kvq", "k, v, q taken for q, k, v"}, order_kvq},
    {{"order-vqk", "v, q, k taken for q, k, v"}, order_vqk},
    {{"packed-interleaved", "a packed tensor of blocks q|k|v read as (q, k, v) for each head"}, packed_interleaved},
    {{"packed-blocks", "a packed tensor of (q, k, v) for each head read as blocks q|k|v"}, packed_blocks},
    {{"input-layer-norm", "a layer norm of the inputs, without weights"}, input_layer_norm},
    {{"input-rms-norm", "an RMS norm of the inputs, without weights"}, input_rms_norm},
    {{"latent-q-unnormed", "the latent of the queries not normalised"}, latent_q_unnormed},
    {{"latent-kv-unnormed", "the latent of keys and values not normalised"}, latent_kv_unnormed},
    {{"latent-shared-normed", "the norm over [c, k_r] instead of c"}, latent_shared_normed},
    {{"latent-shared-first", "the outputs of W_KVA read as [k_r, c] instead of [c, k_r]"}, latent_shared_first},
    {{"latent-not-shared", "k_r in the keys of the first head alone"}, latent_not_shared},
    {{"latent-values-first", "the columns of a head in W_KVB read as [v, k_n] instead of [k_n, v]"}, latent_swapped},
    {{"latent-blocks", "W_KVB read as the k_n of all heads, then their v, instead of head by head"}, latent_blocks},
    {{"latent-bias-dropped", "b_QA and b_KVA dropped"}, latent_no_bias},
    {{"batch-as-time", "attention over the batch rows of each position: (B, T, E) read as (T, B, E)"}, batch_as_time},
    {{"heads-as-time", "attention over the heads of each position: (B, h, T, d) read as (B, T, h, d), or the reverse"},
     heads_as_time},
    {{"sequences-joined", "the sequences of a ragged batch taken for one"}, sequences_joined},
    {{"inputs-reversed", "the inputs read from the last row to the first"}, inputs_reversed},
    {{"permute-q", "features of q from halves to pairs, as converters of weights move them"}, permute_q},
    {{"permute-k", "features of k from halves to pairs"}, permute_k},
    {{"permute-qk", "features of q and k from halves to pairs"}, permute_qk},
    {{"unpermute-q", "features of q from pairs to halves, as converters of weights move them"}, unpermute_q},
    {{"unpermute-k", "features of k from pairs to halves"}, unpermute_k},
    {{"unpermute-qk", "features of q and k from pairs to halves"}, unpermute_qk},
    {{"bias-q-dropped", "b_Q dropped"}, no_bias_q},
    {{"bias-k-dropped", "b_K dropped"}, no_bias_k},
    {{"bias-v-dropped", "b_V dropped"}, no_bias_v},
    {{"bias-o-dropped", "b_O dropped"}, no_bias_o},
    {{"biases-dropped", "all projection biases dropped"}, no_bias},
    {{"bias-q-unscaled", "q scaled before b_Q is added"}, bias_q_unscaled},
    {{"bias-after-norm", "b_Q and b_K added after the norm"}, bias_after_norm},
    {{"bias-after-rope", "b_Q and b_K added after the rotation"}, bias_after_rope},
    {{"split-interleaved", "features split as (d_k, h) instead of (h, d_k)"}, split_interleaved},
    {{"split-untransposed", "(T, h*d_k) viewed as (h, T, d_k) without a transpose"}, split_untransposed},
    {{"rope-missing", "no rotation"}, rope_missing},
    {{"rope-pairing", "rotation pairs (2i, 2i+1) instead of (i, i + dim/2), or the reverse"}, rope_pairing},
    {{"rope-inverse", "rotation in the other direction"}, rope_inverse},
    {{"rope-query-ahead", "queries rotated one position too far"}, rope_query_ahead},
    {{"rope-query-behind", "queries rotated one position too little"}, rope_query_behind},
    {{"rope-from-1", "positions counted from 1"}, rope_from_1},
    {{"rope-restart", "positions start at 0 in every call: cached rows forgotten"}, rope_restart},
    {{"rope-reversed", "positions counted from the last row"}, rope_reversed},
    {{"rope-queries-only", "only the queries rotated"}, rope_queries_only},
    {{"rope-keys-only", "only the keys rotated"}, rope_keys_only},
    {{"rope-sin-cos", "sine and cosine exchanged"}, rope_swapped},
    {{"rope-angles-mixed", "angles laid out for the other pairing"}, rope_mixed},
    {{"rope-regrouped", "rotated features in the order of the other pairing"}, rope_regrouped},
    {{"rope-values", "the values rotated, too"}, rope_values},
    {{"rope-full", "all features rotated instead of the first rope_dim"}, rope_full},
    {{"rope-last-features", "the last rope_dim features rotated instead of the first, or the reverse"}, rope_last},
    {{"rope-unscaled", "frequencies of the base instead of those scaled for longer contexts"}, rope_unscaled},
    {{"rope-factor-missing", "no attention factor (YaRN) on rotated features"}, rope_no_factor},
    {{"rope-axes-text", "the number of a token as its position on every axis, as in a text"}, axes_text},
    {{"rope-axes-first", "the positions of the first axis for all pairs"}, axes_first},
    {{"rope-axes-swapped", "the last two axes, height and width, taken for each other"}, axes_swapped},
    {{"rope-sections-reversed", "the sections of the axes in reverse order"}, axes_reversed},
    {{"rope-axes-dealt", "axes that have blocks of pairs taken for axes that take turns, or the reverse"}, axes_dealt},
    {{"rope-axes-restart", "frequencies that begin anew in the block of each axis, or the reverse"}, axes_restart},
    {{"rope-half-dim", "half of the rope_dim features rotated"}, rope_half},
    {{"rope-theta-d-model", "angles base^(-2i/(h*d_k)) instead of base^(-2i/rope_dim)"}, rope_width_model},
    {{"rope-theta-d-k", "angles base^(-2i/d_k) instead of base^(-2i/rope_dim)"}, rope_width_head},
    {{"rope-base-1e4", "rotation base 10,000"}, rope_base_1e4},
    {{"rope-base-5e5", "rotation base 500,000"}, rope_base_5e5},
    {{"rope-base-1e6", "rotation base 1,000,000"}, rope_base_1e6},
};

static const mha__solved_entry solved[] = {
    {{"rope-base-other", "another base of the rotation: the number"}, rope_base_other, SOLVE_REAL, 10, 1e8, NULL},
    {{"rope-positions-divided", "positions divided by a number before they are rotated by (linear scaling)"},
     rope_divisor_other,
     SOLVE_REAL,
     1.01,
     1000,
     NULL},
    {{"case-lacks-rope-halves", "a rotation in halves that the case does not have: its base"},
     lacks_rope_halves,
     SOLVE_REAL,
     10,
     1e8,
     NULL},
    {{"case-lacks-rope-pairs", "a rotation in pairs that the case does not have: its base"},
     lacks_rope_pairs,
     SOLVE_REAL,
     10,
     1e8,
     NULL},
    {{"case-lacks-rope-halves-part", "a rotation in halves, of base 10,000, of so many features"},
     lacks_rope_halves_part,
     SOLVE_LISTED,
     0,
     0,
     any_part},
    {{"case-lacks-rope-pairs-part", "a rotation in pairs, of base 10,000, of so many features"},
     lacks_rope_pairs_part,
     SOLVE_LISTED,
     0,
     0,
     any_part},
};

const mha__variant_list mha__variants_of_rows = {entries, sizeof entries / sizeof *entries, solved,
                                                 sizeof solved / sizeof *solved};
