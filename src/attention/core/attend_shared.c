/* softmax(Q K^T * scale) V on the fast path with a cache that continues others: one range of keys after the other,
 * each with the rows of all sequences that share it, so that keys are read once for all of them. Every row has the bits
 * of a cache of its own: ranges end with a block of keys, and a segment goes on in the next range. */
#include <string.h>

#include "attention/cache/cache.h"
#include "attention/core/attend.h"
#include "attention/core/flash/online_softmax.h"
#include "attention/core/flash/query_block.h"
#include "attention/rows/rows.h"
#include "base/heads.h"
#include "compute/thread_pool.h"

/* The softmaxes of all rows between two ranges: over all whole segments, and over the last one as far as it goes. A
 * key/value head has the rows of all sequences, one sequence after the other. */
typedef struct attention {
    mha__attention blocks;
    mha__partial total, open;
    float *parts; /* of segments that are computed side by side */
} attention;

static mha__partial take_partial(mha__workspace *arena, const mha__sizes *p)
{
    const size_t rows = p->B * p->h * p->T_q;
    mha__partial all = {.width = mha__round_up(p->d_v, 16)};
    all.sum = mha__workspace_take(arena, rows, all.width * sizeof *all.sum);
    all.state = mha__workspace_take(arena, rows, sizeof *all.state);
    return all;
}

/* Turns to a range and cuts its work. False when it has no keys and is not the last. */
static bool turn_to(attention *a, const mha__resolved *r, const mha__cache_rows *keys, bool last)
{
    mha__attention *b = &a->blocks;
    const size_t n = keys->keys.shape[2];
    b->range = (mha__key_range){keys->from, last ? SIZE_MAX : keys->from + n, keys->together, last};
    mha__blocks_cut(r, b);
    return last || n > 0;
}

/* The memory of the largest range serves all. */
static size_t lay_out(const mha__resolved *r, char *base, attention *a)
{
    mha__workspace arena = {base, 0};
    mha__blocks_take(&arena, r, &a->blocks);
    a->total = take_partial(&arena, &r->plan);
    a->open = take_partial(&arena, &r->plan);
    const size_t n = mha__cache_segments(r->cache);
    size_t parts = 0, workers = 0;
    for (size_t i = 0; i < n; i++) {
        const mha__cache_rows keys = mha__cache_segment(r->cache, i);
        mha__attention *b = &a->blocks;
        mha__workspace own = {NULL, 0};
        if (!turn_to(a, r, &keys, i + 1 == n))
            continue;
        const size_t floats = mha__flash_partial_floats(b->block_rows, r->plan.d_v);
        const size_t count = b->segments > 1 ? b->all_blocks * b->segments * floats : 0;
        parts = count > parts ? count : parts;
        mha__blocks_take_workers(&own, b);
        workers = own.used > workers ? own.used : workers;
    }
    a->parts = mha__workspace_take(&arena, parts, sizeof *a->parts);
    a->blocks.workers = mha__workspace_take(&arena, workers, 1);
    return arena.used;
}

size_t mha__attend_shared_scratch(const mha__resolved *r)
{
    attention unused = {0};
    return lay_out(r, NULL, &unused);
}

/* ---------------------------------------------------------------- tasks */

/* The rows of a block among those of all. */
static mha__partial rows_of(const mha__partial *all, const mha__query_block *t)
{
    const mha__sizes *p = &t->a->r->plan;
    const size_t first = (t->g * p->B + t->b) * p->T_q * t->a->group + t->first;
    return (mha__partial){all->sum + first * all->width, all->state + first, all->width};
}

/* Whether a segment of the range began before it; whether one goes on behind it. */
static bool goes_on(const mha__query_block *t, size_t number)
{
    return number == 0 && t->flash.before % MHA_SEGMENT != 0;
}

static bool stays_open(const mha__query_block *t, size_t number)
{
    return !t->a->range.last && number + 1 == mha__flash_segments(&t->flash) &&
           (t->flash.before + t->flash.keys.n) % MHA_SEGMENT != 0;
}

