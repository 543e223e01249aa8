/* Variants between q, k, v and the heads: which keys are read, scores, masks and added terms, softmax. */
#include <math.h>

#include "attention/pattern/pattern.h"
#include "verify/variants/variants.h"

/* ---------------------------------------------------------------- scores */

static bool has_groups(const mha_case *c)
{
    return attends(c) && c->H_kv > 1 && c->H_kv < c->H;
}

APPLY(groups_tiled, has_groups(c), k->group_k = k->group_v = GROUPS_TILED)
APPLY(groups_k_tiled, has_groups(c), k->group_k = GROUPS_TILED)
APPLY(groups_v_tiled, has_groups(c), k->group_v = GROUPS_TILED)
APPLY(groups_first, attends(c) && c->H_kv > 1, k->group_k = k->group_v = GROUPS_FIRST)
APPLY(groups_last_first, attends(c) && c->H_kv > 1, k->group_k = k->group_v = GROUPS_LAST_FIRST)

static bool scale_to(const mha_case *c, mha__knobs *k, double scale)
{
    if (!attends(c) || fabs(k->s.softmax.scale - scale) <= 1e-9 * fabs(scale))
        return false;
    k->s.softmax.scale = scale;
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
    return scale_to(c, k, k->s.softmax.scale * k->s.softmax.scale);
}
static bool scale_no_root(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1 / (double)c->d_k);
}
static bool scale_d_v(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1 / sqrt((double)c->d_v));
}
static bool scale_d_n(const mha_case *c, mha__knobs *k)
{
    return c->kv_rank > 0 && scale_to(c, k, 1 / sqrt((double)(c->d_k - c->d_rope)));
}
static bool scale_inverse(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, sqrt((double)c->d_k));
}
static bool scale_d_model(const mha_case *c, mha__knobs *k)
{
    return scale_to(c, k, 1 / sqrt((double)c->E_q));
}

APPLY(softcap_missing, has_cap(c), k->s.softmax.softcap = 0)
APPLY(softcap_after_mask, has_cap(c), k->cap_after_mask = 1)
APPLY(softcap_before_scale, has_cap(c), k->cap_before_scale = 1)
APPLY(softcap_no_factor, has_cap(c), k->cap_no_factor = 1)
APPLY(softcap_no_divisor, has_cap(c), k->cap_no_divisor = 1)

/* ---------------------------------------------------------------- what is visible */

APPLY(causal_missing, c->semantics.visible.causal, k->s.visible.causal = 0)
APPLY(causal_top_left, attends(c), k->s.visible.causal = 1; k->causal_align = CAUSAL_TOP_LEFT)
APPLY(causal_bottom_right, attends(c), k->s.visible.causal = 1; k->causal_align = CAUSAL_BOTTOM_RIGHT)
APPLY(causal_strict, c->semantics.visible.causal, k->causal_shift -= 1)
APPLY(causal_plus_1, c->semantics.visible.causal, k->causal_shift += 1)
APPLY(causal_reversed, c->semantics.visible.causal, k->causal_reversed = 1)

APPLY(prefix_missing, c->semantics.visible.prefix > 0, k->s.visible.prefix = 0)
APPLY(chunk_missing, c->semantics.visible.chunk > 0, k->s.visible.chunk = 0)
APPLY(chunk_as_window, c->semantics.visible.chunk > 0 && !c->semantics.visible.window, k->s.visible.window = 1;
      k->s.visible.window_left = k->s.visible.chunk - 1; k->s.visible.window_right = -1; k->s.visible.chunk = 0)
APPLY(window_missing, c->semantics.visible.window, k->s.visible.window = 0)
APPLY(window_keep_missing, has_left(c) && c->semantics.visible.window_keep > 0, k->s.visible.window_keep = 0)
APPLY(window_left_less, has_left(c) && k->s.visible.window_left > 0, k->s.visible.window_left -= 1)
APPLY(window_left_more, has_left(c), k->s.visible.window_left += 1)
APPLY(window_right_less, has_right(c) && k->s.visible.window_right > 0, k->s.visible.window_right -= 1)
APPLY(window_right_more, has_right(c), k->s.visible.window_right += 1)
APPLY(window_both_sides, has_left(c), k->s.visible.window_right = k->s.visible.window_left)
APPLY(window_left_only, has_left(c) && has_right(c), k->s.visible.window_right = -1)
APPLY(window_right_only, has_left(c) && has_right(c), k->s.visible.window_left = -1)

