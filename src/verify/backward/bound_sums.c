/* The error of a sum of products x_c y_c, and how often numbers and rows repeat, whose roundings are then equal.
 *
 * An addition rounds the partial sum s_k by at most u |s_k|. In the worst case the errors of all add up to
 * gamma(n + 4) sum |x_c y_c|. Roundings of different numbers are independent. Each is uniform within half of the last
 * digit, with a variance of at most u^2 s_k^2 / 3, and of 0.18 u^2 s_k^2 over all mantissas. Let N = sum_k s_k^2, let Q
 * be the sum of (x_c y_c)^2 and s the sum. Products are rounded, too, and by a scale up to twice; s up to 3 times. Then
 *   E = ROUNDINGS u sqrt(N + 3 Q + 3 s^2),   ROUNDINGS = 3.5,
 * is 8.2 standard deviations. An error is larger with a probability of 2e-16, below 1e-9 for a million sums; should all
 * s_k have the mantissas of largest error, 6 standard deviations, and at most 2e-8 for one sum. Uniform variables are
 * sub-Gaussian with their variance, and so are sums of such errors: the same holds for roots of sums of E^2.
 *
 * N depends on the order. A random order has N = n (s^2 / 3 + Q / 6), as a walk from 0 to s has. The greatest of that
 * and of the orders of kernels is taken: one accumulator, whose partial sums are known after each 8 terms, or 2, 4, 8
 * and 16 accumulators, added at last.
 *
 * Equal roundings add up: 0.1 added 1,000 times is off by 160 u of the sum. If each term is one of m equal ones, N
 * grows to m N by Cauchy-Schwarz. `repeats` is twice the number of elements of a row with the mantissa of an element,
 * on average, less 1: m where some elements are equal and others are not. Terms repeat where both rows do. `alike` is
 * the number of rows, itself included, with more than a quarter of the mantissas of a row. */
#include <math.h>

#include "verify/backward/bound.h"
#include "verify/tolerance/tolerance.h"

double mha__gradient_gamma(double n, double u)
{
    return n * u < 1 ? n * u / (1 - n * u) : INFINITY;
}

double mha__bound_dot(const mha__gradient_errors *e, const double *x, const double *y, size_t n, double repeats)
{
    double sizes = 0, sum = 0, squares = 0, in_order = 0, lane[16] = {0}, most;
    for (size_t c = 0; c < n; c += 8) {
        const double from = sum;
        for (size_t k = c; k < n && k < c + 8; k++) {
            const double z = x[k] * y[k];
            sizes += fabs(z), squares += z * z, sum += z, lane[k % 16] += z;
        }
        in_order += 8 * (from * from + from * sum + sum * sum) / 3;
    }
    const double worst = mha__gradient_gamma((double)n + 4, e->sums) * sizes, walk = (double)n * squares / 6;
    if (e->sums > e->unit || !isfinite(squares))
        return worst;
    most = fmax(in_order + 8 * squares / 6, (double)n * sum * sum / 3 + walk);
    for (size_t lanes = 16; lanes > 1; lanes /= 2) {
        double all = walk / (double)lanes, met = 0;
        for (size_t c = 0; c < lanes; c++)
            met += lane[c], all += (double)n / (double)lanes * lane[c] * lane[c] / 3 + met * met;
        most = fmax(most, all);
        for (size_t c = 0; c < lanes / 2; c++)
            lane[c] += lane[c + lanes / 2];
    }
    return fmin(worst, MHA__ROUNDINGS * e->unit * sqrt(repeats * (most + 3 * squares + 3 * sum * sum)));
}

double mha__bound_score(const mha__gradient_errors *e, const mha__sizes *plan, const double *q, const double *k,
                        double repeats)
{
    const size_t d = plan->d_k;
    const mha_dtype type = e->precision->scores;
    const double E_q = e->rows[0], E_k = e->rows[1], scale = fabs(plan->scale), terms = (double)d + 4;
    double of_q = 0, of_k = 0, sizes = 0;
    for (size_t c = 0; c < d; c++)
        of_q += fabs(q[c]) + E_q, of_k += fabs(k[c]) + E_k, sizes += (fabs(q[c]) + E_q) * (fabs(k[c]) + E_k);
    const double rows = (1 + mha__gradient_gamma(terms, e->sums)) * (E_q * of_k + E_k * of_q),
                 stored = scale * mha__lost(type, sizes, 1),
                 E = scale * (mha__bound_dot(e, q, k, d, repeats) + rows) + stored +
                     mha__lost(type, scale * sizes + stored, 1) +
                     (terms + of_q + of_k + sizes) * fmax(1, scale) * (e->tiny + e->under);
    return sizes * fmax(1, scale) < mha__gradient_largest(e) && E < e->score ? E : e->score;
}

static double mantissa(double x)
{
    int unused;
    return fabs(frexp(x, &unused));
}

double mha__bound_repeats(const double *x, size_t n)
{
    unsigned counts[4096] = {0};
    double same = 0, count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t c = 0; c < n; c++) {
            const double m = mantissa(x[c]);
            unsigned *to = &counts[m > 0 ? (size_t)(0x1p13 * (m - 0.5)) & 4095 : 0];
            if (m > 0 && pass == 0)
                (*to)++, count++;
            else if (m > 0)
                same += *to;
        }
    return count > 0 ? 2 * same / count - 1 : 1;
}

void mha__bound_alike(const double *rows, size_t count, size_t n, double *alike, double *mantissas)
{
    for (size_t at = 0; at < count * n; at++)
        mantissas[at] = mantissa(rows[at]);
    for (size_t i = 0; i < count; i++) {
        double rows_alike = 0;
        for (size_t j = 0; j < count; j++) {
            size_t same = 0;
            for (size_t c = 0; c < n; c++)
                same += fabs(mantissas[i * n + c] - mantissas[j * n + c]) <= 0x1p-13;
            rows_alike += same * 4 > n;
        }
        alike[i] = fmax(alike[i], rows_alike);
    }
}
