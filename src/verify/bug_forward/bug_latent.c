/* Latent attention as plain projections of its latents: what a bug gets wrong about these. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "verify/bug_forward/bug_inputs.h"

/* The sizes of a case with latents. */
typedef struct sizes {
    size_t rows[2], rank[2], width[2]; /* of queries and of keys; width: of a row of latents, k_r included */
    size_t h, d_n, d_r, d_v;
    double eps;
} sizes;

static double *take(mha__bug_inputs *w, size_t n)
{
    size_t bytes;
    return mha__mul(n + 1, sizeof(double), &bytes) ? mha__arena_take(&w->pool, bytes) : NULL;
}

static double element(const mha_view *v, size_t i, size_t j)
{
    const size_t index[2] = {i, j};
    return mha_view_get(v, v->rank == 1 ? &index[1] : index);
}

/* The type to which a bug rounds all weights. */
static int rounding_of(int bug)
{
    return bug == LATENT_F16        ? ROUND_F16
           : bug == LATENT_BF16     ? ROUND_BF16
           : bug == LATENT_BF16_CUT ? ROUND_BF16_CUT
                                    : ROUND_NOT;
}

/* x W, and its bias but for LATENT_NO_BIAS. */
static double *latents_of(mha__bug_inputs *w, const sizes *s, int keys, int bug)
{
    const mha_view *recorded = w->c->weights[CASE_RECORDED];
    const mha_view *W = &recorded[keys ? MHA_W_KVA : MHA_W_QA], *b = &recorded[keys ? MHA_B_KVA : MHA_B_QA];
    const size_t in = W->shape[0], out = s->width[keys];
    double *y = take(w, s->rows[keys] * out), *matrix = take(w, in * out);
    mha__gemm_bracket bracket;
    if (!y || !matrix || mha__gemm_begin(1, &bracket, &(mha_error){0}) != MHA_OK)
        return NULL;
    const mha_view copy = mha_view_of(matrix, MHA_F64, 2, (size_t[]){in, out});
    const int rounding = rounding_of(bug);
    (void)mha_view_copy(&copy, W, NULL);
    for (size_t i = 0; i < in * out; i++)
        matrix[i] = mha__bug_rounded(matrix[i], rounding);
    mha__gemm_double(s->rows[keys], out, in, w->x[keys], in, matrix, out, y, out);
    mha__gemm_end(&bracket);
    for (size_t i = 0; b->data && bug != LATENT_NO_BIAS && i < s->rows[keys] * out; i++)
        y[i] += mha__bug_rounded(element(b, 0, i % out), rounding);
    return y;
}

/* Rows of latents, [norm(c), k_r] for keys, as a bug makes them of the raw ones. */
static double *normed(mha__bug_inputs *w, const sizes *s, int keys, int bug, const double *raw)
{
    const mha_view *weight = &w->c->weights[CASE_RECORDED][keys ? MHA_KVA_NORM : MHA_QA_NORM];
    const size_t rank = s->rank[keys], width = s->width[keys], shared = width - rank,
                 terms = keys && bug == LATENT_K_R_NORMED ? width : rank;
    const bool plain = bug == (keys ? LATENT_KV_UNNORMED : LATENT_Q_UNNORMED);
    double *y = take(w, s->rows[keys] * width);
    for (size_t t = 0; y && t < s->rows[keys]; t++) {
        const double *from = raw + t * width;
        double *to = y + t * width, mean = 0;
        for (size_t f = 0; f < width; f++) /* k_r first: the latent begins behind it */
            to[f] = from[keys && bug == LATENT_K_R_FIRST ? (f + shared) % width : f];
        for (size_t f = 0; f < terms; f++)
            mean += to[f] * to[f] / (double)terms;
        for (size_t f = 0; f < terms && !plain; f++)
            to[f] *= (f < rank ? mha__bug_rounded(element(weight, 0, f), rounding_of(bug)) : 1) / sqrt(mean + s->eps);
    }
    return y;
}

