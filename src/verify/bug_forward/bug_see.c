/* What a query sees: which keys are hidden from it, and what is added to its scores. */
#include <math.h>
#include <stdlib.h>

#include "attention/core/terms/bias.h"
#include "attention/core/terms/relative.h"
#include "attention/call/resolved.h"
#include "verify/bug_forward/bug_bench.h"

/* The mask's value for a score; `missing` for keys beyond the mask's last column. */
static double mask_value(const mha_view *v, const mha__score_at *at, size_t S, double missing)
{
    const size_t reach = v->shape[v->rank - 1];
    if (reach > 1 && reach < S && at->j >= reach)
        return missing;
    return mha__bug_element(v, (size_t[]){at->b, at->h, at->i, at->j});
}

/* x / n, rounded down. */
static int64_t floor_divide(int64_t x, int64_t n)
{
    return n == 1 ? x : x / n - (x % n < 0);
}

static int64_t aligned(const mha__bug_inputs *w, int align, int64_t offset)
{
    return align == CAUSAL_TOP_LEFT ? 0 : align == CAUSAL_BOTTOM_RIGHT ? (int64_t)w->S - (int64_t)w->c->T_q : offset;
}

static int64_t offset_of(const mha_case *c, const mha__knobs *k, size_t b)
{
    return mha__case_offset(c, b) + (k->part_at_0 ? c->semantics.place.key_offset : 0);
}

/* The number that key 0 has among the positions that a prefix, a window that keeps keys and chunks count. */
static int64_t first_position(const mha__bug_inputs *w, const mha__knobs *k)
{
    return k->part_at_0 ? 0 : w->c->semantics.place.key_offset;
}

static bool causal_hides(const mha__bug_inputs *w, const mha__knobs *k, int64_t i, int64_t j, int64_t offset)
{
    const int64_t row = k->causal_tile > 0 ? floor_divide(i, k->causal_tile) * k->causal_tile : i;
    const int64_t last = row + aligned(w, k->causal_align, offset) + k->causal_shift;
    if (!k->s.visible.causal || j + first_position(w, k) < k->s.visible.prefix)
        return false;
    if (k->causal_block > 0)
        return floor_divide(j, k->causal_block) + (k->causal_block_strict != 0) > floor_divide(last, k->causal_block);
    return k->causal_reversed ? j < last : j > last;
}

static bool window_hides(const mha__bug_inputs *w, const mha__knobs *k, int64_t i, int64_t j, int64_t offset)
{
    const int64_t at = i + aligned(w, k->window_align, offset);
    if (!k->s.visible.has_window_left && !k->s.visible.has_window_right)
        return false;
    const bool kept = j + first_position(w, k) < k->s.visible.window_keep;
    const int64_t n = k->window_block > 0 ? k->window_block : 1, key = floor_divide(j, n);
    const bool outside =
        (k->s.visible.has_window_left && key < floor_divide(at - k->s.visible.window_left, n) && !kept) ||
        (k->s.visible.has_window_right && key > floor_divide(at + k->s.visible.window_right, n));
    return outside != (k->window_inverted != 0);
}

static bool chunk_hides(const mha__bug_inputs *w, const mha__knobs *k, int64_t i, int64_t j, int64_t offset)
{
    const int64_t n = k->s.visible.chunk, first = first_position(w, k) + k->chunk_shift;
    const int64_t key = floor_divide(j + first, n), query = floor_divide(i + offset + first, n);
    return key != query && !(k->chunk_before && key + 1 == query);
}

static bool length_hides(const mha__bug_inputs *w, const mha__knobs *k, size_t b, int64_t j)
{
    if (k->lengths)
        return j >= (int64_t)k->lengths[b];
    if (!k->s.visible.kv_lengths)
        return false;
    int64_t length = k->s.visible.kv_lengths[b] + k->lengths_shift - first_position(w, k);
    if (k->lengths_block > 0)
        length = (floor_divide(length - 1, k->lengths_block) + 1) * k->lengths_block;
    return k->lengths_from_end ? j < (int64_t)w->S - length : j >= length;
}

