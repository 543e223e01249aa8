/* The exact path, which checks the others: the same equation in float64 and plain loops. It shares the validated call
 * with the other paths, and no arithmetic. Each function is one step as mha/attention.h defines it. */
#include <math.h>
#include <string.h>

#include "attention/cache/cache.h"
#include "attention/cache/pages.h"
#include "attention/cache/stages.h"
#include "attention/core/exact/exact.h"
#include "attention/core/exact/exact_rows.h"
#include "compute/sizes.h"
#include "compute/thread_pool.h"

/* ---------------------------------------------------------------- the whole forward */

/* Keeps a stage whose values are (B, T, heads, d), with the rows of an input. */
static void keep(const mha__check *m, mha_stage stage, double *values, const mha_view *rows, size_t heads, size_t d)
{
    const mha_view from = mha_view_of(values, MHA_F64, 4, (size_t[]){rows->shape[0], rows->shape[1], heads, d});
    mha__stage_keep(m->r, stage, &from);
}

/* All keys of the call, or values, where they lie beside a cache or pages. */
static mha_view all_rows(const mha__check *m, bool values)
{
    const mha__sizes *p = &m->r->plan;
    return mha_view_of(values ? m->values : m->keys, MHA_F64, 4,
                       (size_t[]){p->B, p->S, p->h_kv, values ? p->d_v : p->d_k});
}

/* Appends the new rows to the cache, and copies all of its rows out of it. */
static void through_cache(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    mha_view k = mha_view_of(m->K, MHA_F64, 4, (size_t[]){p->B, p->T_k, p->h_kv, p->d_k});
    mha_view v = mha_view_of(m->V, MHA_F64, 4, (size_t[]){p->B, p->T_k, p->h_kv, p->d_v});
    const mha_view none = mha_view_slice(&v, 3, 0, 0);
    mha__cache_append(r->cache, &k, r->latent.absorbed ? &none : &v);
    const mha_view keys = all_rows(m, false), values = all_rows(m, true);
    mha__cache_copy(r->cache, false, &keys, 1);
    mha__cache_copy(r->cache, !r->latent.absorbed, &values, 1); /* a latent begins with its values */
}

/* Copies all keys and values out of their pages. */
static void from_pages(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha_view keys = all_rows(m, false), values = all_rows(m, true),
                   first = r->latent.absorbed ? mha_view_slice(&r->pages.keys, 3, 0, r->plan.d_v) : r->pages.values;
    memset(m->keys, 0, mha_view_elements(&keys) * sizeof(double)); /* behind the last key, too */
    memset(m->values, 0, mha_view_elements(&values) * sizeof(double));
    mha__pages_gather(r, &r->pages.keys, &keys);
    mha__pages_gather(r, &first, &values);
}

