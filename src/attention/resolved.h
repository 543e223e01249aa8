/* One validated call with its defaults filled in: what every path works from. */
#ifndef MHA_ATTENTION_RESOLVED_H
#define MHA_ATTENTION_RESOLVED_H

#include "base/base.h"
#include "mha/attention.h"

typedef struct mha__resolved {
    const mha_layer *layer; /* NULL: Q, K, V were given */
    const mha_call *call;
    const mha_semantics *semantics;
    mha_plan plan;
    mha_view query, key, value;         /* with a layer (B, T, width), without (B, T, heads, width) */
    mha_view weight[MHA_WEIGHT_COUNT];  /* of the layer, or the extras; no data where absent */
    size_t kept;                        /* cached rows that stay in front of the new ones */
    int64_t cached;                     /* position of new key 0: rows cached so far, evicted ones counted */
    int64_t first_key;                  /* position of key 0 */
    bool norm_over_row[2];              /* of q and of k */
    size_t rope_dim;
    double rope_base, norm_eps;
} mha__resolved;

/* One sequence: a batch row, or a stretch of packed rows in a ragged batch. */
typedef struct mha__sequence {
    size_t batch;         /* index along the batch extent of the inputs */
    size_t q_from, T_q;   /* rows of the query */
    size_t k_from, T_k;   /* rows of the new keys */
    size_t S;             /* keys with the cached ones */
    int64_t offset;       /* position of query 0 */
} mha__sequence;

/* Validates a call against its layer. Every combination refused is refused here, before anything is
 * touched. plan.workspace_bytes is left to forward.c. */
mha_status mha__resolve_call(const mha_layer *layer, const mha_call *call, mha__resolved *request, mha_error *error);
/* Its second half: the semantics, whose arrays are checked against the sizes found so far. */
mha_status mha__validate_semantics(mha__resolved *request, mha_error *error);

mha__sequence mha__resolved_sequence(const mha__resolved *request, size_t b);

/* layer.c: the packed copy of a weight, NULL when there is none, of *dtype: F32, F16 or BF16 (may be NULL). */
const void *mha__layer_packed(const mha_layer *layer, mha_weight weight, mha_dtype *dtype);

/* The stage is asked for. */
static inline bool mha__kept(const mha__resolved *r, mha_stage stage)
{
    return r->call->stages[stage].data != NULL;
}

/* Memory cut from the caller's workspace. With base NULL it only counts. */
typedef struct mha__workspace {
    char *base;
    size_t used; /* SIZE_MAX once it does not fit a size */
} mha__workspace;

static inline void *mha__workspace_take(mha__workspace *arena, size_t count, size_t size)
{
    size_t bytes, end;
    if (!mha__mul(count, size, &bytes) || !mha__add(bytes, MHA_ALIGNMENT - 1, &bytes) ||
        !mha__add(arena->used, bytes & ~(size_t)(MHA_ALIGNMENT - 1), &end)) {
        arena->used = SIZE_MAX;
        return NULL;
    }
    void *block = arena->base ? arena->base + arena->used : NULL;
    arena->used = end;
    return block;
}

#endif
