/* The steps of the equation, in the order in which forward.c calls them. */
#ifndef MHA_ATTENTION_STEPS_STEPS_H
#define MHA_ATTENTION_STEPS_STEPS_H

#include "attention/resolved.h"

struct mha__relative_tables;

/* Which rows a step works on: those of the queries or those of the new keys. */
typedef enum mha__side { MHA_QUERIES, MHA_KEYS } mha__side;

/* When the last step ended, for the times of stages. */
typedef struct mha__clock {
    double last;
} mha__clock;

/* The view for the result of a step, in this workspace. */
static inline mha_view mha__result_in(char *workspace, const mha__result *result)
{
    mha_view view = result->view;
    if (result->offset != SIZE_MAX)
        view.data = workspace + result->offset;
    return view;
}

/* project.c: y = x W + b for the rows of `side`, sequence by sequence; returns y as (B, T, heads, width). In BF16 the
 * results of W_G and W_O are rounded.
 * x (B, T, in) or (B, T, h, d) with contiguous heads, y (B, T, out), F32, last stride 1. Without W (Q, K, V
 * were given) y = x + b, or x itself when `y` has no data. `scratch` holds mha__project_scratch floats. */
mha_view mha__project(const mha__resolved *r, mha__side side, const mha_view *x, mha_weight W, mha_weight b,
                      size_t heads, const mha_view *y, float *scratch);
/* One projection: the arguments of mha__project. */
typedef struct mha__projection {
    mha__side side;
    const mha_view *x;
    mha_weight W, b;
    size_t heads;
    const mha_view *y;
} mha__projection;
/* Computes projections, at most MHA_PACKED_OUTPUTS, neighbours of equal rows together. `made` gets the results. */
void mha__project_all(const mha__resolved *r, const mha__projection *projections, size_t count, mha_view *made,
                      float *scratch);
/* The weights, in `widened` if they are not floats. */
const float *mha__weight_as_floats(const mha_view *W, float *widened, int threads);
size_t mha__project_scratch(const mha__resolved *r);
static inline float *mha__project_scratch_in(const mha__resolved *r, char *workspace)
{
    return (float *)(void *)(workspace + r->layout.project_scratch);
}
bool mha__project_uses_blas(const mha__resolved *r);
/* In BF16: whether the inputs must be copied, because they are rounded and nobody does that later. */
bool mha__projects_copies(const mha__resolved *r);

/* inputs.c: the query, key and value inputs to project, the first n of them. In BF16 they are rounded copies unless the
 * projection rounds; an input equal to the one before it shares its copy. */
void mha__inputs_to_project(const mha__resolved *r, char *workspace, size_t n, mha_view x[]);
/* Limits projected q, k and v, but not q and k that are normalised first: those are limited behind their norm. */
void mha__clip_projected(const mha__resolved *r, const mha_view heads[3]);
/* Makes of projected q or k, in place, what is attended to: normalised, rotated, queries scaled by their position.
 * `x` is what they were projected from. In BF16 rows other than x are rounded, unless the core rounds them. */
void mha__finish_rows(const mha__resolved *r, mha__side side, const mha_view *x, const mha_view *rows);
/* The same of v, which is rounded alone. */
void mha__finish_values(const mha__resolved *r, const mha_view *x, const mha_view *rows);

/* norm.c: normalises x (B, T, heads, d) in place, as mha_norm_rule says. Nothing without a norm. */
void mha__normalise(const mha__resolved *r, mha__side side, const mha_view *x);

/* The same for rows x (B, T, n) and a weight (n) of its own. */
void mha__normalise_rows(const mha__resolved *r, const mha_view *w, const mha_view *x);
/* Limits x (B, T, heads, d), q, k or v, in place, if mha__clips. */
void mha__clip(const mha__resolved *r, const mha_view *x);

/* latent.c: Q, K and V, (B, T, heads, width), of a layer with kv_rank, before rotation; keeps the latents. `to` are
 * the places for its own results, in the order of mha__layout. In the absorbed form K is a row of the latents
 * for all heads, and V its first features. */
