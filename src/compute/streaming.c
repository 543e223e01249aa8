/* The streaming attention core: blocks, segments and their merging; the arithmetic is in kernels/. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "compute/streaming.h"

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Keys in a block: their packed K and V stay in a second-level cache of 512 KiB beside what else is needed. */
static size_t block_keys(size_t d_k, size_t d_v)
{
    return d_k + d_v <= 256 ? MHA_BLOCK : d_k + d_v <= 512 ? MHA_BLOCK / 2 : MHA_BLOCK / 4;
}

size_t mha_stream_block_rows(size_t d_k, size_t d_v)
{
    return d_k + d_v <= 256 ? 128 : 64;
}

/* What was accumulated for some rows: weighted sums, `width` floats apart, and the state of each softmax. */
typedef struct part {
    float *sum;
    mha_softmax_state *state;
    size_t width;
} part;

static part part_at(float *memory, size_t count, size_t d_v)
{
    size_t width = round_up(d_v, 16);
    return (part){memory, (mha_softmax_state *)(void *)(memory + count * width), width};
}

size_t mha_stream_part_floats(size_t count, size_t d_v)
{
    size_t states = round_up(count * sizeof(mha_softmax_state), 64) / sizeof(float);
    return count * round_up(d_v, 16) + states;
}

/* The scratch of a call, in floats from its start. */
typedef struct layout {
    size_t Q, K, V, scores, bias, first, second, end;
    size_t chunks; /* of d_k: products run over at most MHA_BLOCK terms */
} layout;

static layout lay_out(size_t rows, size_t d_k, size_t d_v)
{
    layout at = {.chunks = (d_k + MHA_BLOCK - 1) / MHA_BLOCK};
    size_t keys = block_keys(d_k, d_v), tile = 32;
    at.K = at.Q + rows * at.chunks * MHA_STAGED;
    at.V = at.K + keys * d_k;
    at.scores = at.V + keys * round_up(d_v, MHA_PANEL);
    at.bias = at.scores + tile * MHA_STAGED;
    at.first = at.bias + MHA_BLOCK;
    at.second = at.first + mha_stream_part_floats(rows, d_v);
    at.end = at.second + mha_stream_part_floats(rows, d_v);
    return at;
}

size_t mha_stream_scratch(size_t rows, size_t d_k, size_t d_v)
{
    return lay_out(rows, d_k, d_v).end * sizeof(float);
}

/* A call at work. */
typedef struct work {
    const mha_kernels *kernels;
    const mha_stream *stream;
    const mha_stream_row *rows;
    size_t count, tile_rows, block;
    float *Q, *K, *V, *scores, *bias;
    size_t chunks;
} work;

static work start(const mha_stream *stream, const mha_stream_row *rows, size_t count, float *scratch, const layout *at)
{
    const mha_kernels *kernels = mha_kernels_get();
    work w = {kernels,
              stream,
              rows,
              count,
              kernels->tile_rows,
              block_keys(stream->d_k, stream->d_v),
              scratch + at->Q,
              scratch + at->K,
              scratch + at->V,
              scratch + at->scores,
              scratch + at->bias,
              at->chunks};
    /* The scale goes into Q once; chunk c of all rows lies together, as the product wants its left factor. */
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < w.chunks; c++) {
            size_t from = c * MHA_BLOCK, n = stream->d_k - from < MHA_BLOCK ? stream->d_k - from : MHA_BLOCK;
            kernels->scale(w.Q + (c * count + i) * MHA_STAGED, rows[i].q + from, n, stream->scale);
        }
    return w;
}

/* What one row sees of the keys [from, to), counted from `from`. */
typedef struct span {
    size_t begin, end;
} span;

static span seen(const mha_stream_row *row, bool extra, size_t from, size_t to)
{
    if (extra)
        return (span){0, to - from};
    size_t begin = row->begin > from ? row->begin : from, end = row->end < to ? row->end : to;
    return begin < end ? (span){begin - from, end - from} : (span){0, 0};
}

