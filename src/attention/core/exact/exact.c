/* The exact path, which checks the others: the same equation in float64 and plain loops. It shares the validated call
 * with the other paths, and no arithmetic. Each function is one step as mha/attention.h defines it. */
#include <math.h>
#include <string.h>

#include "attention/cache/cache.h"
#include "attention/cache/pages.h"
#include "attention/core/exact/exact.h"
#include "attention/core/exact/exact_attend.h"
#include "attention/core/exact/exact_latent.h"
#include "attention/core/exact/exact_rows.h"
#include "attention/core/exact/exact_sums.h"
#include "attention/core/exact/rounding.h"
#include "attention/rows/rows.h"
#include "base/heads.h"
#include "compute/thread_pool.h"

/* ---------------------------------------------------------------- projections */

enum { ROWS_AT_ONCE = 64, COLUMNS = 64, TERMS = 32 }; /* of an output that is computed together; of its sums */

typedef struct product {
    const mha__check *j;
    const mha_view *x; /* (B, T, in), or without W (B, T, heads, d); or x64 */
    const double *x64; /* (rows, in) */
    const mha_view *W, *b;
    mha__rounding of_x, of_W, of_b; /* of a precision that is modelled */
    double *y;
    size_t rows, in, out;
} product;

/* Inputs [from, to) of a row. */
static void read_inputs(const product *p, size_t row, size_t from, size_t to, double *x)
{
    for (size_t c = from; p->x64 && c < to; c++)
        x[c - from] = mha__rounded(&p->of_x, p->x64[row * p->in + c]);
    if (p->x64)
        return;
    const size_t T = p->x->shape[1], d = p->x->rank == 4 ? p->x->shape[3] : p->in;
    for (size_t c = from, end; c < to; c = end) { /* head by head */
        const size_t by_head[4] = {row / T, row % T, c / d, c % d}, by_row[3] = {row / T, row % T, c};
        end = c - c % d + d < to ? c - c % d + d : to;
        mha__exact_read(p->x, p->x->rank == 4 ? by_head : by_row, end - c, &p->of_x, x + c - from);
    }
}

/* Some rows and columns of y = x W + b: each element is one sum over the inputs in their order. */
static void product_task(void *context, size_t task, int worker)
{
    const product *p = context;
    double *x = p->j->row + (size_t)worker * p->j->row_size, *w = x + (size_t)ROWS_AT_ONCE * TERMS;
    const size_t across = (p->out + COLUMNS - 1) / COLUMNS, from = task / across * ROWS_AT_ONCE,
                 to = from + ROWS_AT_ONCE < p->rows ? from + ROWS_AT_ONCE : p->rows, left = task % across * COLUMNS,
                 right = left + COLUMNS < p->out ? left + COLUMNS : p->out, n = right - left;
    for (size_t i = from; i < to; i++)
        if (p->W->data)
            memset(p->y + i * p->out + left, 0, n * sizeof *p->y);
        else
            read_inputs(p, i, left, right, p->y + i * p->out + left);
    for (size_t k = 0, end; p->W->data && k < p->in; k = end) {
        end = k + TERMS < p->in ? k + TERMS : p->in;
        for (size_t i = from; i < to; i++)
            read_inputs(p, i, k, end, x + (i - from) * TERMS);
        for (size_t t = k; t < end; t++)
            mha__exact_read(p->W, (size_t[]){t, left}, n, &p->of_W, w + (t - k) * COLUMNS);
        mha__exact_sums(p->j->r, to - from, n, end - k, x, TERMS, w, COLUMNS, p->y + from * p->out + left, p->out);
    }
    if (!p->b->data)
        return;
    for (size_t i = from; i < to; i++)
        for (size_t c = left; c < right; c++)
            p->y[i * p->out + c] += mha__rounded(&p->of_b, mha_view_get(p->b, &c));
}

static void project(const mha__check *j, const mha_view *x, const double *x64, size_t rows, mha_weight W, mha_weight b,
                    double *y, size_t out)
{
    product p = {
        .j = j, .x = x, .x64 = x64, .W = &j->r->weight[W], .b = &j->r->weight[b], .y = y, .rows = rows, .out = out};
    p.in = p.W->data ? p.W->shape[0] : out;
    const mha_precision *m = &j->r->precision;
    if (x)
        p.of_x = mha__rounding_of_view(p.W->data ? m->inputs : mha__stored_in(m->inputs), x);
    else
        p.of_x = mha__rounding_of(p.W->data ? mha__read_in(m->output) : MHA_F32, 1);
    p.of_W = mha__rounding_of_view(m->weights, p.W);
    p.of_b = mha__rounding_of_view(mha__stored_in(m->weights), p.b);
    mha__parallel_for((rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * ((out + COLUMNS - 1) / COLUMNS), j->r->plan.threads,
                      product_task, &p);
}

/* ---------------------------------------------------------------- the whole forward */

/* Keeps a stage whose values are (B, T, width), with the rows of an input. */
static void keep(const mha__resolved *r, mha_stage stage, double *values, const mha_view *rows, size_t width,
                 size_t heads)
{
    const mha_view *to = mha__stage_view(r, stage);
    if (!to)
        return;
    mha_view from = mha_view_of(values, MHA_F64, 3, (size_t[]){rows->shape[0], rows->shape[1], width});
    if (to->rank == 4)
        from = mha__split_heads(&from, heads);
    (void)mha_view_copy(to, &from, NULL);
}

static void keep_present(const mha__check *m, mha_stage stage, double *values, size_t d)
{
    const mha__sizes *p = &m->r->plan;
    mha_view from = mha_view_of(values, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, d});
    from = mha__swap_time_and_heads(from);
    if (mha__is_kept(m->r, stage))
        (void)mha_view_copy(mha__stage_view(m->r, stage), &from, NULL);
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
    const mha_view keys = mha_view_of(m->keys, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_k}),
                   values = mha_view_of(m->values, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_v});
    mha__cache_copy(r->cache, false, &keys, 1);
    mha__cache_copy(r->cache, !r->latent.absorbed, &values, 1); /* a latent begins with its values */
}