enum { MHA_Q_LATENT, MHA_KV_LATENT, MHA_WIDE_Q, MHA_WIDE_KV, MHA_LATENT_RESULTS };
void mha__latent_inputs(const mha__resolved *r, const mha_view to[MHA_LATENT_RESULTS], const mha_view *Q,
                        const mha_view *K, mha_view heads[3], float *scratch, mha__clock *clock);
/* The values of a view of keys that are latents. */
mha_view mha__latent_values(const mha__resolved *r, const mha_view *keys);
/* heads = mixed W_V for each head, (B, T_q, h, kv_rank) to (B, T_q, h, d_v): the end of the absorbed form. */
void mha__latent_leave(const mha__resolved *r, const mha_view *mixed, const mha_view *heads, float *scratch);

/* rope.c: rotates x (B, T, heads, d) in place. Nothing without rotation. */
void mha__rotate_heads(const mha__resolved *r, mha__side side, const mha_view *x);
/* Multiplies each row of queries x by the scale of its position, in place. Nothing without mha_query_scale. */
void mha__scale_queries(const mha__resolved *r, const mha_view *x);

/* gate.c: multiplies heads (B, T_q, h, d_v) by the sigmoid of `gate`, (B, T_q, h*d_v) or (B, T_q, h), in place. */
void mha__gate_heads(const mha__resolved *r, const mha_view *gate, const mha_view *heads);

/* attend.c: calls one of the two below, by the path. */
void mha__attend(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V, const mha_view *heads,
                 char *scratch);
size_t mha__attend_scratch(const mha__resolved *r);

/* attend_dense.c: heads = softmax(Q K^T * scale, visible keys) V for every (batch, head). Q (B, T_q, h, d_k),
 * K (B, S, h_kv, d_k), V (B, S, h_kv, d_v), heads (B, T_q, h, d_v). Keeps the stages from scores to
 * weights_mean and lse. K and V may be F16 or BF16. `strips` is what mha__bias_prepare
 * made, `relative` what mha__relative_prepare did.
 * `scratch` is mha__attend_dense_scratch bytes in all. */
void mha__attend_dense(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                       const mha_view *heads, const float *strips, const struct mha__relative_tables *relative,
                       char *scratch);
size_t mha__attend_dense_scratch(const mha__resolved *r);

/* attend_flash.c: the same for the fast path, which never stores whole rows of scores or weights. If they are to be
 * kept, mha__attend_dense computes them in addition, so that the heads have the same bits whether or not anything is
 * kept. `scratch` is mha__attend_flash_scratch bytes in all. */
void mha__attend_flash(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                       const mha_view *heads, const float *strips, const struct mha__relative_tables *relative,
                       char *scratch);
size_t mha__attend_flash_scratch(const mha__resolved *r);
bool mha__attend_flash_uses_blas(const mha__resolved *r); /* for scores or weights to keep */

/* blocks/attend_shared.c: the same for a cache that continues another one, of which K and V are the last stretch. */
void mha__attend_shared(const mha__resolved *r, const mha_view *Q, const mha_view *K, const mha_view *V,
                        const mha_view *heads, const float *strips, const struct mha__relative_tables *relative,
                        char *scratch);
size_t mha__attend_shared_scratch(const mha__resolved *r);

/* half.c: copies `from` (B, T, heads, d), of any floating type or a cache's rows of 8 bits (I8), to `to` of the same
 * shape and a floating type; floats whose last stride is 1 are written by `threads` threads. */
void mha__widen(const mha_view *to, const mha_view *from, int threads);
/* Copies `from`, of any floating type, to rows `to` of a cache, both (B, heads, T, d). `room`: d floats, for rows of 8
 * bits. */
void mha__narrow(const mha_view *to, const mha_view *from, float *room);