static span seen_by_any(const work *w, size_t first, size_t count, bool extra, size_t from, size_t to)
{
    span all = {SIZE_MAX, 0};
    for (size_t i = first; i < first + count; i++) {
        span one = seen(&w->rows[i], extra, from, to);
        if (one.begin < one.end) {
            all.begin = one.begin < all.begin ? one.begin : all.begin;
            all.end = one.end > all.end ? one.end : all.end;
        }
    }
    return all.begin < all.end ? all : (span){0, 0};
}

/* Keys whose value row holds NaN or infinity must not meet the weight 0 of rows they are hidden from: they are
 * taken out of the packed block, and added afterwards to those who see them. */
static void remove_poison(const work *w, const float *V, size_t stride, span keys, bool *poisoned)
{
    for (size_t j = keys.begin; j < keys.end; j++) {
        const float *v = V + j * stride;
        float zero = 0.0f;
        for (size_t e = 0; e < w->stream->d_v; e++)
            zero += v[e] * 0.0f;
        poisoned[j] = zero != 0.0f;
        if (poisoned[j])
            for (size_t e = 0; e < w->stream->d_v; e += MHA_PANEL)
                memset(w->V + e * w->block + j * MHA_PANEL, 0, MHA_PANEL * sizeof(float));
    }
}

static void add_poison(const work *w, const float *V, size_t stride, span keys, const bool *poisoned,
                       const float *weight, const float *bias, float *sum)
{
    for (size_t j = keys.begin; j < keys.end; j++)
        if (poisoned[j] && !(bias && bias[j] == -INFINITY))
            for (size_t e = 0; e < w->stream->d_v; e++)
                sum[e] += weight[j] * V[j * stride + e];
}

/* Rows [first, first + m) against one packed block, whose key 0 is number `from`. */
static void tile_step(const work *w, size_t first, size_t m, bool extra, const mha_stream_keys *keys, size_t from,
                      size_t to, const bool *poisoned, part *into, bool *begun)
{
    const mha_stream *s = w->stream;
    const mha_kernels *k = w->kernels;
    const span all = seen_by_any(w, first, m, extra, from, to);
    if (all.begin == all.end)
        return;
    const size_t left = all.begin / MHA_PANEL * MHA_PANEL, n = all.end - left;
    float factor[32];
    for (size_t i = 0; i < m; i++)
        factor[i] = 1.0f;
    for (size_t c = 0; c < w->chunks; c++) {
        size_t depth = s->d_k - c * MHA_BLOCK < MHA_BLOCK ? s->d_k - c * MHA_BLOCK : MHA_BLOCK;
        k->product(m, n, depth, w->Q + (c * w->count + first) * MHA_STAGED,
                   w->K + left * s->d_k + c * MHA_BLOCK * MHA_PANEL, s->d_k * MHA_PANEL, w->scores + left, MHA_STAGED,
                   c ? factor : NULL, NULL);
    }
    const float *V = keys->V + from * keys->v_stride;
    float *sum = into->sum + first * into->width;
    const float *bias[32];
    for (size_t i = 0; i < m; i++) {
        span one = seen(&w->rows[first + i], extra, from, to);
        size_t begin = one.begin < left ? 0 : one.begin - left, end = one.end < left ? 0 : one.end - left;
        bias[i] = s->bias && !extra && begin < end
                      ? s->bias(s->context, w->rows[first + i].name, from + left, n, w->bias)
                      : NULL;
        factor[i] = k->softmax_step(w->scores + i * MHA_STAGED + left, n, begin, end, bias[i], s->softcap,
                                    &into->state[first + i]);
    }
    k->product(m, into->width, all.end - all.begin, w->scores + all.begin, w->V + all.begin * MHA_PANEL,
               w->block * MHA_PANEL, sum, into->width, *begun ? factor : NULL, NULL);
    *begun = true;
    if (poisoned)
        for (size_t i = 0; i < m; i++) {
            span one = seen(&w->rows[first + i], extra, from, to);
            const float *b = s->bias && !extra && one.begin < one.end
                                 ? s->bias(s->context, w->rows[first + i].name, from, all.end, w->bias)
                                 : NULL;
            add_poison(w, V, keys->v_stride, one, poisoned, w->scores + i * MHA_STAGED, b, sum + i * into->width);
        }
}