/* A block before its keys of this range: what its rows have is empty before the first one. False: it has no rows. */
static bool begin(const attention *a, size_t block, int number, mha__block_worker *w, mha__query_block *t)
{
    if (!mha__query_block_prepare(&a->blocks, block, number, w, t))
        return false;
    const mha__partial total = rows_of(&a->total, t);
    if (t->flash.before == 0)
        mha__partial_clear(&total, t->rows);
    return true;
}

static void end(const mha__query_block *t, const mha__block_worker *w, const mha__partial *total)
{
    if (!t->a->range.last)
        return;
    mha__partial_finish(&t->flash, w->rows, t->rows, total);
    mha__query_block_finish(t, w);
}

static void whole_block(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__block_worker w;
    mha__query_block t;
    if (!begin(a, task, number, &w, &t))
        return;
    const mha__partial total = rows_of(&a->total, &t), open = rows_of(&a->open, &t);
    for (size_t i = 0; i < mha__flash_segments(&t.flash); i++) {
        mha__flash_go_on(&t.flash, w.rows, t.rows, i, goes_on(&t, i), &open, w.scratch);
        if (!stays_open(&t, i))
            mha__partial_join(&total, &open, t.rows);
    }
    end(&t, &w, &total);
}

static mha__partial part_of(const attention *a, const mha__query_block *t, size_t block, size_t segment)
{
    const size_t floats = mha__flash_partial_floats(a->blocks.block_rows, a->blocks.r->plan.d_v);
    return goes_on(t, segment) ? rows_of(&a->open, t)
                               : mha__partial_at(a->parts + (block * a->blocks.segments + segment) * floats, t->rows,
                                                 a->blocks.r->plan.d_v);
}

static void one_segment(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__block_worker w;
    const size_t block = task / a->blocks.segments, segment = task % a->blocks.segments;
    mha__query_block t;
    if (!mha__query_block_prepare(&a->blocks, block, number, &w, &t))
        return;
    const mha__partial into = part_of(a, &t, block, segment);
    mha__flash_go_on(&t.flash, w.rows, t.rows, segment, goes_on(&t, segment), &into, w.scratch);
}

static void join_block(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__block_worker w;
    mha__query_block t;
    if (!begin(a, task, number, &w, &t))
        return;
    const mha__partial total = rows_of(&a->total, &t), open = rows_of(&a->open, &t);
    for (size_t i = 0; i < a->blocks.segments; i++) {
        const mha__partial part = part_of(a, &t, task, i);
        if (!stays_open(&t, i)) {
            mha__partial_join(&total, &part, t.rows);
        } else if (part.sum != open.sum) {
            memcpy(open.sum, part.sum, t.rows * open.width * sizeof *open.sum);
            memcpy(open.state, part.state, t.rows * sizeof *open.state);
        }
    }
    end(&t, &w, &total);
}

void mha__attend_shared(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                        const mha_view *heads, const float *bias_rows, const mha__relative_tables *relative,
                        char *scratch)
{
    (void)K, (void)V;
    attention a = {.blocks = {.Q = Q, .heads = heads, .bias_rows = bias_rows, .relative = relative}};
    lay_out(r, scratch, &a);
    mha__blocks_begin(&a.blocks);
    const size_t n = mha__cache_segments(r->cache);
    for (size_t i = 0; i < n; i++) {
        const mha__cache_rows keys = mha__cache_segment(r->cache, i);
        const mha_view some_K = mha__swap_time_and_heads(keys.keys),
                       some_V = r->latent.absorbed ? mha__latent_values(r, &some_K)
                                                   : mha__swap_time_and_heads(keys.values);
        if (!turn_to(&a, r, &keys, i + 1 == n))
            continue;
        a.blocks.K = &some_K, a.blocks.V = &some_V;
        mha__workspace own = {a.blocks.workers, 0};
        mha__blocks_take_workers(&own, &a.blocks);
        const size_t blocks = a.blocks.all_blocks, segments = a.blocks.segments;
        if (segments == 1) {
            mha__parallel_for(blocks, a.blocks.threads, whole_block, &a);
        } else {
            mha__parallel_for(blocks * segments, a.blocks.threads, one_segment, &a);
            mha__parallel_for(blocks, a.blocks.threads, join_block, &a);
        }
    }
}
