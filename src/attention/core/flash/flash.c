/* The attention core of the fast path: tiles of rows against key blocks, and the segments that blocks make up. How
 * a block is packed is in key_block.c, which keys rows see in query_rows.c, how segments are joined in
 * online_softmax.c, the arithmetic in kernels/. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "attention/core/flash/flash.h"
#include "attention/core/flash/key_block.h"
#include "attention/core/flash/online_softmax.h"
#include "attention/core/flash/short_keys.h"

/* The scratch of a call, in floats from its start. */
typedef struct layout {
    size_t Q, K, V, scores, bias, first, second, widened, end;
    size_t chunks; /* of d_k: products run over at most MHA_BLOCK terms */
} layout;

static layout lay_out(size_t rows, size_t d_k, size_t d_v)
{
    layout at = {.chunks = d_k <= MHA_BLOCK ? 1 : (d_k + MHA_BLOCK - 1) / MHA_BLOCK};
    size_t keys = mha__flash_block(d_k, d_v), tile = MHA_TILE_ROWS;
    at.K = at.Q + rows * at.chunks * MHA_STAGED;
    at.V = at.K + keys * d_k;
    at.scores = at.V + keys * mha__round_up(d_v, MHA_PANEL);
    at.bias = at.scores + tile * MHA_STAGED;
    at.first = at.bias + MHA_BLOCK;
    at.second = at.first + mha__flash_partial_floats(rows, d_v);
    at.widened = at.second + mha__flash_partial_floats(rows, d_v);
    at.end = at.widened + MHA_PANEL * mha__round_up(d_k > d_v ? d_k : d_v, 16);
    return at;
}

size_t mha__flash_scratch(size_t rows, size_t d_k, size_t d_v)
{
    return lay_out(rows, d_k, d_v).end * sizeof(float);
}

/* Divides the scale between queries and scores. Queries take a scale of at most 1, which keeps them in the range of
 * float; BF16 numbers take a power of 2, which keeps them exact. */
static void divide_scale(mha__flash_work *w)
{
    int power;
    const float scale = w->flash->scale, size = 2 * frexpf(scale, &power);
    const bool large = fabsf(scale) > 1.0f, split = w->flash->rounds && !large;
    w->scale = large ? 1.0f : split ? ldexpf(1.0f, power - 1) : scale;
    w->after = large ? scale : split ? size : 1.0f;
}

/* Makes ready to compute keys [from, to). */
static void start(mha__flash_work *w, const mha__flash *flash, const mha__flash_row *rows, size_t count, mha__span keys,
                  const layout *at, float *scratch)
{
    const mha__kernels *kernels = mha__kernels_get();
    w->kernels = kernels, w->flash = flash, w->rows = rows, w->count = count;
    /* A few rows read keys where they lie, which are no pairs. */
    w->pairs = flash->rounds && count > kernels->few_rows ? mha__pairs_get() : NULL;
    w->block = mha__flash_block(flash->d_k, flash->d_v);
    w->Q = scratch + at->Q, w->K = scratch + at->K, w->V = scratch + at->V;
    w->scores = scratch + at->scores, w->bias = scratch + at->bias, w->widened = scratch + at->widened;
    w->chunks = at->chunks;
    mha__rows_tiles(w);
    mha__rows_look(w, keys);
    divide_scale(w);
    /* Chunk c of all rows lies together, as `product` reads its left factor. */
    for (size_t i = 0; i < count; i++)
        for (size_t e = 0; e < flash->d_k; e += 16)
            __builtin_prefetch(rows[i].q + e);
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < w->chunks; c++) {
            size_t from = c * MHA_BLOCK, n = flash->d_k - from < MHA_BLOCK ? flash->d_k - from : MHA_BLOCK;
            float *Q = w->Q + (c * count + i) * MHA_STAGED;
            if (flash->raw)
                kernels->round_to_bf16(n, rows[i].q + from, Q);
            kernels->scale(Q, flash->raw ? Q : rows[i].q + from, n, w->scale);
            if (w->pairs)
                w->pairs->join(1, n, Q, 0, Q, 0);
        }
}

/* Scores of rows [first, first + m) for n keys of the block from `left` on. Numbers behind them are overwritten, as far
 * as vectors reach. */
