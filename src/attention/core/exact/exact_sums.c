/* Sums of products of the exact path, in float64 or as a modelled precision adds them. */
#include <string.h>

#include "attention/core/exact/exact_sums.h"
#include "base/base.h"

double mha__exact_summed(const mha__resolved *r, double x)
{
    return r->precision.sums == MHA_F32 ? x : mha__round_to(r->precision.sums, x);
}

void mha__exact_sums(const mha__resolved *r, size_t m, size_t n, size_t k, const double *X, size_t ldx, const double *B,
                     size_t ldb, double *Y, size_t ldy)
{
    if (r->precision.sums == MHA_F32) {
        r->kernels->ordered_sums(m, n, k, X, ldx, B, ldb, Y, ldy);
        return;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t p = 0; p < k; p++)
            for (size_t c = 0; c < n; c++)
                Y[i * ldy + c] = mha__exact_summed(r, Y[i * ldy + c] + X[i * ldx + p] * B[p * ldb + c]);
}

void mha__exact_read(const mha_view *from, const size_t *index, size_t n, const mha__rounding *rounding, double *to)
{
    const int last = from->rank - 1;
    ptrdiff_t begin = 0;
    size_t at[MHA_MAX_RANK];
    memcpy(at, index, (size_t)from->rank * sizeof *at);
    for (int k = 0; k <= last; k++)
        begin += (ptrdiff_t)index[k] * from->stride[k];
    for (size_t c = 0; c < n; c++, at[last]++) {
        const bool plain = from->dtype == MHA_F32; /* by far the most */
        to[c] = plain ? (double)((const float *)from->data)[begin + (ptrdiff_t)c * from->stride[last]]
                      : mha_view_get(from, at);
        to[c] = rounding->dtype == MHA_F32 ? to[c] : mha__rounded(rounding, to[c]);
    }
}
