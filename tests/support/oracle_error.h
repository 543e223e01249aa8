/* How far a correctly rounded-step computation may be from the exact one: the tests' own derivation.
 *
 * u is the unit roundoff (2^-24 for float, 2^-53 for double). Every basic operation gives the exact
 * result times (1 + d), |d| <= u. Higham, Accuracy and Stability of Numerical Algorithms (2002), section
 * 3.1: a sum of n products, added in any order, with or without fused multiply-add, is off by at most
 *
 *     gamma(n) * sum |x_k| |w_k|,    gamma(n) = n u / (1 - n u).
 *
 * Slack is carried through the equation element by element, never as a norm:
 *
 *   projection   gamma(K + 3) (sum |x| |w| + |b|): the sum, the bias, weights rounded to float first.
 *   norm         y = x w / r, r = sqrt(mean x^2 + eps). r moves by at most rms(dx), as r is 1-Lipschitz in
 *                the root mean square; the rest is gamma(n + 8) |y|.
 *   rotation     dx1 + dx2 + (6u + 2^-51 |angle|) (|x1| + |x2|): |cos|, |sin| <= 1, each off by u, and by
 *                what rounding did to the angle, a double on every path: a power, a product.
 *   scores       |scale| sum (|q| dk + dq |k| + dq dk) + |scale| gamma(d_k + 6) sum (|q|+dq) (|k|+dk).
 *   softcap      its slope is at most 1, so the slack passes; 8u |s| for the quotient, tanh and product.
 *   added        4u times the sizes of all terms.
 *   softmax      logit j off by d_j: slack of the score, 2u (|s_j| + |m|) for subtracting the maximum (once,
 *                or in steps, as a streaming core does) and 8u for exp. Its exponential is off by the
 *                factor 1 + r_j, r_j = expm1(d_j); the denominator by 1 + R, R = sum w_j r_j +
 *                gamma(2 S' + 8). So |dw_j| <= w_j ((1 + r_j) / (1 - R) - 1) + 2u w_j, plus what is lost
 *                where exp underflows; a weight is never off by more than 1.
 *   heads        sum (dw (|v|+dv) + w dv) + gamma(2 S' + 8) sum (w+dw) (|v|+dv).
 *   output       as projection, with the slack of heads carried: sum dheads |W_O|.
 *   lse          R / (1 - R) + 4u (|m| + |lse| + 1).
 *
 * A sum whose terms add up to more than a quarter of the largest number may have overflowed on the way, even to
 * NaN: its slack is infinite, and so is that of all that follows from it.
 *
 * Underflow adds the smallest number once per term. These are worst cases: true errors are far smaller,
 * but bugs are far larger. */
#ifndef TEST_ORACLE_ERROR_H
#define TEST_ORACLE_ERROR_H

#include <math.h>
#include <stddef.h>

static inline double oracle_gamma(double n, double unit)
{
    double nu = n * unit;
    return nu < 0.5 ? nu / (1 - nu) : (double)INFINITY;
}

/* The smallest subnormal, and the smallest normal number, of the format with that unit roundoff. */
static inline double oracle_subnormal(double unit)
{
    return unit > 1e-10 ? 0x1p-149 : 0x1p-1074;
}

static inline double oracle_normal(double unit)
{
    return unit > 1e-10 ? 0x1p-126 : 0x1p-1022;
}

static inline double oracle_largest(double unit)
{
    return unit > 1e-10 ? 0x1p128 : 0x1p1023;
}

#endif
