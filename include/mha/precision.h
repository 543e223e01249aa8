/* Low precision: the points at which a kernel of TF32, 16 or 8 bits rounds, as the exact path models them. */
#ifndef MHA_PRECISION_H
#define MHA_PRECISION_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The type to which numbers are rounded at each point; MHA_F32, which is 0, stands for no rounding beyond that of a
 * float32 kernel. Types: TF32, F16, BF16, F8_E4M3 (the fn form), F8_E5M2, I8. F8 and I8 numbers are stored with one
 * scale for each tensor, its largest absolute value divided by the largest number of the type (448, 57344, 127);
 * probabilities, which lie in [0, 1], have that of 1. Scores and sums take F16 and BF16 only.
 *
 * Other types are what numbers are stored in. TF32 is what a product of matrices makes of the floats that it reads: it
 * rounds them to 10 bits of fraction, to nearest, and adds exact products in float32. At a point of TF32 a number is
 * therefore rounded where it enters a product, and is a float everywhere else: in the cache, in stages that are kept,
 * as a bias and as the output; without a product that reads it (query, key and value that are not projected, as
 * inputs) it is not rounded at all. To cut the bits off, as tensor cores do with floats that nobody converts, is not to
 * round: such errors are twice as large and have one sign. The checker does not allow for them. */
typedef struct mha_precision {
    mha_dtype inputs;        /* query, key and value as they are given */
    mha_dtype weights;       /* projection matrices and biases */
    mha_dtype rows;          /* q, k and v as they are attended to: projected, normed, rotated, cached; latents after
                                their norm, and where they are absorbed queries before that: as W_KVB meets them */
    mha_dtype scores;        /* q k before and after the scale, each step of a softcap, after masks */
    mha_dtype probabilities; /* exp(score - maximum) before it meets V; the denominator adds unrounded ones */
    mha_dtype sums;          /* every partial sum of a product of matrices and of the denominator */
    mha_dtype output;        /* heads, and the output; where latents are absorbed, sums of them, too */
    mha_dtype reserved[9];   /* 0; see mha.h */
} mha_precision;

/* The rounding of a fused kernel: inputs, weights, rows and probabilities of the type, scores and sums in float32,
 * output of the type, or BF16 for one of 8 bits. All MHA_F32 for another type. TF32 is what tensor cores make of
 * float32 by default in some libraries (torch.backends.cuda.matmul.allow_tf32, tl.dot of Triton). */
MHA_API mha_precision mha_precision_of(mha_dtype type);

/* Products of BF16 on the blas and fast paths (mha_call.precision): x, q, k, v, probabilities, gate, heads and output
 * are rounded to BF16 at the points above, to nearest even. A product of two BF16 numbers has at most 16 bits and is
 * exact in a float, so a float32 multiply-add rounds only its sum; sums, and their order, are those of the path without
 * a precision, and so are all promises on bits. The scores are multiplied by the scale in float: on the fast path q by
 * the power of 2 in it, which BF16 holds, and the score by the rest. There a probability is exp(score - m) with m the
 * largest score of the keys so far, in blocks, where blas and exact take that of all keys: the same relative error of
 * 2^-9, not the same rounding.
 *
 * Where the processor has an instruction for pairs of them that is faster (VDPBF16PS: mha_isa "avx512_bf16"), the
 * fast path uses it. It adds one product and rounds, then the other and rounds, to nearest even, as two multiply-adds
 * do: the same bits. It takes numbers below 2^-126 for zero, factors and sums alike; so does the fast path everywhere
 * in BF16, if the processor can be told to. The tolerance omits that: it is nothing compared with numbers of
 * usual size. When the caller rounds in another direction, pairs are not used, and floats round as the caller says. */

#ifdef __cplusplus
}
#endif
#endif