/* The running softmax of all rows over keys [from, to), from its start. */
static void segment(const work *w, bool extra, size_t from, size_t to, part *into)
{
    const mha_stream *s = w->stream;
    const mha_stream_keys *keys = extra ? &s->extra : &s->keys;
    bool begun[128] = {false};
    for (size_t i = 0; i < w->count; i++)
        into->state[i] = mha_softmax_start;
    for (size_t at = from; at < to; at += w->block) {
        const size_t end = to - at < w->block ? to : at + w->block;
        const span all = seen_by_any(w, 0, w->count, extra, at, end);
        if (all.begin == all.end)
            continue;
        const size_t left = all.begin / MHA_PANEL * MHA_PANEL;
        w->kernels->pack_transposed(s->d_k, all.end - left, keys->K + (at + left) * keys->k_stride, keys->k_stride,
                                    w->K + left * s->d_k, s->d_k * MHA_PANEL);
        const float *V = keys->V + at * keys->v_stride;
        bool finite = w->kernels->pack(all.end - all.begin, s->d_v, V + all.begin * keys->v_stride, keys->v_stride,
                                       w->V + all.begin * MHA_PANEL, w->block * MHA_PANEL);
        bool poisoned[MHA_BLOCK];
        if (!finite)
            remove_poison(w, V, keys->v_stride, all, poisoned);
        for (size_t i = 0; i < w->count; i += w->tile_rows)
            tile_step(w, i, w->count - i < w->tile_rows ? w->count - i : w->tile_rows, extra, keys, at, end,
                      finite ? NULL : poisoned, into, &begun[i / w->tile_rows]);
    }
    for (size_t i = 0; i < w->count; i++)
        if (!begun[i / w->tile_rows])
            memset(into->sum + i * into->width, 0, into->width * sizeof(float));
}

static float exp_difference(const mha_kernels *kernels, float x, float max)
{
    float difference = x - max;
    kernels->exp(&difference, &difference, 1);
    return difference;
}

/* Joins the part `next` to `total`, row by row: both are sums of exp(score - own maximum). */
static void join(const mha_kernels *kernels, part *total, const part *next, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mha_softmax_state *a = &total->state[i];
        const mha_softmax_state *b = &next->state[i];
        float *sum = total->sum + i * total->width;
        const float *other = next->sum + i * next->width;
        if (b->max == -INFINITY) { /* nothing there, or NaN alone */
            a->sum += b->sum;
        } else if (a->max == -INFINITY && a->sum == 0.0f) {
            *a = (mha_softmax_state){b->max, b->sum, a->visible};
            memcpy(sum, other, total->width * sizeof *sum);
        } else {
            float max = a->max > b->max ? a->max : b->max;
            float f = exp_difference(kernels, a->max, max), g = exp_difference(kernels, b->max, max);
            kernels->blend(sum, other, total->width, f, g);
            a->max = max;
            a->sum = a->sum * f + b->sum * g;
        }
        a->visible |= b->visible;
    }
}

