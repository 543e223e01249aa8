/* The list of instruction sets, best first: name in the code, and whether this machine and its system have it. A row
 * for another architecture is left out by its condition. */
#ifndef MHA_COMPUTE_KERNELS_LIST_H
#define MHA_COMPUTE_KERNELS_LIST_H

#include "compute/kernels/kernels.h"

#if defined(__x86_64__) || defined(__i386__)
#define MHA_KERNELS_X86(X)                                                                                             \
    X(avx512_bf16, has_avx512_bf16())                                                                                  \
    X(avx512, has_avx512())                                                                                            \
    X(avx2, has_avx2())
#else
#define MHA_KERNELS_X86(X)
#endif

#if defined(__aarch64__)
#define MHA_KERNELS_ARM(X) X(neon, has_neon())
#else
#define MHA_KERNELS_ARM(X)
#endif

#define MHA_KERNELS_LIST(X)                                                                                            \
    MHA_KERNELS_X86(X)                                                                                                 \
    MHA_KERNELS_ARM(X)                                                                                                 \
    X(scalar, true)

#define MHA_KERNELS_DECLARE(name, available) extern const mha__kernels mha__kernels_##name;
MHA_KERNELS_LIST(MHA_KERNELS_DECLARE)

/* Pairs for AVX-512; of nothing but NULL when the compiler did not know the instructions. */
extern const mha__pairs mha__pairs_avx512;
#undef MHA_KERNELS_DECLARE

#endif