enum { ALWAYS = 32 };

/* The rules that hide a key: bits HIDES_...; the last bit is for those that are never late. */
static int rules_hide(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *at)
{
    const int64_t offset = offset_of(w->c, k, at->b), i = (int64_t)at->i, j = (int64_t)at->j;
    const int64_t before = k->causal_runs ? (int64_t)(at->b * w->c->T_q) : 0;
    int hides = (causal_hides(w, k, i + before, j, offset) ? HIDES_CAUSAL : 0) |
                (window_hides(w, k, i, j, offset) ? HIDES_WINDOW : 0) |
                (length_hides(w, k, at->b, j) ? HIDES_LENGTHS : 0);
    if (k->window_or_causal && (hides & (HIDES_CAUSAL | HIDES_WINDOW)) != (HIDES_CAUSAL | HIDES_WINDOW))
        hides &= ~(HIDES_CAUSAL | HIDES_WINDOW);
    if ((k->s.visible.chunk > 0 && chunk_hides(w, k, i, j, offset)) ||
        (k->dilation > 0 && (i + offset - j) % k->dilation != 0))
        hides |= ALWAYS;
    if (k->whole_tiles > 0 && j >= (int64_t)w->S / k->whole_tiles * k->whole_tiles)
        hides |= ALWAYS;
    if (mha__bug_pads(k, at->b, at->i))
        hides |= ALWAYS;
    if (k->keys_from > 0 && j < (int64_t)(w->S - 1) / k->keys_from * k->keys_from)
        hides |= ALWAYS;
    if ((k->keys_below > 0 && j >= k->keys_below) || (!k->use_cache && at->j < w->c->P))
        hides |= ALWAYS;
    return hides;
}

/* What a mask says about a score: it hides it or adds a term. */
static bool mask_hides(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *given, double *added)
{
    const mha_mask *mask = &k->s.visible.mask;
    const mha__score_at moved = {k->mask_first & 4 ? 0 : mha__wrapped((int64_t)given->b - k->mask_batch, w->c->B),
                                 k->mask_first & 2 ? 0 : given->h,
                                 k->mask_first & 1 ? 0 : mha__wrapped((int64_t)given->i - k->mask_rows, w->c->T_q),
                                 mha__wrapped((int64_t)given->j - k->mask_roll, w->S)},
                        *at = &moved;
    if (k->mask_below > 0 && (int64_t)at->j >= k->mask_below)
        return false;
    if (mask->kind == MHA_MASK_ADDITIVE) {
        const double m = k->mask_sign * mask_value(&mask->values, at, w->S, -INFINITY * k->mask_sign);
        const bool hides = m == -INFINITY && !(k->early & ADDS_MASK); /* before the scale it is a number like others */
        *added += hides ? 0 : m;
        return hides;
    }
    const double m = mask_value(&mask->values, at, w->S, mask->kind == MHA_MASK_HIDES) != 0;
    if (k->mask_as_number)
        *added += m;
    return !k->mask_as_number && (m != 0) == (mask->kind == MHA_MASK_HIDES);
}

static bool padding_hides(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *at, double *added)
{
    const mha_mask *padding = &k->s.visible.key_padding;
    const size_t j = k->padding_reversed ? w->S - 1 - at->j : at->j;
    const double p = mha_view_get(&padding->values, (const size_t[]){padding->values.shape[0] == 1 ? 0 : at->b, j});
    if (padding->kind == MHA_MASK_ADDITIVE) {
        *added += p == -INFINITY ? 0 : p;
        return p == -INFINITY;
    }
    const bool hides = (p != 0) == (padding->kind == MHA_MASK_HIDES);
    if (hides && k->s.visible.has_padding_fill)
        *added += k->s.visible.padding_fill;
    return hides && !k->s.visible.has_padding_fill;
}

