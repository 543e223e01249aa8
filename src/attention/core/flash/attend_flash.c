/* softmax(Q K^T * scale) V on the fast path, key block by key block: runs the tasks into which blocks of query rows are
 * divided; the arithmetic is in attention/core/flash/flash.c. */
#include "attention/cache/stages.h"
#include "attention/core/flash/attend_flash.h"
#include "attention/core/flash/query_block.h"
#include "compute/thread_pool.h"

typedef struct attention {
    mha__attention blocks;
    float *partials; /* of every block and segment, when there are several segments */
    size_t partial_floats;
} attention;

static size_t lay_out(const mha__resolved *r, char *base, attention *a)
{
    const mha__sizes *p = &r->plan;
    mha__attention *b = &a->blocks;
    mha__workspace arena = {base, 0};
    b->range = mha__all_keys;
    mha__blocks_cut(r, b);
    mha__blocks_take(&arena, r, b);
    a->partial_floats = mha__flash_partial_floats(b->block_rows, p->d_v);
    size_t partials = b->segments > 1 ? b->all_blocks * b->segments : 0;
    a->partials = mha__workspace_take(&arena, partials, a->partial_floats * sizeof(float));
    mha__blocks_take_workers(&arena, b);
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
    attention unused;
    return lay_out(r, NULL, &unused);
}

static void whole_block(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__block_worker w;
    mha__query_block t;
    if (!mha__query_block_prepare(&a->blocks, task, number, &w, &t))
        return;
    mha__flash_rows(&t.flash, w.rows, t.rows, w.scratch);
    mha__query_block_finish(&t, &w);
}

/* The partial softmaxes of a block: one after the other, as many as its sequence has segments. */
static float *partials_of(const attention *a, size_t block)
{
    return a->partials + block * a->blocks.segments * a->partial_floats;
}

static void one_segment(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__block_worker w;
    mha__query_block t;
    size_t block = task / a->blocks.segments, segment = task % a->blocks.segments;
    if (!mha__query_block_prepare(&a->blocks, block, number, &w, &t) || segment >= mha__flash_segments(&t.flash))
        return;
    float *partial = partials_of(a, block) + segment * mha__flash_partial_floats(t.rows, a->blocks.r->plan.d_v);
    mha__flash_segment(&t.flash, w.rows, t.rows, segment, partial, w.scratch);
}

static void join_block(void *context, size_t task, int number)
{
    const attention *a = context;
    mha__block_worker w;
    mha__query_block t;
    if (!mha__query_block_prepare(&a->blocks, task, number, &w, &t))
        return;
    mha__flash_join(&t.flash, w.rows, t.rows, partials_of(a, task));
    mha__query_block_finish(&t, &w);
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
    const size_t blocks = a.blocks.all_blocks, segments = a.blocks.segments;
    if (segments == 1) {
        mha__parallel_for(blocks, a.blocks.threads, whole_block, &a);
        return;
    }
    mha__parallel_for(blocks * segments, a.blocks.threads, one_segment, &a);
    mha__parallel_for(blocks, a.blocks.threads, join_block, &a);
}
