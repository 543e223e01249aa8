/* The list of variants: each known way in which an attention differs from the intended one, by name. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/knobs.h"

/* ---------------------------------------------------------------- what a case has */

static bool has_layer(const mha_case *c)
{
    return c->kind == CASE_MHA;
}

static bool has_weight(const mha_case *c, mha_weight w)
{
    return c->weights[CASE_RECORDED][w].data != NULL;
}

static bool is_square(const mha_case *c, mha_weight w)
{
    const mha_view *v = &c->weights[CASE_RECORDED][w];
    return v->data && v->rank == 2 && v->shape[0] == v->shape[1];
}

/* Whether q, k and v can be mistaken for each other: they have one width, and inputs of one shape. */
static bool is_packable(const mha_case *c)
{
    bool same = c->kind != CASE_ROPE && c->H == c->H_kv && c->d_k == c->d_v && c->E_q == c->E_k && c->E_k == c->E_v;
    return same && (has_layer(c) || c->T_q == c->T_k);
}

static bool has_rope(const mha_case *c)
{
    return c->semantics.rope.kind != MHA_ROPE_NONE;
}

static bool has_norm(const mha_case *c)
{
    return has_weight(c, MHA_Q_NORM) || has_weight(c, MHA_K_NORM);
}

static bool attends(const mha_case *c)
{
    return c->kind != CASE_ROPE;
}

static bool hides(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    return s->causal || s->window || s->kv_lengths || s->mask.kind || (s->key_padding.kind && !s->has_padding_fill);
}

/* Whether the tables still have a row for every position moved by `shift`. */
static bool tables_reach(const mha_case *c, int64_t shift)
{
    const mha_rope *r = &c->semantics.rope;
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

/* ---------------------------------------------------------------- projections and heads */

/* Defines a variant in one line: its function's name, when it applies, what it changes. */
#define APPLY(name, when, change)                                                                                      \
    static bool name(const mha_case *c, mha__knobs *k)                                                                \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        if (!(when))                                                                                                   \
            return false;                                                                                              \
        change;                                                                                                        \
        return true;                                                                                                   \
    }

APPLY(transpose_q, is_square(c, MHA_W_Q), k->rows.transposed[PROJECTION_Q] = 1)
APPLY(transpose_k, is_square(c, MHA_W_K), k->rows.transposed[PROJECTION_K] = 1)
APPLY(transpose_v, is_square(c, MHA_W_V), k->rows.transposed[PROJECTION_V] = 1)
APPLY(transpose_o, is_square(c, MHA_W_O), k->rows.transposed[PROJECTION_O] = 1)

static bool transpose_all(const mha_case *c, mha__knobs *k)
{
    return transpose_q(c, k) && transpose_k(c, k) && transpose_v(c, k) && transpose_o(c, k);
}

