/* Rows of queries, keys and values: what forward.c calls before and behind the core. */
#ifndef MHA_ATTENTION_ROWS_ROWS_H
#define MHA_ATTENTION_ROWS_ROWS_H

#include "attention/cache/stages.h"

/* Which rows a step works on: those of the queries or those of the new keys. */
typedef enum mha__side { MHA_QUERIES, MHA_KEYS } mha__side;

/* project.c: y = x W + b for the rows of `side`. x is (B, T, in), or (B, T, h, d) with contiguous heads; y (B, T, out),
 * F32, last stride 1. Without W (Q, K, V were given) y = x + b, or x itself when `y` has no data. */
typedef struct mha__projection {
    mha__side side;
    const mha_view *x;
    mha_weight W, b;
    size_t heads;
    const mha_view *y;
} mha__projection;
/* Computes projections, at most MHA_PACKED_OUTPUTS, sequence by sequence, neighbours of equal rows together. `made` is
 * filled with the results, (B, T, heads, width). In BF16 those of W_G and W_O are rounded. `scratch` holds
 * mha__project_scratch floats. */
void mha__project(const mha__resolved *r, const mha__projection *all, size_t count, mha_view *made, float *scratch);
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
/* Whether something is made of the query, key or value input (0, 1, 2) before it is attended to. */
bool mha__changes_rows(const mha__resolved *r, int which);
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
/* Limits x (B, T, heads, d), q, k or v, in place, if clip_qkv is not 0. */
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

#endif
