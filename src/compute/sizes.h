/* Sizes compared, rounded up and cut into pieces. */
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

static inline size_t mha__pieces(size_t n, size_t piece)
{
    return (n + piece - 1) / piece;
}

static inline size_t mha__round_up(size_t n, size_t unit)
{
    return mha__pieces(n, unit) * unit;
}

#endif
