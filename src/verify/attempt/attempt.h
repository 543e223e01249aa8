/* One forward with everything it needs around it: converted inputs, cache, stages, workspace. */
#ifndef MHA_VERIFY_ATTEMPT_ATTEMPT_H
#define MHA_VERIFY_ATTEMPT_ATTEMPT_H

#include "base/arena.h"
#include "mha/attention.h"

/* Some of the T query rows, the same of every batch row and under every head. */
typedef struct mha__sample {
    const bool *rows; /* T */
    size_t count;
} mha__sample;

/* A call and what it starts from: its layer (NULL when Q, K and V are given) and the rows already cached, (B, h_kv,
 * P, d) (without data when none are). All of it is borrowed. */
typedef struct mha__request {
    const mha_layer *layer;
    const mha_call *call;
    mha_view past_key, past_value;
    size_t evicted;          /* rows that came before these */
    mha_precision precision; /* that of the forward, in place of the call's */
    const mha__sample *sample; /* the query rows whose results are wanted; NULL: all */
    bool cache_rounds;       /* the cache that is made has type `cache`, to which it rounds new rows, not that of the
                              * path */
    mha_dtype cache;
    const mha_rope_origin *rope_origin; /* of the call's tables of the rotation; NULL: not known */
    bool base_2; /* the softmax of the blas path takes exponentials of 2 */
} mha__request;

/* A forward with everything it needs: inputs converted for the path, a cache, stages, workspace. */
typedef struct mha__attempt {
    mha__arena pool;
    const mha_layer *layer;
    mha_call call;
    mha_cache *cache; /* owned; made when past rows are given */
    mha_plan plan;
    bool base_2;                      /* of the request */
    const mha__sample *sample;        /* of the request: stages with rows of queries have only its rows */
    mha_keep keep[MHA_STAGE_COUNT];   /* the call's list */
    mha_view stages[MHA_STAGE_COUNT]; /* contiguous, in the plan's shapes; the output in the order of its layout */
} mha__attempt;

/* Converts inputs to types that the path takes, makes a cache of the past rows, or of none where it rounds, unless the
 * call has a cache, and plans. The attempt must be freed in any case. */
mha_status mha__attempt_begin(mha__attempt *attempt, const mha_allocator *allocator, const mha__request *request,
                              mha_error *error);
/* Runs the attempt and keeps the wanted stages: in F64 on the exact path, else in F32. */
mha_status mha__attempt_run(mha__attempt *attempt, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                            mha_error *error);
/* Begins an attempt and runs it. */
mha_status mha__attempt_make(mha__attempt *attempt, const mha_allocator *allocator, const mha__request *request,
                             mha_layout layout, const bool wanted[MHA_STAGE_COUNT], mha_error *error);
/* Runs only the projections (mha_forward_inputs), and keeps the wanted stages in the same way. */
mha_status mha__attempt_run_inputs(mha__attempt *attempt, const bool wanted[MHA_STAGE_COUNT], mha_error *error);
void mha__attempt_free(mha__attempt *attempt);

/* ---------------------------------------------------------------- rows of a sample */

/* The axis of queries in the shape of a stage of scores, heads or output; other stages: -1. */
int mha__sample_axis(mha_stage stage);
/* Copies the rows of a sample along an axis, in their order; `to` has as many rows as the sample. */
void mha__sample_copy(const mha__sample *sample, int axis, const mha_view *from, const mha_view *to);
/* The number, among all rows, of row `index` of a sample. */
size_t mha__sample_row(const mha__sample *sample, size_t index);

#endif
