/* The bounds of heads, lse and outputs whose keys were attended to in parts; merged.h derives them. */
#include "support/merged.h"

#include <math.h>

#include "mha/mha.h"

double merged_largest(const mha_view *v)
{
    double most = 0;
    size_t index[MHA_MAX_RANK] = {0};
    const size_t n = v->data ? mha_view_elements(v) : 0;
    for (size_t i = 0; i < n; i++) {
        const double x = fabs(mha_view_get(v, index));
        most = isfinite(x) && x > most ? x : most;
        for (int k = v->rank - 1; k >= 0 && ++index[k] == v->shape[k]; k--)
            index[k] = 0;
    }
    return most;
}

void merged_bound(const mha_part *parts, size_t count, double unit, double *heads, double *lse)
{
    const double w = 0x1p-53, n = (double)count, terms = (2 * n + 8) * w, gamma = terms / (1 - terms);
    const double eta = unit > 0x1p-30 ? 0x1p-149 : 0x1p-1074, H = *heads, E = *lse + 750 * w;
    double X = 0, m = 0;
    for (size_t i = 0; i < count; i++) {
        X = fmax(X, merged_largest(&parts[i].heads));
        m = fmax(m, merged_largest(&parts[i].lse));
    }
    const double F = fmin(exp(2 * E) * (1 + gamma) - 1, 2);
    *heads = F * X + H + 3 * gamma * X + unit * (X + H) + eta;
    *lse = E + gamma + (unit + 4 * w) * (m + log1p(n) + 1) + eta;
}

double merged_output(const mha_view *W_O, double X, double m, const double *bound, double unit, size_t n)
{
    const size_t one[4] = {1, 1, 1, 1};
    const mha_part part = {mha_view_of(&X, MHA_F64, 4, one), mha_view_of(&m, MHA_F64, 3, one)},
                   two[2] = {part, part};
    double heads = bound[MHA_STAGE_HEADS], lse = bound[MHA_STAGE_LSE] + unit * m, widest = 0; /* as it is sent */
    for (size_t i = 0; i < n; i++)
        merged_bound(two, 2, unit, &heads, &lse);
    heads += 0x1p-24 * (X + heads); /* and rounded once more for the projection */
    for (size_t j = 0; j < W_O->shape[1]; j++) {
        double column = 0;
        for (size_t i = 0; i < W_O->shape[0]; i++)
            column += fabs(mha_view_get(W_O, (size_t[]){i, j}));
        widest = fmax(widest, column);
    }
    return bound[MHA_STAGE_OUTPUT] + 1.01 * (heads - bound[MHA_STAGE_HEADS]) * widest;
}
