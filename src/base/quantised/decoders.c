/* The list of the quantised types that are decoded. */
#include <math.h>

#include "base/quantised/decoders.h"

static const mha__decoder decoders[MHA_DTYPE_COUNT] = {
    [MHA_Q4_0] = mha__decode_q4_0,      [MHA_Q4_1] = mha__decode_q4_1,      [MHA_Q5_0] = mha__decode_q5_0,
    [MHA_Q5_1] = mha__decode_q5_1,      [MHA_Q8_0] = mha__decode_q8_0,      [MHA_IQ4_NL] = mha__decode_iq4_nl,
    [MHA_MXFP4] = mha__decode_mxfp4,    [MHA_Q2_K] = mha__decode_q2_k, [MHA_Q3_K] = mha__decode_q3_k,
    [MHA_Q4_K] = mha__decode_q4_k, [MHA_Q5_K] = mha__decode_q5_k, [MHA_Q6_K] = mha__decode_q6_k,
    [MHA_IQ4_XS] = mha__decode_iq4_xs,
};

mha__decoder mha__decoder_of(mha_dtype dtype)
{
    return (unsigned)dtype < MHA_DTYPE_COUNT ? decoders[dtype] : NULL;
}

double mha__block_value(mha_dtype dtype, const void *blocks, ptrdiff_t at)
{
    static const struct {
        ptrdiff_t elements, bytes;
    } sizes[MHA_DTYPE_COUNT] = {
#define SIZES(code, name, block_elements, block_bytes) [code] = {block_elements, block_bytes},
        MHA_DTYPE_LIST(SIZES)
#undef SIZES
    };
    const mha__decoder decode = mha__decoder_of(dtype);
    float values[MHA_LARGEST_BLOCK];
    if (!decode)
        return NAN;
    const ptrdiff_t elements = sizes[dtype].elements, i = at % elements;
    const unsigned char *block = (const unsigned char *)blocks + at / elements * sizes[dtype].bytes;
    if (dtype == MHA_Q8_0) /* without the rest of their block */
        return mha__half_at(block) * (float)(signed char)block[2 + i];
    if (dtype == MHA_Q4_0)
        return mha__half_at(block) * (float)((block[2 + i % 16] >> i / 16 * 4 & 15) - 8);
    decode(block, values);
    return values[i];
}
