/* Philox4x32-10: random numbers from a counter (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). */
#include "base/base.h"
#include "mha/random.h"

void mha__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* the golden ratio and sqrt(3) - 1, as fractions of 2^32 */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static void block(uint64_t seed, uint64_t stream, uint64_t number, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    mha__philox(counter, key, out);
}

uint64_t mha__random_bits(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint32_t word[4];
    block(seed, stream, i / 2, word);
    return word[i % 2 * 2] | (uint64_t)word[i % 2 * 2 + 1] << 32;
}

static float unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

float mha__random_unit(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint32_t word[4];
    block(seed, stream, i / 4, word);
    return unit(word[i % 4]);
}

void mha_random_fill(const mha_view *view, uint64_t seed, uint64_t stream, float low, float high)
{
    mha__random_fill_from(view, seed, stream, 0, low, high);
}

void mha__random_fill_from(const mha_view *view, uint64_t seed, uint64_t stream, uint64_t first, float low, float high)
{
    size_t n = mha_view_elements(view);
    if (!view->data || n == SIZE_MAX || !mha__dtype_is_float(view->dtype))
        return;
    uint32_t word[4] = {0};
    size_t index[MHA_MAX_RANK] = {0};
    for (size_t e = 0; e < n; e++) {
        const uint64_t i = first + e;
        if (e == 0 || i % 4 == 0)
            block(seed, stream, i / 4, word);
        float value = low + (high - low) * unit(word[i % 4]);
        ptrdiff_t at = 0;
        for (int k = 0; k < view->rank; k++)
            at += (ptrdiff_t)index[k] * view->stride[k];
        switch (view->dtype) {
        case MHA_F32: ((float *)view->data)[at] = value; break;
        case MHA_F64: ((double *)view->data)[at] = value; break;
        case MHA_F16: ((uint16_t *)view->data)[at] = mha__f32_to_f16(value); break;
        default: ((uint16_t *)view->data)[at] = mha__f32_to_bf16(value); break;
        }
        mha__index_next(index, view->shape, view->rank);
    }
}
