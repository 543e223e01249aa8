/* Stages of a call: copies results into the memory that the caller gave for them, and takes the time. */
#include <string.h>

#include "attention/cache/cache.h"
#include "attention/cache/stages.h"
#include "attention/call/resolved.h"
#include "base/heads.h"
#include "compute/half.h"

void mha__times_clear(const mha__resolved *r)
{
    for (size_t i = 0; i < r->keep_count; i++)
        r->keep[i].ms = 0;
}

mha__clock mha__clock_start(const mha__resolved *r)
{
    return (mha__clock){r->keep_count > 0 ? mha__clock_ms() : 0};
}

void mha__stage_keep(const mha__resolved *r, mha_stage stage, const mha_view *values)
{
    const mha_view *kept = mha__stage_view(r, stage);
    if (!kept || kept->data == values->data) /* the output may have been computed in place */
        return;
    const bool by_head = stage == MHA_STAGE_PRESENT_KEY || stage == MHA_STAGE_PRESENT_VALUE;
    const mha_view rows = kept->rank == 3 ? mha__split_heads(kept, values->shape[2]) : *kept,
                   to = by_head ? mha__swap_time_and_heads(rows) : rows;
    mha__widen(&to, values, 1);
}

void mha__stage_done(const mha__resolved *r, mha_stage stage, const mha_view *values, mha__clock *clock)
{
    mha__stage_keep(r, stage, values);
    if (r->keep_count == 0)
        return;
    double time = mha__clock_ms();
    if (r->keep_at[stage] >= 0)
        r->keep[r->keep_at[stage]].ms = time - clock->last;
    clock->last = time;
}

void mha__stages_done(const mha__resolved *r, const mha_stage *stages, const mha_view *values, size_t n,
                      mha__clock *clock)
{
    if (r->keep_count == 0)
        return;
    const double taken = mha__clock_ms() - clock->last;
    size_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += mha_view_elements(&values[i]);
    clock->last += taken; /* the time of the copies is added to their own stage */
    for (size_t i = 0; i < n; i++) {
        mha__stage_done(r, stages[i], &values[i], clock);
        if (r->keep_at[stages[i]] >= 0)
            r->keep[r->keep_at[stages[i]]].ms +=
                taken * (double)mha_view_elements(&values[i]) / (double)(all ? all : 1);
    }
}

/* A cache that continues another one has them in several places. */
void mha__present_done(const mha__resolved *r, const mha_view *K, const mha_view *V, mha__clock *clock)
{
    const bool continues = r->cache && mha__cache_trunk(r->cache);
    for (int v = 0; v < 2; v++) {
        const mha_stage stage = v ? MHA_STAGE_PRESENT_VALUE : MHA_STAGE_PRESENT_KEY;
        mha_view rows = *(v ? V : K);
        if (continues && mha__is_kept(r, stage)) {
            rows = mha__swap_time_and_heads(*mha__stage_view(r, stage));
            mha__cache_copy(r->cache, v && !r->latent.absorbed, &rows, 1);
        }
        mha__stage_done(r, stage, &rows, clock);
    }
}

void mha__stage_row(const mha__resolved *r, mha_stage stage, size_t a, size_t b, size_t c, mha_dtype dtype,
                    const void *row, size_t n)
{
    if (!mha__is_kept(r, stage))
        return;
    mha_view to = *mha__stage_view(r, stage);
    const size_t index[MHA_MAX_RANK] = {a, b, c};
    const int last = to.rank - 1, axes = stage == MHA_STAGE_LSE ? to.rank : last; /* of lse a row is one number */
    for (int k = 0; k < axes; k++)
        to = mha_view_slice(&to, k, index[k], 1);
    to.rank = 1, to.shape[0] = n, to.stride[0] = to.stride[last];
    const mha_view from = mha_view_of(mha__unconst(row), dtype, 1, &n);
    (void)mha_view_copy(&to, &from, NULL);
}

void mha__stages_clear_ragged(const mha__resolved *r)
{
    if (!r->placed.cu_q && !r->pages.keys.data)
        return;
    for (int stage = 0; stage < MHA_STAGE_COUNT; stage++) {
        const mha_view *v = mha__stage_view(r, (mha_stage)stage);
        if (!v || !mha__stage_is_of_scores((mha_stage)stage))
            continue;
        double zero = 0;
        mha_view from = mha_view_of(&zero, MHA_F64, v->rank, v->shape);
        for (int k = 0; k < v->rank; k++)
            from.stride[k] = 0; /* one zero, broadcast */
        (void)mha_view_copy(v, &from, NULL);
    }
}
