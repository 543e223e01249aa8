/* Visibility: the keys that are hidden from a query, and the terms added to its scores. */
#include <math.h>
#include <stdlib.h>

#include "attention/call/resolved.h"
#include "attention/core/exact/exact_visible.h"
#include "verify/engine/runner.h"

/* x / n, rounded down. */
static int64_t floor_divide(int64_t x, int64_t n)
{
    return n == 1 ? x : x / n - (x % n < 0);
}

static bool is_hidden_by(const mha_mask *m, const size_t index[4])
{
    return (mha__exact_element(&m->values, index) != 0) == (m->kind == MHA_MASK_HIDES);
}

/* ---------------------------------------------------------------- positions and lengths */

enum { RULE_ALWAYS = 128 }; /* hides, always before the softmax */

/* The rules of positions and lengths for one query row, read once. */
typedef struct rules {
    mha__query q;
    int64_t last, last_inside, causal_tile, causal_block, chunk_shift, query_chunk, dilation, at, left, window_block,
        length_from, length_to, from, below, skip_from, skip_to, open_from, open_to, segment_from, segment_to;
    int open_to_rule; /* keys that these rules do not hide */
    bool causal_keys, pads;
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

/* The length of a batch row, of a part of the keys; `all`: it has none. */
static int64_t length_of(const mha__program *p, size_t batch_rows, size_t b, int64_t first, int64_t all)
{
    const mha__mutation *own = mha__mutation_at(p, AT_LENGTHS, OP_TAKE);
    const int64_t *lengths = p->s.visible.kv_lengths, block = mha__step(p, AT_LENGTHS, OP_OVER, 0);
    if (own || !lengths)
        return own ? (int64_t)own->table[b] : all;
    const mha__mutation *apart = mha__mutation_at(p, AT_LENGTHS, OP_FROM); /* in memory; past the end zeros */
    const double at = (double)b * (apart ? apart->number : 1);
    if (at != floor(at) || at >= (double)batch_rows)
        return 0;
    const int64_t n = lengths[(size_t)at] + (int64_t)mha__number(p, AT_LENGTHS, OP_PLUS, 0) - first;
    return block == 0  ? n
           : block > 0 ? (floor_divide(n - 1, block) + 1) * block
                       : floor_divide(n, -block) * -block; /* down */
}

/* Finds the keys that the loop over tiles of keys leaves out for the query tile of row i. */
static void skip_tiles(const mha__mutation *m, rules *r)
{
    const int64_t first = MHA__SPAN_FIRST(m), count = MHA__SPAN_COUNT(m), S = (int64_t)r->q.in->S,
                  left = r->q.p->s.visible.window_left, tile = first > 0 ? (int64_t)r->q.i / first : 0,
                  start = tile * first + r->q.offset;
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

/* Finds the keys of the segment of row i as a program counts them: up to a whole tile, or from the first of its queries
 * on. */
static void find_segment(rules *r)
{
    const mha_view *queries = &r->q.p->s.visible.pattern.q_segments, *keys = &r->q.p->s.visible.pattern.k_segments;
    const int64_t tile = mha__step(r->q.p, AT_SEGMENTS, OP_OVER, 0), S = (int64_t)r->q.in->S;
    const double own = mha__exact_element(queries, (size_t[]){0, 0, r->q.b, r->q.i});
    int64_t first = 0, count = 0, query = 0;
    keys = keys->data ? keys : queries;
    while (mha__exact_element(queries, (size_t[]){0, 0, r->q.b, (size_t)query}) != own)
        query++;
    for (int64_t j = 0; j < S; j++)
        if (mha__exact_element(keys, (size_t[]){0, 0, r->q.b, (size_t)j}) == own)
            first = count++ > 0 ? first : j;
    r->segment_from = tile > 0 ? first : query;
    r->segment_to = r->segment_from + (tile > 0 ? (count + tile - 1) / tile * tile : count);
}

static rules rules_of(const mha__inputs *in, const mha__program *p, size_t b, size_t h, size_t i)
{
    const mha_visible *v = &p->s.visible;
    const int64_t S = (int64_t)in->S, tile = mha__step(p, AT_CAUSAL_ROW, OP_FROM, 1), all = INT64_MAX;
    rules r = {.q = mha__query_of(in, p, b, i)};
    const size_t packed = (size_t)mha__step(p, AT_CAUSAL_ROW, OP_TIMES, 1); /* rows of so many heads */
    const int64_t row =
        (int64_t)(i * packed + h % packed) + (mha__has(p, AT_CAUSAL_ROW, OP_PLUS) ? (int64_t)(b * in->c->T_q) : 0);
    r.last = floor_divide(row, tile) * tile + aligned(in, mha__arg(p, AT_CAUSAL, OP_FROM), r.q.offset) +
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
    r.causal_block = mha__step(p, AT_CAUSAL_BLOCK, OP_FROM, 0);
    r.at = (int64_t)i + aligned(in, mha__arg(p, AT_WINDOW, OP_FROM), r.q.offset);
    r.window_block = mha__step(p, AT_WINDOW, OP_OVER, 1);
    /* Queries of a tile have the left end of the first one, moved to the beginning of its tile of keys. */
    const int64_t kept = mha__step(p, AT_WINDOW, OP_KEEP, 1);
    r.left = floor_divide(floor_divide(r.at, kept) * kept - v->window_left, kept) * kept;
    const mha__mutation *shift = mha__mutation_at(p, AT_CHUNK, OP_PLUS);
    const int64_t by = shift ? (int64_t)shift->number : 0;
    r.chunk_shift = r.q.first + (shift && shift->sides == MHA__SIDE_Q ? 0 : by);
    r.query_chunk = v->chunk > 0 ? floor_divide((int64_t)i + r.q.offset + r.q.first + by, v->chunk) : 0;
    const bool from_end = mha__has(p, AT_LENGTHS, OP_NOT);
    const int64_t length = length_of(p, in->c->B, b, r.q.first, all);
    r.length_from = from_end ? S - length : 0, r.length_to = from_end ? all : length;
    r.dilation = mha__step(p, AT_KEYS, OP_TIMES, 0);
    const int64_t tiles = mha__step(p, AT_KEYS, OP_ZERO, 0), part = mha__step(p, AT_KEYS, OP_KEEP, 0),
                  below = mha__step(p, AT_KEYS, OP_LIMIT, all), whole = tiles > 0 ? S / tiles * tiles : all;
    r.below = below < whole ? below : whole;
    r.from = part > 0 ? (S - 1) / part * part : 0;
    if (mha__has(p, AT_KEYS, OP_DO) && r.from < (int64_t)in->c->P)
        r.from = (int64_t)in->c->P;
    const mha__mutation *skips = mha__mutation_at(p, AT_KEYS, OP_FN);
    const mha__mutation *opens = mha__mutation_at(p, AT_KEYS, OP_EITHER);
    if (skips)
        skip_tiles(skips, &r);
    if (opens)
        r.open_from = MHA__SPAN_FIRST(opens), r.open_to = r.open_from + MHA__SPAN_COUNT(opens);
    r.open_to_rule = opens ? opens->arg : skips && skips->arg == MHA__WINDOW_OPEN ? MHA__RULE_WINDOW : MHA__RULE_CAUSAL;
    const size_t padded = mha__has(p, AT_PADDING, OP_PLUS) ? in->S : 0;
    for (size_t j = 0; j < padded && is_hidden_by(&v->key_padding, (size_t[]){0, 0, b, j}); j++)
        r.last--; /* by the keys that padding hides at the left */
    r.pads = mha__is_padding(p, b, i);
    const bool spans = mha__has(p, AT_SEGMENTS, OP_OVER) || mha__has(p, AT_SEGMENTS, OP_TAKE);
    if (spans && v->pattern.q_segments.data) /* another bug may drop them */
        find_segment(&r);
    return r;
}

static bool causal_hides(const rules *r, int64_t j)
{
    const mha_visible *v = &r->q.p->s.visible;
    if (!v->causal || j + r->q.first < v->prefix)
        return false;
    if (r->causal_block > 0)
        return floor_divide(j, r->causal_block) + mha__has(r->q.p, AT_CAUSAL_BLOCK, OP_NOT) >
               floor_divide(r->last, r->causal_block);
    if (r->causal_tile > 0 && (r->causal_keys ? j % r->causal_tile : j) > r->last_inside)
        return true;
    return mha__has(r->q.p, AT_CAUSAL, OP_NOT) ? j < r->last : j > r->last;
}

static bool window_hides(const rules *r, int64_t j)
{
    const mha_visible *v = &r->q.p->s.visible;
    if (!v->has_window_left && !v->has_window_right)
        return false;
    const int64_t n = r->window_block, key = floor_divide(j, n);
    const bool outside = (v->has_window_left && key < floor_divide(r->left, n) && j + r->q.first >= v->window_keep) ||
                         (v->has_window_right && key > floor_divide(r->at + v->window_right, n));
    return outside != mha__has(r->q.p, AT_WINDOW, OP_NOT);
}

/* The rules that hide key j: bits. */
static int rules_hide(const rules *r, int64_t j)
{
    const mha__program *p = r->q.p;
    const int64_t chunk = p->s.visible.chunk;
    enum { BOTH = MHA__RULE_CAUSAL | MHA__RULE_WINDOW };
    int hides = (causal_hides(r, j) ? MHA__RULE_CAUSAL : 0) | (window_hides(r, j) ? MHA__RULE_WINDOW : 0);
    if (j < r->length_from || j >= r->length_to)
        hides |= MHA__RULE_LENGTHS;
    if ((hides & BOTH) != BOTH && mha__has(p, AT_WINDOW, OP_EITHER))
        hides &= ~BOTH;
    if (chunk > 0) {
        const int64_t own = floor_divide(j + r->chunk_shift, chunk);
        const bool before = own + 1 == r->query_chunk && mha__has(p, AT_CHUNK, OP_EITHER);
        hides |= own != r->query_chunk && !before ? RULE_ALWAYS : 0;
    }
    if (r->pads || j >= r->below || j < r->from || (j >= r->skip_from && j < r->skip_to) ||
        (r->dilation > 0 && ((int64_t)r->q.i + r->q.offset - j) % r->dilation != 0))
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
    const mha__program *p = r->q.p;
    const mha_mask *mask = &p->s.visible.mask;
    const mha__mutation *from = mha__mutation_at(p, AT_MASK, OP_FROM);
    const size_t S = r->q.in->S;
    const mha__extents x = {.n = {r->q.in->c->B, r->q.in->c->T_q, r->q.in->c->H, S},
                            .group = r->q.in->c->H / r->q.in->c->H_kv};
    const mha__element own = {{r->q.b, r->q.i, h, j}}, e = from ? mha__map_element(from, &x, own) : own;
    const size_t at[] = {e.at[MHA__B], e.at[MHA__H], e.at[MHA__T], e.at[MHA__C]};
    if ((int64_t)at[3] >= mha__step(p, AT_MASK, OP_LIMIT, INT64_MAX))
        return false;
    if (at[2] >= r->q.in->c->T_q) /* zeros */
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
    const mha_visible *v = &r->q.p->s.visible;
    const mha_mask *padding = &v->key_padding;
    const size_t at[] = {0, 0, r->q.b, mha__has(r->q.p, AT_PADDING, OP_FROM) ? r->q.in->S - 1 - j : j};
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
    const mha__program *p = r->q.p;
    if (r->segment_to > 0)
        return (int64_t)j < r->segment_from || (int64_t)j >= r->segment_to;
    const mha_view *queries = &p->s.visible.pattern.q_segments, *keys = &p->s.visible.pattern.k_segments;
    keys = keys->data ? keys : queries;
    const mha__mutation *from = mha__mutation_at(p, AT_SEGMENTS, OP_FROM);
    const size_t b = from && !from->table ? 0 : r->q.b,
                 row = segment_row(p, PROJECTION_Q, b, r->q.i, queries->shape[queries->rank - 1]),
                 column = segment_row(p, PROJECTION_K, b, j, keys->shape[keys->rank - 1]);
    const double query = mha__exact_element(queries, (size_t[]){0, 0, b, row}),
                 key = mha__exact_element(keys, (size_t[]){0, 0, b, column});
    return mha__has(p, AT_SEGMENTS, OP_FN) ? key > query : (key != query) != mha__has(p, AT_SEGMENTS, OP_NOT);
}

/* Number of times that the list of a query names a key. */
static size_t times_named(const rules *r, size_t h, size_t j)
{
    const mha__program *p = r->q.p;
    const mha_view *lists = &p->s.visible.pattern.key_lists;
    const double shift = mha__number(p, AT_LISTS, OP_PLUS, 0);
    const int fill = mha__arg(p, AT_LISTS, OP_FN);
    size_t times = 0;
    const size_t lost = (size_t)mha__number(p, AT_LISTS, OP_LIMIT, 0);
    for (size_t l = 0; l + lost < lists->shape[lists->rank - 1]; l++) {
        double key = mha__exact_element(lists, (size_t[]){r->q.b, h, r->q.i, l});
        if (key < 0 && fill)
            key = fill == MHA__NAMES_FIRST ? 0 : (double)r->q.in->S + key;
        else
            key -= (double)r->q.first;
        times += key + shift == (double)j;
    }
    return times;
}

static bool pattern_hides(const rules *r, size_t h, size_t j, double *added)
{
    const mha_pattern *p = &r->q.p->s.visible.pattern;
    bool hides = p->q_segments.data && segment_hides(r, j);
    hides |=
        p->blocks.kind && is_hidden_by(&p->blocks, (size_t[]){r->q.b, h, r->q.i / p->block_queries, j / p->block_keys});
    if (!p->key_lists.data)
        return hides;
    const size_t times = times_named(r, h, j);
    if (times > 1 && mha__has(r->q.p, AT_LISTS, OP_TIMES))
        *added += log((double)times);
    return hides || times == 0;
}

/* ---------------------------------------------------------------- all of it */

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
    const double slope = mha__slope_at(in, p, h), bits = mha__number(p, AT_ALIBI, OP_BITS, 0);
    for (size_t j = 0; j < in->S; j++) {
        mha__sight *key = &keys[j];
        double masked = 0;
        const double times = found ? found->table[b * in->S + j] : 1;
        int hides = rules_hide(&r, (int64_t)j) | (times == 0 ? RULE_ALWAYS : 0);
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
        if (slope != 0)
            *(early & MHA__RULE_ALIBI ? &key->early : &key->added) -=
                mha__shortened(slope * mha__distance(&r.q, j), (int)bits);
        if (biased) {
            const double bias = mha__bias_term(&r.q, h, j);
            if (bias == -INFINITY && !(early & MHA__RULE_TABLE))
                hides |= MHA__RULE_MASK;
            else
                *(early & MHA__RULE_TABLE ? &key->early : &key->added) += bias;
        }
        if ((int64_t)j >= r.open_from && (int64_t)j < r.open_to)
            hides &= ~r.open_to_rule;
        key->added += (counts ? mha__count_term(&r.q, j) : 0) + (times > 1 ? log(times) : 0);
        key->hidden = (hides & ~late) != 0 ? MHA__KEY_HIDDEN : hides != 0 ? MHA__KEY_HIDDEN_LATE : MHA__KEY_SEEN;
    }
}

size_t mha__count_zeros(const mha__inputs *in, const mha__program *p, const mha__mutation *tile, size_t b, size_t i)
{
    const size_t n = in->S + mha__rows_beyond(in->c), size = tile ? (size_t)llabs(tile->step) : 1,
                 end = (n + size - 1) / size * size;
    const rules r = rules_of(in, p, b, 0, i);
    size_t count = 0;
    for (size_t j = tile ? n : 0; j < (tile ? end : in->S); j++)
        count += tile ? tile->arg == MHA__TILE_PADDED_SEEN || rules_hide(&r, (int64_t)j) == 0
                      : rules_hide(&r, (int64_t)j) == MHA__RULE_LENGTHS;
    return count;
}