static bool is_windowed(const mha_case *c)
{
    return c->semantics.visible.window;
}

APPLY(window_top_left, is_windowed(c), k->window_align = CAUSAL_TOP_LEFT)
APPLY(window_bottom_right, is_windowed(c), k->window_align = CAUSAL_BOTTOM_RIGHT)
APPLY(window_or_causal, is_windowed(c) && c->semantics.visible.causal, k->window_or_causal = 1)

static mha_mask_kind flipped(mha_mask_kind kind)
{
    return kind == MHA_MASK_KEEPS ? MHA_MASK_HIDES : MHA_MASK_KEEPS;
}

APPLY(mask_polarity, c->semantics.visible.mask.kind > MHA_MASK_ADDITIVE,
      k->s.visible.mask.kind = flipped(k->s.visible.mask.kind))
APPLY(padding_polarity, c->semantics.visible.key_padding.kind > MHA_MASK_ADDITIVE,
      k->s.visible.key_padding.kind = flipped(k->s.visible.key_padding.kind))
APPLY(mask_missing, c->semantics.visible.mask.kind != MHA_MASK_NONE, k->s.visible.mask.kind = MHA_MASK_NONE)
APPLY(mask_subtracted, c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE, k->mask_sign = -1)
/* Whether the mask has a square of rows and columns that can be taken for each other. */
static bool is_turnable(const mha_case *c)
{
    const mha_view *v = &c->semantics.visible.mask.values;
    return c->semantics.visible.mask.kind && v->rank >= 2 && v->shape[v->rank - 1] > 1 &&
           v->shape[v->rank - 1] == v->shape[v->rank - 2] && c->T_q == c->P + c->T_k;
}

APPLY(mask_transposed, is_turnable(c), k->mask_transposed = 1)
APPLY(mask_added, is_boolean(&c->semantics.visible.mask), k->mask_as_number = 1)
APPLY(mask_scaled, c->semantics.visible.mask.kind == MHA_MASK_ADDITIVE, k->early |= ADDS_MASK)

/* Which rules of the case hide whole keys from a softmax. */
static int hiding(const mha_case *c)
{
    const mha_visible *s = &c->semantics.visible;
    if (!softens(c)) /* weights that do not depend on each other can be hidden before and after */
        return 0;
    return (is_boolean(&s->mask) ? HIDES_MASK : 0) | (s->causal ? HIDES_CAUSAL : 0) |
           (s->window ? HIDES_WINDOW : 0) |
           (is_boolean(&s->key_padding) && !s->has_padding_fill ? HIDES_PADDING : 0) |
           (s->kv_lengths ? HIDES_LENGTHS : 0);
}

static bool is_several(int bits)
{
    return (bits & (bits - 1)) != 0;
}

APPLY(mask_late, hiding(c) & HIDES_MASK, k->late |= HIDES_MASK)
APPLY(padding_late, hiding(c) & HIDES_PADDING, k->late |= HIDES_PADDING)
APPLY(causal_late, hiding(c) & HIDES_CAUSAL, k->late |= HIDES_CAUSAL)
APPLY(window_late, hiding(c) & HIDES_WINDOW, k->late |= HIDES_WINDOW)
APPLY(lengths_late, hiding(c) & HIDES_LENGTHS, k->late |= HIDES_LENGTHS)
APPLY(all_late, is_several(hiding(c)), k->late = hiding(c))

APPLY(padding_reversed, c->semantics.visible.key_padding.kind, k->padding_reversed = 1)
APPLY(padding_missing, c->semantics.visible.key_padding.kind != MHA_MASK_NONE,
      k->s.visible.key_padding.kind = MHA_MASK_NONE)
