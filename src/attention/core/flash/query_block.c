/* The query rows of the fast path in blocks, each of which is one task or several. */
#include <math.h>

#include "attention/cache/stages.h"
#include "attention/core/flash/key_block.h"
#include "attention/core/flash/query_block.h"
#include "attention/visibility/pattern.h"
#include "base/heads.h"
#include "compute/sizes.h"
#include "compute/thread_pool.h"

/* Most queries of a block of rows, of which the first and the last may have some of its heads only. */
static size_t queries_of_block(const mha__attention *a)
{
    return a->block_rows / a->group + 2;
}

static size_t lay_out_worker(const mha__attention *a, char *base, mha__block_worker *w)
{
    mha__workspace arena = {base, 0};
    w->rows = mha__workspace_take(&arena, a->block_rows, sizeof *w->rows);
    w->lse = mha__workspace_take(&arena, a->block_rows, sizeof *w->lse);
    const bool relative = a->r->added.relative.rule != MHA_RELATIVE_NONE;
    w->relative =
        mha__workspace_take(&arena, relative ? queries_of_block(a) * a->group : 0, MHA_BLOCK * sizeof(float));
    w->relative_work = mha__workspace_take(&arena, mha__relative_work(a->r, queries_of_block(a), MHA_BLOCK), 1);
    w->scratch = mha__workspace_take(&arena, mha__flash_scratch(a->block_rows, a->r->plan.d_k, a->r->plan.d_v), 1);
    const bool pages = a->r->pages.keys.data != NULL;
    w->room = mha__workspace_take(&arena, pages ? mha__key_pages_room(a->r->plan.d_k, a->r->plan.d_v) : 0, 1);
    return arena.used;
}

/* Into blocks of equal size, smaller ones when there are few; if queries are few as well, as in decoding, into segments
 * of the keys. */
void mha__blocks_cut(const mha__resolved *r, mha__attention *a)
{
    enum { LEAST_ROWS = 28 };
    const mha__sizes *p = &r->plan;
    const mha__key_range *keys = &a->range;
    const size_t S = (p->S < keys->to ? p->S : keys->to) - keys->from, extra = keys->last ? p->S_extra : 0;
    a->r = r;
    a->group = p->h / p->h_kv;
    const size_t groups = p->B / keys->together; /* of sequences */
    const double queries = (double)p->B * (double)p->h * (double)p->T_q;
    /* Preparing a row of Q, K or V costs about as much as computing 32 pairs. */
    const double ready = 32.0 * (queries + (double)groups * (double)p->h * (double)S);
    a->threads = mha__parallel_worth(2 * (queries * (double)(S + extra) + ready) * (double)(p->d_k + p->d_v),
                                     p->threads);
    const size_t rows = p->T_q * a->group * keys->together, heads = groups * p->h_kv;
    const size_t wanted = a->threads > 1 ? 4 * (size_t)a->threads : 1;
    a->blocks = mha__ceil_div(rows, MHA_FLASH_ROWS);
    if (heads * a->blocks < wanted && heads > 0) {
        size_t blocks = mha__ceil_div(wanted, heads), limit = mha__ceil_div(rows, LEAST_ROWS);
        blocks = blocks < limit ? blocks : limit;
        a->blocks = blocks > a->blocks ? blocks : a->blocks;
    }
    a->block_rows = a->blocks ? mha__ceil_div(rows, a->blocks) : 0;
    a->all_blocks = heads * a->blocks;
    const size_t segments = mha__ceil_div(keys->from % MHA_SEGMENT + S, MHA_SEGMENT) + (extra > 0);
    a->segments = a->all_blocks < wanted && segments > 1 ? segments : 1;
}

void mha__blocks_take(mha__workspace *arena, const mha__resolved *r, mha__attention *a)
{
    const mha__sizes *p = &r->plan;
    a->n_logits = (r->weight[MHA_SINKS].data != NULL) + (size_t)r->softmax.softmax_plus_one;
    a->extra_k = mha__workspace_take(arena, p->h_kv * p->S_extra, p->d_k * sizeof(float));
    a->extra_v = mha__workspace_take(arena, p->h_kv * p->S_extra, p->d_v * sizeof(float));
    a->logits = mha__workspace_take(arena, p->h * a->n_logits, sizeof(float));
}

void mha__blocks_take_workers(mha__workspace *arena, mha__attention *a)
{
    a->worker_bytes = lay_out_worker(a, arena->base ? arena->base + arena->used : NULL, &a->worker_0);
    a->workers = mha__workspace_take(arena, a->worker_bytes, (size_t)a->threads);
}

