/* Vectors of AVX-512 and the tiles that 32 registers of them hold, for both files of kernels that use them. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define ISA_LANES 16
#define TILE_ROWS 14
#define TILE_VECS 2
#define FLAT_ROWS 3
#define FLAT_ROWS_IN_PLACE 4 /* two sums are kept in memory: faster from memory, a little slower from a cache */
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

#define ISA_PARTS
static inline vec load_part(const float *p, size_t n)
{
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

static inline void store_part(float *p, size_t n, vec x)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
}

typedef uint32_t bits_of_vec __attribute__((vector_size(64)));
