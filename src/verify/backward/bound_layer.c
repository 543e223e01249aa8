/* The error bound of the gradients of a layer: of its end, and of its inputs and the weights that made q, k and v.
 *
 *   y = x W + b    with x off by E_x and dy by E_dy, over M rows, with n columns of W:
 *                    db   sum of E_dy + gamma(M + 2) (|dy| + E_dy)
 *                    dW   sum of |x| E_dy + E_x (|dy| + E_dy) + gamma(M + 4) (|x| + E_x) (|dy| + E_dy)
 *                    dx   sum of E_dy |W| + gamma(n + 8) (|dy| + E_dy) |W|: terms, the sum of what several projections
 *                         give an input, and inputs and weights of a wider type
 *   gate           z = x W_G + b_G is off by E_z = gamma(d + 4) (sum |x| |W_G| + |b_G|), and s = sigmoid(z), with a
 *                  slope of at most 1/4, by E_s = min(E_z / 4, 1) + 9u. d heads = dy s. dz = sum dy heads s (1 - s),
 *                  where s (1 - s) has slope at most 1/10 and is off by E_z / 10 + 20u.
 *   heads, latents and what becomes of them are off by the bounds of the forward; the rows of a latent after its norm
 *                  and gradients before it by bound_norm.c
 *   k_r            the sum over the heads
 *
 * A row that gets nothing, without an error, gives nothing, for any numbers in it. */
#include <math.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "verify/backward/bound.h"

/* y = x W + b of some rows, and where the errors of x, dy and dx are. NULL: there are none, or dx is not wanted. */
typedef struct product {
    const mha__backward *b;
    mha_weight W;
    const mha_view *x, *E_x, *dy, *E_dy, *E_dx;
} product;

/* A row of errors; NULL: there are none. */
static const double *errors_of(const mha_view *errors, size_t i)
{
    return errors ? mha__matrix_row(errors, i) : NULL;
}

static double at(const double *row, size_t c)
{
    return row ? row[c] : 0;
}

static double *weight_errors(const mha__gradient_errors *e, mha_weight w)
{
    return e->sizes.d[MHA_D_WEIGHTS + w].data;
}

/* Row i of a product: to db, dW and dx. */
static void bound_row(const mha__gradient_errors *e, const product *p, size_t i)
{
    const mha_view *matrix = &p->b->matrix[p->W];
    const size_t n = p->dy->shape[1];
    const double rows = (double)p->dy->shape[0], *d = mha__matrix_row(p->dy, i), *E = errors_of(p->E_dy, i),
                 *x = mha__matrix_row(p->x, i), *E_x = errors_of(p->E_x, i),
                 of_rows = mha__gradient_gamma(rows + 4, e->sums), of_row = mha__gradient_gamma((double)n + 8, e->sums);
    double *db = weight_errors(e, mha__bias_of(p->W)), *dW = weight_errors(e, p->W);
    if (mha__is_zero(d, n) && (!E || mha__is_zero(E, n)))
        return;
    for (size_t c = 0; mha__bias_of(p->W) != p->W && db && c < n; c++)
        db[c] += at(E, c) + of_rows * (fabs(d[c]) + at(E, c));
    for (size_t k = 0; matrix->data && k < p->x->shape[1]; k++) {
        const double *W = mha__matrix_row(matrix, k), size = fabs(x[k]) + at(E_x, k);
        double moved = 0, all = 0;
        for (size_t c = 0; c < n; c++) {
            const double dy = fabs(d[c]) + at(E, c);
            moved += at(E, c) * fabs(W[c]), all += dy * fabs(W[c]);
            if (dW)
                dW[k * n + c] += fabs(x[k]) * at(E, c) + at(E_x, k) * dy + of_rows * size * dy;
        }
        if (p->E_dx)
            mha__matrix_row(p->E_dx, i)[k] += moved + of_row * all + (all < mha__gradient_largest(e) ? 0 : INFINITY);
    }
}

static void bound_product(const mha__gradient_errors *e, const product *p)
{
    const double rows = (double)p->dy->shape[0],
                 most = mha__gradient_largest(e) * mha__gradient_gamma(rows + 4, e->sums);
    const mha_view *dW = &e->sizes.d[MHA_D_WEIGHTS + p->W];
    for (size_t i = 0; i < p->dy->shape[0]; i++)
        bound_row(e, p, i);
    for (size_t c = 0; dW->data && c < mha_view_elements(dW); c++)
        if (!(((double *)dW->data)[c] < most)) /* a sum on the way may leave the range; NaN, too */
            ((double *)dW->data)[c] = INFINITY;
}

static void fill(const mha_view *x, double value)
{
    for (size_t c = 0; x->data && c < mha_view_elements(x); c++)
        ((double *)x->data)[c] = value;
}