APPLY(padding_excluded, c->semantics.visible.has_padding_fill, k->s.visible.has_padding_fill = 0)
APPLY(lengths_missing, c->semantics.visible.kv_lengths, k->s.visible.kv_lengths = NULL)
APPLY(lengths_less, c->semantics.visible.kv_lengths, k->lengths_shift -= 1)
APPLY(lengths_more, c->semantics.visible.kv_lengths, k->lengths_shift += 1)
APPLY(part_at_0, attends(c) && c->semantics.place.key_offset != 0, k->part_at_0 = k->rope_part_at_0 = 1)
APPLY(lengths_from_end, c->semantics.visible.kv_lengths, k->lengths_from_end = 1)
APPLY(cache_ignored, c->P > 0, k->use_cache = 0)
APPLY(cache_behind, c->P > 0 && k->use_cache, k->cache_order = CACHE_BEHIND)
APPLY(cache_early, c->P > 0 && k->use_cache, k->cache_order = CACHE_EARLY)
/* Whether cached keys and values lie in pages that the table could name otherwise. */
static bool has_pages(const mha_case *c, const mha__knobs *k)
{
    return c->P > 0 && k->use_cache && c->tensors[CASE_PAGE_KEYS].data && c->tensors[CASE_PAGE_VALUES].data;
}

APPLY(pages_in_order, has_pages(c, k), k->pages = PAGES_IN_ORDER)
APPLY(pages_transposed, has_pages(c, k) && c->B > 1, k->pages = PAGES_TRANSPOSED)
APPLY(pages_of_first, has_pages(c, k) && c->B > 1, k->pages = PAGES_OF_FIRST)
APPLY(pages_next, has_pages(c, k), k->pages = PAGES_NEXT)
APPLY(cache_late, c->P > 0 && k->use_cache, k->cache_order = CACHE_LATE)

APPLY(query_padding_missing, c->semantics.visible.pattern.query_padding.kind,
      k->s.visible.pattern.query_padding.kind = MHA_MASK_NONE)
APPLY(segments_missing, c->semantics.visible.pattern.q_segments.data, k->s.visible.pattern.q_segments.data = NULL)
APPLY(segments_earlier_too, k->s.visible.pattern.q_segments.data, k->segments_earlier = 1)
APPLY(lists_missing, c->semantics.visible.pattern.key_lists.data, k->s.visible.pattern.key_lists.data = NULL)
APPLY(lists_each_time, k->s.visible.pattern.key_lists.data, k->lists_each_time = 1)
APPLY(lists_from_1, c->semantics.visible.pattern.key_lists.data, k->lists_shift -= 1)
APPLY(lists_one_further, c->semantics.visible.pattern.key_lists.data, k->lists_shift += 1)
APPLY(lists_fill_first, c->semantics.visible.pattern.key_lists.data, k->lists_fill = FILL_NAMES_FIRST)
APPLY(lists_fill_last, c->semantics.visible.pattern.key_lists.data, k->lists_fill = FILL_NAMES_LAST)

/* Whether blocks of queries and of keys can be taken for each other. */
static bool has_square_blocks(const mha_case *c)
{
    const mha_pattern *p = &c->semantics.visible.pattern;
    const mha_view *v = &p->blocks.values;
    return p->blocks.kind && p->block_queries == p->block_keys && c->T_q == c->P + c->T_k && v->rank >= 2 &&
           v->shape[v->rank - 1] == v->shape[v->rank - 2];
}

APPLY(blocks_missing, c->semantics.visible.pattern.blocks.kind, k->s.visible.pattern.blocks.kind = MHA_MASK_NONE)
APPLY(blocks_polarity, c->semantics.visible.pattern.blocks.kind,
      k->s.visible.pattern.blocks.kind = flipped(k->s.visible.pattern.blocks.kind))
