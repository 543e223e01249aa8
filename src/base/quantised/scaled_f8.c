/* Blocks of 32 numbers of F8 after their common scale. */
#include <string.h>

#include "base/quantised/decoders.h"

static float scale_of(const unsigned char *block)
{
    const uint32_t bits = block[0] | (uint32_t)block[1] << 8 | (uint32_t)block[2] << 16 | (uint32_t)block[3] << 24;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

void mha__put_f8_scale(unsigned char *block, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    for (int i = 0; i < MHA_F8_SCALE; i++)
        block[i] = (unsigned char)(bits >> 8 * i);
}

/* 2^8 of the value, which the F16 of a code has lost, moves to the scale. */
void mha__split_f8_e4m3(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts)
{
    parts->d = scale_of(block) * 256.0f;
    memcpy(parts->code + from, block + MHA_F8_SCALE + from, end - from);
}

void mha__split_f8_e5m2(const unsigned char *block, size_t from, size_t end, mha__block_parts *parts)
{
    parts->d = scale_of(block);
    memcpy(parts->code + from, block + MHA_F8_SCALE + from, end - from);
}
