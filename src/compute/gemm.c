/* The only file that includes cblas.h: SGEMM, the thread count of the BLAS, its name. */
#include <cblas.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "compute/kernels/kernels.h"
#include "compute/thread_pool.h"
#include "mha/system.h"

/* OpenBLAS's own controls; another CBLAS has none of them. */
extern void openblas_set_num_threads(int) __attribute__((weak));
extern int openblas_get_num_threads(void) __attribute__((weak));
extern int openblas_get_parallel(void) __attribute__((weak));
extern char *openblas_get_config(void) __attribute__((weak));
extern void *blas_memory_alloc(int) __attribute__((weak));
extern void blas_memory_free(void *) __attribute__((weak));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned inside;     /* brackets open now */
static int callers;         /* threads that may be in the BLAS at once, of all of them */
static int threads_outside; /* the thread count to put back */
static bool left_inside;    /* in a child of fork: its BLAS is still on the one thread that its parent's brackets set */

/* ---------------------------------------------------------------- fork */

#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#define CALLS_INITIALIZER PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#else
#define CALLS_INITIALIZER PTHREAD_RWLOCK_INITIALIZER
#endif

/* Held for reading by every call of the BLAS and for writing by fork. The BLAS has locks of its own, which it takes
 * when a call begins and ends; a child made while another thread holds one would find it closed for ever. */
static pthread_rwlock_t calls = CALLS_INITIALIZER;
static bool fork_has_calls;

/* Waits for at most 1 s: the BLAS takes its locks only at the beginning and the end of a call, and a signal handler
 * that interrupted a call of this very thread may fork, for which waiting would never end. */
static void before_fork(void)
{
    struct timespec until;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    fork_has_calls = pthread_rwlock_timedwrlock(&calls, &until) == 0;
}

static void after_fork(void)
{
    if (fork_has_calls)
        pthread_rwlock_unlock(&calls);
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    calls = (pthread_rwlock_t)CALLS_INITIALIZER;
    left_inside |= inside > 0;
    inside = 0;
    callers = 0;
}

