/* The gradients behind a norm, of queries, keys or latents. */
#include <math.h>

#include "attention/backward/backward.h"

static void add_at(const mha_view *d, size_t at, double value)
{
    if (d->data)
        ((double *)d->data)[at] += value;
}

double mha__norm_weight(const mha__norm *norm, size_t at, size_t n)
{
    const mha_view *weight = norm->weight;
    const size_t index[2] = {at / n, at % n};
    return weight->data ? mha_view_get(weight, weight->rank == 2 ? index : &at) + (norm->plus_one ? 1 : 0) : 1;
}

/* y = w (x - m) / r + b, r = sqrt(S + eps), of the features that are normalised together (mha_norm_kind). With
 * z = x - m and g = dy w:
 *   dw += dy z / r    db += dy    dz = g / r - z (sum g z) / (r^3 N),  N = 1 for S a sum, the number for a mean
 *   dx = dz, with m the mean less the mean of dz */
void mha__norm_back(const mha__norm *norm, size_t first, size_t n, const double *x, double *d)
{
    const double N = norm->kind == MHA_NORM_L2 ? 1 : (double)n;
    if (norm->otherwise) {
        norm->otherwise->back(norm, first, n, x, d);
        return;
    }
    double mean = 0, squares = 0, along = 0, d_mean = 0;
    for (size_t c = 0; c < n && norm->kind == MHA_NORM_LAYER; c++)
        mean += x[c] / (double)n;
    for (size_t c = 0; c < n; c++)
        squares += (x[c] - mean) * (x[c] - mean) / N;
    const double divisor = sqrt(squares + norm->eps);
    for (size_t c = 0; c < n; c++) {
        const double z = x[c] - mean, dy = d[c];
        add_at(norm->d_weight, first + c, dy * z / divisor);
        add_at(norm->d_bias, first + c, dy);
        d[c] = dy * mha__norm_weight(norm, first + c, n);
        along += d[c] * z;
    }
    for (size_t c = 0; c < n; c++) {
        d[c] = d[c] / divisor - (x[c] - mean) * along / (divisor * divisor * divisor * N);
        d_mean += d[c] / (double)n;
    }
    for (size_t c = 0; c < n && norm->kind == MHA_NORM_LAYER; c++)
        d[c] -= d_mean;
}