/* E_z of all gates. */
static void bound_gates(const mha__gradient_errors *e, const mha__backward *b)
{
    const mha_view *matrix = &b->matrix[MHA_W_G], *x = &b->x[0],
                   *bias = &b->r->weight[mha__bias_of(MHA_W_G)];
    const double small = mha__gradient_gamma((double)x->shape[1] + 4, e->sums);
    for (size_t i = 0; i < x->shape[0]; i++)
        for (size_t c = 0; c < b->gates.shape[1]; c++) {
            double size = bias->data ? fabs(mha_view_get(bias, &c)) : 0;
            for (size_t k = 0; k < x->shape[1]; k++)
                size += fabs(mha__matrix_row(x, i)[k] * mha__matrix_row(matrix, k)[c]);
            mha__matrix_row(&e->sizes.gates, i)[c] = small * size;
        }
}

static void bound_gate(mha__gradient_errors *e, const mha__backward *b)
{
    const mha_view heads = mha__as_matrix(&b->stages[MHA_STAGE_HEADS]);
    const size_t all = heads.shape[1], each = all / b->gates.shape[1]; /* features of a gate */
    const double u = e->unit, sum = mha__gradient_gamma((double)each + 8, e->sums);
    bound_gates(e, b);
    fill(&e->sizes.d_gates, 0);
    for (size_t i = 0; i < heads.shape[0]; i++)
        for (size_t c = 0; c < all; c++) {
            const size_t gate = c / each;
            const double z = mha__matrix_row(&b->gates, i)[gate], E_z = mha__matrix_row(&e->sizes.gates, i)[gate],
                         s = 1 / (1 + exp(-z)), E_s = fmin(E_z / 4, 1) + 9 * u, slope = s * (1 - s),
                         E_slope = fmin(E_z / 10, 1) + 20 * u, d = fabs(mha__matrix_row(&b->d_gated, i)[c]),
                         E = mha__matrix_row(&e->sizes.d_gated, i)[c], head = fabs(mha__matrix_row(&heads, i)[c]),
                         of_head = d * e->heads + E * (head + e->heads);
            mha__matrix_row(&e->sizes.d_heads, i)[c] = E * s + (d + E) * (E_s + 2 * u) + e->tiny;
            mha__matrix_row(&e->sizes.d_gates, i)[gate] +=
                of_head * (slope + E_slope) + d * head * E_slope +
                sum * (d + E) * (head + e->heads) * (slope + E_slope) + e->tiny;
        }
    bound_product(e, &(product){b, MHA_W_G, &b->x[0], NULL, &b->d_gates, &e->sizes.d_gates,
                                &e->sizes.d_x[0]});
}

void mha__bound_output(mha__gradient_errors *e, const mha__backward *b)
{
    if (!b->r->layer)
        return;
    const mha_view heads = mha__as_matrix(&b->stages[MHA_STAGE_HEADS]);
    const bool gated = b->gates.data != NULL;
    const mha_view *to = gated ? &e->sizes.d_gated : &e->sizes.d_heads;
    fill(to, 0);
    fill(&e->sizes.gated, e->gated);
    bound_product(e, &(product){b, MHA_W_O, gated ? &b->gated : &heads, &e->sizes.gated, &b->d_output, NULL, to});
    if (gated)
        bound_gate(e, b);
}

/* ---------------------------------------------------------------- latents */

/* The norm of a latent; the errors of its gradient go to that of its weight. */
static mha__norm norm_of(const mha__gradient_errors *e, const mha__backward *b, mha_weight weight)
{
    static const mha_view none = {0};
    return (mha__norm){MHA_NORM_RMS, false, b->r->qkv.norm_eps, &b->r->weight[weight],
                       &e->sizes.d[MHA_D_WEIGHTS + weight], &none,
                       mha__norms_of(b, weight == MHA_KVA_NORM)};
}

/* A latent after its norm: E_y of all rows, of numbers x that are off by `off`. */
static void bound_latent(const mha__gradient_errors *e, const mha__norm *norm, const mha_view *x, double off,
                         const mha_view *y, const mha_view *E_y)
{
    const size_t n = y->shape[1];
    for (size_t c = 0; c < n; c++)
        e->room[0][c] = off;
    for (size_t i = 0; i < y->shape[0]; i++)
        mha__bound_normed(e, norm, 0, n, mha__matrix_row(x, i), e->room[0], mha__matrix_row(y, i),
                          mha__matrix_row(E_y, i));
}

/* The gradients after the norm of a latent x, made once more of dy of the product that read it, and their errors E
 * back through the norm. `values`: room for these gradients. */
