/* The stages of a call by name: its output, and a keep list with a place for each of the others. */
#ifndef TEST_STAGES_H
#define TEST_STAGES_H

#include <string.h>

#include "mha/attention.h"

/* The stages of any call are those below this one; those of latent attention follow. */
enum { EVERY_STAGE = MHA_STAGE_Q_LATENT };

/* Gives the call `list`, which has an entry for every stage: those of its present list if that has as many, else new
 * ones without data, which are only timed. */
static inline void stages_list(mha_call *call, mha_keep list[MHA_STAGE_COUNT])
{
    if (call->keep_count == MHA_STAGE_COUNT)
        memcpy(list, call->keep, MHA_STAGE_COUNT * sizeof *list);
    else
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            list[s] = (mha_keep){.stage = (mha_stage)s};
    call->keep = list;
    call->keep_count = MHA_STAGE_COUNT;
}

/* The view that a stage is written to. All stages but the output need a list of stages_list. */
static inline mha_view *stage_view(mha_call *call, mha_stage stage)
{
    return stage == MHA_STAGE_OUTPUT ? &call->output : &call->keep[stage].view;
}

/* A contiguous view of `data` with the shape that the plan gives the stage. */
static inline mha_view stage_of_plan(const mha_plan *plan, mha_stage stage, void *data, mha_dtype dtype)
{
    size_t shape[4];
    const int rank = mha_plan_stage(plan, stage, shape);
    return mha_view_of(data, dtype, rank, shape);
}

#endif
