/* Floats that are rounded to BF16 and stay floats. */
#include <stdint.h>
#include <string.h>

#include "compute/bf16_floats.h"

enum { TOGETHER = 16 }; /* a number that compilers know: they take several at once */

/* mha_f32_to_bf16 on the bits of a float, without a branch. */
static inline uint32_t rounded(uint32_t bits)
{
    const uint32_t nan = -(uint32_t)((bits & 0x7FFFFFFFu) > 0x7F800000u), up = bits + 0x7FFFu + (bits >> 16 & 1);
    return ((nan & (bits | 0x400000u)) | (~nan & up)) & 0xFFFF0000u;
}

void mha__round_floats(size_t n, const float *x, float *y)
{
    uint32_t bits[TOGETHER];
    size_t at = 0;
    for (; at + TOGETHER <= n; at += TOGETHER) {
        memcpy(bits, x + at, sizeof bits);
        for (int i = 0; i < TOGETHER; i++)
            bits[i] = rounded(bits[i]);
        memcpy(y + at, bits, sizeof bits);
    }
    for (; at < n; at++) {
        memcpy(bits, x + at, sizeof *bits);
        *bits = rounded(*bits);
        memcpy(y + at, bits, sizeof *bits);
    }
}