/* Copies all keys and values out of their pages. */
static void from_pages(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    const mha_view keys = mha_view_of(m->keys, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_k}),
                   values = mha_view_of(m->values, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_v}),
                   first = r->latent.absorbed ? mha_view_slice(&r->pages.keys, 3, 0, p->d_v) : r->pages.values;
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
    if (r->latent.kv_rank)
        m->latents = mha__workspace_take(&arena, mha__exact_latents_size(r), sizeof(double));
    if (r->latent.absorbed)
        m->queries = mha__workspace_take(&arena, m->q_rows, p->h * (r->latent.d_n + r->latent.d_r) * sizeof(double));
    const size_t gates = mha__gate_width(r);
    m->gate = mha__workspace_take(&arena, m->q_rows, gates * sizeof(double));
    const size_t widths[] = {mha__exact_attend_size(r) / sizeof(double), (size_t)(ROWS_AT_ONCE + COLUMNS) * TERMS,
                             r->latent.kv_rank ? mha__exact_latent_size(r) : 0};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        m->row_size = widths[i] > m->row_size ? widths[i] : m->row_size;
    m->row = mha__workspace_take(&arena, m->row_size * sizeof(double), (size_t)p->threads);
    return arena.used;
}

/* ---------------------------------------------------------------- steps: each reads and writes the call */

static void project_inputs(mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    if (r->latent.kv_rank) {
        mha__exact_latent(r, &(mha__exact_memory){m->row, m->row_size, m->latents, m->queries}, m->Q, m->K, m->V);
        return;
    }
    project(m, &r->query, NULL, m->q_rows, MHA_W_Q, MHA_B_Q, m->Q, p->h * p->d_k);
    project(m, &r->key, NULL, m->k_rows, MHA_W_K, MHA_B_K, m->K, p->h_kv * p->d_k);
    project(m, &r->value, NULL, m->k_rows, MHA_W_V, MHA_B_V, m->V, p->h_kv * p->d_v);
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
    keep(r, MHA_STAGE_Q, m->Q, &r->query, p->h * p->d_k, p->h);
    keep(r, MHA_STAGE_K, m->K, &r->key, p->h_kv * p->d_k, p->h_kv);
    keep(r, MHA_STAGE_V, m->V, &r->key, p->h_kv * p->d_v, p->h_kv);
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
    keep(r, MHA_STAGE_Q_ROT, m->Q, &r->query, p->h * p->d_k, p->h);
    keep(r, MHA_STAGE_K_ROT, m->K, &r->key, p->h_kv * p->d_k, p->h_kv);
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
    keep_present(m, MHA_STAGE_PRESENT_KEY, m->keys, p->d_k);
    keep_present(m, MHA_STAGE_PRESENT_VALUE, m->values, p->d_v);
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
        mha__exact_latent_leave(r, &(mha__exact_memory){m->row, m->row_size, NULL, NULL}, m->mixed, m->heads);
    }
    mha__round_all(mha__stored_in(r->precision.output), m->heads, m->q_rows * p->h * mha__head_width(r));
    keep(r, MHA_STAGE_HEADS, m->heads, &r->query, p->h * mha__head_width(r), p->h);
}

/* heads * sigmoid(x_q W_G + b_G), by feature or by head. */
static void gate(mha__check *m)
{
    const mha__resolved *r = m->r;
    const size_t all = r->plan.h * mha__head_width(r), n = mha__gate_width(r);
    if (n == 0)
        return;
    project(m, &r->query, NULL, m->q_rows, MHA_W_G, MHA_B_G, m->gate, n);
    mha__round_all(mha__stored_in(r->precision.rows), m->gate, m->q_rows * n);
    for (size_t row = 0; row < m->q_rows; row++)
        for (size_t c = 0; c < all; c++)
            m->heads[row * all + c] *= 1 / (1 + exp(-m->gate[row * n + c / (all / n)]));
    mha__round_all(mha__stored_in(r->precision.output), m->heads, m->q_rows * all);
    keep(r, MHA_STAGE_GATED, m->heads, &r->query, all, r->plan.h);
}

static void project_output(mha__check *m)
{
    const mha__resolved *r = m->r;
    project(m, NULL, m->heads, m->q_rows, MHA_W_O, MHA_B_O, m->output, r->plan.d_out);
    mha__round_all(mha__stored_in(r->precision.output), m->output, m->q_rows * r->plan.d_out);
    keep(r, MHA_STAGE_OUTPUT, m->output, &r->query, r->plan.d_out, r->plan.h);
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
