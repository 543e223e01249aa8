/* The error bound of gradients after a norm. y = w z / r + b of n numbers x that are off by E_x (mha__norm_back),
 * where z = x, or x - mean(x), and r = sqrt(sum z^2 / N + eps):
 *
 *   mean    off by E_m = (sum E_x + gamma(n + 2) sum (|x| + E_x)) / n
 *   z       E_z = E_x, or E_x + E_m + 2u (|x| + |mean| + E_x + E_m)
 *   r       changes by no more than the 2-norm of E_z over sqrt(N), as it is that of (z, sqrt(N eps)) over sqrt(N):
 *           with its own rounding E_r = |E_z|_2 / sqrt(N) + gamma(n + 6) r + n t / (N r). 1 / r is off by h / r, with
 *           h = E_r / (r - E_r), infinite where r may be 0.
 *   y       E_y = |w| (E_z + h (|z| + E_z)) / r + gamma(8) (2 |w| (1 + h) (|z| + E_z) / r + |y|) + t
 *   dw      the product of dy, z and 1 / r, each off: with [a, b] = E_a |b| + (|a| + E_a) E_b
 *             ([dy, z] + (h + gamma(6) (1 + h)) (|dy| + E_dy) (|z| + E_z)) / r + t (1 + 1 / r)
 *   g       dy w: E_g = E_dy |w| + 4u (|dy| + E_dy) (|w| + 1) + t
 *   a       sum g z: E_a = sum [g, z] + gamma(n + 4) sum (|g| + E_g) (|z| + E_z) + n t
 *   dx      g / r - z a / (r^3 N): with k = (1 + h)^3 - 1
 *             (E_g + (h + gamma(4) (1 + h)) (|g| + E_g)) / r
 *             + ([z, a] + (k + gamma(10) (1 + k)) (|z| + E_z) (|a| + E_a)) / (r^3 N) + t (1 + 1 / r),
 *           and where the mean is taken away, the mean of that and gamma(n + 4) of both terms' sizes.
 *
 * Gradients of w and b are sums over all rows. Where N r^2, r^-3 or the terms of a leave the range, all is infinite. */
#include <math.h>

#include "verify/backward/bound.h"

/* What a norm makes of the numbers of one row together. */
typedef struct measures {
    const mha__gradient_errors *e;
    double mean, E_m, r, h, N;
    bool centred;
} measures;

static double off_by(const measures *k, double x, double E_x)
{
    return k->centred ? E_x + k->E_m + 2 * k->e->unit * (fabs(x) + fabs(k->mean) + E_x + k->E_m) : E_x;
}

static measures measure(const mha__gradient_errors *e, const mha__norm *norm, size_t n, const double *x,
                        const double *E_x)
{
    measures k = {.e = e, .N = norm->kind == MHA_NORM_L2 ? 1 : (double)n, .centred = norm->kind == MHA_NORM_LAYER};
    const double many = (double)n, small = mha__gradient_gamma(many + 2, e->sums);
    double squares = 0, moved = 0;
    for (size_t c = 0; c < n && k.centred; c++)
        k.mean += x[c] / many, k.E_m += (E_x[c] + small * (fabs(x[c]) + E_x[c])) / many;
    for (size_t c = 0; c < n; c++) {
        const double z = x[c] - k.mean, E_z = off_by(&k, x[c], E_x[c]);
        squares += z * z, moved += E_z * E_z;
    }
    k.r = sqrt(squares / k.N + norm->eps);
    const double E_r = sqrt(moved / k.N) + mha__gradient_gamma(many + 6, e->sums) * k.r + many * e->tiny / (k.N * k.r),
                 most = (k.r + E_r) * (k.r + E_r) * k.N, least = (k.r - E_r) * (k.r - E_r) * (k.r - E_r);
    k.h = k.r > E_r && least > e->tiny && most < mha__gradient_largest(e) ? E_r / (k.r - E_r) : INFINITY;
    return k;
}

