/* The product of two rows of doubles. */
#ifndef MHA_BASE_DOT_H
#define MHA_BASE_DOT_H

#include <stddef.h>

/* Two doubles, which every supported processor adds and multiplies at once. */
typedef double mha__two __attribute__((vector_size(16)));
typedef double mha__two_at __attribute__((vector_size(16), aligned(8), may_alias));

/* Eight independent sums, so that additions do not wait for each other. */
static inline double mha__dot(const double *x, const double *y, size_t n)
{
    mha__two a = {0}, b = {0}, c = {0}, d = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        a += *(const mha__two_at *)(x + i) * *(const mha__two_at *)(y + i);
        b += *(const mha__two_at *)(x + i + 2) * *(const mha__two_at *)(y + i + 2);
        c += *(const mha__two_at *)(x + i + 4) * *(const mha__two_at *)(y + i + 4);
        d += *(const mha__two_at *)(x + i + 6) * *(const mha__two_at *)(y + i + 6);
    }
    a = (a + b) + (c + d);
    double sum = a[0] + a[1];
    for (; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

#endif
