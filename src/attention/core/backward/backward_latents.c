/* Queries, keys and values of latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1), and their gradients:
 *
 *   u = x_q W_QA + b_QA   q = norm(u) W_Q             without q_rank q = x_q W_Q
 *   [c, k_r] = x_k W_KVA + b_KVA   [k_n, v] = norm(c) W_KVB head by head   k = [k_n, k_r], k_r the same for all heads
 *
 * so that d k_r is the sum of the last features of dk over the heads. The absorbed form has the same gradients. */
#include <string.h>

#include "attention/core/backward/backward.h"
#include "attention/core/exact/exact_attend.h"

static mha__norm norm_of(const mha__backward *b, mha_weight weight)
{
    static const mha_view none = {0};
    const mha_view *d = &b->d[MHA_D_WEIGHTS + weight];
    return (mha__norm){MHA_NORM_RMS, false, b->r->qkv.norm_eps, &b->r->weight[weight], d, &none,
                       mha__norms_of(b, weight == MHA_KVA_NORM)};
}

/* y = norm(x), row by row, and back in place. */
static void normalise(const mha__backward *b, mha_weight weight, const mha_view *x, const mha_view *y)
{
    (void)mha_view_copy(y, x, NULL);
    mha__exact_normalise_latents(b->r, weight, y->shape[1], y->shape[1], y->shape[0], y->data);
}

static void normalise_back(const mha__backward *b, mha_weight weight, const mha_view *x, const mha_view *d)
{
    const mha__norm norm = norm_of(b, weight);
    for (size_t i = 0; i < x->shape[0]; i++)
        if (!mha__is_zero(mha__matrix_row(d, i), d->shape[1]))
            mha__norm_back(&norm, 0, x->shape[1], mha__matrix_row(x, i), mha__matrix_row(d, i));
}

/* c of [c, k_r]. */
static mha_view latent(const mha__backward *b, const mha_view *kv)
{
    return mha_view_slice(kv, 1, 0, b->r->latent.kv_rank);
}

/* k and v of all heads from [k_n, v] and k_r, and back: k_r has the sum over the heads. */
static void deal_out(const mha__backward *b)
{
    const mha__latent *l = &b->r->latent;
    const size_t d_k = l->d_n + l->d_r, wide = l->d_n + l->d_v;
    for (size_t i = 0; i < b->rows[1].shape[0]; i++)
        for (size_t head = 0; head < b->r->plan.h; head++) {
            const double *from = mha__matrix_row(&b->latents.wide, i) + head * wide;
            double *key = mha__matrix_row(&b->rows[1], i) + head * d_k;
            memcpy(key, from, l->d_n * sizeof *key);
            memcpy(key + l->d_n, mha__matrix_row(&b->latents.kv, i) + l->kv_rank, l->d_r * sizeof *key);
            memcpy(mha__matrix_row(&b->rows[2], i) + head * l->d_v, from + l->d_n, l->d_v * sizeof *key);
        }
}

static void collect(const mha__backward *b)
{
    const mha__latent *l = &b->r->latent;
    const mha_view dk = mha__as_matrix(&b->d[MHA_D_KEY]), dv = mha__as_matrix(&b->d[MHA_D_VALUE]);
    const size_t d_k = l->d_n + l->d_r, wide = l->d_n + l->d_v;
    for (size_t i = 0; i < dk.shape[0]; i++)
        for (size_t head = 0; head < b->r->plan.h; head++) {
            const double *key = mha__matrix_row(&dk, i) + head * d_k;
            double *to = mha__matrix_row(&b->latents.d_wide, i) + head * wide;
            memcpy(to, key, l->d_n * sizeof *to);
            memcpy(to + l->d_n, mha__matrix_row(&dv, i) + head * l->d_v, l->d_v * sizeof *to);
            for (size_t f = 0; f < l->d_r; f++)
                mha__matrix_row(&b->latents.d_kv, i)[l->kv_rank + f] += key[l->d_n + f];
        }
}

bool mha__backward_begin_latents(mha__backward *b)
{
    const mha__latent *l = &b->r->latent;
    mha__latent_rows *x = &b->latents;
    const size_t queries = b->x[0].shape[0], keys = b->x[1].shape[0], wide = b->r->plan.h * (l->d_n + l->d_v);
    bool room = mha__backward_take(b, &x->kv, keys, l->kv_rank + l->d_r) &&
                mha__backward_take(b, &x->d_kv, keys, l->kv_rank + l->d_r) &&
                mha__backward_take(b, &x->kv_normed, keys, l->kv_rank) &&
                mha__backward_take(b, &x->wide, keys, wide) && mha__backward_take(b, &x->d_wide, keys, wide);
    if (room && l->q_rank)
        room = mha__backward_take(b, &x->q, queries, l->q_rank) && mha__backward_take(b, &x->d_q, queries, l->q_rank) &&
               mha__backward_take(b, &x->q_normed, queries, l->q_rank);
    if (!room)
        return false;
    if (l->q_rank) {
        mha__matrix_forward(b, MHA_W_QA, &b->x[0], &x->q);
        normalise(b, MHA_QA_NORM, &x->q, &x->q_normed);
    }
    mha__matrix_forward(b, MHA_W_Q, l->q_rank ? &x->q_normed : &b->x[0], &b->rows[0]);
    mha__matrix_forward(b, MHA_W_KVA, &b->x[1], &x->kv);
    const mha_view c = latent(b, &x->kv);
    normalise(b, MHA_KVA_NORM, &c, &x->kv_normed);
    mha__matrix_forward(b, MHA_W_KVB, &x->kv_normed, &x->wide);
    deal_out(b);
    return true;
}

void mha__backward_latents(const mha__backward *b)
{
    const mha__latent_rows *x = &b->latents;
    const mha_view dq = mha__as_matrix(&b->d[MHA_D_QUERY]);
    if (b->r->latent.q_rank) {
        mha__matrix_clear(&x->d_q);
        mha__matrix_back(b, MHA_W_Q, &x->q_normed, &dq, &x->d_q);
        normalise_back(b, MHA_QA_NORM, &x->q, &x->d_q);
        mha__matrix_back(b, MHA_W_QA, &b->x[0], &x->d_q, &b->d_x[0]);
    } else {
        mha__matrix_back(b, MHA_W_Q, &b->x[0], &dq, &b->d_x[0]);
    }
    const mha_view c = latent(b, &x->kv), d_c = latent(b, &x->d_kv);
    mha__matrix_clear(&x->d_kv);
    collect(b);
    mha__matrix_back(b, MHA_W_KVB, &x->kv_normed, &x->d_wide, &d_c);
    normalise_back(b, MHA_KVA_NORM, &c, &d_c);
    mha__matrix_back(b, MHA_W_KVA, &b->x[1], &x->d_kv, &b->d_x[1]);
}
