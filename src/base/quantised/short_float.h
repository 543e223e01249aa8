/* Floats of 16 bits as F32, and F32 as floats of 16 bits. */
#ifndef MHA_BASE_QUANTISED_SHORT_FLOAT_H
#define MHA_BASE_QUANTISED_SHORT_FLOAT_H

#include <stdint.h>

/* F16 or BF16 to F32, which is exact, and back, rounded to nearest even. NaN stays NaN. */
float mha__f16_to_f32(uint16_t bits);
float mha__bf16_to_f32(uint16_t bits);
uint16_t mha__f32_to_f16(float value);
uint16_t mha__f32_to_bf16(float value);

#endif
