/* The slopes of ALiBi. */
#include <math.h>

#include "mha/positions.h"

void mha_alibi_slopes(size_t n_heads, double *slopes)
{
    size_t power = 1;
    while (power <= n_heads / 2)
        power *= 2;
    for (size_t i = 0; i < n_heads; i++)
        slopes[i] = i < power ? exp2(-8.0 * (double)(i + 1) / (double)power)
                              : exp2(-4.0 * (double)(2 * (i - power) + 1) / (double)power);
}
