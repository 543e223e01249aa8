/* A validated call with its defaults filled in, which every path reads. It lies in the private part of a plan. */
#ifndef MHA_ATTENTION_CALL_RESOLVED_H
#define MHA_ATTENTION_CALL_RESOLVED_H

#include <math.h>

#include "attention/visibility/visibility.h"
#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "mha/attention.h"

/* The public fields of mha_plan, in their order, for the steps. */
typedef struct mha__sizes {
    mha_path path;
    const char *path_reason;
    size_t B, T_q, T_k, S, S_extra;
    size_t h, h_kv, d_k, d_v, d_out;
    double scale;
    int threads;
    size_t workspace_bytes;
} mha__sizes;

/* Where a step puts its result: in the workspace, in the output, or nowhere when its input is its result. */
typedef struct mha__result {
    size_t shape[3]; /* (B, T, width) */
    size_t offset;   /* into the workspace, in bytes, or one of these */
} mha__result;
#define MHA_NOWHERE SIZE_MAX
#define MHA_IN_OUTPUT (SIZE_MAX - 1)

/* The widths of latent attention, all 0 without it. The sizes of the plan are those of what is attended to: in the
 * absorbed form d_k is kv_rank + d_r, and d_v is kv_rank. */
typedef struct mha__latent {
    size_t q_rank, kv_rank, d_r;
    size_t d_n, d_v; /* of one head in W_KVB */
    bool absorbed;
} mha__latent;

typedef struct mha__layout {
    mha__result Q, K, V, heads, gate, output;
    mha__result q_latent, kv_latent, wide_q, wide_kv, mixed; /* of latent attention: rows/latent.c */
    mha__result rounded[3]; /* query, key and value inputs in BF16 */
    size_t project_scratch, attend_scratch; /* offsets */
    bool uses_blas;
} mha__layout;

/* Where the sequences of a call lie among its rows, and the positions of their queries. */
typedef struct mha__placed {
    const int64_t *cu_q, *cu_k; /* the first row of each sequence of a ragged batch; NULL: a sequence is a batch row */
    const int64_t *offsets;     /* position of query 0 of each sequence; NULL: `offset`, that of all */
    int64_t offset;
    bool at_the_end; /* the queries are the last keys instead */
} mha__placed;

/* The masks of a call, for the blas and fast paths; `visibility` has the rest. */
typedef struct mha__masks {
    mha_mask padding, mask;
    float fill; /* added to the scores of keys that `padding` flags; -infinity hides them */
    mha_pattern pattern;
} mha__masks;

typedef struct mha__resolved {
    const mha_layer *layer; /* NULL: Q, K, V were given */
    mha__latent latent;
    mha__sizes plan;
    mha_view query, key, value;        /* with a layer (B, T, width), without (B, T, heads, width) */
    bool key_follows, value_follows;   /* the key was left out and is the query; the value is the key */
    mha_view output;                   /* without data no output is written */
    mha_view partial;                  /* softmaxes that the call continues; without data there are none */
    mha_precision precision;           /* modelled by the exact path; that of BF16 on the others */
    mha_view weight[MHA_WEIGHT_COUNT]; /* of the layer or of the call; no data where absent, or read as panels */
    const void *panels[MHA_WEIGHT_COUNT]; /* of packed matrices, for the fast path; NULL: not packed */
    mha_norm norm[2];                  /* of q and of k; without a weight the factor is 1 */

    mha_pages pages; /* no data: there are none */
    mha_cache *cache;
    size_t held, gone; /* rows in the cache, and rows evicted from it, when the call was planned */
    size_t kept;       /* cached rows that stay in front of the new ones */
    int64_t cached;    /* position of new key 0: rows before the part and rows cached so far, evicted ones counted */
    int64_t first_key; /* position of key 0 */
    mha__placed placed;
    mha__visibility visibility;
    mha__masks masks;
    mha_qkv qkv; /* defaults filled in, those of a rope that is there, too */
    mha_added added;
    mha_softmax softmax;

    mha_keep *keep;
    size_t keep_count;
    signed char keep_at[MHA_STAGE_COUNT]; /* index of a stage in `keep`; -1: it is not there */
    bool has_data[MHA_STAGE_COUNT];       /* the stage is kept, not only timed */

    mha__layout layout; /* not used by the exact path */

    /* Of the blas path: its softmax takes exponentials of 2. */
    bool base_2;

    /* Of the exact path: which of the T rows of queries are attended for; others have heads of zeros. NULL: all. */
    const bool *rows;

    /* When the call was planned: the kernels in use, and mha__layer_generation. */
    const mha__kernels *kernels;
    unsigned long generation;
} mha__resolved;

/* mha_plan_call without its last copy: of a plan that is no plan yet, because an error leaves it unspecified. */
mha_status mha__plan_in_place(const mha_layer *layer, const mha_call *call, mha_plan *plan, mha_error *error);