static bool order(const mha_case *c, mha__knobs *knobs, int q, int k, int v)
{
    if (!is_packable(c))
        return false;
    const int source[] = {q, k, v};
    memcpy(knobs->rows.source, source, sizeof source);
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
APPLY(packed_interleaved, is_packable(c) && c->H > 1, k->rows.packing = PACKING_READ_INTERLEAVED)
APPLY(packed_blocks, is_packable(c) && c->H > 1, k->rows.packing = PACKING_READ_BLOCKS)

APPLY(no_bias_q, has_weight(c, MHA_B_Q), k->rows.no_bias[PROJECTION_Q] = 1)
APPLY(no_bias_k, has_weight(c, MHA_B_K), k->rows.no_bias[PROJECTION_K] = 1)
APPLY(no_bias_v, has_weight(c, MHA_B_V), k->rows.no_bias[PROJECTION_V] = 1)
APPLY(no_bias_o, has_weight(c, MHA_B_O), k->rows.no_bias[PROJECTION_O] = 1)

/* What was dropped is not added twice. */
APPLY(bias_o_twice, has_weight(c, MHA_B_O) && !k->rows.no_bias[PROJECTION_O], k->bias_o_twice = 1)
APPLY(residual, c->kind == CASE_MHA && c->E_q == c->E_out, k->residual = 1)

static bool no_bias(const mha_case *c, mha__knobs *k)
{
    int n = no_bias_q(c, k);
    n += no_bias_k(c, k);
    n += no_bias_v(c, k);
    return n + no_bias_o(c, k) > 1;
}

APPLY(weights_f16, has_layer(c), k->rows.round_weights = ROUND_F16)
APPLY(weights_bf16, has_layer(c), k->rows.round_weights = ROUND_BF16)
APPLY(inputs_f16, true, k->rows.round_inputs = ROUND_F16)
APPLY(inputs_bf16, true, k->rows.round_inputs = ROUND_BF16)

APPLY(split_interleaved, c->H > 1, k->rows.split = HEADS_INTERLEAVED)
APPLY(split_untransposed, c->H > 1, k->rows.split = HEADS_UNTRANSPOSED)
APPLY(merge_interleaved, attends(c) && c->H > 1, k->merge = HEADS_INTERLEAVED)
APPLY(merge_untransposed, attends(c) && c->H > 1, k->merge = HEADS_UNTRANSPOSED)
APPLY(groups_tiled, attends(c) && c->H_kv > 1 && c->H_kv < c->H, k->tiled = 1)

/* ---------------------------------------------------------------- norm and rotation */

APPLY(norm_missing, has_norm(c), k->rows.no_norm = 1)
APPLY(norm_after_rope, has_norm(c) && has_rope(c), k->rows.norm_after_rope = 1)
APPLY(norm_plus_one, has_norm(c), k->rows.norm_plus_one = 1)

static int other_pairing(int kind)
{
    return kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
}

APPLY(rope_missing, has_rope(c), k->rows.rope = MHA_ROPE_NONE)
APPLY(rope_pairing, has_rope(c), k->rows.rope = other_pairing(k->rows.rope))
APPLY(rope_inverse, has_rope(c), k->rows.rope_inverse = 1)
APPLY(rope_query_ahead, has_rope(c) && attends(c) && tables_reach(c, 1), k->rows.rope_shift_q += 1)
APPLY(rope_query_behind, has_rope(c) && attends(c) && tables_reach(c, -1), k->rows.rope_shift_q -= 1)
APPLY(rope_from_1, has_rope(c) && tables_reach(c, 1), k->rows.rope_shift_q += 1; k->rows.rope_shift_k += 1)
APPLY(rope_restart, has_rope(c) && (c->P > 0 || c->semantics.rope.q_positions.data) && tables_reach(c, 0),
      k->rows.rope_restart = 1)
APPLY(rope_values, has_rope(c) && attends(c), k->rows.rope_values = 1)
APPLY(rope_full, has_rope(c) && (size_t)k->rows.rope_dim < c->d_k && c->d_k % 2 == 0, k->rows.rope_dim = (int)c->d_k;
      k->rows.rope_formula = 1)

static bool rope_base(const mha_case *c, mha__knobs *k, double base)
{
    if (!has_rope(c) || (!c->semantics.rope.cos_table.data && k->rows.rope_base == base))
        return false;
    k->rows.rope_base = base;
    k->rows.rope_formula = 1;
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

/* ---------------------------------------------------------------- scores */

static bool scale_to(const mha_case *c, mha__knobs *k, double scale)
{
    if (!attends(c) || fabs(k->scale - scale) <= 1e-9 * fabs(scale))
        return false;
    k->scale = scale;
    return true;
}

static bool scale_default(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1 / sqrt((double)c->d_k));
}
static bool scale_missing(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1);
}
static bool scale_twice(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, k->scale * k->scale);
}
static bool scale_no_root(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1 / (double)c->d_k);
}
static bool scale_d_v(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1 / sqrt((double)c->d_v));
}
static bool scale_inverse(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, sqrt((double)c->d_k));
}
static bool scale_d_model(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1 / sqrt((double)c->E_q));
}

static bool has_cap(const mha_case *c)
{
    return attends(c) && c->semantics.softcap > 0;
}

APPLY(softcap_missing, has_cap(c), k->softcap = 0)
APPLY(softcap_after_mask, has_cap(c), k->cap_after_mask = 1)
APPLY(softcap_before_scale, has_cap(c), k->cap_before_scale = 1)
APPLY(softcap_no_factor, has_cap(c), k->cap_no_factor = 1)

/* ---------------------------------------------------------------- what is visible */

