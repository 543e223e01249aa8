/* The whole equation on one page:
 *
 *   out = concat(head_1 ... head_h) W_O + b_O,   head_i = softmax(Q_i K_i^T * scale) V_i
 *   Q = x_q W_Q + b_Q,  K = x_k W_K + b_K,  V = x_v W_V + b_V            (Vaswani et al. 2017, section 3.2)
 *
 * Heads are strided views of Q, K, V and of the concatenation; nothing is copied to split or merge them. */
#include "attention/forward.h"
#include "attention/layer.h"
#include "attention/steps/cache.h"
#include "attention/steps/steps.h"
#include "compute/gemm.h"

/* The workspace, laid out. */
typedef struct buffers {
    mha_view Q, K, V, heads, output;
    float *staged;
    char *scratch;
    void (*attend)(const mha__resolved *, const mha_view *, const mha_view *, const mha_view *, const mha_view *, char *);
} buffers;

static void forward(const mha__resolved *r, const buffers *m)
{
    mha__clock clock = mha__clock_start(r);

    mha_view heads[3]; /* Q, K and V, head by head */
    mha__project_inputs(r, &m->Q, &m->K, &m->V, heads, m->staged);
    mha__stages_done(r, (mha_stage[]){MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V}, heads, 3, &clock);
    mha_view Q = heads[0], K = heads[1], V = heads[2];

    mha__normalise(r, MHA_QUERIES, &Q);
    mha__rotate_heads(r, MHA_QUERIES, &Q);
    mha__stage_done(r, MHA_STAGE_Q_ROT, &Q, &clock);
    mha__normalise(r, MHA_KEYS, &K);
    mha__rotate_heads(r, MHA_KEYS, &K);
    mha__stage_done(r, MHA_STAGE_K_ROT, &K, &clock);

    if (r->cache) { /* K and V of all calls so far */
        mha__cache_append(r->cache, &K, &V);
        K = mha__swap_time_and_heads(mha_cache_keys(r->cache));
        V = mha__swap_time_and_heads(mha_cache_values(r->cache));
    }
    mha__stage_done(r, MHA_STAGE_PRESENT_KEY, &K, &clock);
    mha__stage_done(r, MHA_STAGE_PRESENT_VALUE, &V, &clock);

    m->attend(r, &Q, &K, &V, &m->heads, m->scratch); /* softmax(Q K^T * scale) V, head by head */
    mha__stage_done(r, MHA_STAGE_HEADS, &m->heads, &clock);

    mha_view out = mha__project(r, MHA_QUERIES, &m->heads, MHA_W_O, MHA_B_O, 1, &m->output, m->staged);
    mha__stage_done(r, MHA_STAGE_OUTPUT, &out, &clock);
}

/* ---------------------------------------------------------------- workspace */

static mha_view rows(mha__workspace *arena, bool needed, size_t B, size_t T, size_t width)
{
    size_t shape[3] = {B, T, width};
    float *data = needed ? mha__workspace_take(arena, B * T, width * sizeof(float)) : NULL;
    return mha_view_of(data, MHA_F32, 3, shape);
}

/* The last step writes straight to the caller's memory where that is F32 with contiguous rows, which are no farther
 * apart than CBLAS can count; else to the workspace, from where it is copied. */
static bool writes_output(const mha__resolved *r)
{
    const mha_view *kept = &r->output;
    int last = kept->rank - 1;
    return kept->data && kept->dtype == MHA_F32 && kept->stride[last] == 1 &&
           kept->stride[1] >= (ptrdiff_t)kept->shape[last] && kept->stride[1] <= INT_MAX;
}

