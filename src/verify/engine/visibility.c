/* Visibility: the keys that are hidden from a query, and the terms added to its scores. */
#include <math.h>
#include <stdlib.h>

#include "attention/core/terms/terms.h"
#include "attention/call/resolved.h"
#include "attention/core/exact/exact_visible.h"
#include "verify/engine/runner.h"

/* x / n, rounded down. */
static int64_t floor_divide(int64_t x, int64_t n)
{
    return n == 1 ? x : x / n - (x % n < 0);
}

static int64_t step_at(const mha__program *p, int site, int op, int64_t usual)
{
    const mha__mutation *m = mha__mutation_at(p, site, op);
    return m ? m->step : usual;
}

static bool is_hidden_by(const mha_mask *m, const size_t index[4])
{
    return (mha__exact_element(&m->values, index) != 0) == (m->kind == MHA_MASK_HIDES);
}

/* ---------------------------------------------------------------- positions and lengths */

enum { RULE_ALWAYS = 128 }; /* hides, always before the softmax */

/* The rules of positions and lengths for one query row, read once. */
typedef struct rules {
    const mha__inputs *in;
    const mha__program *p;
    size_t b, i;
    int64_t first, offset; /* positions of key 0 and of query 0, keys counted from 0 */
    int64_t last, last_inside, causal_tile, causal_block, chunk_shift, query_chunk, length, dilation, at, left,
        window_block, from, below, skip_from, skip_to, open_from, open_to, segment_from, segment_to;
    int open_to_rule; /* keys that these rules do not hide */
    bool causal_keys, causal_strict, causal_reversed, inverted, either, chunk_before, from_end, has_length, pads,
        past_hidden;
} rules;

static int64_t aligned(const mha__inputs *in, int how, int64_t offset)
{
    return how == MHA__FROM_0 ? 0 : how == MHA__FROM_END ? (int64_t)in->S - (int64_t)in->c->T_q : offset;
}

bool mha__is_padding(const mha__program *p, size_t b, size_t i)
{
    const mha_visible *v = &p->s.visible;
    const mha_mask *padding = &v->pattern.query_padding;
    const size_t at[] = {0, 0, b, i};
    const int too = mha__arg(p, AT_QUERY_PADDING, OP_FN);
    const bool beyond = v->kv_lengths && (int64_t)i >= v->kv_lengths[b];
    return (too && (too == MHA__RULE_LENGTHS ? beyond : is_hidden_by(&v->key_padding, at))) ||
           (padding->kind && is_hidden_by(padding, at));
}

/* The length of a batch row, of a part of the keys; false: it has none. */
static bool find_length(const mha__program *p, size_t b, int64_t first, int64_t *length)
{
    const mha__mutation *own = mha__mutation_at(p, AT_LENGTHS, OP_TAKE);
    const int64_t *lengths = p->s.visible.kv_lengths, block = step_at(p, AT_LENGTHS, OP_OVER, 0);
    if (!own && !lengths)
        return false;
    const int64_t n =
        own ? (int64_t)own->table[b] : lengths[b] + (int64_t)mha__number(p, AT_LENGTHS, OP_PLUS, 0) - first;
    *length = own || block == 0 ? n
              : block > 0       ? (floor_divide(n - 1, block) + 1) * block
                                : floor_divide(n, -block) * -block; /* down */
    return true;
}

/* Finds the keys that the loop over tiles of keys leaves out for the query tile of row i. */
static void skip_tiles(const mha__mutation *m, rules *r)
{
    const int64_t first = MHA__SPAN_FIRST(m), count = MHA__SPAN_COUNT(m), S = (int64_t)r->in->S,
                  left = r->p->s.visible.window_left, tile = first > 0 ? (int64_t)r->i / first : 0,
                  start = tile * first + r->offset;
    switch (m->arg) {
    case MHA__SPAN_HIDDEN: r->skip_from = first, r->skip_to = first + count; break;
    case MHA__TILES_TO_OWN: r->skip_from = (tile + 1) * count, r->skip_to = S; break;
    case MHA__TILES_TO_FIRST: r->skip_from = (floor_divide(start, count) + 1) * count, r->skip_to = S; break;
    case MHA__TILES_WHOLE: r->skip_from = floor_divide(start + first, count) * count, r->skip_to = S; break;
    case MHA__WINDOW_WHOLE: r->skip_to = -floor_divide(left - start, count) * count; break;
    case MHA__CAUSAL_LAST: r->open_to = floor_divide(start + first - 1, count) * count; break;
    case MHA__WINDOW_OPEN:
        r->open_from = floor_divide(start > left ? start - left : 0, count) * count, r->open_to = r->open_from + count;
        break;
    default: r->skip_to = floor_divide(start + first - 1 - left, count) * count;
    }
}