APPLY(causal_missing, c->semantics.causal, k->causal = 0)
APPLY(causal_top_left, attends(c), k->causal = 1; k->causal_align = CAUSAL_TOP_LEFT)
APPLY(causal_bottom_right, attends(c), k->causal = 1; k->causal_align = CAUSAL_BOTTOM_RIGHT)
APPLY(causal_strict, c->semantics.causal, k->causal_shift -= 1)
APPLY(causal_plus_1, c->semantics.causal, k->causal_shift += 1)

static bool has_left(const mha_case *c)
{
    return c->semantics.window && c->semantics.window_left >= 0;
}

static bool has_right(const mha_case *c)
{
    return c->semantics.window && c->semantics.window_right >= 0;
}

APPLY(window_missing, c->semantics.window, k->window = 0)
APPLY(window_left_less, has_left(c) && k->window_left > 0, k->window_left -= 1)
APPLY(window_left_more, has_left(c), k->window_left += 1)
APPLY(window_right_less, has_right(c) && k->window_right > 0, k->window_right -= 1)
APPLY(window_right_more, has_right(c), k->window_right += 1)
APPLY(window_both_sides, has_left(c), k->window_right = k->window_left)
APPLY(window_left_only, has_left(c) && has_right(c), k->window_right = -1)
APPLY(window_right_only, has_left(c) && has_right(c), k->window_left = -1)

static int flipped(int kind)
{
    return kind == MHA_MASK_KEEPS ? MHA_MASK_HIDES : MHA_MASK_KEEPS;
}

APPLY(mask_polarity, c->semantics.mask.kind > MHA_MASK_ADDITIVE, k->mask_kind = flipped(k->mask_kind))
APPLY(padding_polarity, c->semantics.key_padding.kind > MHA_MASK_ADDITIVE, k->padding_kind = flipped(k->padding_kind))
APPLY(mask_missing, c->semantics.mask.kind != MHA_MASK_NONE, k->mask_kind = MHA_MASK_NONE)
APPLY(mask_subtracted, c->semantics.mask.kind == MHA_MASK_ADDITIVE, k->mask_sign = -1)
APPLY(padding_missing, c->semantics.key_padding.kind != MHA_MASK_NONE, k->padding_kind = MHA_MASK_NONE)
APPLY(padding_excluded, c->semantics.has_padding_fill, k->use_padding_fill = 0)
APPLY(lengths_missing, c->semantics.kv_lengths, k->use_lengths = 0)
APPLY(lengths_less, c->semantics.kv_lengths, k->lengths_shift -= 1)
APPLY(lengths_more, c->semantics.kv_lengths, k->lengths_shift += 1)
APPLY(cache_ignored, c->P > 0, k->use_cache = 0)

static bool fill(const mha_case *c, mha__knobs *k, int how, double value)
{
    if (!attends(c))
        return false;
    k->fill = how;
    k->fill_value = value;
    return true;
}

static const double lowest = -3.4028234663852886e38; /* the lowest float32 */

static bool fill_1e4(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_REPLACE, -1e4);
}
static bool fill_1e9(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_REPLACE, -1e9);
}
static bool fill_lowest(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_REPLACE, lowest);
}
static bool fill_add_1e4(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_ADD, -1e4);
}
static bool fill_add_1e9(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_ADD, -1e9);
}
static bool fill_zero(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_REPLACE, 0);
}

APPLY(alibi_missing, c->semantics.alibi_slopes, k->alibi_sign = 0)
APPLY(alibi_sign, c->semantics.alibi_slopes, k->alibi_sign = -1)
APPLY(alibi_from_0, c->semantics.alibi_slopes, k->alibi_from_0 = 1)

/* ---------------------------------------------------------------- softmax */

APPLY(softmax_queries, attends(c), k->axis = AXIS_QUERIES)
APPLY(softmax_heads, attends(c) && c->H > 1, k->axis = AXIS_HEADS)
APPLY(sinks_missing, has_weight(c, MHA_SINKS), k->use_sinks = 0)
APPLY(plus_one_missing, c->semantics.softmax_plus_one, k->plus_one = 0)
APPLY(plus_one_added, attends(c) && !c->semantics.softmax_plus_one, k->plus_one = 1)
APPLY(bias_row_missing, has_weight(c, MHA_BIAS_K), k->bias_row = 0)
APPLY(zero_row_missing, c->semantics.zero_row, k->zero_row = 0)
APPLY(empty_nan, attends(c) && hides(c) && !k->empty_nan, k->empty_nan = 1)
APPLY(empty_zero, attends(c) && hides(c) && k->empty_nan, k->empty_nan = 0)
APPLY(hidden_propagate, attends(c) && hides(c) && !k->propagate, k->propagate = 1)
APPLY(hidden_ignore, attends(c) && hides(c) && k->propagate, k->propagate = 0)