/* Lays the workspace out from `base`; with NULL it only counts. Returns the bytes used. */
static size_t lay_out(const mha__resolved *r, char *base, buffers *m)
{
    const mha__sizes *p = &r->plan;
    mha__workspace arena = {base, 0};
    size_t B = r->query.shape[0], T_q = r->query.shape[1], T_k = r->key.shape[1];
    bool made = r->layer != NULL, turned = r->semantics.rope.kind != MHA_ROPE_NONE;
    const mha_view *w = r->weight;
    m->Q = rows(&arena, made || turned || w[MHA_B_Q].data || w[MHA_Q_NORM].data, B, T_q, p->h * p->d_k);
    m->K = rows(&arena, made || turned || w[MHA_B_K].data || w[MHA_K_NORM].data, B, T_k, p->h_kv * p->d_k);
    m->V = rows(&arena, made || w[MHA_B_V].data, B, T_k, p->h_kv * p->d_v);
    const mha_view *out = &r->output;
    bool direct = writes_output(r);
    mha_view concat = !made && direct ? *out : rows(&arena, true, B, T_q, p->h * p->d_v);
    m->heads = concat.rank == 4 ? concat : mha__split_heads(&concat, p->h);
    m->output = made && direct ? *out : rows(&arena, made, B, T_q, p->d_out);
    m->staged = mha__workspace_take(&arena, mha__project_scratch(r), sizeof(float));
    bool streams = p->path == MHA_PATH_FAST;
    m->attend = streams ? mha__attend_flash : mha__attend_dense;
    m->scratch = mha__workspace_take(&arena, streams ? mha__attend_flash_scratch(r) : mha__attend_dense_scratch(r), 1);
    return arena.used;
}

size_t mha__forward_bytes(const mha__resolved *r)
{
    buffers unused;
    return r->plan.path == MHA_PATH_EXACT ? mha__exact(r, NULL) : lay_out(r, NULL, &unused);
}

/* ---------------------------------------------------------------- one forward */

/* What the plan depends on and does not hold. */
static mha_status check_unchanged(const mha__resolved *r, mha_error *error)
{
    const size_t rows = r->cache ? mha_cache_first(r->cache) + mha_cache_length(r->cache) : 0;
    size_t kept = 0; /* a window may leave another number of rows behind the same position */
    if (r->cache && (rows != (size_t)r->cached ||
                     mha__cache_room(r->cache, r->plan.T_k, &kept, NULL) != MHA_OK || kept != r->kept))
        return mha__fail(error, MHA_INVALID, "cache",
                         "planned for %zu rows up to position %lld, found %zu up to %zu: plan the call again", r->kept,
                         (long long)r->cached, mha_cache_length(r->cache), rows);
    if (!r->kernels)
        return mha__fail(error, MHA_INVALID, "plan", "holds no call: mha_plan_call makes it");
    if (r->kernels != mha__kernels_get())
        return mha__fail(error, MHA_INVALID, "isa", "planned for %s, but %s has been chosen since: plan the call again",
                         r->kernels->isa, mha__kernels_get()->isa);
    if (r->layer && r->generation != mha__layer_generation(r->layer))
        return mha__fail(error, MHA_INVALID, "layer", "its weights were packed or unpacked since: plan the call again");
    return MHA_OK;
}

mha_status mha_forward(const mha_plan *plan, void *workspace, size_t workspace_bytes, mha_error *error)
{
    const mha__resolved *r = mha__plan_resolved(plan);
    if (!workspace || workspace_bytes < r->plan.workspace_bytes)
        return mha__fail(error, MHA_INVALID, "workspace", "expected a workspace of %zu bytes, found %zu",
                         r->plan.workspace_bytes, workspace ? workspace_bytes : 0);
    TRY(check_unchanged(r, error));
    mha__times_clear(r);
    char *base = (char *)workspace + (MHA_ALIGNMENT - (uintptr_t)workspace % MHA_ALIGNMENT) % MHA_ALIGNMENT;
    if (r->plan.path == MHA_PATH_EXACT) {
        mha__exact(r, base);
        return MHA_OK;
    }
    buffers m;
    lay_out(r, base, &m);
    bool blas = r->plan.path == MHA_PATH_BLAS || mha__project_uses_blas(r) || mha__attend_flash_uses_blas(r);
    int openmp_default = blas ? mha__gemm_begin() : 0;
    forward(r, &m);
    if (blas)
        mha__gemm_end(openmp_default);
    return MHA_OK;
}
