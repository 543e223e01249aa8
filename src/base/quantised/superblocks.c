/* Blocks of 256 elements in groups whose scales are quantised, too: Q2_K to Q6_K, IQ4_XS.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c, dequantize_row_* */
#include <string.h>

#include "base/quantised/decoders.h"

/* Element i of 256, each of 4 bits: of 64, the low halves of 32 bytes are the first 32. */
static int nibble_of_64(const unsigned char *packed, size_t i)
{
    return packed[i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4) & 15;
}

/* Element i of 256, each of 2 bits: of 128, the lowest bits of 32 bytes are the first 32. */
static int two_bits_of_128(const unsigned char *packed, size_t i)
{
    return packed[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

void mha__split_q2_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *p)
{
    p->d = mha__half_at(block + 80), p->m = -mha__half_at(block + 82);
    for (int g = 0; g < 16; g++)
        p->scale[g] = (signed char)(block[g] & 15), p->min[g] = (signed char)(block[g] >> 4);
    for (size_t i = from; i < end; i++)
        p->code[i] = (signed char)two_bits_of_128(block + 16, i);
}

/* Scales of 6 bits: 4 low ones in 8 bytes, then 2 high ones in 4. A high bit that is not set takes 4 away. */
void mha__split_q3_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *p)
{
    const unsigned char *high = block, *packed = block + 32, *scales = block + 96;
    p->d = mha__half_at(block + 108);
    for (int g = 0; g < 16; g++) {
        const int low = scales[g % 8] >> (g < 8 ? 0 : 4) & 15, top = scales[8 + g % 4] >> g / 4 * 2 & 3;
        p->scale[g] = (signed char)((low | top << 4) - 32);
    }
    for (size_t i = from; i < end; i++)
        p->code[i] = (signed char)(two_bits_of_128(packed, i) - (high[i % 32] >> i / 32 & 1 ? 0 : 4));
}

/* Scales and minima of 8 groups, 6 bits each in 12 bytes. The last four have their high bits above those of the first
 * four. */
static void split_with_min(const unsigned char *block, const unsigned char *packed, size_t from, size_t end,
                           mha__block_parts *p)
{
    const unsigned char *scales = block + 4;
    p->d = mha__half_at(block), p->m = -mha__half_at(block + 2);
    for (int g = 0; g < 4; g++) {
        p->scale[g] = (signed char)(scales[g] & 63);
        p->min[g] = (signed char)(scales[g + 4] & 63);
        p->scale[g + 4] = (signed char)((scales[g + 8] & 15) | scales[g] >> 6 << 4);
        p->min[g + 4] = (signed char)(scales[g + 8] >> 4 | scales[g + 4] >> 6 << 4);
    }
    for (size_t i = from; i < end; i++)
        p->code[i] = (signed char)nibble_of_64(packed, i);
}

void mha__split_q4_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *p)
{
    split_with_min(block, block + 16, from, end, p);
}

/* The fifth bits lie before the others. */
void mha__split_q5_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *p)
{
    split_with_min(block, block + 48, from, end, p);
    for (size_t i = from; i < end; i++)
        p->code[i] = (signed char)(p->code[i] | (block[16 + i % 32] >> i / 32 & 1) << 4);
}

/* Of 128 elements, the low halves of 64 bytes are the first 64. */
void mha__split_q6_k(const unsigned char *block, size_t from, size_t end, mha__block_parts *p)
{
    p->d = mha__half_at(block + 208);
    memcpy(p->scale, block + 192, 16);
    for (size_t i = from; i < end; i++) {
        const int four = block[i / 128 * 64 + i % 64] >> (i % 128 < 64 ? 0 : 4) & 15;
        p->code[i] = (signed char)((four | two_bits_of_128(block + 128, i) << 4) - 32);
    }
}

/* Scales of 6 bits: 2 high ones in 2 bytes, then 4 low ones in 4. */
void mha__split_iq4_xs(const unsigned char *block, size_t from, size_t end, mha__block_parts *p)
{
    const unsigned top = block[2] | (unsigned)block[3] << 8;
    p->d = mha__half_at(block);
    for (int g = 0; g < 8; g++) {
        const int low = block[4 + g / 2] >> g % 2 * 4 & 15;
        p->scale[g] = (signed char)((low | (int)(top >> 2 * g & 3) << 4) - 32);
    }
    for (size_t i = from; i < end; i++)
        p->code[i] = (signed char)(block[8 + i / 32 * 16 + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15);
}