APPLY(blocks_transposed, has_square_blocks(c), k->blocks_transposed = 1)

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
static bool fill_add_f16(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_ADD, -65504);
}
static bool fill_add_bf16(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_ADD, -0x1.fep127);
}
static bool fill_zero(const mha_case *c, mha__knobs *k)
{
    return fill(c, k, FILL_REPLACE, 0);
}

APPLY(alibi_missing, c->semantics.added.alibi_slopes, k->alibi_sign = 0)
APPLY(alibi_sign, c->semantics.added.alibi_slopes, k->alibi_sign = -1)
APPLY(alibi_from_0, c->semantics.added.alibi_slopes, k->alibi_from_0 = 1)
APPLY(alibi_scaled, c->semantics.added.alibi_slopes, k->early |= ADDS_ALIBI)
APPLY(alibi_symmetric, c->semantics.added.alibi_slopes, k->alibi_symmetric = 1)
APPLY(alibi_usual, c->semantics.added.alibi_slopes, k->alibi_formula = ALIBI_USUAL)
APPLY(alibi_heads_from_0, c->semantics.added.alibi_slopes, k->alibi_formula = ALIBI_FROM_0)
APPLY(alibi_plain, c->semantics.added.alibi_slopes && (c->H & (c->H - 1)) != 0, k->alibi_formula = ALIBI_PLAIN)
APPLY(lacks_alibi, attends(c) && !c->semantics.added.alibi_slopes, k->alibi_sign = 1; k->alibi_formula = ALIBI_USUAL)

/* ---------------------------------------------------------------- softmax */

APPLY(softmax_queries, softens(c), k->axis = AXIS_QUERIES)
APPLY(softmax_heads, softens(c) && c->H > 1, k->axis = AXIS_HEADS)
APPLY(softmax_base_2, softens(c), k->base_2 = 1)
APPLY(lse_base_2, softens(c), k->lse = LSE_BASE_2)
APPLY(lse_no_sinks, has_weight(c, MHA_SINKS) || c->semantics.softmax.softmax_plus_one, k->lse = LSE_NO_SINKS)
APPLY(lse_no_maximum, softens(c), k->lse = LSE_NO_MAXIMUM)
APPLY(lse_max_unscaled, softens(c), k->lse = LSE_MAX_UNSCALED)
APPLY(sinks_missing, has_weight(c, MHA_SINKS), k->use_sinks = 0)
APPLY(plus_one_missing, c->semantics.softmax.softmax_plus_one, k->s.softmax.softmax_plus_one = 0)
APPLY(plus_one_added, softens(c) && !c->semantics.softmax.softmax_plus_one, k->s.softmax.softmax_plus_one = 1)
APPLY(bias_row_missing, has_weight(c, MHA_BIAS_K), k->bias_row = 0)
APPLY(zero_row_missing, c->semantics.softmax.zero_row, k->s.softmax.zero_row = 0)
APPLY(empty_nan, softens(c) && mha__hides_keys(&c->semantics) && k->s.softmax.empty_rows != MHA_EMPTY_NAN,
      k->s.softmax.empty_rows = MHA_EMPTY_NAN)
APPLY(empty_zero, attends(c) && mha__hides_keys(&c->semantics) && k->s.softmax.empty_rows == MHA_EMPTY_NAN,
      k->s.softmax.empty_rows = MHA_EMPTY_ZERO)
APPLY(hidden_propagate,
      attends(c) && mha__hides_keys(&c->semantics) && k->s.softmax.hidden_values != MHA_HIDDEN_PROPAGATE,
      k->s.softmax.hidden_values = MHA_HIDDEN_PROPAGATE)
APPLY(hidden_ignore, attends(c) && mha__hides_keys(&c->semantics) && k->s.softmax.hidden_values == MHA_HIDDEN_PROPAGATE,
      k->s.softmax.hidden_values = MHA_HIDDEN_IGNORE)