size_t mha__exact_begin(const mha__resolved *r, char *workspace, mha__check *m)
{
    const mha__sizes *p = &r->plan;
    mha__workspace arena = {workspace, 0};
    *m = (mha__check){
        .r = r, .q_rows = r->query.shape[0] * r->query.shape[1], .k_rows = r->key.shape[0] * r->key.shape[1]};
    m->Q = mha__workspace_take(&arena, m->q_rows, p->h * p->d_k * sizeof(double));
    m->K = m->keys = mha__workspace_take(&arena, m->k_rows, p->h_kv * p->d_k * sizeof(double));
    m->V = m->values = mha__workspace_take(&arena, m->k_rows, p->h_kv * p->d_v * sizeof(double));
    const bool apart = r->cache || r->pages.keys.data; /* from the new rows */
    m->S = apart ? p->S : r->key.shape[1];
    if (apart) {
        m->keys = mha__workspace_take(&arena, p->B * p->S, p->h_kv * p->d_k * sizeof(double));
        m->values = mha__workspace_take(&arena, p->B * p->S, p->h_kv * p->d_v * sizeof(double));
    }
    m->heads = m->mixed = mha__workspace_take(&arena, m->q_rows, p->h * mha__head_width(r) * sizeof(double));
    if (r->latent.absorbed)
        m->mixed = mha__workspace_take(&arena, m->q_rows, p->h * p->d_v * sizeof(double));
    const bool same = !r->weight[MHA_W_O].data && !r->weight[MHA_B_O].data && !mha__precision_rounds(&r->precision);
    m->output = same ? m->heads : mha__workspace_take(&arena, m->q_rows, p->d_out * sizeof(double));
    const size_t of_queries = m->q_rows * r->latent.q_rank, of_keys = m->k_rows * (r->latent.kv_rank + r->latent.d_r);
    m->latents = mha__workspace_take(&arena, mha__larger(of_queries, of_keys), sizeof(double));
    if (r->latent.absorbed)
        m->queries = mha__workspace_take(&arena, m->q_rows, p->h * (r->latent.d_n + r->latent.d_r) * sizeof(double));
    m->gate = mha__workspace_take(&arena, m->q_rows, mha__gate_width(r) * sizeof(double));
    m->row_size = mha__larger(mha__exact_attend_size(r) / sizeof(double), MHA__EXACT_PRODUCT_SIZE);
    m->row = mha__workspace_take(&arena, m->row_size * sizeof(double), (size_t)p->threads);
    return arena.used;
}

/* ---------------------------------------------------------------- steps: each reads and writes the call */

static void project_inputs(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    if (r->latent.kv_rank) {
        mha__exact_latent(m);
        return;
    }
    mha__exact_project(m, &r->query, NULL, MHA_W_Q, MHA_B_Q, m->Q, p->h * p->d_k);
    mha__exact_project(m, &r->key, NULL, MHA_W_K, MHA_B_K, m->K, p->h_kv * p->d_k);
    mha__exact_project(m, &r->value, NULL, MHA_W_V, MHA_B_V, m->V, p->h_kv * p->d_v);
}

static void clip(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    if (!mha__normalises_first(r, MHA_QUERIES)) /* otherwise they are clipped behind their norm */
        mha__exact_clip(r, m->Q, m->q_rows * p->h * p->d_k);
    if (!mha__normalises_first(r, MHA_KEYS))
        mha__exact_clip(r, m->K, m->k_rows * p->h_kv * p->d_k);
    mha__exact_clip(r, m->V, m->k_rows * p->h_kv * p->d_v);
    keep(m, MHA_STAGE_Q, m->Q, &r->query, p->h, p->d_k);
    keep(m, MHA_STAGE_K, m->K, &r->key, p->h_kv, p->d_k);
    keep(m, MHA_STAGE_V, m->V, &r->key, p->h_kv, p->d_v);
}

/* Norm and rotation, as the modelled precision stores the rows. */
static void turn(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    const mha_dtype rows = mha__stored_in(r->precision.rows);
    mha__exact_rows(r, MHA_QUERIES, m->Q, p->h);
    mha__exact_rows(r, MHA_KEYS, m->K, p->h_kv);
    mha__round_all(rows, m->Q, m->q_rows * p->h * p->d_k);
    mha__round_all(rows, m->K, m->k_rows * p->h_kv * p->d_k);
    mha__round_all(rows, m->V, m->k_rows * p->h_kv * p->d_v);
    keep(m, MHA_STAGE_Q_ROT, m->Q, &r->query, p->h, p->d_k);
    keep(m, MHA_STAGE_K_ROT, m->K, &r->key, p->h_kv, p->d_k);
}

/* All keys and values of the call. */
static void round_keys(const mha__check *m, mha_dtype type)
{
    const mha__sizes *p = &m->r->plan;
    const size_t rows = m->r->cache || m->r->pages.keys.data ? p->B * p->S : m->k_rows;
    mha__round_all(type, m->keys, rows * p->h_kv * p->d_k);
    mha__round_all(type, m->values, rows * p->h_kv * p->d_v);
}