static mha__block_worker memory_of(const mha__attention *a, int worker)
{
    const size_t apart = (size_t)worker * a->worker_bytes;
    const mha__block_worker *w = &a->worker_0;
    return (mha__block_worker){.rows = (void *)((char *)w->rows + apart),
                               .lse = (void *)((char *)w->lse + apart),
                               .relative = (void *)((char *)w->relative + apart),
                               .relative_work = (void *)((char *)w->relative_work + apart),
                               .scratch = (char *)w->scratch + apart, .room = (char *)w->room + apart};
}

/* ---------------------------------------------------------------- a block */

/* Fills the extra rows, the learned one and then the zeros, and the logits: sink and the 0 of softmax-plus-one. */
static void fill_extras(const mha__attention *a)
{
    const mha__sizes *p = &a->r->plan;
    const mha_view *k = &a->r->weight[MHA_BIAS_K], *v = &a->r->weight[MHA_BIAS_V];
    for (size_t g = 0; g < p->h_kv; g++)
        for (size_t e = 0; e < p->S_extra; e++) {
            bool learned = k->data && e == 0;
            for (size_t c = 0; c < p->d_k; c++)
                a->extra_k[(g * p->S_extra + e) * p->d_k + c] =
                    learned ? (float)mha_view_get(k, (size_t[]){g * p->d_k + c}) : 0;
            for (size_t c = 0; c < p->d_v; c++)
                a->extra_v[(g * p->S_extra + e) * p->d_v + c] =
                    learned ? (float)mha_view_get(v, (size_t[]){g * p->d_v + c}) : 0;
        }
    if (a->n_logits == 0)
        return;
    for (size_t head = 0; head < p->h; head++) {
        float *to = a->logits + head * a->n_logits;
        if (a->r->weight[MHA_SINKS].data)
            *to++ = mha__sink(a->r, head);
        if (a->r->softmax.softmax_plus_one)
            *to = 0.0f;
    }
}

/* Turns to the sequence of row `name`, and returns the number of that row in it. */
static size_t turn_to(mha__query_block *t, size_t name)
{
    if (t->a->range.together == 1)
        return name;
    const size_t b = t->b + name / t->rows_of_one;
    if (b != t->now) {
        t->now = b;
        t->s = mha__resolved_sequence(t->a->r, b);
        t->held = (mha__interval){0, 0};
    }
    return name % t->rows_of_one;
}

/* The relative terms of row `row` of the sequence turned to, from `key` on, up to the next multiple of MHA_BLOCK. Those
 * of all its rows are made together when the first is asked for: rows go through the keys block by block. */
static const float *relative_terms(mha__query_block *t, size_t row, size_t key)
{
    const mha__attention *a = t->a;
    const mha__resolved *r = a->r;
    if (r->added.relative.rule == MHA_RELATIVE_NONE)
        return NULL;
    const size_t before = (t->now - t->b) * t->rows_of_one, end = t->first + t->rows - before;
    const size_t last = end < t->rows_of_one ? end : t->rows_of_one,
                 first = (t->first > before ? t->first - before : 0) / a->group;
    if (t->now != t->related_of || key < t->related.from || key >= t->related.to) {
        const size_t from = key / MHA_BLOCK * MHA_BLOCK, begin = a->range.from, keys = begin + t->flash.keys.n;
        t->related_of = t->now;
        t->related = (mha__interval){from > begin ? from : begin, from + MHA_BLOCK < keys ? from + MHA_BLOCK : keys};
        for (size_t shared = 0; shared < a->group; shared++) {
            const size_t head = t->g * a->group + shared;
            const mha__relative_pairs pairs = {.s = &t->s,
                                               .head = head,
                                               .of_Q = head,
                                               .of_K = t->g,
                                               .K_batch = t->s.k_batch / a->range.together,
                                               .K_from = begin,
                                               .pages = r->pages.keys.data ? &r->pages : NULL,
                                               .first = first,
                                               .queries = (last - 1) / a->group - first + 1, .keys = t->related};
            mha__relative_terms(r, a->relative, a->Q, a->K, &pairs, t->w.relative + shared * MHA_BLOCK,
                                a->group * MHA_BLOCK, t->w.relative_work);
        }
    }
    return t->w.relative + (row - first * a->group) * MHA_BLOCK + (key - t->related.from);
}