static double slope_of(const mha_case *c, const mha__knobs *k, size_t h)
{
    const double H = (double)c->H, below = exp2(floor(log2(H))), i = (double)h;
    switch (k->alibi_formula) {
    case ALIBI_FROM_0: return exp2(-8 * i / H);
    case ALIBI_PLAIN: return exp2(-8 * (i + 1) / H);
    case ALIBI_USUAL: return i < below ? exp2(-8 * (i + 1) / below) : exp2(-4 * (2 * (i - below) + 1) / below);
    default: return k->s.added.alibi_slopes[h];
    }
}

/* The cell that stands where cell t is counted column by column. */
static int64_t by_column(bool class_token, size_t height, size_t width, int64_t t)
{
    const int64_t first = class_token, H = (int64_t)height;
    return t < first ? t : first + (t - first) % H * (int64_t)width + (t - first) / H;
}

/* What the table of a relative position bias adds; 0 for positions that have no row. */
static double position_bias(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *at)
{
    const size_t n = w->c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0];
    mha_bias bias = k->s.added.bias;
    const int64_t first = first_position(w, k), key = first + (int64_t)at->j;
    const bool from_0 = k->position_bias == POSITION_BIAS_FROM_0;
    const int64_t query = (int64_t)at->i + (from_0 ? 0 : first + offset_of(w->c, k, at->b));
    int64_t p = query, q = key;
    if (k->position_bias == POSITION_BIAS_REVERSED)
        p = key, q = query;
    if (k->position_bias == POSITION_BIAS_BY_COLUMN)
        p = by_column(bias.class_token, bias.height, bias.width, query),
        q = by_column(bias.class_token, bias.height, bias.width, key);
    bias.one_way ^= k->position_bias == POSITION_BIAS_OTHER_WAYS;
    size_t row = mha__bias_row(&bias, n, p, q);
    if (k->position_bias == POSITION_BIAS_LINEAR) {
        const int64_t last = (int64_t)(bias.one_way ? n : n / 2) - 1, apart = q > p ? q - p : p - q;
        const size_t far = q > p && bias.one_way ? 0 : (size_t)(apart < last ? apart : last);
        row = far + (q > p && !bias.one_way ? n / 2 : 0);
    }
    row += k->position_bias == POSITION_BIAS_NEXT_ROW && row + 1 < n;
    row -= k->position_bias == POSITION_BIAS_ROW_BEFORE && row > 0 && row < n;
    const size_t H = w->c->H, head = k->position_bias == POSITION_BIAS_HEAD_0           ? 0
                                     : k->position_bias == POSITION_BIAS_HEADS_REVERSED ? H - 1 - at->h
                                                                                        : at->h;
    const size_t place = k->position_bias == POSITION_BIAS_TRANSPOSED ? at->h * n + row : row * H + head;
    return row < n ? k->position_bias_times * mha__bug_rounded(w->bias_table[place], k->round_weights) : 0;
}

size_t mha__bug_relative_row(const mha__bug_inputs *w, const mha__knobs *k, mha_weight table, const mha__score_at *at)
{
    const size_t n = w->c->weights[CASE_RECORDED][table].shape[0];
    mha_relative relative = k->s.added.relative;
    const int64_t first = first_position(w, k), key = first + (int64_t)at->j;
    const bool from_0 = k->relative == RELATIVE_FROM_0;
    const int64_t query = (int64_t)at->i + (from_0 ? 0 : first + offset_of(w->c, k, at->b));
    int64_t p = query, q = key;
    if (k->relative == RELATIVE_REVERSED || (k->relative == RELATIVE_OTHER_WAY && table == MHA_RELATIVE_Q))
        p = key, q = query;
    if (k->relative == RELATIVE_BY_COLUMN)
        p = by_column(false, relative.height, relative.width, query),
        q = by_column(false, relative.height, relative.width, key);
    if (k->relative == RELATIVE_LINEAR)
        relative.rule = MHA_RELATIVE_DISTANCE;
    size_t row = mha__relative_row(&relative, table, n, p, q);
    const int64_t d = relative.reversed ? q - p : p - q, before = -(d + (int64_t)(n / 2));
    if (k->relative == RELATIVE_WRAPPED && before > 0 && before <= (int64_t)n)
        row = n - (size_t)before;
    return row + (k->relative == RELATIVE_NEXT_ROW && row + 1 < n);
}

