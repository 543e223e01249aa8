/* Matrices of quantised types: what a layer stores its weights in, as files have them. */
#ifndef MHA_PARAMS_QUANTISE_H
#define MHA_PARAMS_QUANTISE_H

#include "base/quantised/decoders.h"

/* Whether a layer can store its matrices in the type: all that are decoded. */
bool mha__is_quantised_weight(mha_dtype dtype);

/* Fills a matrix (k, n) of such a type, stride[0] = 1 and k in whole blocks, whose blocks run down its columns. Blocks
 * of the same type that lie alike are copied. Other numbers are rounded to F32 first and then as ggml's reference does:
 * Q8_0: scale = largest |x| / 127, code = x / scale, halves away from zero. Q4_0: scale = the x of the greatest size /
 * -8, code = x / scale + 8.5 rounded down, at most 15. The scale is stored in F16; x is divided by the scale before
 * that. A block with NaN or infinity, or whose scale is beyond F16, becomes NaN. MHA_INVALID: unequal shapes.
 * MHA_UNSUPPORTED: a type that is not read, or to which floats are not rounded. */
mha_status mha__quantise(const mha_view *to, const mha_view *from);
/* The same matrix of random numbers, those of mha_random_fill for (seed, stream) where floats are rounded to the type.
 * Of the others codes and scales of groups are random bits, and the scale of a block makes the largest step times code
 * what `high` is, or up to half of it where it is a power of two; a least value is about half of that below 0. */
void mha__random_blocks(const mha_view *to, uint64_t seed, uint64_t stream, float low, float high);

#endif