/* Number of keys that padding hides before the first that it keeps. */
static int64_t padding_before(const mha__program *p, size_t b, size_t S)
{
    const mha_mask *padding = &p->s.visible.key_padding;
    size_t j = 0;
    while (j < S && is_hidden_by(padding, (size_t[]){0, 0, b, j}))
        j++;
    return (int64_t)j;
}

/* Finds the keys of the segment of row i as a program counts them: up to a whole tile, or from the first of its queries
 * on. */
static void find_segment(rules *r)
{
    const mha_view *queries = &r->p->s.visible.pattern.q_segments, *keys = &r->p->s.visible.pattern.k_segments;
    const int64_t tile = step_at(r->p, AT_SEGMENTS, OP_OVER, 0), S = (int64_t)r->in->S;
    const double own = mha__exact_element(queries, (size_t[]){0, 0, r->b, r->i});
    int64_t first = 0, count = 0, query = 0;
    keys = keys->data ? keys : queries;
    while (mha__exact_element(queries, (size_t[]){0, 0, r->b, (size_t)query}) != own)
        query++;
    for (int64_t j = 0; j < S; j++)
        if (mha__exact_element(keys, (size_t[]){0, 0, r->b, (size_t)j}) == own)
            first = count++ > 0 ? first : j;
    r->segment_from = tile > 0 ? first : query;
    r->segment_to = r->segment_from + (tile > 0 ? (count + tile - 1) / tile * tile : count);
}

