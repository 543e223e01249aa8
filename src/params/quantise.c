/* Matrices of blocks: copied, drawn, or floats rounded to Q8_0 and Q4_0, bit for bit as ggml's reference does it.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c, quantize_row_q8_0_ref, quantize_row_q4_0_ref */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "params/quantise.h"
#include "mha/random.h"

enum { BLOCK = 32 };

static void put_half(unsigned char *at, float value)
{
    const uint16_t half = mha__f32_to_f16(value);
    at[0] = (unsigned char)half, at[1] = (unsigned char)(half >> 8);
}

/* The scale as it is stored, and what values are multiplied by; both NaN for a block with a value that is not finite,
 * or too large for a scale. */
static float put_scale(unsigned char *block, float d)
{
    const bool fits = fabsf(d) < 65520.0f;
    put_half(block, fits ? d : NAN);
    return !fits || d == 0 ? 0 : 1 / d;
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
    return mha__block_kind_of(dtype) != NULL;
}

/* Whether floats are rounded to the type here. */
static bool is_rounded_to(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 || dtype == MHA_Q4_0;
}

/* Copies columns of blocks that lie one after the other in both. */
static void copy_columns(const mha_view *to, const mha_view *from)
{
    size_t bytes = 0;
    (void)mha_dtype_bytes(to->dtype, to->shape[0], &bytes, NULL);
    for (size_t c = 0; c < to->shape[1]; c++)
        memcpy(mha_view_slice(to, 1, c, 1).data, mha_view_slice(from, 1, c, 1).data, bytes);
}

/* The block of column c that begins with row `first`. */
static unsigned char *block_at(const mha_view *view, size_t c, size_t first)
{
    const mha_view column = mha_view_slice(view, 1, c, 1);
    return mha_view_slice(&column, 0, first, view->shape[0] - first).data;
}

static void round_block(const mha_view *to, size_t c, size_t first, const float *values)
{
    (to->dtype == MHA_Q8_0 ? to_q8_0 : to_q4_0)(values, block_at(to, c, first));
}

mha_status mha__quantise(const mha_view *to, const mha_view *from)
{
    const size_t k = to->shape[0], n = to->shape[1];
    if (from->rank != 2 || from->shape[0] != k || from->shape[1] != n)
        return MHA_INVALID;
    if (from->dtype == to->dtype && from->stride[0] == 1 &&
        (n < 2 || from->stride[1] % (ptrdiff_t)mha__block_kind_of(to->dtype)->elements == 0)) {
        copy_columns(to, from);
        return MHA_OK;
    }
    if (!is_rounded_to(to->dtype) || (!mha__dtype_is_float(from->dtype) && !mha__block_kind_of(from->dtype)))
        return MHA_UNSUPPORTED;
    for (size_t c = 0; c < n; c++)
        for (size_t first = 0; first < k; first += BLOCK) {
            float values[BLOCK];
            for (size_t i = 0; i < BLOCK; i++)
                values[i] = (float)mha_view_get(from, (const size_t[]){first + i, c});
            round_block(to, c, first, values);
        }
    return MHA_OK;
}

/* Where d and m lie in a block (m at 0: there is none), the largest code times scale of a group, and how many times d
 * the m is that puts about as many values below 0 as above. */
static const struct {
    size_t d, m;
    float most, ratio;
} drawn[MHA_DTYPE_COUNT] = {
    [MHA_Q4_1] = {0, 2, 15, -7.5f},   [MHA_Q5_0] = {0, 0, 16, 0},          [MHA_Q5_1] = {0, 2, 31, -15.5f},
    [MHA_Q2_K] = {80, 82, 45, 1.5f},  [MHA_Q3_K] = {108, 0, 128, 0},       [MHA_Q4_K] = {0, 2, 945, 7.5f},
    [MHA_Q5_K] = {0, 2, 1953, 15.5f}, [MHA_Q6_K] = {208, 0, 128 * 32, 0}, [MHA_IQ4_NL] = {0, 0, 127, 0},
    [MHA_IQ4_XS] = {0, 0, 32 * 127, 0}, [MHA_MXFP4] = {0, 0, 12, 0},
    [MHA_F8_E4M3_SCALED] = {0, 0, 448, 0}, [MHA_F8_E5M2_SCALED] = {0, 0, 57344, 0},
};

/* A scale before random codes, among which there are then no NaN and no infinity. */
static void put_f8(unsigned char *block, const mha__block_kind *kind, float scale)
{
    const unsigned special = kind->codes == MHA_CODES_E4M3 ? 0x7f : 0x7c;
    mha__put_f8_scale(block, scale);
    for (size_t i = kind->bytes - kind->elements; i < kind->bytes; i++)
        if ((block[i] & special) == special)
            block[i] ^= 0x40;
}

void mha__random_blocks(const mha_view *to, uint64_t seed, uint64_t stream, float low, float high)
{
    const mha__block_kind *kind = mha__block_kind_of(to->dtype);
    const size_t k = to->shape[0], n = to->shape[1], elements = kind->elements, bytes = kind->bytes;
    const float d = high / drawn[to->dtype].most;
    for (size_t c = 0; c < n; c++)
        for (size_t first = 0; first < k; first += elements) {
            float values[BLOCK];
            unsigned char *block = block_at(to, c, first);
            if (is_rounded_to(to->dtype)) {
                for (size_t i = 0; i < BLOCK; i++)
                    values[i] = low + (high - low) * mha__random_unit(seed, stream, (first + i) * n + c);
                round_block(to, c, first, values);
                continue;
            }
            for (size_t i = 0; i < bytes; i++)
                block[i] = (unsigned char)mha__random_bits(seed, stream, (c * k + first) / elements * bytes + i);
            if (mha__is_f8(kind->codes))
                put_f8(block, kind, d);
            else if (to->dtype == MHA_MXFP4) /* d = 2^(block[0] - 128) */
                block[0] = (unsigned char)(128 + ilogbf(d));
            else
                put_half(block + drawn[to->dtype].d, d);
            if (drawn[to->dtype].m)
                put_half(block + drawn[to->dtype].m, d * drawn[to->dtype].ratio);
        }
}
