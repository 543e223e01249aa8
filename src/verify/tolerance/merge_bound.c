/* The error bound of merged parts; its derivation is in compare.h. */
#include <math.h>

#include "mha/compare.h"
#include "verify/tolerance/tolerance.h"

void mha_merge_bound(const mha_part *parts, size_t count, double unit, double *heads, double *lse)
{
    const double w = 0x1p-53, n = (double)count, terms = (2 * n + 8) * w, gamma = terms / (1 - terms);
    const double eta = unit > 0x1p-30 ? 0x1p-149 : 0x1p-1074, H = *heads, E = *lse + 750 * w;
    double X = 0, m = 0;
    for (size_t i = 0; i < count; i++) {
        X = fmax(X, mha__largest(&parts[i].heads));
        m = fmax(m, mha__largest(&parts[i].lse));
    }
    const double F = fmin(exp(2 * E) * (1 + gamma) - 1, 2);
    *heads = F * X + H + 3 * gamma * X + unit * (X + H) + eta;
    *lse = E + gamma + (unit + 4 * w) * (m + log1p(n) + 1) + eta;
}