static const float *terms(void *context, size_t name, size_t key, size_t n, float *room)
{
    mha__query_block *t = context;
    const size_t row = turn_to(t, name), from = t->a->range.from + key;
    const size_t head = t->g * t->a->group + row % t->a->group, query = row / t->a->group;
    const mha__interval keys = {from, from + n};
    const float *there = mha__visible_terms_in_place(t->a->r, t->now, head, query, keys);
    if (there)
        return there;
    if (!t->a->r->visibility.alike || t->held.from != keys.from || t->held.to != keys.to) {
        const mha__added added = {t->a->bias_rows, relative_terms(t, row, from)};
        t->any = mha__visible_terms(t->a->r, &added, &t->s, t->now, head, query, keys, room);
    }
    t->held = keys;
    return t->any ? room : NULL;
}

/* The keys of an interval that are keys of the range, counted from there. */
static mha__interval inside(const mha__key_range *range, mha__interval keys)
{
    const size_t from = keys.from > range->from ? keys.from : range->from,
                 to = keys.to < range->to ? keys.to : range->to;
    return from < to ? (mha__interval){from - range->from, to - range->from} : (mha__interval){0, 0};
}

static void trim(void *context, const mha__flash_row *rows, size_t count, mha__row_keys *keys)
{
    mha__query_block *t = context;
    const mha__trimmer *trimmer = &t->a->trimmer;
    const mha__key_range *range = &t->a->range;
    const size_t group = t->a->group;
    mha__row_keys asked = {0}, left = {0}; /* the last question and the answer */
    size_t b = SIZE_MAX;                   /* whose it was */
    for (size_t i = 0; i < count; i++) {
        if (!keys[i].has_bias)
            continue;
        const size_t row = turn_to(t, rows[i].name), query = group == 1 ? row : row / group;
        if (!trimmer->alike || t->now != b || keys[i].begin != asked.begin || keys[i].end != asked.end) {
            mha__interval seen = {range->from + keys[i].begin, range->from + keys[i].end};
            asked = keys[i], b = t->now;
            left.has_bias = mha__visible_trim(trimmer, b, t->g * group + row - query * group, query, &seen);
            seen = inside(range, seen);
            left.begin = seen.from, left.end = seen.to;
        }
        keys[i] = left;
    }
}

/* The keys and values of one head of a sequence; a cache or pages may hold them in 16 or 8 bits. */
static mha__flash_keys keys_of(const mha__attention *a, const mha__sequence *s, size_t g)
{
    const mha_view *K = a->K, *V = a->V;
    const mha_pages *pages = &a->r->pages;
    const size_t at = pages->keys.data ? 0 : s->k_batch / a->range.together; /* K and V are then all pages */
    const size_t to = s->S < a->range.to ? s->S : a->range.to;
    mha__flash_keys keys = {
        .k_stride = (size_t)K->stride[1], .v_stride = (size_t)V->stride[1], .n = to - a->range.from, .dtype = K->dtype};
    keys.K = K->dtype == MHA_F32 ? (void *)mha__row(K, at, s->k_from, g) : mha__narrow_row_at(K, at, s->k_from, g);
    keys.V = V->dtype == MHA_F32 ? (void *)mha__row(V, at, s->k_from, g) : mha__narrow_row_at(V, at, s->k_from, g);
    if (pages->keys.data) {
        keys.pages = pages->table + s->k_batch * pages->columns;
        keys.page_rows = K->shape[1], keys.k_page = K->stride[0], keys.v_page = V->stride[0];
        keys.within = a->r->latent.absorbed;
    }
    return keys;
}

void mha__blocks_begin(mha__attention *a)
{
    const mha__resolved *r = a->r;
    const mha__sizes *p = &r->plan;
    fill_extras(a);
    a->flash = (mha__flash){
        .d_k = p->d_k,
        .d_v = p->d_v,
        .scale = (float)p->scale,
        .softcap = (float)r->softmax.softcap,
        .extra = {.k_stride = p->d_k, .v_stride = p->d_v},
        .bias = r->visibility.terms ? terms : NULL,
        .trim = r->visibility.masks ? trim : NULL,
        .rounds = mha__rounds_to_bf16(r),
        .raw = mha__rounds_late(r),
        .empty = mha__empty(r),
    };
    if (r->visibility.masks)
        a->trimmer = mha__visible_trimmer(r);
}

