/* How far heads, lse and an output may lie from those of one call when parts of its keys are merged. */
#ifndef TEST_MERGED_H
#define TEST_MERGED_H

#include "mha/merge.h"

/* The largest finite magnitude of a view; 0 without data. */
double merged_largest(const mha_view *v);

/* How far heads and lse that mha_merge made of `parts` may lie from exact attention over all keys. *heads and *lse say
 * how far those of each part may (the error bound of one call over all keys will do), and are replaced by the answer.
 * `unit` is the roundoff of the type in which the merged ones are stored.
 *
 * With H = *heads, E = *lse, w = 2^-53 and n parts: rounding lse_i - max, as far as exp does not underflow, and exp
 * move an exponential by E + 750 w in the exponent; the sum, quotient and product add gamma(2 n + 8). Numerator and
 * denominator together multiply a weight by at most 1 + F, F = exp(2 (E + 750 w)) (1 + gamma(2 n + 8)) - 1, and
 * weights lie in [0, 1]. With X the largest finite |heads_i| and m the largest finite |lse_i| of the parts:
 *   heads   min(F, 2) X + H + gamma(2 n + 8) 3 X + u (X + H) + eta
 *   lse     E + 750 w + gamma(2 n + 8) + (u + 4 w) (m + log(n + 1) + 1) + eta */
void merged_bound(const mha_part *parts, size_t count, double unit, double *heads, double *lse);

/* The output bound of one process, plus what merging n parts one after the other adds to heads, through W_O. A part's
 * heads are weighted means of values, at most X; its |lse| is at most m, the largest |score| plus log of the terms.
 * `bound` is that of mha_error_bound, `unit` the roundoff of what is stored of a part. */
double merged_output(const mha_view *W_O, double X, double m, const double *bound, double unit, size_t n);

#endif
