/* The list of the quantised types that are decoded. */
#include "formats/quantised/decoders.h"

static const mha__decoder decoders[MHA_DTYPE_COUNT] = {
    [MHA_Q4_0] = mha__decode_q4_0,      [MHA_Q4_1] = mha__decode_q4_1,      [MHA_Q5_0] = mha__decode_q5_0,
    [MHA_Q5_1] = mha__decode_q5_1,      [MHA_Q8_0] = mha__decode_q8_0,      [MHA_IQ4_NL] = mha__decode_iq4_nl,
    [MHA_MXFP4] = mha__decode_mxfp4,    [MHA_Q2_K] = mha__decode_q2_k, [MHA_Q3_K] = mha__decode_q3_k,
    [MHA_Q4_K] = mha__decode_q4_k, [MHA_Q5_K] = mha__decode_q5_k, [MHA_Q6_K] = mha__decode_q6_k,
    [MHA_IQ4_XS] = mha__decode_iq4_xs,
};

mha__decoder mha__decoder_of(mha_dtype dtype)
{
    return decoders[dtype];
}
