/* What storing a number in a type of less than 32 bits may cost. */
#include <float.h>
#include <math.h>

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