/* Visibility is implemented in three places (core/terms/mask.c, exact.c and here); only this one has knobs. */
mha__key_visibility mha__bug_look(const mha__bug_inputs *inputs, const mha__knobs *k, const mha__score_at *at)
{
    double masked = 0;
    int hides = rules_hide(inputs, k, at);
    if (k->s.visible.mask.kind != MHA_MASK_NONE && mask_hides(inputs, k, at, &masked))
        hides |= HIDES_MASK;
    if (k->mask_or_causal && (hides & (HIDES_CAUSAL | HIDES_MASK)) != (HIDES_CAUSAL | HIDES_MASK))
        hides &= ~(HIDES_CAUSAL | HIDES_MASK);
    mha__key_visibility visibility = {0};
    if (mha__bug_pattern_hides(inputs, k, at, &visibility.added))
        hides |= ALWAYS;
    if (k->early & ADDS_MASK)
        visibility.early += masked;
    else
        visibility.added += masked;
    if (k->s.visible.key_padding.kind != MHA_MASK_NONE && padding_hides(inputs, k, at, &visibility.added))
        hides |= HIDES_PADDING;
    if (k->alibi_sign != 0) {
        const int64_t offset = k->alibi_from_0 ? 0 : offset_of(inputs->c, k, at->b);
        int64_t key = (int64_t)at->j;
        if (k->alibi_tile != 0)
            key = k->alibi_tile > 0 ? key - key % k->alibi_tile : key % -k->alibi_tile;
        double distance = (double)(offset + (int64_t)at->i - key);
        if (k->alibi_symmetric)
            distance = fabs(distance);
        if (k->alibi_most > 0)
            distance = fmin(distance, (double)k->alibi_most);
        *(k->early & ADDS_ALIBI ? &visibility.early : &visibility.added) -=
            k->alibi_sign * slope_of(inputs->c, k, at->h) * distance;
    }
    if (k->s.added.bias.rule != MHA_BIAS_RULE_NONE) {
        const bool early = (k->early & ADDS_POSITION_BIAS) != 0;
        const double bias = position_bias(inputs, k, at);
        if (bias == -INFINITY && !early)
            hides |= HIDES_MASK;
        else
            *(early ? &visibility.early : &visibility.added) += bias;
    }
    if ((int64_t)at->j >= k->twice_from && (int64_t)at->j < k->twice_to)
        visibility.added += log(2);
    if (k->edges_twice > 0 && at->j > 0 && at->j % (size_t)k->edges_twice == 0)
        visibility.added += log(2);
    if (k->last_fills > 0 && at->j + 1 == inputs->S) {
        const size_t tile = (size_t)k->last_fills, tiles = (inputs->S + tile - 1) / tile;
        visibility.added += log((double)(tiles * tile - at->j));
    }
    visibility.hidden = (hides & ~k->late) != 0 ? VISIBLE_HIDDEN : hides != 0 ? VISIBLE_LATE : VISIBLE_SEEN;
    return visibility;
}

size_t mha__bug_count_padded(const mha__bug_inputs *inputs, const mha__knobs *k, size_t b, size_t i)
{
    const size_t n = inputs->S + mha__extra_rows(inputs->c), tile = (size_t)llabs(k->tile);
    const size_t end = (n + tile - 1) / tile * tile;
    size_t count = 0;
    for (size_t j = n; j < end; j++)
        count += k->tile_bug == TILE_PADDED_SEEN || rules_hide(inputs, k, &(mha__score_at){b, 0, i, j}) == 0;
    return count;
}

size_t mha__bug_count_zeros(const mha__bug_inputs *inputs, const mha__knobs *k, size_t b, size_t i)
{
    size_t count = 0;
    for (size_t j = 0; j < inputs->S; j++)
        count += rules_hide(inputs, k, &(mha__score_at){b, 0, i, j}) == HIDES_LENGTHS;
    return count;
}

