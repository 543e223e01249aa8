/* The list of the quantised types that are decoded, and how the parts of a block become values. */
#include <math.h>

#include "base/quantised/decoders.h"

static const mha__block_kind kinds[MHA_DTYPE_COUNT] = {
    [MHA_Q4_0] = {mha__split_q4_0, 32, 18, 32, MHA_CODES_4, false, false, NULL},
    [MHA_Q4_1] = {mha__split_q4_1, 32, 20, 32, MHA_CODES_4_LEAST, false, false, NULL},
    [MHA_Q5_0] = {mha__split_q5_0, 32, 22, 32, MHA_CODES_8, false, false, NULL},
    [MHA_Q5_1] = {mha__split_q5_1, 32, 24, 32, MHA_CODES_8_LEAST, false, false, NULL},
    [MHA_Q8_0] = {mha__split_q8_0, 32, 34, 32, MHA_CODES_8, false, false, NULL},
    [MHA_IQ4_NL] = {mha__split_iq4_nl, 32, 18, 32, MHA_CODES_4_TABLE, false, false, mha__iq4_values},
    [MHA_MXFP4] = {mha__split_mxfp4, 32, 17, 32, MHA_CODES_4_TABLE, false, true, mha__e2m1_doubled},
    [MHA_Q2_K] = {mha__split_q2_k, 256, 84, 16, MHA_CODES_4_LEAST, true, false, NULL},
    [MHA_Q3_K] = {mha__split_q3_k, 256, 110, 16, MHA_CODES_4, true, false, NULL},
    [MHA_Q4_K] = {mha__split_q4_k, 256, 144, 32, MHA_CODES_4_LEAST, true, false, NULL},
    [MHA_Q5_K] = {mha__split_q5_k, 256, 176, 32, MHA_CODES_8_LEAST, true, false, NULL},
    [MHA_Q6_K] = {mha__split_q6_k, 256, 210, 16, MHA_CODES_8_GROUPS, true, false, NULL},
    [MHA_IQ4_XS] = {mha__split_iq4_xs, 256, 136, 32, MHA_CODES_4_TABLE, true, false, mha__iq4_values},
    [MHA_F8_E4M3_SCALED] = {mha__split_f8_e4m3, 32, 36, 32, MHA_CODES_E4M3, false, false, NULL},
    [MHA_F8_E5M2_SCALED] = {mha__split_f8_e5m2, 32, 36, 32, MHA_CODES_E5M2, false, false, NULL},
};

const mha__block_kind *mha__block_kind_of(mha_dtype dtype)
{
    return (unsigned)dtype < MHA_DTYPE_COUNT && kinds[dtype].split ? &kinds[dtype] : NULL;
}

static float value_of(const mha__block_kind *kind, const mha__block_parts *parts, size_t i)
{
    const size_t g = i / kind->group;
    const unsigned char byte = (unsigned char)parts->code[i];
    if (mha__is_f8(kind->codes))
        return kind->codes == MHA_CODES_E4M3 && mha__is_e4m3_nan(byte)
                   ? NAN
                   : parts->d * mha__f16_to_f32(mha__f8_half(kind->codes, byte));
    const float code = (float)(kind->values ? kind->values[parts->code[i]] : parts->code[i]);
    const float step = kind->scales ? parts->d * (float)parts->scale[g] : parts->d;
    if (!mha__has_least(kind->codes))
        return step * code;
    return step * code + (kind->scales ? parts->m * (float)parts->min[g] : parts->m);
}

void mha__decode_block(const mha__block_kind *kind, const unsigned char *block, float *values)
{
    mha__block_parts parts;
    kind->split(block, 0, kind->elements, &parts);
    for (size_t i = 0; i < kind->elements; i++)
        values[i] = value_of(kind, &parts, i);
}

double mha__block_value(mha_dtype dtype, const void *blocks, ptrdiff_t at)
{
    const mha__block_kind *kind = mha__block_kind_of(dtype);
    mha__block_parts parts;
    if (!kind)
        return NAN;
    const ptrdiff_t elements = (ptrdiff_t)kind->elements, i = at % elements;
    const unsigned char *block = (const unsigned char *)blocks + at / elements * (ptrdiff_t)kind->bytes;
    kind->split(block, (size_t)i, (size_t)i + 1, &parts);
    return value_of(kind, &parts, (size_t)i);
}