/* Lets the logits join, divides by the denominator, writes out and lse. */
static void finish(const mha_stream *stream, const mha_stream_row *rows, size_t count, const part *total)
{
    const mha_kernels *kernels = mha_kernels_get();
    for (size_t i = 0; i < count; i++) {
        const mha_stream_row *row = &rows[i];
        mha_softmax_state state = total->state[i];
        float factor = 1.0f; /* of the weighted sum, should a logit be the new maximum */
        if (state.visible && state.max == -INFINITY)
            state.sum = NAN; /* every visible score is -inf: 0 / 0 */
        for (size_t l = 0; l < row->n_logits; l++) {
            float x = row->logits[l], max = x > state.max ? x : state.max;
            float f = exp_difference(kernels, state.max, max);
            factor *= f;
            state.sum = state.sum * f + exp_difference(kernels, x, max);
            state.max = max;
        }
        if (!state.visible && row->n_logits == 0) {
            for (size_t e = 0; e < stream->d_v; e++)
                row->out[e] = stream->empty;
            if (row->lse)
                *row->lse = -INFINITY;
            continue;
        }
        if (factor == 1.0f) {
            kernels->divide(row->out, total->sum + i * total->width, stream->d_v, state.sum);
        } else {
            kernels->scale(row->out, total->sum + i * total->width, stream->d_v, factor);
            kernels->divide(row->out, row->out, stream->d_v, state.sum);
        }
        if (row->lse)
            *row->lse = state.max + logf(state.sum);
    }
}

static size_t key_segments(const mha_stream *stream)
{
    return stream->keys.n == 0 ? 0 : (stream->keys.n - 1) / MHA_SEGMENT + 1;
}

size_t mha_stream_segments(const mha_stream *stream)
{
    return key_segments(stream) + (stream->extra.n > 0);
}

/* False, and `into` is left alone, when no row sees anything of the segment. */
static bool numbered_segment(const work *w, size_t number, part *into)
{
    const mha_stream *s = w->stream;
    const bool extra = number == key_segments(s);
    const size_t from = extra ? 0 : number * MHA_SEGMENT, n = extra ? s->extra.n : s->keys.n;
    const size_t to = n - from < MHA_SEGMENT ? n : from + MHA_SEGMENT;
    const span all = seen_by_any(w, 0, w->count, extra, from, to);
    if (all.begin == all.end)
        return false;
    segment(w, extra, from, to, into);
    return true;
}

static void clear(part *p, size_t count)
{
    memset(p->sum, 0, count * p->width * sizeof *p->sum);
    for (size_t i = 0; i < count; i++)
        p->state[i] = mha_softmax_start;
}

void mha_stream_rows(const mha_stream *stream, const mha_stream_row *rows, size_t count, void *scratch)
{
    const layout at = lay_out(count, stream->d_k, stream->d_v);
    work w = start(stream, rows, count, scratch, &at);
    part total = part_at((float *)scratch + at.first, count, stream->d_v);
    part next = part_at((float *)scratch + at.second, count, stream->d_v);
    clear(&total, count);
    bool begun = false;
    for (size_t number = 0; number < mha_stream_segments(stream); number++) {
        if (!numbered_segment(&w, number, begun ? &next : &total))
            continue;
        if (begun)
            join(w.kernels, &total, &next, count);
        begun = true;
    }
    finish(stream, rows, count, &total);
}

void mha_stream_segment(const mha_stream *stream, const mha_stream_row *rows, size_t count, size_t number,
                        float *memory, void *scratch)
{
    const layout at = lay_out(count, stream->d_k, stream->d_v);
    work w = start(stream, rows, count, scratch, &at);
    part into = part_at(memory, count, stream->d_v);
    if (!numbered_segment(&w, number, &into))
        clear(&into, count);
}

void mha_stream_merge(const mha_stream *stream, const mha_stream_row *rows, size_t count, float *parts)
{
    const size_t n = mha_stream_segments(stream), floats = mha_stream_part_floats(count, stream->d_v);
    part total = part_at(parts, count, stream->d_v);
    if (n == 0)
        clear(&total, count);
    for (size_t number = 1; number < n; number++) {
        part next = part_at(parts + number * floats, count, stream->d_v);
        join(mha_kernels_get(), &total, &next, count);
    }
    finish(stream, rows, count, &total);
}