/* Runs when the program starts, because later another thread could fork at the same time. */
__attribute__((constructor)) static void prepare_for_fork(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---------------------------------------------------------------- memory of the BLAS */

static bool is_limited(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* Whether the system would give so much memory now. */
static bool has_room(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block != MAP_FAILED && munmap(block, bytes) == 0;
}

/* The size of a buffer of OpenBLAS, as it is built for several kinds of processors; other builds have smaller ones. */
static const size_t buffer = (size_t)128 << 20;

/* Each call of OpenBLAS takes a buffer, and makes one when none is free. If there is no memory for that, OpenBLAS asks
 * again for ever, or ends the process (from 0.3.30 on). So where memory is limited the buffers of `wanted` calls at
 * once are made before the first one. False: there is no room. Called with the lock held. */
static bool have_buffers(int wanted)
{
    enum { MOST = 1024 };
    static int made;
    void *held[MOST];
    int n = 0;
    if (!blas_memory_alloc || !blas_memory_free || wanted <= made ||
        (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)))
        return true;
    const int more = wanted - made + callers; /* others may hold those that are made */
    if (wanted > MOST || !has_room((size_t)more * buffer))
        return false;
    while (n < wanted)
        held[n++] = blas_memory_alloc(0);
    made = n;
    while (n > 0)
        blas_memory_free(held[--n]);
    return true;
}

/* ---------------------------------------------------------------- threads of the BLAS */

mha_status mha__gemm_begin(int threads, mha__gemm_bracket *bracket, mha_error *error)
{
    threads = threads > 0 ? threads : mha_threads_available();
    *bracket = (mha__gemm_bracket){threads, mha__openmp_default()};
    if (!openblas_set_num_threads || !openblas_get_num_threads)
        return MHA_OK;
    pthread_mutex_lock(&lock);
    const bool room = have_buffers(callers + threads);
    if (room) {
        callers += threads;
        if (inside++ == 0) {
            threads_outside = left_inside ? threads_outside : openblas_get_num_threads();
            left_inside = false;
            openblas_set_num_threads(1);
        }
    }
    pthread_mutex_unlock(&lock);
    if (!room)
        return mha__fail(error, MHA_NO_MEMORY, "BLAS", "no memory for its buffers, %zu MiB for each of %d threads",
                         buffer >> 20, threads);
    mha__openmp_set_default(1);
    return MHA_OK;
}

void mha__gemm_end(const mha__gemm_bracket *bracket)
{
    if (!openblas_set_num_threads || !openblas_get_num_threads)
        return;
    pthread_mutex_lock(&lock);
    callers -= bracket->threads;
    if (--inside == 0)
        openblas_set_num_threads(threads_outside);
    pthread_mutex_unlock(&lock);
    mha__openmp_set_default(bracket->openmp_default);
}

/* ---------------------------------------------------------------- products */

/* The stride between every second row. Only the stride of a single row, which is not used, may be too large to double.
 */
static int gap_stride(size_t ld)
{
    return (int)(ld <= MHA_GEMM_GAP_STRIDE ? 2 * ld : ld);
}

/* C += B A for B (rows, columns), or with its transpose. OpenBLAS picks another kernel, which rounds
 * differently, when there is no gap between rows. To get the same bits for any stride it is given every other row, and
 * then the rest: there is always a gap. */
static void gemv(CBLAS_TRANSPOSE transpose, size_t rows, size_t columns, const float *B, size_t ldb, const float *A,
                 float *C)
{
    for (size_t first = 0; first < 2 && first < rows; first++) {
        const float *half = B + first * ldb;
        const int n = (int)((rows - first + 1) / 2), ld = gap_stride(n == 1 ? columns : ldb);
        if (transpose == CblasNoTrans)
            cblas_sgemv(CblasRowMajor, transpose, n, (int)columns, 1.0f, half, ld, A, 1, 1.0f, C + first, 2);
        else
            cblas_sgemv(CblasRowMajor, transpose, n, (int)columns, 1.0f, half, ld, A + first, 2, 1.0f, C, 1);
    }
}

/* CBLAS counts in int; plan.c refuses extents and strides beyond it, but for the stride of a matrix of one row, which
 * means nothing and may be any number. CBLAS looks at it all the same, so it is given the row's length. */
static void call_blas(CBLAS_TRANSPOSE transpose_b, size_t m, size_t n, size_t k, const float *A, size_t lda,
                      const float *B, size_t ldb, float *C, size_t ldc)
{
    const bool transposed = transpose_b == CblasTrans;
    const size_t b_rows = transposed ? n : k, b_columns = transposed ? k : n;
    if (m == 0 || n == 0)
        return;
    if (m == 1)
        lda = k, ldc = n;
    if (b_rows == 1)
        ldb = b_columns;
    if (k == 0) {
        for (size_t i = 0; i < m; i++)
            memset(C + i * ldc, 0, n * sizeof *C);
        return;
    }
    if (m == 1 && (b_rows <= 2 || ldb <= MHA_GEMM_GAP_STRIDE)) { /* one row: a matrix read once, at memory speed */
        memset(C, 0, n * sizeof *C); /* some releases of OpenBLAS multiply by a beta of 0 here, NaN included */
        gemv(transposed ? CblasNoTrans : CblasTrans, b_rows, b_columns, B, ldb, A, C);
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose_b, (int)m, (int)n, (int)k, 1.0f, A, (int)lda, B, (int)ldb, 0.0f,
                C, (int)ldc);
}

/* The same by loops, one term after the other, as the kernels of a BLAS add up an element. */
static void by_loops(CBLAS_TRANSPOSE transpose_b, size_t m, size_t n, size_t k, const float *A, size_t lda,
                     const float *B, size_t ldb, float *C, size_t ldc)
{
    const size_t step = transpose_b == CblasTrans ? 1 : ldb, across = transpose_b == CblasTrans ? ldb : 1;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t t = 0; t < k; t++)
                sum += A[i * lda + t] * B[j * across + t * step];
            C[i * ldc + j] = sum;
        }
}

static void gemm(CBLAS_TRANSPOSE transpose_b, size_t m, size_t n, size_t k, const float *A, size_t lda, const float *B,
                 size_t ldb, float *C, size_t ldc)
{
    if (mha__kernels_are_portable()) {
        by_loops(transpose_b, m, n, k, A, lda, B, ldb, C, ldc);
        return;
    }
    pthread_rwlock_rdlock(&calls);
    call_blas(transpose_b, m, n, k, A, lda, B, ldb, C, ldc);
    pthread_rwlock_unlock(&calls);
}

void mha__gemm(size_t m, size_t n, size_t k, const float *A, size_t lda, const float *B, size_t ldb, float *C,
               size_t ldc)
{
    gemm(CblasNoTrans, m, n, k, A, lda, B, ldb, C, ldc);
}

void mha__gemm_nt(size_t m, size_t n, size_t k, const float *A, size_t lda, const float *B, size_t ldb, float *C,
                  size_t ldc)
{
    gemm(CblasTrans, m, n, k, A, lda, B, ldb, C, ldc);
}

void mha__gemm_double(size_t m, size_t n, size_t k, const double *A, size_t lda, const double *B, size_t ldb, double *C,
                      size_t ldc)
{
    if (m > 0 && n > 0)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, 1, A, (int)lda, B, (int)ldb, 0,
                    C, (int)ldc);
}

const char *mha_blas_name(void)
{
    const char *config = openblas_get_config ? openblas_get_config() : NULL;
    return config && *config ? config : "CBLAS";
}

const char *mha_blas_threading(void)
{
    static const char *const flavour[] = {"serial", "pthread", "openmp"};
    int parallel = openblas_get_parallel ? openblas_get_parallel() : -1;
    return parallel >= 0 && parallel <= 2 ? flavour[parallel] : "unknown";
}