APPLY(sigmoid_softmax, has_sigmoid(c), k->s.softmax.normaliser = MHA_SOFTMAX)
APPLY(sigmoid_divided, has_sigmoid(c), k->sigmoid_divided = 1)
APPLY(sigmoid_no_bias, has_sigmoid(c) && k->s.softmax.sigmoid_bias != 0, k->s.softmax.sigmoid_bias = 0)
APPLY(sigmoid_sign, has_sigmoid(c) && k->s.softmax.sigmoid_bias != 0, k->s.softmax.sigmoid_bias *= -1)
APPLY(sigmoid_scaled, has_sigmoid(c) && k->s.softmax.sigmoid_bias != 0, k->s.softmax.sigmoid_bias *= k->s.softmax.scale)
APPLY(sigmoid_usual, has_sigmoid(c), k->sigmoid_usual = 1)
APPLY(lacks_sigmoid, softens(c), k->s.softmax.normaliser = MHA_SIGMOID; k->sigmoid_usual = 1)

/* ---------------------------------------------------------------- the list */

static const mha__variant_entry entries[] = {
    {{"cache-ignored", "cached keys not attended to"}, cache_ignored},
    {{"cache-behind", "cached keys behind the new ones"}, cache_behind},
    {{"cache-row-early", "new keys written one row too early, over the last cached one"}, cache_early},
    {{"cache-row-late", "new keys written one row too late, behind a row of zeros"}, cache_late},
    {{"page-table-ignored", "the pages of the pool read one after the other, whatever the table says"}, pages_in_order},
    {{"page-table-transposed", "the table of pages read as (columns, B)"}, pages_transposed},
    {{"page-table-first", "every sequence reads the pages of the first one"}, pages_of_first},
    {{"page-table-next", "pages counted from 1: the page behind each one that is named"}, pages_next},
    {{"bias-row-missing", "the bias_k/bias_v row left out"}, bias_row_missing},
    {{"zero-row-missing", "the zero row left out"}, zero_row_missing},
    {{"groups-tiled", "query head i reads key/value head i % h_kv instead of i / (h/h_kv)"}, groups_tiled},
    {{"groups-k-tiled", "the same for the keys alone"}, groups_k_tiled},
    {{"groups-v-tiled", "the same for the values alone"}, groups_v_tiled},
    {{"groups-first", "all query heads read the first key/value head"}, groups_first},
    {{"groups-last-first", "key/value heads in reverse order"}, groups_last_first},
    {{"scale-default", "scale 1/sqrt(d_k) instead of the given one"}, scale_default},
    {{"scale-missing", "scores not scaled"}, scale_missing},
    {{"scale-twice", "scale applied twice"}, scale_twice},
    {{"scale-no-root", "scale 1/d_k"}, scale_no_root},
    {{"scale-d-model", "scale 1/sqrt(d_model)"}, scale_d_model},
    {{"scale-d-v", "scale 1/sqrt(d_v)"}, scale_d_v},
    {{"scale-d-n", "scale 1/sqrt(d_n), without the shared features of latent attention"}, scale_d_n},
    {{"scale-inverse", "scale sqrt(d_k)"}, scale_inverse},
    {{"softcap-missing", "no softcap"}, softcap_missing},
    {{"softcap-after-mask", "softcap after the mask: hidden keys get -c"}, softcap_after_mask},
    {{"softcap-before-scale", "softcap before the scale"}, softcap_before_scale},
    {{"softcap-no-factor", "tanh(s/c) without the factor c"}, softcap_no_factor},
    {{"softcap-no-divisor", "c*tanh(s) instead of c*tanh(s/c)"}, softcap_no_divisor},
    {{"causal-missing", "future keys not hidden"}, causal_missing},
    {{"causal-top-left", "causal, aligned top-left: j <= i"}, causal_top_left},
    {{"causal-bottom-right", "causal, aligned bottom-right: j <= i + S - T_q"}, causal_bottom_right},
    {{"causal-strict", "causal without the query's own position: j < i"}, causal_strict},
    {{"causal-plus-1", "causal off by one: j <= i + 1"}, causal_plus_1},
    {{"causal-reversed", "causal the other way round: j >= i"}, causal_reversed},
    {{"causal-after-softmax", "causal mask multiplied after the softmax, not renormalised"}, causal_late},
    {{"window-missing", "no window"}, window_missing},
    {{"prefix-missing", "causal over the prefix, too"}, prefix_missing},
    {{"chunk-missing", "no chunks"}, chunk_missing},
    {{"chunk-as-window", "a window of as many keys as a chunk has, instead of chunks"}, chunk_as_window},
    {{"window-keep-missing", "window: the first keys, which it keeps, hidden as others are"}, window_keep_missing},
    {{"window-left-less", "window: the query's own key counted among the left ones"}, window_left_less},
    {{"window-left-more", "window: one more key to the left"}, window_left_more},
    {{"window-right-less", "window: the query's own key counted among the right ones"}, window_right_less},
    {{"window-right-more", "window: one more key to the right"}, window_right_more},
    {{"window-both-sides", "window as wide to the right as to the left"}, window_both_sides},
    {{"window-left-only", "window open to the right"}, window_left_only},
    {{"window-right-only", "window open to the left"}, window_right_only},
    {{"window-top-left", "window measured without the offset"}, window_top_left},
    {{"window-bottom-right", "window aligned bottom-right"}, window_bottom_right},
    {{"window-or-causal", "keys visible when the window or the causal mask allows it"}, window_or_causal},
    {{"window-after-softmax", "window multiplied after the softmax, not renormalised"}, window_late},
    {{"mask-polarity", "boolean mask read the other way round"}, mask_polarity},
    {{"mask-missing", "mask left out"}, mask_missing},
    {{"mask-subtracted", "additive mask subtracted"}, mask_subtracted},
    {{"mask-scaled", "additive mask added before the scale: scaled, too"}, mask_scaled},
    {{"mask-transposed", "mask transposed: (key, query)"}, mask_transposed},
    {{"mask-added", "boolean mask added as 0 and 1"}, mask_added},
    {{"mask-after-softmax", "mask multiplied after the softmax, not renormalised"}, mask_late},
    {{"all-after-softmax", "everything that hides keys multiplied after the softmax"}, all_late},
    {{"padding-after-softmax", "key padding mask multiplied after the softmax, not renormalised"}, padding_late},
    {{"padding-reversed", "key padding mask read from its other end"}, padding_reversed},
    {{"padding-polarity", "key padding mask read the other way round"}, padding_polarity},
    {{"padding-missing", "key padding mask left out"}, padding_missing},
    {{"padding-excluded", "padded keys excluded instead of filled"}, padding_excluded},
    {{"lengths-missing", "key lengths left out"}, lengths_missing},
    {{"lengths-less", "one key too few of each length"}, lengths_less},
    {{"lengths-more", "one key too many of each length"}, lengths_more},
    {{"lengths-from-end", "lengths counted from the last key: padding on the left"}, lengths_from_end},
    {{"query-padding-missing", "queries of padding computed as others are"}, query_padding_missing},
    {{"segments-missing", "keys of other segments seen, too"}, segments_missing},
    {{"segments-earlier-too", "keys of segments with a smaller number seen, too"}, segments_earlier_too},
    {{"lists-missing", "lists of keys left out: every key seen"}, lists_missing},
    {{"lists-each-time", "a key counted as often as its query's list names it"}, lists_each_time},
    {{"lists-from-1", "lists of keys counted from 1: number n is key n - 1"}, lists_from_1},
    {{"lists-one-further", "lists of keys read one key too far"}, lists_one_further},
    {{"lists-fill-first", "numbers that fill a list of keys, as -1, taken for the first key"}, lists_fill_first},
    {{"lists-fill-last", "numbers that fill a list of keys counted from the end: -1 is the last key"}, lists_fill_last},
    {{"blocks-missing", "mask of blocks left out"}, blocks_missing},
    {{"blocks-polarity", "mask of blocks read the other way round"}, blocks_polarity},
    {{"blocks-transposed", "mask of blocks transposed: (key block, query block)"}, blocks_transposed},
    {{"key-offset-ignored", "the keys of a part counted from 0: key_offset left out"}, part_at_0},
    {{"lengths-after-softmax", "lengths applied after the softmax, not renormalised"}, lengths_late},
    {{"fill-0", "hidden scores set to 0"}, fill_zero},
    {{"fill-1e4", "hidden scores set to -10,000"}, fill_1e4},
    {{"fill-1e9", "hidden scores set to -1e9"}, fill_1e9},
    {{"fill-lowest", "hidden scores set to the lowest float"}, fill_lowest},
    {{"fill-add-1e4", "-10,000 added to hidden scores in float32"}, fill_add_1e4},
    {{"fill-add-1e9", "-1e9 added to hidden scores in float32"}, fill_add_1e9},
    {{"fill-add-f16", "the lowest float16, -65,504, added to hidden scores in float32"}, fill_add_f16},
    {{"fill-add-bf16", "the lowest bfloat16 added to hidden scores in float32"}, fill_add_bf16},
    {{"alibi-missing", "no ALiBi"}, alibi_missing},
    {{"alibi-sign", "ALiBi with the other sign"}, alibi_sign},
    {{"alibi-from-0", "ALiBi with queries counted from 0: cached rows forgotten"}, alibi_from_0},
    {{"alibi-scaled", "ALiBi added before the scale"}, alibi_scaled},
    {{"alibi-symmetric", "ALiBi by distance in both directions: -slope |i - j|"}, alibi_symmetric},
    {{"alibi-slopes-usual", "the usual slopes, from 2^(-8/h) on"}, alibi_usual},
    {{"alibi-slopes-from-0", "slopes 2^(-8i/h) with heads counted from 0"}, alibi_heads_from_0},
    {{"alibi-slopes-plain", "slopes 2^(-8i/h) where h is no power of two"}, alibi_plain},
    {{"case-lacks-alibi", "ALiBi with the usual slopes, which the case does not have"}, lacks_alibi},
    {{"softmax-base-2", "powers of 2 instead of e in the softmax"}, softmax_base_2},
    {{"softmax-queries", "softmax over the queries"}, softmax_queries},
    {{"softmax-heads", "softmax over the heads"}, softmax_heads},
    {{"sigmoid-softmax", "softmax instead of the sigmoid"}, sigmoid_softmax},
    {{"sigmoid-divided", "sigmoid, and each weight divided by the sum of them"}, sigmoid_divided},
    {{"sigmoid-bias-missing", "sigmoid without its bias"}, sigmoid_no_bias},
    {{"sigmoid-bias-sign", "sigmoid with its bias subtracted"}, sigmoid_sign},
    {{"sigmoid-bias-scaled", "sigmoid with its bias added before the scale"}, sigmoid_scaled},
    {{"sigmoid-bias-usual", "sigmoid with bias -log(number of keys) instead of the given one"}, sigmoid_usual},
    {{"case-lacks-sigmoid", "sigmoid with bias -log(number of keys) instead of the softmax"}, lacks_sigmoid},
    {{"sinks-missing", "sinks left out of the denominator"}, sinks_missing},
    {{"plus-one-missing", "no extra exp(0) in the denominator"}, plus_one_missing},
    {{"plus-one-added", "an extra exp(0) in the denominator"}, plus_one_added},
    {{"lse-base-2", "log-sum-exp in base 2"}, lse_base_2},
    {{"lse-without-sinks", "log-sum-exp of the keys alone"}, lse_no_sinks},
    {{"lse-without-maximum", "log of the sum of exp(s - maximum), the maximum not added"}, lse_no_maximum},
    {{"lse-max-unscaled", "log-sum-exp with the maximum of the unscaled scores added"}, lse_max_unscaled},
    {{"empty-nan", "NaN for queries that see no key"}, empty_nan},
    {{"empty-zero", "zero for queries that see no key"}, empty_zero},
    {{"hidden-propagate", "weight 0 times a hidden value: NaN and infinity pass"}, hidden_propagate},
    {{"hidden-ignore", "hidden values without any effect"}, hidden_ignore},
};

const mha__variant_list mha__variants_of_scores = {entries, sizeof entries / sizeof *entries, NULL, 0};