/* [a, b]: what the errors of two factors do to their product. */
static double product_error(double a, double E_a, double b, double E_b)
{
    return E_a * fabs(b) + (fabs(a) + E_a) * E_b;
}

void mha__bound_normed(const mha__gradient_errors *e, const mha__norm *norm, size_t first, size_t n, const double *x,
                       const double *E_x, const double *y, double *E_y)
{
    const measures k = measure(e, norm, n, x, E_x);
    for (size_t c = 0; c < n; c++) {
        const double w = fabs(mha__norm_weight(norm, first + c, n)), E_z = off_by(&k, x[c], E_x[c]),
                     size = w * (fabs(x[c] - k.mean) + E_z) / k.r;
        E_y[c] = w * E_z / k.r + k.h * size +
                 mha__gradient_gamma(8, e->sums) * (2 * (1 + k.h) * size + fabs(y[c])) + e->tiny;
    }
}

static void add_sum(const mha__gradient_errors *e, const mha_view *to, size_t at, double rows, double size, double E)
{
    if (to->data)
        ((double *)to->data)[at] += E + mha__gradient_gamma(rows + 2, e->sums) * (size + E);
}

void mha__bound_norm(const mha__gradient_errors *e, const mha__norm *norm, size_t first, size_t n, double rows,
                     const double *x, const double *E_x, double *d, double *E)
{
    const measures k = measure(e, norm, n, x, E_x);
    const double u = e->sums, r = k.r, t = e->tiny * (1 + 1 / r);
    double a = 0, E_a = 0, all = 0, E_mean = 0, sizes = 0;
    for (size_t c = 0; c < n; c++) {
        const double z = x[c] - k.mean, E_z = off_by(&k, x[c], E_x[c]), w = mha__norm_weight(norm, first + c, n),
                     with_z = (fabs(d[c]) + E[c]) * (fabs(z) + E_z);
        add_sum(e, norm->d_weight, first + c, rows, fabs(d[c] * z) / r,
                (product_error(d[c], E[c], z, E_z) + (k.h + mha__gradient_gamma(6, u) * (1 + k.h)) * with_z) / r + t);
        add_sum(e, norm->d_bias, first + c, rows, fabs(d[c]), E[c]);
        const double g = d[c] * w, E_g = E[c] * fabs(w) + 4 * e->unit * (fabs(d[c]) + E[c]) * (fabs(w) + 1) + e->tiny;
        a += g * z, E_a += product_error(g, E_g, z, E_z), all += (fabs(g) + E_g) * (fabs(z) + E_z);
        E[c] = E_g;
    }
    E_a += mha__gradient_gamma((double)n + 4, u) * all + (double)n * e->tiny;
    const double cubed = (1 + k.h) * (1 + k.h) * (1 + k.h), inverse = 1 / (r * r * r * k.N),
                 range = all < mha__gradient_largest(e) ? 0 : INFINITY;
    for (size_t c = 0; c < n; c++) {
        const double z = x[c] - k.mean, E_z = off_by(&k, x[c], E_x[c]), g = d[c] * mha__norm_weight(norm, first + c, n),
                     direct = (fabs(g) + E[c]) / r, along = (fabs(z) + E_z) * (fabs(a) + E_a) * inverse;
        E[c] = E[c] / r + (k.h + mha__gradient_gamma(4, u) * (1 + k.h)) * direct +
               product_error(z, E_z, a, E_a) * inverse +
               (cubed - 1 + mha__gradient_gamma(10, u) * cubed) * along + t + range;
        E_mean += E[c] / (double)n, sizes += (direct + along) / (double)n;
        if (k.centred)
            E[c] += mha__gradient_gamma(2, u) * (direct + along);
    }
    for (size_t c = 0; c < n && k.centred; c++)
        E[c] += E_mean + mha__gradient_gamma((double)n + 4, u) * sizes;
    const mha_view none = {0};
    const mha__norm alone = {norm->kind, norm->plus_one, norm->eps, norm->weight, &none, &none,
                             norm->otherwise};
    mha__norm_back(&alone, first, n, x, d);
}