static void score(const mha__flash_work *w, size_t first, size_t m, const mha__key_block *b, size_t left, size_t n,
                  float *scores)
{
    const mha__kernels *k = w->kernels;
    if (!b->K.data) {
        const mha__flash_keys *keys = b->keys;
        const void *K = mha__key_row(keys, false, b->from + left);
        const size_t d_k = w->flash->d_k;
        if (keys->dtype == MHA_F32)
            k->product_rows(m, n, d_k, w->Q + first * MHA_STAGED, K, keys->k_stride,
                            b->soon ? b->soon->data + left * b->soon->row : NULL, b->soon ? b->soon->row : 0, scores,
                            MHA_STAGED);
        else
            k->product_half_rows(m, n, d_k, w->Q, K, keys->k_stride, keys->dtype, scores, MHA_STAGED);
        return;
    }
    float ones[MHA_TILE_ROWS];
    for (size_t i = 0; i < m; i++)
        ones[i] = 1.0f;
    const size_t all = mha__round_up(n, k->lanes), step = b->soon ? mha__round_up(w->flash->d_v, MHA_PANEL) : all;
    for (size_t c = 0; c < w->chunks; c++) {
        const size_t terms = mha__words(w, mha__smaller(w->flash->d_k - c * MHA_BLOCK, MHA_BLOCK));
        const float *Q = w->Q + (c * w->count + first) * MHA_STAGED;
        mha__panels K = b->K, soon = b->soon ? *b->soon : K;
        K.data += left / MHA_PANEL * K.panel + c * mha__words(w, MHA_BLOCK) * K.row;
        for (size_t j = 0; j < all; j += step, K.data += step / MHA_PANEL * K.panel, soon.data += terms * soon.row)
            (w->pairs ? w->pairs->product : k->product)(m, mha__smaller(step, all - j), terms, Q, K,
                                                        b->soon ? &soon : NULL, scores + j, MHA_STAGED, c ? ones : NULL,
                                                        NULL);
    }
}

/* Values are summed over at most this many keys at a time, because longer sums lose more to rounding. The cuts are
 * counted from the block's first key, wherever the keys that a row sees begin. */
enum { VALUES_TOGETHER = 256 };

/* sum = factor * sum + the weighted values of keys [from, to) of the block, for m rows; `factor` NULL: from 0. */
static void add_values(const mha__flash_work *w, const mha__key_block *b, size_t m, size_t from, size_t to, float *sum,
                       const float *factor)
{
    const size_t width = mha__round_up(w->flash->d_v, 16);
    if (!b->V.data) {
        enum { SOON = 32 }; /* rows */
        const size_t stride = b->keys->v_stride, row = b->from + from;
        const mha_dtype dtype = b->keys->dtype;
        const mha__half_panels V = {mha__key_row(b->keys, true, row), stride, MHA_PANEL, dtype},
                               next = {mha__key_row(b->keys, true, row + SOON), stride, MHA_PANEL, dtype};
        w->kernels->product_half(m, width, to - from, w->scores + from, V, &next, sum, width, factor, NULL);
    } else if (w->pairs) { /* weights before `from` are 0, and so is what is behind `to` */
        mha__panels V = b->V;
        V.data += from / 2 * V.row;
        w->pairs->product(m, width, (to + 1) / 2 - from / 2, w->scores + from / 2, V, NULL, sum, width, factor, NULL);
    } else {
        const size_t whole = b->interleaved ? width - 16 : width, even = from / 2 * 2; /* weights before `from` are 0 */
        mha__panels V = b->V, next = b->next ? *b->next : V;
        V.data += from * V.row;
        next.data += from * next.row;
        w->kernels->product(m, whole, to - from, w->scores + from, V, b->next ? &next : NULL, sum, width, factor, NULL);
        if (b->interleaved)
            w->kernels->product_interleaved(m, to - even, w->scores + even, b->interleaved + even * MHA_PANEL,
                                            sum + whole, width, factor);
    }
}

/* The n numbers of pairs, which lie before where they go or begin there. */
static void take_apart(size_t n, const float *pairs, float *x)
{
    for (size_t j = n; j-- > 0;) {
        uint32_t bits;
        memcpy(&bits, pairs + j / 2, sizeof bits);
        bits = j % 2 ? bits << 16 : bits & 0xffff0000;
        memcpy(x + j, &bits, sizeof bits);
    }
}