/* False when the block has no rows: sequences of a ragged batch differ in length. */
static bool describe(const mha__attention *a, size_t number, mha__query_block *t)
{
    const mha__sizes *p = &a->r->plan;
    const size_t b = number / a->blocks / p->h_kv * a->range.together;
    *t = (mha__query_block){.a = a, .b = b, .now = b, .g = number / a->blocks % p->h_kv, .flash = a->flash};
    t->s = mha__resolved_sequence(a->r, b);
    t->rows_of_one = t->s.T_q * a->group;
    t->first = (a->blocks - 1 - number % a->blocks) * a->block_rows; /* causal: longest first */
    const size_t rows = t->rows_of_one * a->range.together;
    if (t->first >= rows)
        return false;
    t->rows = rows - t->first < a->block_rows ? rows - t->first : a->block_rows;
    t->flash.keys = keys_of(a, &t->s, t->g);
    t->flash.extra.K = a->extra_k + t->g * p->S_extra * p->d_k;
    t->flash.extra.V = a->extra_v + t->g * p->S_extra * p->d_v;
    t->flash.extra.n = a->range.last ? p->S_extra : 0;
    t->flash.before = a->range.from;
    t->flash.context = t;
    return true;
}

/* Fills in the query, the output and the visible keys of each row of a block. */
static void fill_rows(mha__query_block *t)
{
    const mha__attention *a = t->a;
    const mha__resolved *r = a->r;
    const ptrdiff_t q_head = a->Q->stride[2], q_query = a->Q->stride[1], out_head = a->heads->stride[2],
                    out_query = a->heads->stride[1];
    const bool lse = mha__is_kept(r, MHA_STAGE_LSE);
    for (size_t i = 0; i < t->rows;) { /* sequence by sequence */
        const size_t row = turn_to(t, t->first + i), left = t->rows_of_one - row;
        const size_t end = t->rows - i < left ? t->rows : i + left;
        size_t query = row / a->group, shared = row % a->group; /* the row's query, and which head of the group */
        const float *q = mha__row(a->Q, t->s.batch, t->s.q_from, t->g * a->group);
        float *out = mha__row(a->heads, t->s.batch, t->s.q_from, t->g * a->group);
        mha__interval keys = inside(&a->range, mha__visible_interval(r, &t->s, t->now, query));
        for (; i < end; i++) {
            t->w.rows[i] = (mha__flash_row){.q = q + (ptrdiff_t)query * q_query + (ptrdiff_t)shared * q_head,
                                          .out = out + (ptrdiff_t)query * out_query + (ptrdiff_t)shared * out_head,
                                          .lse = lse ? &t->w.lse[i] : NULL,
                                          .begin = keys.from,
                                          .end = keys.to,
                                          .name = t->first + i,
                                          .logits = a->logits + (t->g * a->group + shared) * a->n_logits,
                                          .n_logits = a->n_logits};
            if (++shared == a->group && i + 1 < end) {
                shared = 0, query++;
                if (r->visibility.moves)
                    keys = inside(&a->range, mha__visible_interval(r, &t->s, t->now, query));
            }
        }
    }
}

bool mha__query_block_prepare(const mha__attention *a, size_t number, int worker, mha__query_block *t)
{
    if (!describe(a, number, t))
        return false;
    t->w = memory_of(a, worker);
    t->flash.room = t->w.room;
    fill_rows(t);
    return true;
}

/* Gives queries of padding the row of a query that sees nothing: extra rows and sinks gave them another. */
static void blank_padding(const mha__query_block *t)
{
    const mha__resolved *r = t->a->r;
    for (size_t i = 0; i < t->rows && r->visibility.pads; i++) {
        if (!mha__pattern_pads(&r->masks.pattern, t->b, (t->first + i) / t->a->group))
            continue;
        for (size_t c = 0; c < r->plan.d_v; c++)
            t->w.rows[i].out[c] = mha__empty(r);
        t->w.lse[i] = isnan(mha__empty(r)) ? NAN : -INFINITY;
    }
}

void mha__query_block_finish(const mha__query_block *t)
{
    blank_padding(t);
    if (!mha__is_kept(t->a->r, MHA_STAGE_LSE))
        return;
    for (size_t i = 0; i < t->rows; i++) {
        size_t row = t->first + i;
        mha__stage_row(t->a->r, MHA_STAGE_LSE, t->b, t->g * t->a->group + row % t->a->group, row / t->a->group,
                       MHA_F32, &t->w.lse[i], 1);
    }
}
