/* Floats of 16 bits turned into F32 and back. */
#include <string.h>

#include "base/quantised/short_float.h"

float mha__f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, rest = bits & 0x7fffu, f32;
    if (rest >= 0x7c00u) /* infinity, NaN */
        f32 = sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    else if (rest >= 0x0400u)
        f32 = sign | ((rest << 13) + ((127 - 15) << 23));
    else { /* zero and subnormal: an integer times 2^-24, exact in float */
        float value = (float)rest * 0x1p-24f;
        memcpy(&f32, &value, sizeof f32);
        f32 |= sign;
    }
    float value;
    memcpy(&value, &f32, sizeof value);
    return value;
}

float mha__bf16_to_f32(uint16_t bits)
{
    uint32_t f32 = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &f32, sizeof value);
    return value;
}

uint16_t mha__f32_to_f16(float value)
{
    uint32_t f32;
    memcpy(&f32, &value, sizeof f32);
    uint16_t sign = (uint16_t)(f32 >> 16 & 0x8000u);
    uint32_t rest = f32 & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x1ffu));
    if (rest >= 0x47800000u) /* 65536 and more; 65520 to 65536 overflow by rounding below */
        return sign | 0x7c00u;
    if (rest < 0x38800000u) { /* below 2^-14: rounds m * 2^(e - 126) to an integer in any rounding mode of the caller */
        const uint32_t m = (rest & 0x7fffffu) | 0x800000u, away = 126 - (rest >> 23);
        return away > 24 ? sign : (uint16_t)(sign | (m + (1u << (away - 1)) - 1 + (m >> away & 1)) >> away);
    }
    uint32_t rounded = rest - ((127 - 15) << 23);
    rounded += 0xfffu + (rounded >> 13 & 1);
    return (uint16_t)(sign | rounded >> 13);
}

uint16_t mha__f32_to_bf16(float value)
{
    uint32_t f32;
    memcpy(&f32, &value, sizeof f32);
    if ((f32 & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(f32 >> 16 | 0x40u); /* stays a NaN, made quiet */
    f32 += 0x7fffu + (f32 >> 16 & 1);
    return (uint16_t)(f32 >> 16);
}
