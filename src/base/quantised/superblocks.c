/* Blocks of 256 elements in groups whose scales are quantised, too: Q2_K to Q6_K, IQ4_XS.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c, dequantize_row_* */
#include "base/quantised/decoders.h"

/* Element i of 256, each of 4 bits: of 64, the low halves of 32 bytes are the first 32. */
static int nibble_of_64(const unsigned char *packed, int i)
{
    return packed[i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4) & 15;
}

/* Element i of 256, each of 2 bits: of 128, the lowest bits of 32 bytes are the first 32. */
static int two_bits_of_128(const unsigned char *packed, int i)
{
    return packed[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

void mha__decode_q2_k(const unsigned char *block, float *values)
{
    const unsigned char *scales = block, *packed = block + 16;
    const float d = mha__half_at(block + 80), least = mha__half_at(block + 82);
    for (int i = 0; i < 256; i++) {
        const float scale = d * (float)(scales[i / 16] & 15), min = least * (float)(scales[i / 16] >> 4);
        values[i] = scale * (float)two_bits_of_128(packed, i) - min;
    }
}

/* Scales of 6 bits: 4 low ones in 8 bytes, then 2 high ones in 4. A high bit that is not set takes 4 away. */
void mha__decode_q3_k(const unsigned char *block, float *values)
{
    const unsigned char *high = block, *packed = block + 32, *scales = block + 96;
    const float d = mha__half_at(block + 108);
    for (int i = 0; i < 256; i++) {
        const int g = i / 16, low = scales[g % 8] >> (g < 8 ? 0 : 4) & 15, top = scales[8 + g % 4] >> g / 4 * 2 & 3;
        const int q = two_bits_of_128(packed, i) - (high[i % 32] >> i / 32 & 1 ? 0 : 4);
        values[i] = d * (float)((low | top << 4) - 32) * (float)q;
    }
}

/* Scale and minimum of group g of 8, 6 bits each in 12 bytes. The last four have their high bits above those of the
 * first four. */
static void scale_and_min(const unsigned char *scales, int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = scales[g] & 63;
        *min = scales[g + 4] & 63;
    } else {
        *scale = (scales[g + 4] & 15) | scales[g - 4] >> 6 << 4;
        *min = scales[g + 4] >> 4 | scales[g] >> 6 << 4;
    }
}

/* Q4_K, and with the fifth bits Q5_K. */
static void decode_with_min(const unsigned char *block, const unsigned char *high, const unsigned char *packed,
                            float *values)
{
    const float d = mha__half_at(block), least = mha__half_at(block + 2);
    for (int g = 0; g < 8; g++) {
        int scale, min;
        scale_and_min(block + 4, g, &scale, &min);
        const float step = d * (float)scale, below = least * (float)min;
        for (int i = 32 * g; i < 32 * g + 32; i++) {
            const int q = nibble_of_64(packed, i) | (high ? (high[i % 32] >> g & 1) << 4 : 0);
            values[i] = step * (float)q - below;
        }
    }
}

void mha__decode_q4_k(const unsigned char *block, float *values)
{
    decode_with_min(block, NULL, block + 16, values);
}

void mha__decode_q5_k(const unsigned char *block, float *values)
{
    decode_with_min(block, block + 16, block + 48, values);
}

/* Of 128 elements, the low halves of 64 bytes are the first 64. */
void mha__decode_q6_k(const unsigned char *block, float *values)
{
    const unsigned char *low = block, *high = block + 128;
    const float d = mha__half_at(block + 208);
    for (int i = 0; i < 256; i++) {
        const int four = low[i / 128 * 64 + i % 64] >> (i % 128 < 64 ? 0 : 4) & 15;
        const float scale = d * (float)(signed char)block[192 + i / 16];
        values[i] = scale * (float)((four | two_bits_of_128(high, i) << 4) - 32);
    }
}

/* Scales of 6 bits: 2 high ones in 2 bytes, then 4 low ones in 4. */
void mha__decode_iq4_xs(const unsigned char *block, float *values)
{
    const float d = mha__half_at(block);
    const unsigned top = block[2] | (unsigned)block[3] << 8;
    for (int i = 0; i < 256; i++) {
        const int g = i / 32, low = block[4 + g / 2] >> g % 2 * 4 & 15;
        const int scale = (low | (int)(top >> 2 * g & 3) << 4) - 32;
        const int q = block[8 + 16 * g + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15;
        values[i] = d * (float)scale * (float)mha__iq4_values[q];
    }
}