static void latent_back(const mha__gradient_errors *e, const mha__norm *norm, const product *p, const mha_view *x,
                        double off, const mha_view *values)
{
    mha__backward once = {.r = p->b->r};
    memcpy(once.matrix, p->b->matrix, sizeof once.matrix);
    mha__matrix_back(&once, p->W, p->x, p->dy, values);
    for (size_t c = 0; c < values->shape[1]; c++)
        e->room[0][c] = off;
    for (size_t i = 0; i < values->shape[0]; i++) {
        double *d = mha__matrix_row(values, i), *E = mha__matrix_row(p->E_dx, i);
        if (!mha__is_zero(d, values->shape[1]) || !mha__is_zero(E, values->shape[1]))
            mha__bound_norm(e, norm, 0, values->shape[1], (double)values->shape[0], mha__matrix_row(x, i), e->room[0],
                            d, E);
    }
}

/* The errors of [k_n, v] and k_r of all heads, from those of k and v. */
static void collect(const mha__gradient_errors *e, const mha__backward *b)
{
    const mha__latent *l = &b->r->latent;
    const mha_view dk = mha__as_matrix(&b->d[MHA_D_KEY]), E_dk = mha__as_matrix(&e->sizes.d[MHA_D_KEY]),
                   E_dv = mha__as_matrix(&e->sizes.d[MHA_D_VALUE]);
    const size_t d_k = l->d_n + l->d_r, wide = l->d_n + l->d_v;
    const double sum = mha__gradient_gamma((double)b->r->plan.h + 2, e->sums);
    fill(&e->sizes.latents.d_kv, 0);
    for (size_t i = 0; i < dk.shape[0]; i++)
        for (size_t head = 0; head < b->r->plan.h; head++) {
            const double *d = mha__matrix_row(&dk, i) + head * d_k, *E = mha__matrix_row(&E_dk, i) + head * d_k;
            double *to = mha__matrix_row(&e->sizes.latents.d_wide, i) + head * wide;
            memcpy(to, E, l->d_n * sizeof *to);
            memcpy(to + l->d_n, mha__matrix_row(&E_dv, i) + head * l->d_v, l->d_v * sizeof *to);
            for (size_t f = l->d_n; f < d_k; f++)
                mha__matrix_row(&e->sizes.latents.d_kv, i)[l->kv_rank + f - l->d_n] += E[f] + sum * (fabs(d[f]) + E[f]);
        }
}

static void bound_latents(mha__gradient_errors *e, const mha__backward *b)
{
    const mha__latent_rows *x = &b->latents, *E = &e->sizes.latents;
    const size_t rank = b->r->latent.kv_rank;
    const mha_view dq = mha__as_matrix(&b->d[MHA_D_QUERY]), E_dq = mha__as_matrix(&e->sizes.d[MHA_D_QUERY]);
    if (b->r->latent.q_rank) {
        const mha__norm norm = norm_of(e, b, MHA_QA_NORM);
        const product of_q = {b, MHA_W_Q, &x->q_normed, &E->q_normed, &dq, &E_dq, &E->d_q};
        bound_latent(e, &norm, &x->q, e->latents[0], &x->q_normed, &E->q_normed);
        fill(&E->d_q, 0);
        bound_product(e, &of_q);
        fill(&E->q, 0);
        latent_back(e, &norm, &of_q, &x->q, e->latents[0], &E->q);
        bound_product(e, &(product){b, MHA_W_QA, &b->x[0], NULL, &x->d_q, &E->d_q, &e->sizes.d_x[0]});
    } else {
        bound_product(e, &(product){b, MHA_W_Q, &b->x[0], NULL, &dq, &E_dq, &e->sizes.d_x[0]});
    }
    const mha__norm norm = norm_of(e, b, MHA_KVA_NORM);
    const mha_view c = mha_view_slice(&x->kv, 1, 0, rank), E_dc = mha_view_slice(&E->d_kv, 1, 0, rank),
                   values = mha_view_slice(&E->kv, 1, 0, rank);
    const product of_kv = {b, MHA_W_KVB, &x->kv_normed, &E->kv_normed, &x->d_wide, &E->d_wide, &E_dc};
    bound_latent(e, &norm, &c, e->latents[1], &x->kv_normed, &E->kv_normed);
    collect(e, b);
    bound_product(e, &of_kv);
    fill(&E->kv, 0);
    latent_back(e, &norm, &of_kv, &c, e->latents[1], &values);
    bound_product(e, &(product){b, MHA_W_KVA, &b->x[1], NULL, &x->d_kv, &E->d_kv, &e->sizes.d_x[1]});
}

void mha__bound_inputs(mha__gradient_errors *e, const mha__backward *b)
{
    static const mha_weight projections[3] = {MHA_W_Q, MHA_W_K, MHA_W_V};
    if (b->r->latent.kv_rank) {
        bound_latents(e, b);
        return;
    }
    for (int i = 0; i < 3; i++) {
        const mha_view d = mha__as_matrix(&b->d[MHA_D_QUERY + i]), E = mha__as_matrix(&e->sizes.d[MHA_D_QUERY + i]);
        const mha_view *to = e->sizes.d_x[i].data ? &e->sizes.d_x[i] : NULL;
        bound_product(e, &(product){b, projections[i], &b->x[i], NULL, &d, &E, to});
    }
}