static rules rules_of(const mha__inputs *in, const mha__program *p, size_t b, size_t h, size_t i)
{
    const mha_visible *v = &p->s.visible;
    const mha__mutation *block = mha__mutation_at(p, AT_CAUSAL_BLOCK, OP_FROM);
    const bool at_0 = mha__has(p, AT_PLACE, OP_ZERO);
    const int64_t S = (int64_t)in->S, tile = step_at(p, AT_CAUSAL_ROW, OP_FROM, 1), all = INT64_MAX;
    rules r = {.in = in, .p = p, .b = b, .i = i};
    r.first = at_0 ? 0 : in->c->semantics.place.key_offset;
    r.offset = mha__first_query(in->c, b) + (at_0 ? in->c->semantics.place.key_offset : 0);
    const size_t packed = (size_t)step_at(p, AT_CAUSAL_ROW, OP_TIMES, 1); /* rows of so many heads */
    const int64_t row =
        (int64_t)(i * packed + h % packed) + (mha__has(p, AT_CAUSAL_ROW, OP_PLUS) ? (int64_t)(b * in->c->T_q) : 0);
    r.last = floor_divide(row, tile) * tile + aligned(in, mha__arg(p, AT_CAUSAL, OP_FROM), r.offset) +
             (int64_t)mha__number(p, AT_CAUSAL, OP_PLUS, 0);
    const mha__mutation *inside = mha__mutation_at(p, AT_CAUSAL, OP_OVER);
    r.last_inside = r.last;
    if (inside) { /* indices counted from 0 in each tile */
        const bool both = inside->sides == (MHA__SIDE_Q | MHA__SIDE_K);
        const int64_t in_tile = (int64_t)mha__modulo(both ? r.last : (int64_t)i, (size_t)inside->step);
        r.causal_tile = inside->step, r.causal_keys = inside->sides & MHA__SIDE_K;
        r.last_inside = both ? in_tile : inside->sides & MHA__SIDE_Q ? r.last - (int64_t)i + in_tile : r.last;
        r.last = both ? r.last : all;
    }
    r.causal_block = block ? block->step : 0, r.causal_strict = mha__has(p, AT_CAUSAL_BLOCK, OP_NOT);
    r.causal_reversed = mha__has(p, AT_CAUSAL, OP_NOT);
    r.at = (int64_t)i + aligned(in, mha__arg(p, AT_WINDOW, OP_FROM), r.offset);
    r.window_block = step_at(p, AT_WINDOW, OP_OVER, 1);
    /* Queries of a tile have the left end of the first one, moved to the beginning of its tile of keys. */
    const int64_t kept = step_at(p, AT_WINDOW, OP_KEEP, 1);
    r.left = floor_divide(floor_divide(r.at, kept) * kept - v->window_left, kept) * kept;
    r.inverted = mha__has(p, AT_WINDOW, OP_NOT), r.either = mha__has(p, AT_WINDOW, OP_EITHER);
    const mha__mutation *shift = mha__mutation_at(p, AT_CHUNK, OP_PLUS);
    const int64_t by = shift ? (int64_t)shift->number : 0;
    r.chunk_shift = r.first + (shift && shift->sides == MHA__SIDE_Q ? 0 : by);
    r.query_chunk = v->chunk > 0 ? floor_divide((int64_t)i + r.offset + r.first + by, v->chunk) : 0;
    r.chunk_before = mha__has(p, AT_CHUNK, OP_EITHER);
    r.has_length = find_length(p, b, r.first, &r.length);
    r.from_end = mha__has(p, AT_LENGTHS, OP_NOT);
    r.dilation = step_at(p, AT_KEYS, OP_TIMES, 0);
    const int64_t tiles = step_at(p, AT_KEYS, OP_ZERO, 0), part = step_at(p, AT_KEYS, OP_KEEP, 0),
                  below = step_at(p, AT_KEYS, OP_LIMIT, all), whole = tiles > 0 ? S / tiles * tiles : all;
    r.below = below < whole ? below : whole;
    r.from = part > 0 ? (S - 1) / part * part : 0;
    r.past_hidden = mha__has(p, AT_KEYS, OP_DO);
    const mha__mutation *skips = mha__mutation_at(p, AT_KEYS, OP_FN);
    const mha__mutation *opens = mha__mutation_at(p, AT_KEYS, OP_EITHER);
    if (skips)
        skip_tiles(skips, &r);
    if (opens)
        r.open_from = MHA__SPAN_FIRST(opens), r.open_to = r.open_from + MHA__SPAN_COUNT(opens);
    r.open_to_rule = opens ? opens->arg : skips && skips->arg == MHA__WINDOW_OPEN ? MHA__RULE_WINDOW : MHA__RULE_CAUSAL;
    r.last -= mha__has(p, AT_PADDING, OP_PLUS) ? padding_before(p, b, in->S) : 0;
    r.pads = mha__is_padding(p, b, i);
    if (mha__has(p, AT_SEGMENTS, OP_OVER) || mha__has(p, AT_SEGMENTS, OP_TAKE))
        find_segment(&r);
    return r;
}

static bool causal_hides(const rules *r, int64_t j)
{
    const mha_visible *v = &r->p->s.visible;
    if (!v->causal || j + r->first < v->prefix)
        return false;
    if (r->causal_block > 0)
        return floor_divide(j, r->causal_block) + r->causal_strict > floor_divide(r->last, r->causal_block);
    if (r->causal_tile > 0 && (r->causal_keys ? j % r->causal_tile : j) > r->last_inside)
        return true;
    return r->causal_reversed ? j < r->last : j > r->last;
}

static bool window_hides(const rules *r, int64_t j)
{
    const mha_visible *v = &r->p->s.visible;
    if (!v->has_window_left && !v->has_window_right)
        return false;
    const int64_t n = r->window_block, key = floor_divide(j, n);
    const bool outside = (v->has_window_left && key < floor_divide(r->left, n) && j + r->first >= v->window_keep) ||
                         (v->has_window_right && key > floor_divide(r->at + v->window_right, n));
    return outside != r->inverted;
}

