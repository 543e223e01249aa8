/* softmax(Q K^T * scale) V on the fast path, key block by key block: runs the tasks into which blocks of query rows are
 * divided; the arithmetic is in attention/core/flash/flash.c. With a cache that continues others: one range of keys
 * after the other, each with the rows of all sequences that share it, so that keys are read once for all of them. Every
 * row has the bits of a cache of its own: ranges end with a block of keys, and a segment goes on in the next range. */
#include <string.h>

#include "attention/cache/cache.h"
#include "attention/cache/stages.h"
#include "attention/core/flash/attend_flash.h"
#include "attention/core/flash/online_softmax.h"
#include "attention/core/flash/query_block.h"
#include "attention/rows/rows.h"
#include "base/heads.h"
#include "compute/thread_pool.h"

typedef struct attention {
    mha__attention blocks;
    size_t ranges; /* of keys; 1: K and V of the call */
    mha_view K, V; /* of one of several ranges */
    /* The softmaxes of all rows between two ranges: over all whole segments, and over the last one as far as it goes. A
     * key/value head has the rows of all sequences, one sequence after the other. */
    mha__partial total, open;
    float *parts; /* of every block and segment, when there are several segments */
} attention;

static mha__partial take_partial(mha__workspace *arena, const mha__sizes *p)
{
    const size_t rows = p->B * p->h * p->T_q;
    mha__partial all = {.width = mha__round_up(p->d_v, 16)};
    all.sum = mha__workspace_take(arena, rows, all.width * sizeof *all.sum);
    all.state = mha__workspace_take(arena, rows, sizeof *all.state);
    return all;
}

/* Turns to a range of keys and cuts its work. False when it has no keys and is not the last. */
static bool turn_to(attention *a, const mha__resolved *r, size_t number)
{
    mha__attention *b = &a->blocks;
    const bool last = number + 1 == a->ranges;
    size_t n = SIZE_MAX;
    b->range = mha__all_keys;
    if (a->ranges > 1) {
        const mha__cache_rows keys = mha__cache_segment(r->cache, number);
        n = keys.keys.shape[2];
        b->range = (mha__key_range){keys.from, last ? SIZE_MAX : keys.from + n, keys.together, last};
        a->K = mha__swap_time_and_heads(keys.keys);
        a->V = r->latent.absorbed ? mha__latent_values(r, &a->K) : mha__swap_time_and_heads(keys.values);
        b->K = &a->K, b->V = &a->V;
    }
    mha__blocks_cut(r, b);
    return last || n > 0;
}

/* The memory of the largest range serves all. */
static size_t lay_out(const mha__resolved *r, char *base, attention *a)
{
    mha__workspace arena = {base, 0};
    size_t parts = 0, workers = 0;
    a->ranges = r->cache ? mha__cache_segments(r->cache) : 1;
    mha__blocks_take(&arena, r, &a->blocks);
    if (a->ranges > 1) {
        a->total = take_partial(&arena, &r->plan);
        a->open = take_partial(&arena, &r->plan);
    }
    for (size_t i = 0; i < a->ranges; i++) {
        const mha__attention *b = &a->blocks;
        mha__workspace own = {NULL, 0};
        if (!turn_to(a, r, i))
            continue;
        const size_t floats = mha__flash_partial_floats(b->block_rows, r->plan.d_v);
        parts = mha__larger(parts, b->segments > 1 ? b->all_blocks * b->segments * floats : 0);
        mha__blocks_take_workers(&own, &a->blocks);
        workers = mha__larger(workers, own.used);
    }
    a->parts = mha__workspace_take(&arena, parts, sizeof *a->parts);
    a->blocks.workers = mha__workspace_take(&arena, workers, 1);
    return arena.used;
}

bool mha__attend_flash_uses_blas(const mha__resolved *r)
{
    bool keeps = false;
    for (int s = MHA_STAGE_SCORES; s <= MHA_STAGE_WEIGHTS_MEAN; s++)
        keeps |= mha__is_kept(r, (mha_stage)s);
    return keeps;
}

size_t mha__attend_flash_scratch(const mha__resolved *r)
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