/* Adds one block of keys to the softmax of a tile's rows. */
static void tile_step(const mha__flash_work *w, const mha__flash_tile *t, const mha__key_block *b,
                      const mha__partial *into, bool *begun)
{
    const mha__flash *s = w->flash;
    const mha__kernels *k = w->kernels;
    const size_t first = t->first, m = t->m;
    const mha__span all = mha__span_within(t->any, b->extra, b->from, b->end),
                    common = mha__span_within(t->all, b->extra, b->from, b->end);
    if (all.begin == all.end)
        return;
    const bool alike = common.begin == all.begin && common.end == all.end;
    const size_t left = all.begin / MHA_PANEL * MHA_PANEL, n = all.end - left;
    float *scores = w->scores + left;
    float max[MHA_TILE_ROWS] = {0}, denominator[MHA_TILE_ROWS] = {0}, factor[MHA_TILE_ROWS];
    score(w, first, m, b, left, n, scores);
    for (size_t i = 0; w->after != 1.0f && i < m; i++)
        k->scale(scores + i * MHA_STAGED, scores + i * MHA_STAGED, n, w->after);
    const bool plain = alike && all.begin == left && n % 16 == 0 && s->softcap == 0.0f;
    for (size_t i = 0; i < m; i++) {
        mha__softmax_state *state = &into->state[first + i];
        const mha__span one = alike ? all : mha__span_within(mha__rows_span(w, first + i), b->extra, b->from, b->end);
        const float *bias = NULL;
        if (w->biased && !b->extra && one.begin < one.end && mha__rows_seen(w, first + i).has_bias)
            bias = s->bias(s->context, w->rows[first + i].name, b->from + left, n, w->bias);
        state->visible |=
            (plain && !bias) || k->softmax_prepare(scores + i * MHA_STAGED, n, one.begin < left ? 0 : one.begin - left,
                                                   one.end < left ? 0 : one.end - left, bias, s->softcap);
        max[i] = state->max;
        denominator[i] = state->sum;
    }
    k->softmax_rows(m, n, scores, MHA_STAGED, max, denominator, factor);
    for (size_t i = 0; i < m; i++) {
        into->state[first + i].max = max[i];
        into->state[first + i].sum = denominator[i];
    }
    if (w->pairs)
        w->pairs->join(m, n, scores, MHA_STAGED, w->scores + left / 2, MHA_STAGED);
    for (size_t i = 0; s->rounds && !w->pairs && i < m; i++)
        k->round_to_bf16(n, scores + i * MHA_STAGED, scores + i * MHA_STAGED);
    float *sum = into->sum + first * into->width;
    if (*begun && all.begin >= VALUES_TOGETHER) /* what lies before is hidden: the bits of adding zeros from there */
        for (size_t i = 0; i < m; i++) {
            k->scale(sum + i * into->width, sum + i * into->width, into->width, factor[i]);
            factor[i] = 1.0f;
        }
    for (size_t from = all.begin, to; from < all.end; from = to) {
        to = mha__smaller(all.end, (from / VALUES_TOGETHER + 1) * VALUES_TOGETHER);
        add_values(w, b, m, from, to, sum, *begun ? factor : NULL);
        for (size_t i = 0; i < m; i++)
            factor[i] = 1.0f;
        *begun = true;
    }
    for (size_t i = 0; b->poisoned && w->pairs && i < m; i++)
        take_apart(n, w->scores + left / 2 + i * MHA_STAGED, scores + i * MHA_STAGED);
    if (b->poisoned)
        for (size_t i = 0; i < m; i++) {
            const mha__span one = mha__span_within(mha__rows_span(w, first + i), b->extra, b->from, b->end);
            const float *bias = NULL;
            if (mha__rows_seen(w, first + i).has_bias && !b->extra && one.begin < one.end)
                bias = s->bias(s->context, w->rows[first + i].name, b->from, all.end, w->bias);
            mha__key_block_add_poison(w, b, one, w->scores + i * MHA_STAGED, bias, sum + i * into->width);
        }
}

/* Adds the block of keys [from, end) to the softmax of all rows. */
static void block_step(mha__flash_work *w, bool extra, size_t from, size_t end, const mha__partial *into, bool *begun)
{
    const mha__flash_keys *keys = extra ? &w->flash->extra : &w->flash->keys;
    const bool halves = keys->dtype != MHA_F32, more = keys->n - end >= w->block && !keys->pages;
    mha__flash_keys copied;
    if (w->trims && !extra)
        mha__rows_trim(w, (mha__span){from, end});
    const mha__span all = mha__span_within(w->any, extra, from, end);
    if (all.begin == all.end)
        return;
    if (keys->pages) {
        copied = mha__key_pages_block(w->flash, from + all.begin / MHA_PANEL * MHA_PANEL, from + all.end);
        keys = &copied;
    }
    mha__key_block b = {.keys = keys,
                        .extra = extra,
                        .from = from,
                        .end = end,
                        .K = {w->K, MHA_PANEL, mha__words(w, w->flash->d_k) * MHA_PANEL},
                        .V = {w->V, MHA_PANEL, mha__words(w, w->block) * MHA_PANEL}};
    bool poisoned[MHA_BLOCK];
    mha__key_block_pack(w, &b, all, poisoned);
    /* Prefetched are the next block, or values that are read where they lie: for few query rows shortly before each
     * value row is read; for more, which read some columns of all value rows at a time, during the scores. */
    mha__panels next_K = {0}, next_V = {0}, soon_V = {0};
    if (!halves) {
        next_K = (mha__panels){mha__key_row(keys, false, end), keys->k_stride, MHA_PANEL};
        next_V = (mha__panels){mha__key_row(keys, true, end), keys->v_stride, MHA_PANEL};
        soon_V = (mha__panels){mha__key_row(keys, true, from + 16), keys->v_stride, MHA_PANEL};
    }
    for (size_t t = 0; t < w->n_tiles; t++) {
        const bool in_place = !halves && b.V.row != MHA_PANEL;
        if (in_place && w->count > MHA_FEW_ROWS) {
            b.soon = &b.V;
            b.next = more ? &next_K : NULL;
        } else if (!halves) {
            b.next = w->n_tiles == 1 ? in_place ? &soon_V : NULL : !more ? NULL : t % 2 ? &next_K : &next_V;
        }
        tile_step(w, &w->tiles[t], &b, into, &begun[t]);
    }
}