static void find_keys(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    if (r->pages.keys.data)
        from_pages(m);
    else if (r->cache)
        through_cache(m);
    if (r->cache || r->pages.keys.data)
        round_keys(m, mha__stored_in(r->precision.rows));
    const mha_view keys = all_rows(m, false), values = all_rows(m, true);
    mha__stage_keep(r, MHA_STAGE_PRESENT_KEY, &keys);
    mha__stage_keep(r, MHA_STAGE_PRESENT_VALUE, &values);
    mha__round_all(mha__read_in(r->precision.rows), m->Q, m->q_rows * p->h * p->d_k);
    round_keys(m, mha__read_in(r->precision.rows));
}

static void attend(mha__check *m)
{
    const mha__resolved *r = m->r;
    mha__stages_clear_ragged(r);
    if (r->rows)
        memset(m->mixed, 0, m->q_rows * r->plan.h * r->plan.d_v * sizeof *m->mixed);
    mha__parallel_for(mha__exact_attend_tasks(r), r->plan.threads, mha__exact_attend_rows, m);
}

static void make_heads(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    if (r->latent.absorbed) {
        mha__round_all(r->precision.output, m->mixed, m->q_rows * p->h * p->d_v);
        mha__exact_latent_leave(m);
    }
    mha__round_all(mha__stored_in(r->precision.output), m->heads, m->q_rows * p->h * mha__head_width(r));
    keep(m, MHA_STAGE_HEADS, m->heads, &r->query, p->h, mha__head_width(r));
}

/* heads * sigmoid(x_q W_G + b_G), by feature or by head. */
static void gate(mha__check *m)
{
    const mha__resolved *r = m->r;
    const size_t all = r->plan.h * mha__head_width(r), n = mha__gate_width(r);
    if (n == 0)
        return;
    mha__exact_project(m, &r->query, NULL, MHA_W_G, MHA_B_G, m->gate, n);
    mha__round_all(mha__stored_in(r->precision.rows), m->gate, m->q_rows * n);
    for (size_t row = 0; row < m->q_rows; row++)
        for (size_t c = 0; c < all; c++)
            m->heads[row * all + c] *= 1 / (1 + exp(-m->gate[row * n + c / (all / n)]));
    mha__round_all(mha__stored_in(r->precision.output), m->heads, m->q_rows * all);
    keep(m, MHA_STAGE_GATED, m->heads, &r->query, r->plan.h, mha__head_width(r));
}

static void project_output(mha__check *m)
{
    const mha__resolved *r = m->r;
    const size_t in = r->plan.h * mha__head_width(r), out = r->plan.d_out, heads = r->layer ? 1 : r->plan.h;
    const mha_view x = mha_view_of(m->heads, MHA_F64, 3, (size_t[]){1, m->q_rows, in});
    const mha__rounding of_heads =
        mha__rounding_of(r->weight[MHA_W_O].data ? mha__read_in(r->precision.output) : MHA_F32, 1);
    mha__exact_project(m, &x, &of_heads, MHA_W_O, MHA_B_O, m->output, out);
    mha__round_all(mha__stored_in(r->precision.output), m->output, m->q_rows * out);
    keep(m, MHA_STAGE_OUTPUT, m->output, &r->query, heads, out / heads);
}

const mha__exact_step mha__exact_steps[MHA__EXACT_STEPS] = {project_inputs, clip,       turn, find_keys,
                                                            attend,         make_heads, gate, project_output};

void mha__exact(const mha__resolved *r, char *workspace, bool whole, const mha_view *heads)
{
    mha__check m;
    (void)mha__exact_begin(r, workspace, &m);
    if (heads) {
        const mha_view to = mha_view_of(m.heads, MHA_F64, heads->rank, heads->shape);
        (void)mha_view_copy(&to, heads, NULL);
    }
    const int end = whole || heads ? MHA__EXACT_STEPS : MHA__EXACT_FIND_KEYS;
    for (int i = heads ? MHA__EXACT_GATE : 0; i < end; i++)
        mha__exact_steps[i](&m);
}
