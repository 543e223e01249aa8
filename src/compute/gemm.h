/* SGEMM through CBLAS, always on the calling thread. */
#ifndef MHA_COMPUTE_GEMM_H
#define MHA_COMPUTE_GEMM_H

#include <limits.h>
#include <stddef.h>

#include "mha/status.h"

typedef struct mha__gemm_bracket {
    int threads, openmp_default;
} mha__gemm_bracket;

/* Brackets SGEMM calls, from `threads` threads at once (0: as many as a call has by default). While at
 * least one bracket is open the BLAS is set to one thread; the last one to close puts its thread count back. Other
 * users of the same BLAS in the process see one thread meanwhile. The OpenMP flavour of OpenBLAS also follows, and
 * sets, the calling thread's OpenMP default: mha__gemm_end puts it back. In a child of fork no bracket is open; fork
 * waits for calls of the BLAS made here, so that the child can use it. MHA_NO_MEMORY: the memory of the process is
 * limited (ulimit -v or -d), and there is none for the buffers of so many calls at once. */
mha_status mha__gemm_begin(int threads, mha__gemm_bracket *bracket, mha_error *error);
void mha__gemm_end(const mha__gemm_bracket *bracket);

/* Twice this still fits the int of CBLAS. A product of one row with a B of three rows or more has other last bits where
 * the rows of B are farther apart. */
enum { MHA_GEMM_GAP_STRIDE = INT_MAX / 2 };

/* C (m, n) = A (m, k) B (k, n), row-major with row strides lda, ldb, ldc. m, n or k may be 0 (k = 0: C = 0). Extents
 * and strides fit an int; the stride of a matrix of one row means nothing and may be any number. There is no factor: a
 * BLAS may multiply it into A, which then leaves the range of float where A B does not. */
void mha__gemm(size_t m, size_t n, size_t k, const float *A, size_t lda, const float *B, size_t ldb, float *C,
               size_t ldc);
/* C (m, n) = A (m, k) B^T with B (n, k): the Q K^T form. */
void mha__gemm_nt(size_t m, size_t n, size_t k, const float *A, size_t lda, const float *B, size_t ldb, float *C,
                  size_t ldc);

/* C (m, n) = A (m, k) B (k, n) in double: DGEMM, for the comparison of what others computed. Extents and strides fit an
 * int. */
void mha__gemm_double(size_t m, size_t n, size_t k, const double *A, size_t lda, const double *B, size_t ldb, double *C,
                      size_t ldc);

#endif