/* The rules that hide key j: bits. */
static int rules_hide(const rules *r, size_t key)
{
    const int64_t j = (int64_t)key, chunk = r->p->s.visible.chunk;
    enum { BOTH = MHA__RULE_CAUSAL | MHA__RULE_WINDOW };
    int hides = (causal_hides(r, j) ? MHA__RULE_CAUSAL : 0) | (window_hides(r, j) ? MHA__RULE_WINDOW : 0);
    if (r->has_length && (r->from_end ? j < (int64_t)r->in->S - r->length : j >= r->length))
        hides |= MHA__RULE_LENGTHS;
    if (r->either && (hides & BOTH) != BOTH)
        hides &= ~BOTH;
    if (chunk > 0) {
        const int64_t own = floor_divide(j + r->chunk_shift, chunk);
        hides |= own != r->query_chunk && !(r->chunk_before && own + 1 == r->query_chunk) ? RULE_ALWAYS : 0;
    }
    if (r->pads || j >= r->below || j < r->from || (j >= r->skip_from && j < r->skip_to) ||
        (r->past_hidden && key < r->in->c->P) ||
        (r->dilation > 0 && ((int64_t)r->i + r->offset - j) % r->dilation != 0))
        hides |= RULE_ALWAYS;
    return hides;
}

/* ---------------------------------------------------------------- masks and patterns */

/* The value of a mask for a score; `missing` for keys beyond its last column. */
static double mask_value(const mha_view *v, const size_t at[4], size_t S, double missing)
{
    const size_t reach = v->shape[v->rank - 1];
    return reach > 1 && reach < S && at[3] >= reach ? missing : mha__exact_element(v, at);
}

static bool mask_hides(const rules *r, size_t h, size_t j, double *added)
{
    const mha__program *p = r->p;
    const mha_mask *mask = &p->s.visible.mask;
    const mha__mutation *from = mha__mutation_at(p, AT_MASK, OP_FROM);
    const size_t S = r->in->S;
    const mha__extents x = {.n = {r->in->c->B, r->in->c->T_q, r->in->c->H, S}, .group = r->in->c->H / r->in->c->H_kv};
    const mha__element own = {{r->b, r->i, h, j}}, e = from ? mha__map_element(from, &x, own) : own;
    const size_t at[] = {e.at[MHA__B], e.at[MHA__H], e.at[MHA__T], e.at[MHA__C]};
    if ((int64_t)at[3] >= step_at(p, AT_MASK, OP_LIMIT, INT64_MAX))
        return false;
    if (at[2] >= r->in->c->T_q) /* zeros */
        return mask->kind == MHA_MASK_KEEPS;
    if (mask->kind == MHA_MASK_ADDITIVE) {
        const double by = mha__number(p, AT_MASK, OP_TIMES, 1),
                     m = by * mask_value(&mask->values, at, S, -INFINITY * by);
        const bool hides = m == -INFINITY && !(mha__arg(p, AT_RULES, OP_PLUS) & MHA__RULE_MASK); /* else a term */
        *added += hides ? 0 : m;
        return hides;
    }
    const double m = mask_value(&mask->values, at, S, mask->kind == MHA_MASK_HIDES) != 0;
    const bool is_number = mha__has(p, AT_MASK, OP_FN);
    *added += is_number ? m : 0;
    return !is_number && (m != 0) == (mask->kind == MHA_MASK_HIDES);
}

static bool padding_hides(const rules *r, size_t j, double *added)
{
    const mha_visible *v = &r->p->s.visible;
    const mha_mask *padding = &v->key_padding;
    const size_t at[] = {0, 0, r->b, mha__has(r->p, AT_PADDING, OP_FROM) ? r->in->S - 1 - j : j};
    if (padding->kind == MHA_MASK_ADDITIVE) {
        const double x = mha__exact_element(&padding->values, at);
        *added += x == -INFINITY ? 0 : x;
        return x == -INFINITY;
    }
    const bool hides = is_hidden_by(padding, at);
    *added += hides && v->has_padding_fill ? v->padding_fill : 0;
    return hides && !v->has_padding_fill;
}

/* The row whose segment a program reads for row t of n, of queries or of keys. */
static size_t segment_row(const mha__program *p, int which, size_t b, size_t t, size_t n)
{
    const mha__mutation *from = mha__of_side(p, AT_SEGMENTS, OP_FROM, which);
    const int64_t at = (int64_t)t - (int64_t)mha__number(p, AT_SEGMENTS, OP_PLUS, 0);
    return from ? (size_t)from->table[b * n + t] : at < 0 ? 0 : (size_t)at < n ? (size_t)at : n - 1;
}