/* ---------------------------------------------------------------- the list */

/* The one list, in the order of the data flow: it drives the search, the help text and the tests. */
static const mha__variant_entry entries[] = {
    {{"inputs-f16", "inputs rounded to float16"}, inputs_f16},
    {{"inputs-bf16", "inputs rounded to bfloat16"}, inputs_bf16},
    {{"weights-f16", "weights rounded to float16 on the way"}, weights_f16},
    {{"weights-bf16", "weights rounded to bfloat16 on the way"}, weights_bf16},
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
    {{"bias-q-dropped", "b_Q dropped"}, no_bias_q},
    {{"bias-k-dropped", "b_K dropped"}, no_bias_k},
    {{"bias-v-dropped", "b_V dropped"}, no_bias_v},
    {{"bias-o-dropped", "b_O dropped"}, no_bias_o},
    {{"biases-dropped", "all projection biases dropped"}, no_bias},
    {{"split-interleaved", "features split as (d_k, h) instead of (h, d_k)"}, split_interleaved},
    {{"split-untransposed", "(T, h*d_k) viewed as (h, T, d_k) without a transpose"}, split_untransposed},
    {{"norm-missing", "q/k norm left out"}, norm_missing},
    {{"norm-after-rope", "q/k norm after the rotation"}, norm_after_rope},
    {{"norm-plus-one", "q/k norm multiplies by 1 + weight"}, norm_plus_one},
    {{"rope-missing", "no rotation"}, rope_missing},
    {{"rope-pairing", "rotation pairs (2i, 2i+1) instead of (i, i + dim/2), or the reverse"}, rope_pairing},
    {{"rope-inverse", "rotation in the other direction"}, rope_inverse},
    {{"rope-query-ahead", "queries rotated one position too far"}, rope_query_ahead},
    {{"rope-query-behind", "queries rotated one position too little"}, rope_query_behind},
    {{"rope-from-1", "positions counted from 1"}, rope_from_1},
    {{"rope-restart", "positions start at 0 in every call: cached rows forgotten"}, rope_restart},
    {{"rope-values", "the values rotated, too"}, rope_values},
    {{"rope-full", "all features rotated instead of the first rope_dim"}, rope_full},
    {{"rope-base-1e4", "rotation base 10,000"}, rope_base_1e4},
    {{"rope-base-5e5", "rotation base 500,000"}, rope_base_5e5},
    {{"rope-base-1e6", "rotation base 1,000,000"}, rope_base_1e6},
    {{"cache-ignored", "cached keys not attended to"}, cache_ignored},
    {{"bias-row-missing", "the bias_k/bias_v row left out"}, bias_row_missing},
    {{"zero-row-missing", "the zero row left out"}, zero_row_missing},
    {{"groups-tiled", "query head i reads key/value head i % h_kv instead of i / (h/h_kv)"}, groups_tiled},
    {{"scale-default", "scale 1/sqrt(d_k) instead of the given one"}, scale_default},
    {{"scale-missing", "scores not scaled"}, scale_missing},
    {{"scale-twice", "scale applied twice"}, scale_twice},
    {{"scale-no-root", "scale 1/d_k"}, scale_no_root},
    {{"scale-d-model", "scale 1/sqrt(d_model)"}, scale_d_model},
    {{"scale-d-v", "scale 1/sqrt(d_v)"}, scale_d_v},
    {{"scale-inverse", "scale sqrt(d_k)"}, scale_inverse},
    {{"softcap-missing", "no softcap"}, softcap_missing},
    {{"softcap-after-mask", "softcap after the mask: hidden keys get -c"}, softcap_after_mask},
    {{"softcap-before-scale", "softcap before the scale"}, softcap_before_scale},
    {{"softcap-no-factor", "tanh(s/c) without the factor c"}, softcap_no_factor},
    {{"causal-missing", "future keys not hidden"}, causal_missing},
    {{"causal-top-left", "causal, aligned top-left: j <= i"}, causal_top_left},
    {{"causal-bottom-right", "causal, aligned bottom-right: j <= i + S - T_q"}, causal_bottom_right},
    {{"causal-strict", "causal without the query's own position: j < i"}, causal_strict},
    {{"causal-plus-1", "causal off by one: j <= i + 1"}, causal_plus_1},
    {{"window-missing", "no window"}, window_missing},
    {{"window-left-less", "window: the query's own key counted among the left ones"}, window_left_less},
    {{"window-left-more", "window: one more key to the left"}, window_left_more},
    {{"window-right-less", "window: the query's own key counted among the right ones"}, window_right_less},
    {{"window-right-more", "window: one more key to the right"}, window_right_more},
    {{"window-both-sides", "window as wide to the right as to the left"}, window_both_sides},
    {{"window-left-only", "window open to the right"}, window_left_only},
    {{"window-right-only", "window open to the left"}, window_right_only},
    {{"mask-polarity", "boolean mask read the other way round"}, mask_polarity},
    {{"mask-missing", "mask left out"}, mask_missing},
    {{"mask-subtracted", "additive mask subtracted"}, mask_subtracted},
    {{"padding-polarity", "key padding mask read the other way round"}, padding_polarity},
    {{"padding-missing", "key padding mask left out"}, padding_missing},
    {{"padding-excluded", "padded keys excluded instead of filled"}, padding_excluded},
    {{"lengths-missing", "key lengths left out"}, lengths_missing},
    {{"lengths-less", "one key too few of each length"}, lengths_less},
    {{"lengths-more", "one key too many of each length"}, lengths_more},
    {{"fill-0", "hidden scores set to 0"}, fill_zero},
    {{"fill-1e4", "hidden scores set to -10,000"}, fill_1e4},
    {{"fill-1e9", "hidden scores set to -1e9"}, fill_1e9},
    {{"fill-lowest", "hidden scores set to the lowest float"}, fill_lowest},
    {{"fill-add-1e4", "-10,000 added to hidden scores in float32"}, fill_add_1e4},
    {{"fill-add-1e9", "-1e9 added to hidden scores in float32"}, fill_add_1e9},
    {{"alibi-missing", "no ALiBi"}, alibi_missing},
    {{"alibi-sign", "ALiBi with the other sign"}, alibi_sign},
    {{"alibi-from-0", "ALiBi with queries counted from 0: cached rows forgotten"}, alibi_from_0},
    {{"softmax-queries", "softmax over the queries"}, softmax_queries},
    {{"softmax-heads", "softmax over the heads"}, softmax_heads},
    {{"sinks-missing", "sinks left out of the denominator"}, sinks_missing},
    {{"plus-one-missing", "no extra exp(0) in the denominator"}, plus_one_missing},
    {{"plus-one-added", "an extra exp(0) in the denominator"}, plus_one_added},
    {{"empty-nan", "NaN for queries that see no key"}, empty_nan},
    {{"empty-zero", "zero for queries that see no key"}, empty_zero},
    {{"hidden-propagate", "weight 0 times a hidden value: NaN and infinity pass"}, hidden_propagate},
    {{"hidden-ignore", "hidden values without any effect"}, hidden_ignore},
    {{"merge-interleaved", "heads merged as (d_v, h) instead of (h, d_v)"}, merge_interleaved},
    {{"merge-untransposed", "(h, T, d_v) viewed as (T, h*d_v) without a transpose"}, merge_untransposed},
    {{"bias-o-twice", "b_O added twice"}, bias_o_twice},
    {{"residual-added", "the query input added to the output"}, residual},
};

const mha__variant_entry *mha__variant_entry_at(size_t index)
{
    return index < sizeof entries / sizeof *entries ? &entries[index] : NULL;
}

size_t mha_variant_count(void)
{
    return sizeof entries / sizeof *entries;
}

const mha_variant *mha_variant_at(size_t index)
{
    const mha__variant_entry *e = mha__variant_entry_at(index);
    return e ? &e->shown : NULL;
}

bool mha__variants_apply(const mha_case *c, int a, int b, mha__knobs *knobs)
{
    *knobs = mha__knobs_of(c);
    return (a < 0 || entries[a].apply(c, knobs)) && (b < 0 || entries[b].apply(c, knobs));
}
