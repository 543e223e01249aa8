/* The kernels for any machine: vectors of four floats, which the compiler maps onto what the base of the
 * architecture has. The version that is always there and always right. */
#include <stddef.h>
#include <stdint.h>

#define ISA_NAME "scalar"
#define ISA_LANES 4
#define TILE_ROWS 4
#define TILE_VECS 2
#define FLAT_ROWS 1
#define HALF_FLAT_ROWS 2
#define FLAT_VECS 8
#define ISA_UNFUSED
#define KERNELS mha__kernels_scalar

typedef float vec __attribute__((vector_size(16)));
typedef int mask_of_vec __attribute__((vector_size(16)));

static inline vec madd(vec a, vec b, vec c)
{
    return a * b + c;
}

static inline vec greater(vec a, vec b)
{
    mask_of_vec above = a > b;
    return (vec)(((mask_of_vec)a & above) | ((mask_of_vec)b & ~above));
}

typedef float vec_anywhere __attribute__((vector_size(16), aligned(4), may_alias));

typedef uint32_t bits_of_vec __attribute__((vector_size(16)));
typedef uint16_t four_halves __attribute__((vector_size(8), aligned(2), may_alias));

/* The exponent moves by 127 - 15, twice for NaN and infinity; subnormal numbers are integers times 2^-24. */
static inline vec half_lanes(vec x)
{
    const bits_of_vec bits = (bits_of_vec)x, size = bits & 0x7fff;
    const bits_of_vec moved = (size << 13) + (112u << 23) + ((bits_of_vec)(size >= 0x7c00) & 112u << 23);
    const bits_of_vec small = (bits_of_vec)(__builtin_convertvector((mask_of_vec)size, vec) * 0x1p-24f);
    const bits_of_vec tiny = (bits_of_vec)(size < 0x400);
    return (vec)((small & tiny) | (moved & ~tiny) | (bits & 0x8000) << 16);
}

static inline vec halves(const uint16_t *x)
{
    return half_lanes((vec)__builtin_convertvector(*(const four_halves *)x, bits_of_vec));
}

static inline vec bytes(const unsigned char *x)
{
    return (vec){(float)(int8_t)x[0], (float)(int8_t)x[1], (float)(int8_t)x[2], (float)(int8_t)x[3]};
}

static inline bits_of_vec look_up(bits_of_vec x, const signed char *values)
{
    signed char byte[sizeof x];
    __builtin_memcpy(byte, &x, sizeof x);
    for (size_t i = 0; i < sizeof x; i++)
        byte[i] = values[byte[i]];
    __builtin_memcpy(&x, byte, sizeof x);
    return x;
}

#include "compute/kernels/body.h"