static bool segment_hides(const rules *r, size_t j)
{
    const mha__program *p = r->p;
    if (r->segment_to > 0)
        return (int64_t)j < r->segment_from || (int64_t)j >= r->segment_to;
    const mha_view *queries = &p->s.visible.pattern.q_segments, *keys = &p->s.visible.pattern.k_segments;
    keys = keys->data ? keys : queries;
    const mha__mutation *from = mha__mutation_at(p, AT_SEGMENTS, OP_FROM);
    const size_t b = from && !from->table ? 0 : r->b,
                 row = segment_row(p, PROJECTION_Q, b, r->i, queries->shape[queries->rank - 1]),
                 column = segment_row(p, PROJECTION_K, b, j, keys->shape[keys->rank - 1]);
    const double query = mha__exact_element(queries, (size_t[]){0, 0, b, row}),
                 key = mha__exact_element(keys, (size_t[]){0, 0, b, column});
    return mha__has(p, AT_SEGMENTS, OP_FN) ? key > query : (key != query) != mha__has(p, AT_SEGMENTS, OP_NOT);
}

/* Number of times that the list of a query names a key. */
static size_t times_named(const rules *r, size_t h, size_t j)
{
    const mha__program *p = r->p;
    const mha_view *lists = &p->s.visible.pattern.key_lists;
    const double shift = mha__number(p, AT_LISTS, OP_PLUS, 0);
    const int fill = mha__arg(p, AT_LISTS, OP_FN);
    size_t times = 0;
    const size_t lost = (size_t)mha__number(p, AT_LISTS, OP_LIMIT, 0);
    for (size_t l = 0; l + lost < lists->shape[lists->rank - 1]; l++) {
        double key = mha__exact_element(lists, (size_t[]){r->b, h, r->i, l});
        if (key < 0 && fill)
            key = fill == MHA__NAMES_FIRST ? 0 : (double)r->in->S + key;
        else
            key -= (double)r->first;
        times += key + shift == (double)j;
    }
    return times;
}

static bool pattern_hides(const rules *r, size_t h, size_t j, double *added)
{
    const mha_pattern *p = &r->p->s.visible.pattern;
    bool hides = p->q_segments.data && segment_hides(r, j);
    hides |=
        p->blocks.kind && is_hidden_by(&p->blocks, (size_t[]){r->b, h, r->i / p->block_queries, j / p->block_keys});
    if (!p->key_lists.data)
        return hides;
    const size_t times = times_named(r, h, j);
    if (times > 1 && mha__has(r->p, AT_LISTS, OP_TIMES))
        *added += log((double)times);
    return hides || times == 0;
}

/* ---------------------------------------------------------------- terms by position */

static double slope_of(const mha_case *c, const mha__program *p, size_t h)
{
    const double H = (double)c->H, below = exp2(floor(log2(H))), i = (double)h;
    switch (mha__arg(p, AT_SLOPES, OP_FN)) {
    case MHA__SLOPES_FROM_0: return exp2(-8 * i / H);
    case MHA__PLAIN_SLOPES: return exp2(-8 * (i + 1) / H);
    case MHA__USUAL_SLOPES: return i < below ? exp2(-8 * (i + 1) / below) : exp2(-4 * (2 * (i - below) + 1) / below);
    default: return p->s.added.alibi_slopes[h];
    }
}

/* The distance that ALiBi multiplies by a slope. */
static double distance_of(const rules *r, size_t j)
{
    const mha__program *p = r->p;
    const int64_t tile = step_at(p, AT_ALIBI, OP_OVER, 0), offset = mha__has(p, AT_ALIBI, OP_FROM) ? 0 : r->offset;
    int64_t key = (int64_t)j;
    if (tile != 0)
        key = tile > 0 ? key - key % tile : key % -tile;
    double distance = (double)(offset + (int64_t)r->i - key);
    if (mha__has(p, AT_ALIBI, OP_FN))
        distance = fabs(distance);
    return fmin(distance, mha__number(p, AT_ALIBI, OP_LIMIT, INFINITY));
}

/* Index of cell t if a program counts cells column by column. */
static int64_t by_column(bool class_token, size_t height, size_t width, int64_t t)
{
    const int64_t first = class_token, H = (int64_t)height;
    return t < first ? t : first + (t - first) % H * (int64_t)width + (t - first) / H;
}

