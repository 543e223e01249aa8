/* The kernels for AVX2 with FMA: 16 registers of 8 floats, 12 of them accumulate. */
#if defined(__AVX2__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define ISA_NAME "avx2"
#define ISA_LANES 8
#define TILE_ROWS 6
#define TILE_VECS 2
#define FLAT_ROWS 1
#define FLAT_HINTS 0
#define HALF_FLAT_ROWS 3
#define LONE_VECS 8
#define MOST_FEW_ROWS 8
#define FLAT_VECS 8
#define KERNELS mha__kernels_avx2

typedef float vec __attribute__((vector_size(32)));

static inline vec madd(vec a, vec b, vec c)
{
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline vec greater(vec a, vec b)
{
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
}

#define ISA_PARTS
static inline __m256i first(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vec load_part(const float *p, size_t n)
{
    return (vec)_mm256_maskload_ps(p, first(n));
}

static inline void store_part(float *p, size_t n, vec x)
{
    _mm256_maskstore_ps(p, first(n), (__m256)x);
}

static inline vec halves(const uint16_t *x)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline vec half_lanes(vec x)
{
    const __m256i lower = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(0xffff)),
                  four = _mm256_packus_epi32(lower, lower);
    return (vec)_mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(four, 8)));
}

static inline vec bytes(const unsigned char *x)
{
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x)));
}

typedef uint32_t bits_of_vec __attribute__((vector_size(32)));

static inline bits_of_vec look_up(bits_of_vec x, const signed char *values)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values));
    return (bits_of_vec)_mm256_shuffle_epi8(table, (__m256i)x);
}

#include "compute/kernels/body.h"
#else
typedef int mha__needs_avx2;
#endif
