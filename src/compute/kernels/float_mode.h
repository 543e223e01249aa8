/* How a thread rounds and whether it keeps subnormals, handed from one thread to another. Reading the control register
 * takes a few cycles; fegetenv, the portable way, takes 200 ns. Traps are left out, because a handler that the caller
 * has installed need not work in other threads. mha__float_mode_flush makes the thread take subnormals for zero, in
 * operands and results, where the processor can; mha__float_mode_restore ends that. */
#ifndef MHA_COMPUTE_KERNELS_FLOAT_MODE_H
#define MHA_COMPUTE_KERNELS_FLOAT_MODE_H

#if defined(__SSE_MATH__)
typedef unsigned mha__float_mode;

static inline mha__float_mode mha__float_mode_get(void)
{
    return __builtin_ia32_stmxcsr();
}

static inline void mha__float_mode_set(mha__float_mode mode)
{
    const unsigned flags = 0x3F, no_traps = 0x1F80;
    __builtin_ia32_ldmxcsr((mode & ~flags) | no_traps);
}

/* The register as it was read, traps and flags included. */
static inline void mha__float_mode_restore(mha__float_mode mode)
{
    __builtin_ia32_ldmxcsr(mode);
}

static inline void mha__float_mode_flush(void)
{
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
}

#elif defined(__aarch64__)
typedef unsigned long mha__float_mode;

static inline mha__float_mode mha__float_mode_get(void)
{
    mha__float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static inline void mha__float_mode_set(mha__float_mode mode)
{
    const unsigned long traps = 0x9F00;
    __asm__ volatile("msr fpcr, %0" : : "r"(mode & ~traps));
}

static inline void mha__float_mode_restore(mha__float_mode mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}

static inline void mha__float_mode_flush(void)
{
    mha__float_mode_restore(mha__float_mode_get() | 1ul << 24);
}

#else
#include <fenv.h>
typedef fenv_t mha__float_mode;

static inline mha__float_mode mha__float_mode_get(void)
{
    mha__float_mode mode;
    fegetenv(&mode);
    return mode;
}

static inline void mha__float_mode_set(mha__float_mode mode)
{
    fenv_t trapping;
    fesetenv(&mode);
    feholdexcept(&trapping);
}

static inline void mha__float_mode_restore(mha__float_mode mode)
{
    fesetenv(&mode);
}

static inline void mha__float_mode_flush(void)
{
}
#endif

#endif