/* Positions of query i and key j for a read of a table. */
static void positions_of(const rules *r, int how, bool class_token, size_t height, size_t width, size_t j,
                         int64_t at[2])
{
    const int64_t query = (int64_t)r->i + (how == MHA__FROM_0 ? 0 : r->first + r->offset), key = r->first + (int64_t)j;
    at[0] = how == MHA__EXCHANGED ? key : query;
    at[1] = how == MHA__EXCHANGED ? query : key;
    for (int k = 0; k < 2 && how == MHA__BY_COLUMN; k++)
        at[k] = by_column(class_token, height, width, at[k]);
}

/* The term of a table of relative position biases; 0 for positions that have no row. */
static double bias_of(const rules *r, size_t h, size_t j)
{
    const size_t n = r->in->c->weights[CASE_RECORDED][MHA_BIAS_TABLE].shape[0], H = r->in->c->H;
    const int how = mha__arg(r->p, AT_TABLE, OP_FROM);
    mha_bias bias = r->p->s.added.bias;
    int64_t at[2];
    positions_of(r, how, bias.class_token, bias.height, bias.width, j, at);
    const int64_t p = at[0], q = at[1];
    bias.one_way ^= how == MHA__OTHER_WAYS;
    size_t row = mha__bias_row(&bias, n, p, q);
    if (how == MHA__LINEAR) {
        const int64_t last = (int64_t)(bias.one_way ? n : n / 2) - 1, apart = q > p ? q - p : p - q;
        row = q > p && bias.one_way ? 0 : (size_t)(apart < last ? apart : last);
        row += q > p && !bias.one_way ? n / 2 : 0;
    }
    const size_t across = 2 * bias.width - 1, down = 2 * bias.height - 1;
    row = how == MHA__BY_HEIGHT && row < across * down ? row / across * down + row % across : row;
    row += how == MHA__NEXT_ROW && row + 1 < n;
    row -= how == MHA__ROW_BEFORE && row > 0 && row < n;
    const size_t head = how == MHA__HEAD_0           ? 0
                        : how == MHA__HEADS_REVERSED ? H - 1 - h
                                                     : h,
                 place = how == MHA__TRANSPOSED ? h * n + row : row * H + head;
    return row < n ? mha__number(r->p, AT_TABLE, OP_TIMES, 1) *
                         mha__narrowed(r->in->bias_table[place], mha__arg(r->p, AT_W, OP_ROUND))
                   : 0;
}

size_t mha__relative_at(const mha__inputs *in, const mha__program *p, mha_weight table, size_t b, size_t i, size_t j)
{
    const size_t n = in->c->weights[CASE_RECORDED][table].shape[0];
    const bool at_0 = mha__has(p, AT_PLACE, OP_ZERO);
    const int64_t offset = in->c->semantics.place.key_offset;
    const rules r = {.in = in,
                     .p = p,
                     .b = b,
                     .i = i,
                     .first = at_0 ? 0 : offset,
                     .offset = mha__first_query(in->c, b) + (at_0 ? offset : 0)};
    const int how = mha__arg(p, AT_RELATIVE, OP_FROM);
    mha_relative relative = p->s.added.relative;
    int64_t at[2];
    positions_of(&r, how == MHA__OTHER_WAY && table == MHA_RELATIVE_Q ? MHA__EXCHANGED : how, false, relative.height,
                 relative.width, j, at);
    if (how == MHA__LINEAR)
        relative.rule = MHA_RELATIVE_DISTANCE;
    size_t row = mha__relative_row(&relative, table, n, at[0], at[1]);
    const int64_t d = relative.reversed ? at[1] - at[0] : at[0] - at[1], before = -(d + (int64_t)(n / 2));
    if (how == MHA__WRAPPED && before > 0 && before <= (int64_t)n)
        row = n - (size_t)before;
    return row + (how == MHA__NEXT_ROW && row + 1 < n);
}

/* Logarithm of the number of times that a program counts a key: a term of its score. */
static double count_of(const rules *r, size_t j)
{
    const mha__mutation *twice = mha__mutation_at(r->p, AT_COUNT, OP_TIMES);
    const size_t edges = (size_t)step_at(r->p, AT_COUNT, OP_OVER, 0),
                 tile = (size_t)step_at(r->p, AT_COUNT, OP_FILL, 0), S = r->in->S,
                 filled = tile > 0 ? (S + tile - 1) / tile * tile : S;
    double added = 0;
    if (twice && (int64_t)j >= twice->step && (int64_t)j < twice->step + (int64_t)twice->number)
        added += log(2);
    if (edges > 0 && j > 0 && j % edges == 0)
        added += log(2);
    if (tile > 0 && j + 1 == S)
        added += log((double)(filled - j));
    return added;
}

