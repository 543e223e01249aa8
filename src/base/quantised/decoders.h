/* Decoders of the quantised types of GGUF: a block of packed numbers turned into F32, as ggml defines it. */
#ifndef MHA_BASE_QUANTISED_DECODERS_H
#define MHA_BASE_QUANTISED_DECODERS_H

#include "base/base.h"

/* The values of one block. Every product of them is exact in F32 and at most one sum is rounded, so a value has the
 * same bits with and without fused multiplication. */
typedef void (*mha__decoder)(const unsigned char *block, float *values);

enum { MHA_LARGEST_BLOCK = 256 }; /* elements */

/* NULL: the type is plain, or its values are not decoded here. */
mha__decoder mha__decoder_of(mha_dtype dtype);
/* Element `at` of blocks that lie one after the other; NaN when there is no decoder. */
double mha__block_value(mha_dtype dtype, const void *blocks, ptrdiff_t at);

void mha__decode_q4_0(const unsigned char *block, float *values);
void mha__decode_q4_1(const unsigned char *block, float *values);
void mha__decode_q5_0(const unsigned char *block, float *values);
void mha__decode_q5_1(const unsigned char *block, float *values);
void mha__decode_q8_0(const unsigned char *block, float *values);
void mha__decode_iq4_nl(const unsigned char *block, float *values);
void mha__decode_mxfp4(const unsigned char *block, float *values);
void mha__decode_q2_k(const unsigned char *block, float *values);
void mha__decode_q3_k(const unsigned char *block, float *values);
void mha__decode_q4_k(const unsigned char *block, float *values);
void mha__decode_q5_k(const unsigned char *block, float *values);
void mha__decode_q6_k(const unsigned char *block, float *values);
void mha__decode_iq4_xs(const unsigned char *block, float *values);

/* The 16 values of IQ4_NL and IQ4_XS; twice those of MXFP4 (E2M1). */
extern const signed char mha__iq4_values[16], mha__e2m1_doubled[16];

/* Half of the power of two 2^(e - 127) that E8M0 means: exact for every e, as ggml computes it. */
float mha__e8m0_half(unsigned e);

static inline float mha__half_at(const unsigned char *bytes)
{
    return mha_f16_to_f32((uint16_t)(bytes[0] | bytes[1] << 8));
}

#endif