/* half.c: `to` = the floats of `from`, both (B, T, heads, d) with last stride 1, rounded to BF16 (to nearest even, NaN
 * stays NaN); they may be one. */
void mha__round_to_bf16(const mha_view *to, const mha_view *from, int threads);

/* stages.c: mha__stage_done keeps a stage, and the time since the last one, if the call asks for them. `values` is
 * (B, T, heads, d); the memory for the stage may also be (B, T, heads*d). */
void mha__times_clear(const mha__resolved *r); /* sets all times to 0 */
mha__clock mha__clock_start(const mha__resolved *r);
void mha__stage_done(const mha__resolved *r, mha_stage stage, const mha_view *values, mha__clock *clock);
/* The same for n stages that were computed together: they share the time in proportion to their sizes. */
void mha__stages_done(const mha__resolved *r, const mha_stage *stages, const mha_view *values, size_t n,
                      mha__clock *clock);
/* Keeps all keys and values, (B, S, h_kv, d), of a cache and of the call. */
void mha__present_done(const mha__resolved *r, const mha_view *K, const mha_view *V, mha__clock *clock);
/* Keeps a row of n values of a stage; (a, b, c) are its indices before the last one. */
void mha__stage_row(const mha__resolved *r, mha_stage stage, size_t a, size_t b, size_t c, const float *row, size_t n);

/* Fills the kept stages of a ragged batch, or of keys in pages, with zeros, which remain where a sequence is shorter
 * than the longest one. */
void mha__stages_clear_ragged(const mha__resolved *r);

/* exact/exact.c: the whole forward in float64. Returns the bytes of workspace; with `workspace` NULL it only counts
 * them. */
size_t mha__exact(const mha__resolved *r, char *workspace);
/* One end of it: Q, K and V of the new rows with their stages, or with `heads` the output of these. */
void mha__exact_end(const mha__resolved *r, char *workspace, const mha_view *heads);

/* A view (B, T, heads*d) seen as (B, T, heads, d). */
static inline mha_view mha__split_heads(const mha_view *rows, size_t heads)
{
    mha_view v = *rows;
    v.rank = 4;
    v.shape[2] = heads;
    v.shape[3] = heads ? rows->shape[2] / heads : 0;
    v.stride[3] = rows->stride[2];
    v.stride[2] = (ptrdiff_t)v.shape[3] * rows->stride[2];
    return v;
}

/* A view (B, S, h_kv, d) of memory in the order (B, h_kv, S, d), or the reverse. */
static inline mha_view mha__swap_time_and_heads(mha_view v)
{
    size_t shape = v.shape[1];
    ptrdiff_t stride = v.stride[1];
    v.shape[1] = v.shape[2], v.stride[1] = v.stride[2];
    v.shape[2] = shape, v.stride[2] = stride;
    return v;
}

/* Number of the first element of row (b, t) of head g in a view (B, T, heads, d), counted from the view's data. */
static inline ptrdiff_t mha__row_offset(const mha_view *v, size_t b, size_t t, size_t g)
{
    return (ptrdiff_t)b * v->stride[0] + (ptrdiff_t)t * v->stride[1] + (ptrdiff_t)g * v->stride[2];
}

/* Row (b, t) of head g in a view (B, T, heads, d) of F16, BF16 or I8. */
static inline unsigned char *mha__narrow_row_at(const mha_view *v, size_t b, size_t t, size_t g)
{
    const uintptr_t bytes = v->dtype == MHA_I8 ? 1 : sizeof(uint16_t);
    return (unsigned char *)((uintptr_t)v->data + (uintptr_t)mha__row_offset(v, b, t, g) * bytes);
}

/* Row (b, t) of head g in a float view (B, T, heads, d). Computed in integers, because a view without elements may have
 * no data, and C does not define an offset from NULL. */
static inline float *mha__row(const mha_view *v, size_t b, size_t t, size_t g)
{
    return (float *)((uintptr_t)v->data + (uintptr_t)mha__row_offset(v, b, t, g) * sizeof(float));
}

#endif
