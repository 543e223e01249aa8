/* The kernels of each instruction set; dispatch.c lists those of this architecture. */
#ifndef MHA_COMPUTE_KERNELS_LIST_H
#define MHA_COMPUTE_KERNELS_LIST_H

#include "compute/kernels/kernels.h"

extern const mha__kernels mha__kernels_avx512_bf16, mha__kernels_avx512, mha__kernels_avx2, mha__kernels_neon,
    mha__kernels_scalar;
/* Pairs for AVX-512; of nothing but NULL when the compiler did not know the instructions. */
extern const mha__pairs mha__pairs_avx512;

#endif
