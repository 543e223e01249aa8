/* Latent attention as plain projections of its latents. */
#include <math.h>
#include <string.h>

#include "compute/gemm.h"
#include "verify/engine/runner.h"

void mha__latents_of(mha__runner *w, const mha__program *p, bool keys, size_t b, bool raw, double *to)
{
    const mha_case *c = w->in->c;
    double *const *all = w->in->weight;
    const double *W = all[keys ? MHA_W_KVA : MHA_W_QA], *bias = all[keys ? MHA_B_KVA : MHA_B_QA],
                 *weight = all[keys ? MHA_KVA_NORM : MHA_QA_NORM];
    const size_t T = w->in->T[keys], in = w->in->x_width[keys], rank = keys ? c->kv_rank : c->q_rank,
                 shared = keys ? c->d_rope : 0, width = rank + shared;
    const int type = mha__arg(p, AT_W, OP_ROUND), way = mha__arg(p, AT_LATENT, OP_FN);
    const size_t terms = keys && way == MHA__SHARED_NORMED ? width : rank;
    const double eps = c->semantics.qkv.norm_eps > 0 ? c->semantics.qkv.norm_eps : 1e-6;
    for (size_t i = 0; i < in * width; i++)
        w->W[i] = mha__narrowed(W[i], type);
    mha__gemm_double(T, width, in, w->in->x[keys] + b * T * in, in, w->W, width, to, width);
    for (size_t i = 0; bias && way != MHA__LATENT_NO_BIAS && i < T * width; i++)
        to[i] += mha__narrowed(bias[i % width], type);
    for (size_t t = 0; t < T && !raw; t++, to += width) {
        double mean = 0;
        if (keys && way == MHA__SHARED_FIRST) { /* the latent begins after k_r */
            memcpy(w->turn, to, width * sizeof *to);
            memcpy(to, w->turn + shared, rank * sizeof *to);
            memcpy(to + rank, w->turn, shared * sizeof *to);
        }
        for (size_t f = 0; f < terms; f++)
            mean += to[f] * to[f] / (double)terms;
        for (size_t f = 0; f < terms && way != (keys ? MHA__KV_UNNORMED : MHA__Q_UNNORMED); f++)
            to[f] *= (f < rank ? mha__narrowed(weight[f], type) : 1) / sqrt(mean + eps);
    }
}

/* Column of W_KVB that a program reads as feature f of the keys or values of a head. */
static size_t column_of(const mha_case *c, int way, bool values, size_t head, size_t f)
{
    const size_t d_n = c->d_k - c->d_rope, first = way == MHA__VALUES_FIRST ? c->d_v : 0;
    if (way == MHA__LATENT_BLOCKS)
        return values ? c->H * d_n + head * c->d_v + f : head * d_n + f;
    return head * (d_n + c->d_v) + (values == (first > 0) ? 0 : values ? d_n : first) + f;
}

void mha__latent_matrix(const mha__inputs *in, const mha__program *p, bool values, double *to)
{
    const mha_case *c = in->c;
    const double *W = in->weight[MHA_W_KVB];
    const int way = mha__arg(p, AT_LATENT, OP_FN), type = mha__arg(p, AT_W, OP_ROUND);
    const size_t own = values ? c->d_v : c->d_k - c->d_rope, d = values ? c->d_v : c->d_k, out = c->H * d,
                 columns = c->H * (c->d_k - c->d_rope + c->d_v);
    memset(to, 0, (c->kv_rank + c->d_rope) * out * sizeof *to);
    for (size_t head = 0; head < c->H; head++) {
        for (size_t e = 0; e < c->kv_rank * own; e++)
            to[e / own * out + head * d + e % own] =
                mha__narrowed(W[e / own * columns + column_of(c, way, values, head, e % own)], type);
        for (size_t f = 0; !values && (head == 0 || way != MHA__SHARED_FIRST_HEAD) && f < c->d_rope; f++)
            to[(c->kv_rank + f) * out + head * d + own + f] = 1;
    }
}

bool mha__latent_past(mha__inputs *in)
{
    const mha_case *c = in->c;
    const mha__program p = {.n = 0};
    const double *latents = in->past[0];
    for (int values = 0; values < 2 && c->absorbed && latents; values++) {
        const size_t d = values ? c->d_v : c->d_k, width = c->kv_rank + c->d_rope, n = c->B * c->H * c->P * d;
        double *past = mha__take(&in->pool, n), *W = mha__take(&in->pool, width * c->H * d);
        if (!past || !W)
            return false;
        mha__latent_matrix(in, &p, values, W);
        for (size_t i = 0; i < n; i++) {
            const size_t f = i % d, t = i / d % c->P, head = i / d / c->P % c->H, b = i / d / c->P / c->H;
            past[i] = 0;
            for (size_t j = 0; j < width; j++)
                past[i] += latents[(b * c->P + t) * width + j] * W[j * c->H * d + head * d + f];
        }
        in->past[values] = past;
    }
    return true;
}
