/* One forward with everything it needs around it: converted inputs, cache, stages, workspace. */
#ifndef MHA_VERIFY_ATTEMPT_H
#define MHA_VERIFY_ATTEMPT_H

#include "base/arena.h"
#include "mha/attention.h"

/* A call with what it starts from: its layer (NULL: Q, K, V are given) and the rows already cached, (B, h_kv, P, d)
 * (no data: none). All of it is borrowed. */
typedef struct mha__request {
    const mha_layer *layer;
    const mha_call *call;
    mha_view past_key, past_value;
} mha__request;

/* A forward with everything it needs: inputs converted for the path, a cache, stages, workspace. */
typedef struct mha__attempt {
    mha__arena pool;
    const mha_layer *layer;
    mha_call call;
    mha_cache *cache; /* its own */
    mha_plan plan;
    mha_keep keep[MHA_STAGE_COUNT];   /* the call's list */
    mha_view stages[MHA_STAGE_COUNT]; /* contiguous, of the plan's shapes, output in memory order of its layout */
} mha__attempt;

/* Converts inputs that the path does not take, makes a cache holding the past rows unless the call has a cache, and
 * plans. Free the attempt in any case. */
mha_status mha__attempt_begin(mha__attempt *attempt, const mha_allocator *allocator, const mha__request *request,
                              mha_error *error);
/* Runs it with the wanted stages kept, in F64 on the exact path, else in F32. */
mha_status mha__attempt_run(mha__attempt *attempt, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                            mha_error *error);
void mha__attempt_free(mha__attempt *attempt);

#endif