/* The online softmax of all rows over keys [from, to), and over those before them when it has begun. */
static void segment(mha__flash_work *w, bool extra, size_t from, size_t to, bool goes_on, const mha__partial *into)
{
    bool begun[MHA_MOST_TILES];
    for (size_t i = 0; i < w->n_tiles; i++)
        begun[i] = goes_on;
    for (size_t i = 0; i < w->count && !goes_on; i++)
        into->state[i] = (mha__softmax_state){-INFINITY, 0.0f, false};
    for (size_t at = from; at < to; at += w->block)
        block_step(w, extra, at, to - at < w->block ? to : at + w->block, into, begun);
    for (size_t i = 0; i < w->n_tiles; i++)
        if (!begun[i])
            memset(into->sum + w->tiles[i].first * into->width, 0, w->tiles[i].m * into->width * sizeof(float));
}

static size_t key_segments(const mha__flash *flash)
{
    return (flash->before % MHA_SEGMENT + flash->keys.n + MHA_SEGMENT - 1) / MHA_SEGMENT;
}

size_t mha__flash_segments(const mha__flash *flash)
{
    return key_segments(flash) + (flash->extra.n > 0);
}

/* The keys of a segment, which the extra rows may be. */
static mha__span keys_in(const mha__flash *s, size_t number)
{
    if (number == key_segments(s))
        return (mha__span){0, s->extra.n};
    const size_t from = number * MHA_SEGMENT, skipped = s->before % MHA_SEGMENT;
    return (mha__span){number == 0 ? 0 : from - skipped, mha__smaller(s->keys.n, from + MHA_SEGMENT - skipped)};
}

/* Whether a row may see a key of a segment. */
static bool is_seen(const mha__flash *flash, const mha__flash_row *rows, size_t count, size_t number)
{
    const mha__span keys = keys_in(flash, number);
    bool any = number == key_segments(flash);
    for (size_t i = 0; i < count && !any; i++)
        any = rows[i].begin < keys.end && rows[i].end > keys.begin;
    return any;
}

void mha__flash_rows(const mha__flash *flash, const mha__flash_row *rows, size_t count, void *scratch)
{
    const layout at = lay_out(count, flash->d_k, flash->d_v);
    const mha__float_mode before_call = mha__flash_enter(flash);
    float *base = scratch;
    const mha__short_memory memory = {base + at.Q, base + at.scores, base + at.first, base + at.K, base + at.V};
    if (!mha__short_keys(flash, rows, count, &memory)) {
        const mha__partial total = mha__partial_at(base + at.first, count, flash->d_v),
                           next = mha__partial_at(base + at.second, count, flash->d_v);
        bool begun = false;
        for (size_t number = 0; number < mha__flash_segments(flash); number++) {
            if (!is_seen(flash, rows, count, number))
                continue;
            mha__flash_segment(flash, rows, count, number, false, begun ? &next : &total, scratch);
            if (begun)
                mha__partial_join(flash, &total, &next, count);
            begun = true;
        }
        if (!begun)
            mha__partial_clear(&total, count);
        mha__partial_finish(flash, rows, count, &total);
    }
    mha__float_mode_restore(before_call);
}

void mha__flash_segment(const mha__flash *flash, const mha__flash_row *rows, size_t count, size_t number, bool begun,
                        const mha__partial *into, void *scratch)
{
    const mha__float_mode before_call = mha__flash_enter(flash);
    const layout at = lay_out(count, flash->d_k, flash->d_v);
    const mha__span keys = keys_in(flash, number);
    const bool extra = number == key_segments(flash);
    mha__flash_work w;
    start(&w, flash, rows, count, extra ? (mha__span){0, 0} : keys, &at, scratch);
    const mha__span all = mha__span_within(w.reach, extra, keys.begin, keys.end);
    if (all.begin < all.end)
        segment(&w, extra, keys.begin, keys.end, begun, into);
    else if (!begun)
        mha__partial_clear(into, count);
    mha__float_mode_restore(before_call);
}
