/* Products of BF16 numbers in pairs, for AVX-512 with AVX512_BF16. */
#include "compute/kernels/list.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define ISA_LANES 16
#define ISA_PAIRS mha__pairs_avx512
#define TILE_ROWS 14
#define TILE_VECS 2
#define FLAT_ROWS 3
#define FLAT_ROWS_IN_PLACE 3
#define FLAT_HINTS 1
#define HALF_FLAT_ROWS 7
#define FLAT_VECS 8

typedef float vec __attribute__((vector_size(64)));

static inline vec madd(vec a, vec b, vec c)
{
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline vec greater(vec a, vec b)
{
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
}

/* VDPBF16PS adds the product of the upper halves, rounds to nearest even, adds that of the lower ones and rounds again;
 * it takes what is below 2^-126 for 0 wherever it meets it (Intel's manual; the same on a Zen 5, in 2 * 10^7 cases). */
static inline vec add_pair(vec a, vec b, vec c)
{
    return (vec)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
#define ISA_TERM add_pair

#define ISA_PARTS
static inline vec load_part(const float *p, size_t n)
{
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

static inline void store_part(float *p, size_t n, vec x)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
}

/* The instruction puts the earlier number into the lower half. */
static inline vec join_pairs(vec a, vec b)
{
    return (vec)_mm512_rol_epi32((__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a), 16);
}

typedef uint32_t bits_of_vec __attribute__((vector_size(64)));

static inline bits_of_vec round_to_bf16(vec x)
{
    return (bits_of_vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)x)), 16);
}

#include "compute/kernels/body/simd.h"
#include "compute/kernels/body/product.h"
#include "compute/kernels/body/pairs.h"

#elif defined(__x86_64__) || defined(__i386__)
const mha__pairs mha__pairs_avx512;
#endif
