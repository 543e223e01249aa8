/* The kernels for AVX-512: 32 registers of 16 floats, 28 of them accumulate. */
#if defined(__AVX512F__)
#include "compute/kernels/avx512.h"

#define ISA_NAME "avx512"
#define MOST_FEW_ROWS 8
#define BLOCK_AHEAD 4
#define KERNELS mha__kernels_avx512
#define ISA_WITH_PAIRS "avx512_bf16"
#define KERNELS_WITH_PAIRS mha__kernels_avx512_bf16
#define PAIRS_BESIDE mha__pairs_avx512

/* exp(x) for x <= 0: x = n ln(2)/16 + r with n rounded to nearest by adding 1.5 * 2^23; the last four bits of n choose
 * one of 16 powers of 2 in a register, the others move to the exponent (their last four, in the way there, are taken
 * off the powers' own bits); exp(r) = 1 + r + r^2 (0.5000165 + r/6), which takes up most of r^4/24: relative error
 * 1.7e-9. The clamp makes n at least -2032, where that power is 0; NaN passes it. The instruction that rounds to n does
 * so to nearest whatever the caller's rounding is. */
#define ISA_EXP
static inline vec exp_nonpositive(vec x)
{
#define POWER(J, BITS) (BITS) - ((J) << 19)
    const __m512i powers = _mm512_setr_epi32(
        POWER(0, 0x3f800000), POWER(1, 0x3f85aac3), POWER(2, 0x3f8b95c2), POWER(3, 0x3f91c3d3), POWER(4, 0x3f9837f0),
        POWER(5, 0x3f9ef532), POWER(6, 0x3fa5fed7), POWER(7, 0x3fad583f), POWER(8, 0x3fb504f3), POWER(9, 0x3fbd08a4),
        POWER(10, 0x3fc5672a), POWER(11, 0x3fce248c), POWER(12, 0x3fd744fd), POWER(13, 0x3fe0ccdf),
        POWER(14, 0x3feac0c7), POWER(15, 0x3ff5257d));
    const __m512 shift = _mm512_set1_ps(0x1.8p23f);
    x = greater((vec)_mm512_set1_ps(-88.02f), x);
    __m512 t = _mm512_fmadd_round_ps((__m512)x, _mm512_set1_ps(0x1.715476p+4f), shift,
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 n = _mm512_sub_ps(t, shift);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e400p-5f), (__m512)x); /* in two parts, as in exp.h */
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-24f), r);
    __m512i bits = _mm512_permutexvar_epi32((__m512i)t, powers);
    __m512 power = (__m512)_mm512_add_epi32(bits, _mm512_slli_epi32((__m512i)t, 19));
    __m512 q = _mm512_fmadd_ps(r, _mm512_set1_ps(1.0f / 6), _mm512_set1_ps(0.5000165f));
    __m512 p = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
    return (vec)_mm512_fmadd_ps(power, p, power);
}

static inline vec halves(const uint16_t *x)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

static inline vec half_lanes(vec x)
{
    return (vec)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)x));
}

static inline vec bytes(const unsigned char *x)
{
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x)));
}

/* A vector read at another byte would lie across two cache lines. */
#define ISA_TOP
static inline bits_of_vec top_byte(bits_of_vec x, int u)
{
    if (u == 0)
        return x << 24;
    if (u == 3)
        return x & 0xff000000;
    const int at = (u << 24) + 0x808080; /* the others become 0 */
    return (bits_of_vec)_mm512_shuffle_epi8(
        (__m512i)x, _mm512_set4_epi32(at + (12 << 24), at + (8 << 24), at + (4 << 24), at));
}

/* The float 0x47000000 is 2^15; the second of its four bytes, from the lowest on, counts whole numbers. */
#define ISA_BYTE_FLOATS
static inline vec byte_float(bits_of_vec x, int u)
{
    const __m512i there = (__m512i)(u == 0 ? (x ^ 0x80808080) << 8 : (x ^ 0x80808080) >> (8 * u - 8));
    enum { AND_OR = 0xEA }; /* the second byte of `there`, and the others of 2^15 */
    return (vec)_mm512_ternarylogic_epi32(there, _mm512_set1_epi32(0xff00), _mm512_set1_epi32(0x47000000), AND_OR);
}

#define ISA_PICK
static inline vec pick(bits_of_vec x, const signed char *values)
{
    return (vec)_mm512_permutexvar_ps((__m512i)x, (__m512)bytes((const unsigned char *)values));
}

#include "compute/kernels/body.h"
#else
typedef int mha__needs_avx512;
#endif
