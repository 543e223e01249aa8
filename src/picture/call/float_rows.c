/* Rows of weights straight from the kernels of the fast path: keys packed once for a band of queries, scores of some
 * rows at a time, and what attention does to scores before their softmax. */
#include <math.h>
#include <string.h>

#include "attention/pattern/pattern.h"
#include "attention/steps/bias.h"
#include "attention/steps/mask.h"
#include "attention/steps/steps.h"
#include "picture/call/call.h"

enum { ROWS = 2 * MHA_TILE_ROWS }; /* whose scores are computed together */

/* The memory of one worker. A score of row i and key j of S' is at i * ld + j. */
typedef struct worker {
    float *packed;  /* keys in panels */
    float *staged;  /* rows of queries, chunk by chunk of their features, as a product takes its left factor */
    float *scores, *terms, *weights;
    float *relative, *relative_work; /* relative terms, in rows as those of scores; what makes them */
} worker;

typedef struct sizes {
    size_t d_k, chunks, S, keys, ld; /* keys: S' */
} sizes;

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Rows of scores are a little more than whole panels apart, so that they do not share the sets of a cache. */
static sizes sizes_of(const mha__rows_job *job)
{
    const mha_plan *p = &job->d->plan;
    const size_t keys = job->s.S + p->S_extra;
    return (sizes){.d_k = p->d_k, .chunks = p->d_k ? (p->d_k + MHA_BLOCK - 1) / MHA_BLOCK : 1, .S = job->s.S,
                   .keys = keys, .ld = round_up(keys, MHA_PANEL) + 48};
}

mha_status mha__float_rows_begin(mha__rows_job *job, size_t workers, mha_error *error)
{
    const sizes n = sizes_of(job);
    const mha__resolved *r = job->d->r;
    job->rows = ROWS;
    const bool relative = r->semantics.added.relative.rule != MHA_RELATIVE_NONE;
    const size_t floats[] = {round_up(n.S, MHA_PANEL) * n.d_k, job->rows * n.chunks * MHA_STAGED, job->rows * n.ld,
                             n.ld, n.ld, relative ? job->rows * n.ld : 0,
                             mha__relative_work(r, job->rows, n.S) / sizeof(float)};
    float *tables = mha__arena_take(&job->scratch, mha__relative_floats(r) * sizeof(float));
    worker *all = job->workers = mha__arena_take(&job->scratch, workers * sizeof *all);
    bool taken = all && tables && (job->strips = mha__arena_take(&job->scratch, mha__bias_floats(r) * sizeof(float)));
    for (size_t w = 0; w < workers && taken; w++) {
        float **const parts[] = {&all[w].packed, &all[w].staged, &all[w].scores, &all[w].terms, &all[w].weights,
                                 &all[w].relative, &all[w].relative_work};
        for (size_t i = 0; i < sizeof parts / sizeof *parts && taken; i++)
            taken = (*parts[i] = mha__arena_take(&job->scratch, floats[i] * sizeof(float)));
    }
    if (!taken)
        return mha__fail(error, MHA_NO_MEMORY, "picture", "no memory for %zu rows of scores", job->rows);
    mha__bias_prepare(r, job->strips);
    job->relative = mha__relative_prepare(r, tables);
    return MHA_OK;
}

/* ---------------------------------------------------------------- scores */

/* All keys that queries [first, past) may see. */
static mha__interval hull(const mha__rows_job *job, size_t first, size_t past)
{
    mha__interval all = {0, 0};
    for (size_t i = first; i < past; i++) {
        const mha__interval one = mha__visible_interval(job->d->r, &job->s, job->b, i);
        if (one.from == one.to)
            continue;
        all.from = all.from == all.to || one.from < all.from ? one.from : all.from;
        all.to = one.to > all.to ? one.to : all.to;
    }
    return all;
}

/* The scores of `count` queries from `first` on with the keys that they may see, and with neighbours of these. */
static void score(const mha__rows_job *job, const worker *w, size_t head, size_t first, size_t count)
{
    const mha__drawn_call *d = job->d;
    const mha__kernels *k = d->r->kernels;
    const sizes n = sizes_of(job);
    const mha__interval keys = hull(job, first, first + count);
    const size_t from = keys.from / MHA_PANEL * MHA_PANEL, columns = round_up(keys.to - from, 16);
    float ones[ROWS];
    if (keys.from == keys.to)
        return;
    for (size_t i = 0; i < count; i++) {
        const float *q = mha__row(&d->queries, job->s.batch, job->s.q_from + first + i, head - d->first_head);
        ones[i] = 1.0f;
        for (size_t c = 0; c < n.chunks; c++) {
            const size_t at = c * MHA_BLOCK, terms = n.d_k - at < MHA_BLOCK ? n.d_k - at : MHA_BLOCK;
            memcpy(w->staged + (c * count + i) * MHA_STAGED, q + at, terms * sizeof *q);
        }
    }
    for (size_t c = 0; c < n.chunks; c++) {
        const size_t at = c * MHA_BLOCK, terms = n.d_k - at < MHA_BLOCK ? n.d_k - at : MHA_BLOCK;
        const mha__panels K = {w->packed + from * n.d_k + at * MHA_PANEL, MHA_PANEL, n.d_k * MHA_PANEL};
        k->product(count, columns, terms, w->staged + c * count * MHA_STAGED, K, NULL, w->scores + from, n.ld,
                   c ? ones : NULL, NULL);
    }
    for (size_t i = 0; i < count; i++)
        k->scale(w->scores + i * n.ld + from, w->scores + i * n.ld + from, columns, (float)d->plan.scale);
}

