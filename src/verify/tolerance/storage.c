/* The rounding of a number stored in a type of less than 32 bits, and the numbers stored instead of others. */
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "verify/tolerance/tolerance.h"

/* A float of p significant bits (the leading one counted) whose smallest subnormal is eta has unit roundoff u = 2^-p.
 * Rounding y to nearest gives e with |e - y| <= u |e| where e is normal (Higham, Accuracy and Stability of Numerical
 * Algorithms, 2nd ed., theorem 2.3), and |e - y| <= eta / 2 where it is subnormal: u |e| + eta / 2 covers both.
 *
 *     type       p    u       eta      largest                    values from here on become infinite
 *     F16       11    2^-11   2^-24    65504                      65520, halfway to 2^16
 *     BF16       8    2^-8    2^-133   2^127 (2 - 2^-7)           2^127 (2 - 2^-8), halfway to 2^128
 *     F8_E5M2    3    2^-3    2^-16    57344                      61440, halfway to 2^16
 *     F8_E4M3    4    2^-4    2^-9     448                        none: this type has no infinity */
mha__storage mha__storage_of(mha_dtype dtype)
{
    switch (dtype) {
    case MHA_F16: return (mha__storage){0x1p-11, 0x1p-25, 65520, -65504};
    case MHA_BF16: return (mha__storage){0x1p-8, 0x1p-134, 0x1p127 * (2 - 0x1p-8), -0x1p127 * (2 - 0x1p-7)};
    case MHA_F8_E5M2: return (mha__storage){0x1p-3, 0x1p-17, 61440, -57344};
    case MHA_F8_E4M3: return (mha__storage){0x1p-4, 0x1p-10, INFINITY, -448};
    case MHA_F64: return (mha__storage){0, 0, INFINITY, -DBL_MAX};
    default: return (mha__storage){0, 0, INFINITY, -(double)FLT_MAX};
    }
}

double mha__lost_among(mha_dtype dtype, double x, double n, double most)
{
    const mha__storage s = mha__storage_of(dtype);
    switch (dtype) {
    case MHA_F32: return 0;
    case MHA_TF32: return x < 0x1p128 * (1 - 0x1p-12) ? 0x1p-11 * x + sqrt(n) * 0x1p-137 : INFINITY;
    case MHA_I8: return sqrt(n) * most / 127;
    case MHA_F16:
    case MHA_BF16: return x < s.overflow ? s.relative * x + sqrt(n) * s.absolute : INFINITY;
    default: return s.relative * x + sqrt(n) * s.absolute * 2 * most / -s.lowest;
    }
}

double mha__lost(mha_dtype dtype, double x, double n)
{
    return mha__lost_among(dtype, x, n, x);
}

double mha__cached_error(mha_dtype dtype, double e, double size, double n)
{
    const mha__storage s = dtype == MHA_F32  ? (mha__storage){0x1p-24, 0x1p-150, FLT_MAX, 0}
                           : dtype == MHA_I8 ? (mha__storage){1.0 / 254 + 0x1p-22, 0x1p-143, FLT_MAX, 0}
                                             : mha__storage_of(dtype);
    const double unit = dtype == MHA_I8 ? sqrt(n) * s.relative : s.relative;
    return size + e < s.overflow ? e + 2 * unit * (size + e) + 2 * sqrt(n) * (2 * s.absolute) : INFINITY;
}

size_t mha_replace_equivalent(const mha_view *exact, const mha_allowance *allowance, const mha_view *result)
{
    const mha__storage storage = mha__storage_of(allowance->stored);
    size_t index[MHA_MAX_RANK] = {0}, overflowed = 0;
    for (bool more = mha_view_elements(result) > 0; more; more = mha__index_next(index, result->shape, result->rank)) {
        const double x = mha_view_get(exact, index), y = mha_view_get(result, index);
        const bool beyond = storage.relative > 0 && isinf(y) && isfinite(x) && (y > 0) == (x > 0) &&
                            fabs(x) + allowance->atol >= storage.overflow;
        /* A hidden key's masked score may be written as the lowest finite number of its type (ONNX Runtime does). */
        const bool hidden = allowance->stage == MHA_STAGE_MASKED && x == -INFINITY &&
                            (y == -(double)FLT_MAX || y == -DBL_MAX || y == storage.lowest);
        overflowed += beyond;
        if (beyond || hidden)
            mha_view_set(result, index, x);
    }
    return overflowed;
}
