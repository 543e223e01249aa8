/* Sizes compared, rounded up and divided. */
#ifndef MHA_COMPUTE_SIZES_H
#define MHA_COMPUTE_SIZES_H

#include <stddef.h>

static inline size_t mha__smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t mha__larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t mha__ceil_div(size_t n, size_t unit)
{
    return (n + unit - 1) / unit;
}

static inline size_t mha__round_up(size_t n, size_t unit)
{
    return mha__ceil_div(n, unit) * unit;
}

#endif
