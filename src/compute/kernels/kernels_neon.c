/* The kernels for NEON (AArch64): 32 registers of 4 floats, 24 of them accumulate. */
#if defined(__aarch64__)
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define ISA_NAME "neon"
#define ISA_LANES 4
#define TILE_ROWS 6
#define TILE_VECS 4
#define FLAT_ROWS 3
#define HALF_FLAT_ROWS 6
#define FLAT_VECS 8
#define KERNELS mha__kernels_neon

typedef float vec __attribute__((vector_size(16)));

static inline vec madd(vec a, vec b, vec c)
{
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

/* NEON's own maximum hands NaN on from either side. */
static inline vec greater(vec a, vec b)
{
    return (vec)vbslq_f32(vcgtq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}

static inline vec halves(const uint16_t *x)
{
    return (vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}

static inline vec half_lanes(vec x)
{
    return (vec)vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32((uint32x4_t)x)));
}

static inline vec bytes(const unsigned char *x)
{
    uint32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return (vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))))));
}

typedef uint32_t bits_of_vec __attribute__((vector_size(16)));

static inline bits_of_vec look_up(bits_of_vec x, const signed char *values)
{
    return (bits_of_vec)vqtbl1q_s8(vld1q_s8(values), (uint8x16_t)x);
}

#include "compute/kernels/body.h"
#else
typedef int mha__needs_neon;
#endif