/* The validated call in a plan. */
mha__resolved *mha__plan_inside(mha_plan *plan);
const mha__resolved *mha__plan_resolved(const mha_plan *plan);

/* The stage is kept, not only timed. */
static inline bool mha__is_kept(const mha__resolved *r, mha_stage stage)
{
    return r->has_data[stage];
}

/* Whether queries (side 0) or keys (1) are normalised before the rotation. */
static inline bool mha__normalises_first(const mha__resolved *r, size_t side)
{
    return r->norm[side] != MHA_NORM_NONE && !r->qkv.norm.after_rope;
}

/* The factor on scores of heads of this width. */
static inline double mha__score_scale(const mha_softmax *s, size_t d_k)
{
    return s->has_scale ? s->scale : 1.0 / sqrt((double)d_k);
}

/* Whether queries are multiplied by a factor of their position, after norm and rotation. */
static inline bool mha__scales_queries(const mha_qkv *s)
{
    return s->query_scale.growth != 0 || s->query_scale.log_n != 0;
}

/* The weights and heads of a query that sees no key. */
static inline float mha__empty(const mha__resolved *r)
{
    return r->softmax.empty_rows == MHA_EMPTY_ZERO ? 0.0f : NAN;
}

/* The width of a head in the stage `heads`, which W_O reads. */
static inline size_t mha__head_width(const mha__resolved *r)
{
    return r->latent.absorbed ? r->latent.d_v : r->plan.d_v;
}

/* Gates of a row: one for each head, or for each feature of the heads; 0 without a gate. */
static inline size_t mha__gate_width(const mha__resolved *r)
{
    return r->weight[MHA_W_G].shape[1];
}

/* Whether the blas or fast path rounds to BF16 at the points of mha_precision. */
static inline bool mha__rounds_to_bf16(const mha__resolved *r)
{
    return r->plan.path != MHA_PATH_EXACT && r->precision.inputs == MHA_BF16;
}

/* Whether the core rounds q, k and v to BF16 where it reads them: on the fast path, when nobody else does. */
bool mha__rounds_late(const mha__resolved *r);

/* The view for the result of a step, in this workspace. */
static inline mha_view mha__result_in(const mha__resolved *r, char *workspace, const mha__result *result)
{
    if (result->offset == MHA_IN_OUTPUT)
        return r->output;
    return mha_view_of(result->offset == MHA_NOWHERE ? NULL : workspace + result->offset, MHA_F32, 3, result->shape);
}

/* Rank and shape of a stage; rank 0 when the call has none. */
int mha__stage_shape(const mha__resolved *r, mha_stage stage, size_t shape[4]);

/* The view a stage is kept in; NULL when it is not kept. */
const mha_view *mha__stage_view(const mha__resolved *r, mha_stage stage);

mha__sequence mha__resolved_sequence(const mha__resolved *r, size_t b);

/* Memory taken from the caller's workspace block by block; with base NULL bytes are only counted. */
typedef struct mha__workspace {
    char *base;
    size_t used; /* SIZE_MAX once it does not fit a size */
} mha__workspace;

/* `count` items of `size` bytes, at a multiple of MHA_ALIGNMENT. */
void *mha__workspace_take(mha__workspace *workspace, size_t count, size_t size);

/* ---------------------------------------------------------------- stage_table.c: shapes of stages */

/* The symbols of mha_stage_info.shape. S_all: S', the keys and the rows beside them. */
typedef struct mha__stage_sizes {
    size_t B, T_q, T_k, S, S_all, h, h_kv, d_k, d_v, d_out, q_rank, kv_rank, d_rope;
} mha__stage_sizes;

/* Writes the extents of a stage. Returns its rank; 0: it is a latent that there is not. */
int mha__stage_extents(mha_stage stage, const mha__stage_sizes *sizes, size_t shape[4]);
/* The place of a symbol among those of a shape, "(B, h, T_q, S')"; -1: it is none of them. *count: of all of them. */
int mha__axis_named(const char *shape, const char *symbol, int *count);
/* The axis of a stage that has this size; -1: none, or there is no such stage. */
int mha__stage_axis(mha_stage stage, const char *symbol);

/* Whether a stage has a row of keys for each query of each sequence, or what sums such a row up. */
bool mha__stage_is_of_scores(mha_stage stage);

/* ---------------------------------------------------------------- call_weights.c */

/* The configuration of a layer of these sizes with every weight that a call without a layer may give, in the shapes of
 * those that it gives. */
mha_config mha__config_of_weights(const mha_view weights[MHA_WEIGHT_COUNT], size_t h, size_t h_kv, size_t d_k,
                                  size_t d_v);
/* Fills in r->weight and r->norm of a call whose sizes are known. Weights that are given have the shapes of a layer of
 * these sizes; MHA_INVALID and MHA_UNSUPPORTED name one that has not. */
mha_status mha__resolve_weights(mha__resolved *r, const mha_call *call, mha_error *error);

#endif
