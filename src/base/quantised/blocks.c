/* Blocks of 32 elements with a scale each: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
 * The low halves of the bytes are elements 0 to 15, the high halves 16 to 31.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c, dequantize_row_* */
#include <string.h>

#include "base/quantised/decoders.h"

const signed char mha__iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const signed char mha__e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float mha__e8m0_half(unsigned e)
{
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Element i of 32, each of 4 bits. */
static int nibble(const unsigned char *packed, size_t i)
{
    return packed[i % 16] >> (i < 16 ? 0 : 4) & 15;
}

/* Element i of 32, each of 5 bits: the fifth ones come first, 4 bytes of them. */
static int five_bits(const unsigned char *packed, size_t i)
{
    return nibble(packed + 4, i) | (packed[i / 8] >> i % 8 & 1) << 4;
}

/* Takes a block with the scale D and the least value M (0: none) apart; CODE is that of element i. */
#define SPLIT(NAME, D, M, CODE)                                                                                        \
    void mha__split_##NAME(const unsigned char *block, size_t from, size_t end, mha__block_parts *p)                   \
    {                                                                                                                  \
        p->d = (D), p->m = (M);                                                                                        \
        for (size_t i = from; i < end; i++)                                                                            \
            p->code[i] = (signed char)(CODE);                                                                          \
    }
SPLIT(q4_0, mha__half_at(block), 0, nibble(block + 2, i) - 8)
SPLIT(q4_1, mha__half_at(block), mha__half_at(block + 2), nibble(block + 4, i))
SPLIT(q5_0, mha__half_at(block), 0, five_bits(block + 2, i) - 16)
SPLIT(q5_1, mha__half_at(block), mha__half_at(block + 2), five_bits(block + 4, i))
SPLIT(q8_0, mha__half_at(block), 0, block[2 + i])
SPLIT(iq4_nl, mha__half_at(block), 0, nibble(block + 2, i))
SPLIT(mxfp4, mha__e8m0_half(block[0]), 0, nibble(block + 1, i))
