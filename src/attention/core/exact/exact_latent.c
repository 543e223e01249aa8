/* The exact path: multi-head latent attention in float64 and plain loops, as stored and absorbed. */
#include <math.h>
#include <string.h>

#include "attention/cache/stages.h"
#include "attention/core/exact/exact_attend.h"
#include "base/base.h"

static const mha__rounding unrounded = {MHA_F32, 1};

void mha__exact_normalise_latents(const mha__resolved *r, mha_weight norm, size_t width, size_t stride, size_t n,
                                  double *x)
{
    for (size_t i = 0; i < n; i++, x += stride) {
        double mean = 0;
        for (size_t c = 0; c < width; c++)
            mean += x[c] * x[c] / (double)width;
        for (size_t c = 0; c < width; c++)
            x[c] = x[c] / sqrt(mean + r->qkv.norm_eps) * mha_view_get(&r->weight[norm], &c);
    }
}

/* Rows (1, n, width) of numbers, `stride` apart. */
static mha_view rows_at(double *x, size_t n, size_t width, size_t stride)
{
    mha_view rows = mha_view_of(x, MHA_F64, 3, (const size_t[]){1, n, width});
    rows.stride[1] = (ptrdiff_t)stride;
    return rows;
}

/* Rounds them as one tensor. */
static void round_rows(mha_dtype type, const mha_view *rows)
{
    const mha__rounding rounding = mha__rounding_of_view(type, rows);
    for (size_t i = 0; type != MHA_F32 && i < rows->shape[1]; i++)
        for (size_t c = 0; c < rows->shape[2]; c++) {
            double *x = (double *)rows->data + (ptrdiff_t)i * rows->stride[1] + c;
            *x = mha__rounded(&rounding, *x);
        }
}

/* The columns of W_KVB that make the keys of a head, without their d_r features, or its values. */
static mha_view columns_of(const mha__resolved *r, size_t head, bool values)
{
    const mha__latent *l = &r->latent;
    return mha_view_slice(&r->weight[MHA_W_KVB], 1, head * (l->d_n + l->d_v) + (values ? l->d_n : 0),
                          values ? l->d_v : l->d_n);
}

/* y = x W, rows of y `ldy` apart, where W is some of W_KVB. */
static void through_head(const mha__check *m, const mha_view *x, const mha__rounding *of_x, const mha_view *W,
                         double *y, size_t ldy)
{
    const mha__rounding of_W = mha__rounding_of_view(m->r->precision.weights, &m->r->weight[MHA_W_KVB]);
    mha__exact_multiply(&(mha__exact_product){
        .m = m, .x = *x, .W = *W, .of_x = *of_x, .of_W = of_W, .y = y, .out = W->shape[1], .ldy = ldy});
}

/* x W + b of an input, kept, and behind its norm, which leaves what follows `width` features. */
static void make_latents(const mha__check *m, const mha_view *input, mha_weight W, mha_weight b, mha_weight norm,
                         mha_stage stage, size_t width, size_t row)
{
    const size_t *n = input->shape, shape[4] = {n[0], n[1], 1, row};
    const mha_view made = mha_view_of(m->latents, MHA_F64, 4, shape);
    mha__exact_project(m, input, NULL, W, b, m->latents, row);
    mha__stage_keep(m->r, stage, &made);
    mha__exact_normalise_latents(m->r, norm, width, row, n[0] * n[1], m->latents);
}

/* [q_n W_K^T, q_r] of each head. */
static void absorb(const mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__latent *l = &r->latent;
    const size_t h = r->plan.h, d_k = l->d_n + l->d_r, d = r->plan.d_k;
    const mha_view all = rows_at(m->queries, m->q_rows * h, l->d_n, d_k);
    const mha__rounding rounding = mha__rounding_of_view(r->precision.rows, &all);
    for (size_t head = 0; head < h; head++) {
        const mha_view q_n = rows_at(m->queries + head * d_k, m->q_rows, l->d_n, h * d_k),
                       columns = columns_of(r, head, false), W = mha__view_swap(&columns, 0, 1);
        double *Q = m->Q + head * d;
        through_head(m, &q_n, &rounding, &W, Q, h * d);
        for (size_t i = 0; i < m->q_rows; i++)
            memcpy(Q + i * h * d + l->kv_rank, m->queries + (i * h + head) * d_k + l->d_n, l->d_r * sizeof *Q);
    }
}

static void make_queries(const mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__latent *l = &r->latent;
    const mha_view c = rows_at(m->latents, m->q_rows, l->q_rank, l->q_rank);
    if (l->q_rank) {
        make_latents(m, &r->query, MHA_W_QA, MHA_B_QA, MHA_QA_NORM, MHA_STAGE_Q_LATENT, l->q_rank, l->q_rank);
        round_rows(r->precision.rows, &c);
    }
    mha__exact_project(m, l->q_rank ? &c : &r->query, l->q_rank ? &unrounded : NULL, MHA_W_Q, MHA_B_Q,
                       l->absorbed ? m->queries : m->Q, r->plan.h * (l->d_n + l->d_r));
    if (l->absorbed)
        absorb(m);
}

/* [k_n, k_r] and v of each head, [k_n, v] = norm(c) W_KVB; absorbed, [norm(c), k_r] and norm(c). */
static void make_keys(const mha__check *m)
{
    const mha__resolved *r = m->r;
    const mha__latent *l = &r->latent;
    const size_t row = l->kv_rank + l->d_r, h = r->plan.h, d_k = l->d_n + l->d_r;
    make_latents(m, &r->key, MHA_W_KVA, MHA_B_KVA, MHA_KVA_NORM, MHA_STAGE_KV_LATENT, l->kv_rank, row);
    for (size_t i = 0; l->absorbed && i < m->k_rows; i++) {
        memcpy(m->K + i * row, m->latents + i * row, row * sizeof *m->K);
        memcpy(m->V + i * l->kv_rank, m->latents + i * row, l->kv_rank * sizeof *m->V);
    }
    if (l->absorbed)
        return;
    const mha_view c = rows_at(m->latents, m->k_rows, l->kv_rank, row);
    round_rows(r->precision.rows, &c);
    for (size_t head = 0; head < h; head++) {
        const mha_view W_K = columns_of(r, head, false), W_V = columns_of(r, head, true);
        through_head(m, &c, &unrounded, &W_K, m->K + head * d_k, h * d_k);
        through_head(m, &c, &unrounded, &W_V, m->V + head * l->d_v, h * l->d_v);
        for (size_t i = 0; i < m->k_rows; i++)
            memcpy(m->K + (i * h + head) * d_k + l->d_n, m->latents + i * row + l->kv_rank, l->d_r * sizeof *m->K);
    }
}

void mha__exact_latent(const mha__check *m)
{
    make_queries(m);
    make_keys(m);
}

void mha__exact_latent_leave(const mha__check *m)
{
    const mha__latent *l = &m->r->latent;
    const size_t h = m->r->plan.h;
    for (size_t head = 0; head < h; head++) {
        const mha_view x = rows_at(m->mixed + head * l->kv_rank, m->q_rows, l->kv_rank, h * l->kv_rank),
                       W_V = columns_of(m->r, head, true);
        through_head(m, &x, &unrounded, &W_V, m->heads + head * l->d_v, h * l->d_v);
    }
}