bool mha__bug_heads_see_alike(const mha__knobs *k)
{
    const mha_view *mask = &k->s.visible.mask.values;
    const bool by_head = k->s.visible.mask.kind != MHA_MASK_NONE && mask->rank >= 3 && mask->shape[mask->rank - 3] > 1;
    return !by_head && k->alibi_sign == 0 && k->s.added.bias.rule == MHA_BIAS_RULE_NONE && !mha__bug_pattern_by_head(k);
}

/* The knobs with the alignment of the case where another one is the same. */
static mha__knobs settled(const mha__bug_inputs *w, const mha__knobs *k, size_t b)
{
    mha__knobs settled = *k;
    const int64_t offset = offset_of(w->c, k, b);
    if (aligned(w, k->causal_align, offset) == offset)
        settled.causal_align = CAUSAL_OFFSET;
    if (aligned(w, k->window_align, offset) == offset)
        settled.window_align = CAUSAL_OFFSET;
    return settled;
}

bool mha__bug_sees_alike(const mha__bug_inputs *w, const mha__knobs *one, const mha__knobs *other, size_t b, size_t i)
{
    if (w->sequences && i >= w->sequences[b].T[PROJECTION_Q])
        return true;
    if (w->sequences) {
        mha__knobs own[2] = {*one, *other};
        mha__cut_to_sequence(&own[0].s, b);
        mha__cut_to_sequence(&own[1].s, b);
        return mha__bug_sees_alike(&w->sequences[b], &own[0], &own[1], 0, i);
    }
    if (one->cache_order != other->cache_order)
        return false;
    const mha__knobs x = settled(w, one, b), y = settled(w, other, b);
    if (mha__knobs_see_alike(&x, &y))
        return true;
    const size_t heads = mha__bug_heads_see_alike(one) && mha__bug_heads_see_alike(other) ? 1 : w->c->H;
    for (size_t h = 0; h < heads; h++)
        for (size_t j = 0; j < w->S; j++) {
            const mha__score_at at = {b, h, i, j};
            const mha__key_visibility a = mha__bug_look(w, one, &at), z = mha__bug_look(w, other, &at);
            if (a.hidden != z.hidden || (a.hidden != VISIBLE_HIDDEN && (a.added != z.added || a.early != z.early)))
                return false;
        }
    return true;
}

bool mha__bug_sees(const mha__bug_inputs *inputs, const mha__knobs *knobs, size_t b, size_t i, bool hidden)
{
    if (inputs->sequences && i >= inputs->sequences[b].T[PROJECTION_Q])
        return false;
    if (inputs->sequences) {
        mha__knobs own = *knobs;
        mha__cut_to_sequence(&own.s, b);
        return mha__bug_sees(&inputs->sequences[b], &own, 0, i, hidden);
    }
    const size_t S = inputs->S, first = i + inputs->c->P < S ? i + inputs->c->P : 0; /* a key that is usually seen */
    for (size_t n = 0; n < S; n++) {
        const mha__score_at at = {b, 0, i, (first + n) % S};
        if ((mha__bug_look(inputs, knobs, &at).hidden == VISIBLE_HIDDEN) == hidden)
            return true;
    }
    return false;
}

size_t mha__bug_count_seen(const mha__bug_inputs *inputs, const mha__knobs *knobs, size_t b, size_t i)
{
    if (inputs->sequences && i >= inputs->sequences[b].T[PROJECTION_Q])
        return 0;
    if (inputs->sequences) {
        mha__knobs own = *knobs;
        mha__cut_to_sequence(&own.s, b);
        return mha__bug_count_seen(&inputs->sequences[b], &own, 0, i);
    }
    size_t seen = 0;
    for (size_t j = 0; j < inputs->S; j++)
        seen += mha__bug_look(inputs, knobs, &(mha__score_at){b, 0, i, j}).hidden != VISIBLE_HIDDEN;
    return seen;
}
