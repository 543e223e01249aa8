/* Which instruction set's kernels are used: detected once, or forced. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compute/kernels/float_mode.h"
#include "compute/kernels/kernels.h"
#include "mha/system.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* Asked of the CPU, because not every compiler's __builtin_cpu_supports knows "f16c". */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* __builtin_cpu_supports asks the CPU and, by XGETBV, whether the system saves the registers. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && has_avx2();
}

/* A Zen 5 adds as many pairs in a cycle as floats; others found a Zen 4 to gain, too, and a Sapphire Rapids to lose. */
static bool has_avx512_bf16(void)
{
    return has_avx512() && __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16") && mha__pairs_avx512.product;
}
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>

static bool has_neon(void)
{
    const unsigned long asimd = 1ul << 1; /* HWCAP_ASIMD */
    return getauxval(AT_HWCAP) & asimd;
}
#endif

static bool always(void)
{
    return true;
}

/* Best first, and whether this machine and its system have it. */
static const struct {
    const mha__kernels *kernels;
    bool (*has)(void);
} rows[] = {
#if defined(__x86_64__) || defined(__i386__)
    {&mha__kernels_avx512_bf16, has_avx512_bf16},
    {&mha__kernels_avx512, has_avx512},
    {&mha__kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {&mha__kernels_neon, has_neon},
#endif
    {&mha__kernels_scalar, always},
};
enum { ROWS = sizeof rows / sizeof *rows };

const mha__kernels *mha__kernels_at(size_t index)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].has() && index-- == 0)
            return rows[i].kernels;
    return NULL;
}

/* MHA_UNSUPPORTED: another machine has it. */
static mha_status find(const char *name, const mha__kernels **found)
{
    *found = mha__kernels_at(0);
    if (strcmp(name, "auto") == 0)
        return MHA_OK;
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].kernels->isa, name) == 0) {
            *found = rows[i].has() ? rows[i].kernels : *found;
            return rows[i].has() ? MHA_OK : MHA_UNSUPPORTED;
        }
    return MHA_NOT_FOUND;
}

static _Atomic(const mha__kernels *) chosen;

/* Whether the calling thread uses portable kernels: a key of the C library. A _Thread_local variable would need the
 * loader's library, or room that the loader does not have for the wheel. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t portable;
static atomic_bool has_key;

static void make_key(void)
{
    atomic_store_explicit(&has_key, pthread_key_create(&portable, NULL) == 0, memory_order_release);
}

void mha__kernels_portable(bool begins)
{
    pthread_once(&once, make_key);
    if (atomic_load_explicit(&has_key, memory_order_acquire))
        pthread_setspecific(portable, begins ? &portable : NULL);
}

bool mha__kernels_are_portable(void)
{
    return atomic_load_explicit(&has_key, memory_order_acquire) && pthread_getspecific(portable);
}

const mha__kernels *mha__kernels_get(void)
{
    if (mha__kernels_are_portable())
        return &mha__kernels_scalar;
    const mha__kernels *kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!kernels) {
        const char *wanted = getenv("MHA_ISA");
        const mha__kernels *first, *none = NULL;
        (void)find(wanted ? wanted : "auto", &first);
        /* Threads that come here together agree on the one that stored first. */
        atomic_compare_exchange_strong(&chosen, &none, first);
        kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    }
    return kernels;
}

const mha__pairs *mha__pairs_get(void)
{
#ifdef __SSE_MATH__
    const unsigned rounding = 0x6000; /* the two bits of the control register; to nearest is 0 */
    return mha__float_mode_get() & rounding ? NULL : mha__kernels_get()->pairs;
#else
    return NULL;
#endif
}

mha_status mha__kernels_select(const char *name)
{
    const mha__kernels *kernels;
    if (!name)
        return MHA_INVALID;
    TRY(find(name, &kernels));
    atomic_store_explicit(&chosen, kernels, memory_order_release);
    return MHA_OK;
}