/* Whether a segment of the range began before it; whether one goes on after it. */
static bool goes_on(const mha__query_block *t, size_t number)
{
    return number == 0 && t->flash.before % MHA_SEGMENT != 0;
}

static bool stays_open(const mha__query_block *t, size_t number)
{
    return !t->a->range.last && number + 1 == mha__flash_segments(&t->flash) &&
           (t->flash.before + t->flash.keys.n) % MHA_SEGMENT != 0;
}

/* The softmaxes of a block over the ranges before this one, cleared for the first range. */
static mha__partial total_of(const attention *a, const mha__query_block *t)
{
    const mha__partial total =
        a->ranges > 1 ? rows_of(&a->total, t) : mha__partial_at(t->w.scratch, t->rows, a->blocks.r->plan.d_v);
    if (t->flash.before == 0)
        mha__partial_clear(&total, t->rows);
    return total;
}

static void finish(const mha__query_block *t, const mha__partial *total)
{
    if (!t->a->range.last)
        return;
    mha__partial_finish(&t->flash, t->w.rows, t->rows, total);
    mha__query_block_finish(t);
}

static void whole_block(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__query_block t;
    if (!mha__query_block_prepare(&a->blocks, task, number, &t))
        return;
    if (a->ranges == 1) {
        mha__flash_rows(&t.flash, t.w.rows, t.rows, t.w.scratch);
        mha__query_block_finish(&t);
        return;
    }
    const mha__partial total = total_of(a, &t), open = rows_of(&a->open, &t);
    for (size_t i = 0; i < mha__flash_segments(&t.flash); i++) {
        mha__flash_segment(&t.flash, t.w.rows, t.rows, i, goes_on(&t, i), &open, t.w.scratch);
        if (!stays_open(&t, i))
            mha__partial_join(&t.flash, &total, &open, t.rows);
    }
    finish(&t, &total);
}

static mha__partial part_of(const attention *a, const mha__query_block *t, size_t block, size_t segment)
{
    const size_t d_v = a->blocks.r->plan.d_v, floats = mha__flash_partial_floats(a->blocks.block_rows, d_v);
    return goes_on(t, segment)
               ? rows_of(&a->open, t)
               : mha__partial_at(a->parts + (block * a->blocks.segments + segment) * floats, t->rows, d_v);
}

static void one_segment(void *context, size_t task, int number)
{
    const attention *a = context;
    const size_t block = task / a->blocks.segments, segment = task % a->blocks.segments;
    mha__query_block t;
    if (!mha__query_block_prepare(&a->blocks, block, number, &t) || segment >= mha__flash_segments(&t.flash))
        return;
    const mha__partial into = part_of(a, &t, block, segment);
    mha__flash_segment(&t.flash, t.w.rows, t.rows, segment, goes_on(&t, segment), &into, t.w.scratch);
}

static void join_block(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__query_block t;
    if (!mha__query_block_prepare(&a->blocks, task, number, &t))
        return;
    const mha__partial total = total_of(a, &t);
    for (size_t i = 0; i < mha__flash_segments(&t.flash); i++) {
        const mha__partial part = part_of(a, &t, task, i);
        if (!stays_open(&t, i)) {
            mha__partial_join(&t.flash, &total, &part, t.rows);
        } else if (!goes_on(&t, i)) {
            const mha__partial open = rows_of(&a->open, &t);
            memcpy(open.sum, part.sum, t.rows * open.width * sizeof *open.sum);
            memcpy(open.state, part.state, t.rows * sizeof *open.state);
        }
    }
    finish(&t, &total);
}

void mha__attend_flash(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                       const mha_view *heads, const float *bias_rows, const mha__relative_tables *relative,
                       char *scratch)
{
    attention a = {.blocks = {.Q = Q, .K = K, .V = V, .heads = heads, .bias_rows = bias_rows, .relative = relative}};
    lay_out(r, scratch, &a);
    mha__blocks_begin(&a.blocks);
    if (!mha__attend_flash_uses_blas(r))
        mha__stages_clear_ragged(r);
    for (size_t i = 0; i < a.ranges; i++) {
        if (a.ranges > 1 && !turn_to(&a, r, i)) /* lay_out has turned to the only one */
            continue;
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