/* ---------------------------------------------------------------- rows */

/* The score of an extra row: the learned key, then a row of zeros, where 0 times infinity is NaN, too. */
static float extra_score(const mha__rows_job *job, size_t head, size_t query, size_t e)
{
    const mha__drawn_call *d = job->d;
    const mha__resolved *r = d->r;
    const mha_view *learned = &r->weight[MHA_BIAS_K];
    const float *q = mha__row(&d->queries, job->s.batch, job->s.q_from + query, head - d->first_head);
    const size_t at = head / (r->plan.h / r->plan.h_kv) * r->plan.d_k;
    double sum = 0;
    for (size_t c = 0; c < r->plan.d_k; c++)
        sum += (double)q[c] * (learned->data && e == 0 ? mha_view_get(learned, (size_t[]){at + c}) : 0);
    const float scaled = (float)(sum * r->plan.scale), cap = (float)r->semantics.softmax.softcap;
    return cap > 0 ? cap * tanhf(scaled / cap) : scaled;
}

/* Adds a query, whose scores have been computed, to its head. */
static void add_row(const mha__rows_job *job, mha__band *band, const worker *w, size_t query, float *scores,
                    const float *relative)
{
    const mha__resolved *r = job->d->r;
    const sizes n = sizes_of(job);
    const size_t head = band->head->head;
    const mha__interval keys = mha__visible_interval(r, &job->s, job->b, query);
    const bool pads = mha__pattern_pads(&r->semantics.visible.pattern, job->b, query),
               terms = mha__visible_has_terms(r);
    bool sees = keys.from < keys.to;
    const mha__added added = {job->strips, relative + keys.from};
    if (terms)
        (void)mha__visible_terms(r, &added, &job->s, job->b, head, query, keys, w->terms + keys.from);
    if (terms || r->semantics.softmax.softcap > 0)
        sees = r->kernels->softmax_prepare(scores, n.S, keys.from, keys.to, terms ? w->terms : NULL,
                                           (float)r->semantics.softmax.softcap);
    for (size_t e = 0; e < n.keys - n.S; e++)
        scores[n.S + e] = pads ? -INFINITY : extra_score(job, head, query, e);
    const float sink = pads ? -INFINITY : mha__sink(r, head);
    const bool plus_one = !pads && r->semantics.softmax.softmax_plus_one;
    sees |= !pads && n.keys > n.S;
    float most = sink;
    for (size_t j = keys.from; j < keys.to && most == -INFINITY; j++)
        most = scores[j];
    for (size_t j = n.S; j < n.keys && most == -INFINITY; j++)
        most = scores[j];
    /* Scores that overflow to -inf have no softmax where nothing else is seen. */
    const bool nothing = most == -INFINITY && !plus_one;
    const mha__score_row row = {
        .query = query,
        .position = (double)(job->s.offset + (int64_t)query - r->first_key),
        .keys = n.keys,
        .extra = n.keys - n.S,
        .from = keys.from,
        .to = keys.to,
        .scores = scores,
        .logits = {sink, plus_one ? 0 : -INFINITY},
        .is_broken = nothing && (sees || r->semantics.softmax.empty_rows != MHA_EMPTY_ZERO),
        .weights = w->weights,
    };
    mha__head_add_scores(band->head, &band->sum, &row);
}

mha_status mha__float_rows_add(const mha__rows_job *job, mha__band *band, int number, mha_error *error)
{
    (void)error;
    const mha__drawn_call *d = job->d;
    const worker *w = (const worker *)job->workers + number;
    const sizes n = sizes_of(job);
    const size_t head = band->head->head, kv = band->head->kv_head - d->first_kv;
    const mha__interval keys = hull(job, band->first, band->past);
    const size_t from = keys.from / MHA_PANEL * MHA_PANEL;
    if (keys.from < keys.to)
        d->r->kernels->pack_transposed(n.d_k, keys.to - from,
                                       mha__row(&d->keys, job->s.batch, job->s.k_from + from, kv),
                                       (size_t)d->keys.stride[1], w->packed + from * n.d_k, n.d_k * MHA_PANEL, 0);
    for (size_t i = band->first, count; i < band->past; i += count) {
        count = band->past - i < job->rows ? band->past - i : job->rows;
        score(job, w, head, i, count);
        const mha__relative_pairs pairs = {.s = &job->s,
                                           .head = head,
                                           .of_Q = head - d->first_head,
                                           .of_K = kv,
                                           .K_batch = job->s.k_batch,
                                           .first = i,
                                           .queries = count,
                                           .keys = hull(job, i, i + count)};
        if (d->r->semantics.added.relative.rule != MHA_RELATIVE_NONE)
            mha__relative_terms(d->r, &job->relative, &d->queries, &d->keys, &pairs, w->relative + pairs.keys.from,
                                n.ld, w->relative_work);
        for (size_t row = 0; row < count; row++)
            add_row(job, band, w, i + row, w->scores + row * n.ld, w->relative + row * n.ld);
    }
    return MHA_OK;
}
