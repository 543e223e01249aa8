/* Limits of q, k and v, and q/k normalisation, y = (x - m) / r * w + b, over each head or over the whole row: RMSNorm
 * (Zhang and Sennrich 2019; on queries and keys: Henry et al. 2020), LayerNorm (Ba et al. 2016), L2 norm;
 * mha_norm_kind has the equations. */
#include <math.h>

#include "attention/rows/rows.h"
#include "base/heads.h"

/* The norm of one side, and its weight and bias, which may be missing. */
typedef struct norm {
    mha_norm over;
    mha_norm_rule rule;
    double eps;
    const mha_view *weight, *bias;
} norm;

/* Feature c of head g in a weight or bias. */
static double weight_at(const norm *n, const mha_view *v, size_t g, size_t d, size_t c)
{
    const size_t by_head[2] = {g, c}, by_row[1] = {n->over == MHA_NORM_ROW ? g * d + c : c};
    return mha_view_get(v, n->over == MHA_NORM_EACH_HEAD ? by_head : by_row);
}

/* Normalises heads from ... from + count - 1 of row (b, t) together. */
static void normalise(const norm *n, const mha_view *x, size_t b, size_t t, size_t from, size_t count)
{
    const size_t d = x->shape[3], all = count * d;
    double mean = 0, squares = 0;
    for (size_t g = from; g < from + count && n->rule.kind == MHA_NORM_LAYER; g++)
        for (size_t c = 0; c < d; c++)
            mean += (double)mha__row(x, b, t, g)[c];
    mean /= (double)all;
    for (size_t g = from; g < from + count; g++) {
        const float *head = mha__row(x, b, t, g);
        for (size_t c = 0; c < d; c++)
            squares += ((double)head[c] - mean) * ((double)head[c] - mean);
    }
    const double factor = 1.0 / sqrt(squares / (n->rule.kind == MHA_NORM_L2 ? 1.0 : (double)all) + n->eps);
    for (size_t g = from; g < from + count; g++) {
        float *head = mha__row(x, b, t, g);
        for (size_t c = 0; c < d; c++) {
            double y = ((double)head[c] - mean) * factor;
            if (n->weight->data)
                y *= weight_at(n, n->weight, g, d, c) + (n->rule.plus_one ? 1.0 : 0.0);
            if (n->bias->data)
                y += weight_at(n, n->bias, g, d, c);
            head[c] = (float)y;
        }
    }
}

void mha__normalise_rows(const mha__resolved *r, const mha_view *w, const mha_view *x)
{
    static const mha_view none;
    const norm n = {.over = MHA_NORM_HEAD, .eps = r->qkv.norm_eps, .weight = w, .bias = &none};
    const mha_view row = mha__split_heads(x, 1);
    for (size_t b = 0; b < x->shape[0]; b++)
        for (size_t t = 0; t < x->shape[1]; t++)
            normalise(&n, &row, b, t, 0, 1);
}

void mha__normalise(const mha__resolved *r, mha__side side, const mha_view *x)
{
    const bool keys = side == MHA_KEYS;
    const norm n = {.over = r->norm[side],
                    .rule = r->qkv.norm,
                    .eps = r->qkv.norm_eps,
                    .weight = &r->weight[keys ? MHA_K_NORM : MHA_Q_NORM],
                    .bias = &r->weight[keys ? MHA_K_NORM_BIAS : MHA_Q_NORM_BIAS]};
    if (n.over == MHA_NORM_NONE)
        return;
    const size_t heads = x->shape[2], together = n.over == MHA_NORM_ROW ? heads : 1;
    for (size_t b = 0; b < x->shape[0]; b++)
        for (size_t t = 0; t < x->shape[1]; t++)
            for (size_t g = 0; g < heads; g += together)
                normalise(&n, x, b, t, g, together);
}

void mha__clip(const mha__resolved *r, const mha_view *x)
{
    const float most = (float)r->qkv.clip_qkv;
    const size_t T = x->shape[1], heads = x->shape[2], d = x->shape[3];
    for (size_t row = 0; most > 0 && row < x->shape[0] * T * heads; row++) {
        float *of = mha__row(x, row / heads / T, row / heads % T, row % heads);
        for (size_t c = 0; c < d; c++) /* NaN stays */
            of[c] = of[c] > most ? most : of[c] < -most ? -most : of[c];
    }
}
