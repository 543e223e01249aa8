/* The workspace of a call: which steps need memory for their results, and where it is. */
#include <limits.h>

#include "attention/core/attend.h"
#include "attention/core/exact/exact.h"
#include "attention/core/flash/attend_flash.h"
#include "attention/plan.h"
#include "attention/rows/rows.h"

/* The offset of `count` items of `size` bytes. */
static size_t take(mha__workspace *arena, size_t count, size_t size)
{
    const size_t at = arena->used;
    (void)mha__workspace_take(arena, count, size);
    return at;
}

/* Rows (B, T, width) in the workspace; nowhere when they are not needed. */
static mha__result rows(mha__workspace *arena, bool needed, size_t B, size_t T, size_t width)
{
    return (mha__result){{B, T, width}, needed ? take(arena, B * T, width * sizeof(float)) : MHA_NOWHERE};
}

/* Whether the last step can write to the caller's memory: F32 with contiguous rows, no farther apart than CBLAS can
 * count. Otherwise it writes to the workspace, and the result is copied. */
static bool writes_output(const mha__resolved *r)
{
    const mha_view *kept = &r->output;
    int last = kept->rank - 1;
    return kept->data && kept->dtype == MHA_F32 && kept->stride[last] == 1 &&
           kept->stride[1] >= (ptrdiff_t)kept->shape[last] && kept->stride[1] <= INT_MAX;
}

size_t mha__lay_out(mha__resolved *r)
{
    const mha__sizes *p = &r->plan;
    mha__layout *at = &r->layout;
    mha__workspace arena = {NULL, 0};
    mha__check exact;
    if (p->path == MHA_PATH_EXACT)
        return mha__exact_begin(r, NULL, &exact);
    const size_t B = r->query.shape[0], T_q = r->query.shape[1], T_k = r->key.shape[1];
    const bool made = r->layer != NULL, copies = mha__projects_copies(r), direct = writes_output(r);
    const mha__result output = {.offset = MHA_IN_OUTPUT};
    const mha__latent *l = &r->latent;
    const mha_view *inputs[3] = {&r->query, &r->key, &r->value};
    for (int i = 0; i < 3; i++) {
        const size_t *s = inputs[i]->shape;
        at->rounded[i] = rows(&arena, copies, s[0], s[1], s[2] * (inputs[i]->rank == 4 ? s[3] : 1));
    }
    if (l->kv_rank) {
        const size_t row = l->kv_rank + l->d_r;
        at->q_latent = rows(&arena, l->q_rank > 0, B, T_q, l->q_rank);
        at->kv_latent = rows(&arena, true, B, T_k, row);
        at->wide_q = rows(&arena, l->absorbed, B, T_q, p->h * (l->d_n + l->d_r));
        at->wide_kv = rows(&arena, !l->absorbed, B, T_k, p->h * (l->d_n + l->d_v));
        at->mixed = rows(&arena, l->absorbed, B, T_q, p->h * l->kv_rank);
    }
    /* The values of latent attention lie in wide_kv; absorbed, keys and values are the latents. */
    at->Q = rows(&arena, mha__changes_rows(r, 0), B, T_q, p->h * p->d_k);
    at->K = rows(&arena, !l->absorbed && mha__changes_rows(r, 1), B, T_k, p->h_kv * p->d_k);
    at->V = rows(&arena, !l->kv_rank && mha__changes_rows(r, 2), B, T_k, p->h_kv * p->d_v);
    at->heads = !made && direct ? output : rows(&arena, true, B, T_q, p->h * mha__head_width(r));
    at->gate = rows(&arena, mha__gate_width(r) > 0, B, T_q, mha__gate_width(r));
    at->output = made && direct ? output : rows(&arena, made, B, T_q, p->d_out);
    at->project_scratch = take(&arena, mha__project_scratch(r), sizeof(float));
    at->attend_scratch = take(&arena, mha__attend_scratch(r), 1);
    at->uses_blas = l->absorbed || p->path == MHA_PATH_BLAS ||
                    mha__project_uses_blas(r) || mha__attend_flash_uses_blas(r);
    return arena.used;
}