/* ---------------------------------------------------------------- all of it */

/* Factor of ALiBi; 0: the program has none. */
static double alibi_of(const mha__inputs *in, const mha__program *p)
{
    return mha__number(p, AT_ALIBI, OP_TIMES, in->c->semantics.added.alibi_slopes ? 1 : 0);
}

void mha__see(const mha__inputs *in, const mha__program *p, size_t b, size_t h, size_t i, mha__sight *keys)
{
    enum { BOTH = MHA__RULE_CAUSAL | MHA__RULE_MASK };
    const rules r = rules_of(in, p, b, h, i);
    const mha_visible *v = &p->s.visible;
    const mha__mutation *found = mha__mutation_at(p, AT_COUNT, OP_TAKE);
    const bool pattern = v->pattern.q_segments.data || v->pattern.blocks.kind || v->pattern.key_lists.data,
               either = mha__has(p, AT_MASK, OP_EITHER), biased = p->s.added.bias.rule != MHA_BIAS_RULE_NONE,
               counts =
                   mha__has(p, AT_COUNT, OP_TIMES) || mha__has(p, AT_COUNT, OP_OVER) || mha__has(p, AT_COUNT, OP_FILL);
    const int late = mha__arg(p, AT_RULES, OP_MOVE), early = mha__arg(p, AT_RULES, OP_PLUS);
    const double alibi = alibi_of(in, p), slope = alibi != 0 ? alibi * slope_of(in->c, p, h) : 0;
    for (size_t j = 0; j < in->S; j++) {
        mha__sight *key = &keys[j];
        double masked = 0;
        const double times = found ? found->table[b * in->S + j] : 1;
        int hides = rules_hide(&r, j) | (times == 0 ? RULE_ALWAYS : 0);
        *key = (mha__sight){0};
        if (v->mask.kind && mask_hides(&r, h, j, &masked))
            hides |= MHA__RULE_MASK;
        if (either && (hides & BOTH) != BOTH)
            hides &= ~BOTH;
        if (pattern && pattern_hides(&r, h, j, &key->added))
            hides |= RULE_ALWAYS;
        *(early & MHA__RULE_MASK ? &key->early : &key->added) += masked;
        if (v->key_padding.kind && padding_hides(&r, j, &key->added))
            hides |= MHA__RULE_PADDING;
        if (alibi != 0)
            *(early & MHA__RULE_ALIBI ? &key->early : &key->added) -= slope * distance_of(&r, j);
        if (biased) {
            const double bias = bias_of(&r, h, j);
            if (bias == -INFINITY && !(early & MHA__RULE_TABLE))
                hides |= MHA__RULE_MASK;
            else
                *(early & MHA__RULE_TABLE ? &key->early : &key->added) += bias;
        }
        if ((int64_t)j >= r.open_from && (int64_t)j < r.open_to)
            hides &= ~r.open_to_rule;
        key->added += (counts ? count_of(&r, j) : 0) + (times > 1 ? log(times) : 0);
        key->hidden = (hides & ~late) != 0 ? MHA__KEY_HIDDEN : hides != 0 ? MHA__KEY_HIDDEN_LATE : MHA__KEY_SEEN;
    }
}

size_t mha__count_padded(const mha__inputs *in, const mha__program *p, size_t b, size_t i)
{
    const mha__mutation *m = mha__mutation_at(p, AT_TILE, OP_FN);
    const size_t n = in->S + mha__rows_beyond(in->c), tile = m ? (size_t)llabs(m->step) : 1,
                 end = (n + tile - 1) / tile * tile;
    const rules r = rules_of(in, p, b, 0, i);
    size_t count = 0;
    for (size_t j = n; j < end; j++)
        count += m->arg == MHA__TILE_PADDED_SEEN || rules_hide(&r, j) == 0;
    return count;
}

size_t mha__count_zeros(const mha__inputs *in, const mha__program *p, size_t b, size_t i)
{
    const rules r = rules_of(in, p, b, 0, i);
    size_t count = 0;
    for (size_t j = 0; j < in->S; j++)
        count += rules_hide(&r, j) == MHA__RULE_LENGTHS;
    return count;
}
