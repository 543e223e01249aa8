/* Conversion between floats and numbers of 16 or 8 bits, which caches store. */
#ifndef MHA_COMPUTE_HALF_H
#define MHA_COMPUTE_HALF_H

#include "mha/tensor.h"

/* Copies `from` (B, T, heads, d), of any floating type or a cache's rows of 8 bits (I8), to `to` of the same
 * shape and a floating type; floats whose last stride is 1 are written by `threads` threads. */
void mha__widen(const mha_view *to, const mha_view *from, int threads);
/* Copies `from`, of any floating type, to rows `to` of a cache, both (B, heads, T, d). `room`: d floats, for rows of 8
 * bits. */
void mha__narrow(const mha_view *to, const mha_view *from, float *room);

/* `to` = the floats of `from`, both (B, T, heads, d) with last stride 1, rounded to BF16 (to nearest even, NaN
 * stays NaN); they may be one. */
void mha__round_to_bf16(const mha_view *to, const mha_view *from, int threads);

#endif