/* The column of W_KVB that a bug reads as feature f of the keys, or of the values, of a head. */
static size_t column_of(const sizes *s, int bug, bool values, size_t head, size_t f)
{
    const size_t all = s->d_n + s->d_v;
    if (bug == LATENT_KVB_BLOCKS)
        return values ? s->h * s->d_n + head * s->d_v + f : head * s->d_n + f;
    if (bug == LATENT_KVB_SWAPPED)
        return head * all + (values ? f : s->d_v + f);
    return head * all + (values ? s->d_n + f : f);
}

/* The matrix that makes all heads' keys, or values, of [norm(c), k_r]. */
static double *matrix_of(mha__bug_inputs *w, const sizes *s, int bug, bool values)
{
    const mha_view *W = &w->c->weights[CASE_RECORDED][MHA_W_KVB];
    const size_t own = values ? s->d_v : s->d_n, d = own + (values ? 0 : s->d_r), out = s->h * d;
    double *m = take(w, s->width[1] * out);
    if (!m)
        return NULL;
    memset(m, 0, s->width[1] * out * sizeof *m);
    for (size_t head = 0; head < s->h; head++) {
        for (size_t j = 0; j < s->rank[1]; j++)
            for (size_t f = 0; f < own; f++)
                m[j * out + head * d + f] = element(W, j, column_of(s, bug, values, head, f));
        const bool shared = !values && (head == 0 || bug != LATENT_K_R_FIRST_HEAD);
        for (size_t f = 0; shared && f < s->d_r; f++)
            m[(s->rank[1] + f) * out + head * d + own + f] = 1;
    }
    return m;
}

/* Cached latents as keys and values of all heads, (B, h, P, d). */
static bool expand_past(mha__bug_inputs *w, const sizes *s)
{
    const mha_case *c = w->c;
    const double *latents = w->past[0];
    for (int values = 0; values < 2 && c->absorbed && latents; values++) {
        const size_t d = values ? s->d_v : s->d_n + s->d_r, width = s->width[1];
        double *past = take(w, c->B * s->h * c->P * d);
        if (!past)
            return false;
        const double *W = w->W[values ? PROJECTION_V : PROJECTION_K];
        for (size_t i = 0; i < c->B * s->h * c->P * d; i++) {
            const size_t f = i % d, t = i / d % c->P, head = i / d / c->P % s->h, b = i / d / c->P / s->h;
            past[i] = 0;
            for (size_t j = 0; j < width; j++)
                past[i] += latents[(b * c->P + t) * width + j] * W[j * s->h * d + head * d + f];
        }
        w->past[values] = past;
    }
    return true;
}

bool mha__bug_latents(mha__bug_inputs *w)
{
    const mha_case *c = w->c;
    const sizes s = {{c->B * c->T_q, c->B * c->T_k},
                     {c->q_rank, c->kv_rank},
                     {c->q_rank, c->kv_rank + c->d_rope},
                     c->H,
                     c->d_k - c->d_rope,
                     c->d_rope,
                     c->d_v,
                     c->semantics.qkv.norm_eps > 0 ? c->semantics.qkv.norm_eps : 1e-6};
    bool made = true;
    for (int keys = c->q_rank ? 0 : 1; keys < 2; keys++) {
        w->latents[keys] = latents_of(w, &s, keys, LATENT_RIGHT);
        for (int m = 0; m < LATENT_COUNT; m++) {
            const double *raw = m < LATENT_NO_BIAS ? w->latents[keys] : latents_of(w, &s, keys, m);
            made &= raw && (w->of_latents[m].x[keys] = normed(w, &s, keys, m, raw)) != NULL;
        }
    }
    for (int m = 0; m < LATENT_COUNT; m++) {
        mha__bug_latents_read *of = &w->of_latents[m];
        of->x[0] = c->q_rank ? of->x[0] : w->x[0];
        of->x[2] = of->x[1];
        of->W[0] = w->W[0];
        for (int v = 0; v < 2; v++)
            made &= (of->W[1 + v] = matrix_of(w, &s, m, v)) != NULL;
    }
    memcpy(w->x, w->of_latents[LATENT_RIGHT].x, sizeof w->x);
    memcpy(w->W, w->of_latents[LATENT_RIGHT].W, 3 * sizeof *w->W);
    return made && expand_past(w, &s);
}
