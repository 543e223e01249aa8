/* Floats rounded to the blocks of Q8_0 and Q4_0, bit for bit as ggml's reference does it.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c, quantize_row_q8_0_ref, quantize_row_q4_0_ref */
#include <math.h>
#include <string.h>

#include "base/quantised/quantise.h"

enum { BLOCK = 32 };

/* The scale as it is stored, and what values are multiplied by; both NaN for a block with a value that is not finite,
 * or too large for a scale. */
static float put_scale(unsigned char *block, float d)
{
    uint16_t half = mha_f32_to_f16(d);
    if (!(fabsf(d) < 65520.0f))
        half = 0x7e00;
    block[0] = (unsigned char)half;
    block[1] = (unsigned char)(half >> 8);
    return half == 0x7e00 || d == 0 ? 0 : 1 / d;
}

/* The value of the greatest size, the first of several; NaN when one is NaN or infinite. */
static float largest(const float *values)
{
    float most = 0;
    for (int i = 0; i < BLOCK; i++) {
        if (!isfinite(values[i]))
            return NAN;
        most = fabsf(values[i]) > fabsf(most) ? values[i] : most;
    }
    return most;
}

/* A block without a scale gets codes of 0. */
static float finite_or_0(float value)
{
    return isfinite(value) ? value : 0;
}

static void to_q8_0(const float *values, unsigned char *block)
{
    const float inverse = put_scale(block, fabsf(largest(values)) / 127);
    for (int i = 0; i < BLOCK; i++)
        block[2 + i] = (unsigned char)(int)roundf(finite_or_0(values[i] * inverse));
}

static void to_q4_0(const float *values, unsigned char *block)
{
    const float inverse = put_scale(block, largest(values) / -8);
    unsigned code[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        const int nearest = (int)(finite_or_0(values[i] * inverse) + 8.5f);
        code[i] = nearest > 15 ? 15 : (unsigned)nearest;
    }
    for (int i = 0; i < BLOCK / 2; i++)
        block[2 + i] = (unsigned char)(code[i] | code[i + BLOCK / 2] << 4);
}

bool mha__is_quantised_weight(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 || dtype == MHA_Q4_0;
}

mha_status mha__quantise(const mha_view *to, const mha_view *from)
{
    const size_t k = to->shape[0], n = to->shape[1];
    const bool same = from->dtype == to->dtype && from->rank == 2 && from->stride[0] == 1 &&
                      (n < 2 || from->stride[1] % BLOCK == 0);
    if (from->rank != 2 || from->shape[0] != k || from->shape[1] != n)
        return MHA_INVALID;
    if (!mha__dtype_is_float(from->dtype) && !mha__decoder_of(from->dtype))
        return MHA_UNSUPPORTED;
    size_t bytes = 0;
    (void)mha_dtype_bytes(to->dtype, BLOCK, &bytes);
    for (size_t c = 0; c < n; c++)
        for (size_t b = 0; b < k / BLOCK; b++) {
            const mha_view target = mha_view_slice(to, 1, c, 1);
            unsigned char *block = (unsigned char *)target.data + b * bytes;
            float values[BLOCK];
            if (same) {
                const mha_view source = mha_view_slice(from, 1, c, 1);
                memcpy(block, (const unsigned char *)source.data + b * bytes, bytes);
                continue;
            }
            for (size_t i = 0; i < BLOCK; i++)
                values[i] = (float)mha_view_get(from, (const size_t[]){b * BLOCK + i, c});
            (to->dtype == MHA_Q8_0 ? to_q8_0 : to_q4_0)(values, block);
        }
    return MHA_OK;
}
