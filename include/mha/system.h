/* The environment of the library: instruction set, BLAS, threads, version. */
#ifndef MHA_SYSTEM_H
#define MHA_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

#include "mha/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MHA_VERSION_MAJOR 0
#define MHA_VERSION_MINOR 3
#define MHA_VERSION_PATCH 0

MHA_API const char *mha_version(void); /* "0.3.0": the version of the library that runs, not of this header */

/* OpenBLAS starts threads of its own when it is loaded. Each waits for 128 MiB of memory, and the process waits for
 * them when it exits. Where memory is limited (`ulimit -v`, `-d`), set OPENBLAS_NUM_THREADS=1, as the program mha does:
 * the library uses none of these threads.
 *
 * The BLAS of the path `blas`: its own text of name and configuration ("OpenBLAS 0.3.21 ..."; "CBLAS" when it has
 * none), and its kind of threads: "pthread", "openmp", "serial" or "unknown". Static text. */
MHA_API const char *mha_blas_name(void);
MHA_API const char *mha_blas_threading(void);

/* The number of threads of a call with threads = 0: OMP_NUM_THREADS, else the processors the process may run on;
 * at most 1024. */
MHA_API int mha_threads_available(void);

/* One task of a parallel loop: `worker` numbers the thread that runs it. */
typedef void (*mha_task)(void *context, size_t task, int worker);

/* A caller's thread pool. `run` calls task(context, i, worker) once for every i in [0, n) and returns when all are
 * done. `worker` is from 0 to threads - 1, and no two tasks that run at a time have the same one; 0 may be the calling
 * thread. Tasks need no order, start no tasks and do not fail. Several threads may call `run` at once. */
typedef struct mha_thread_pool {
    void (*run)(void *pool, size_t n, int threads, mha_task task, void *context);
    void *pool;           /* passed to `run`; owned by the caller */
    uint64_t reserved[2]; /* 0; see mha.h */
} mha_thread_pool;

/* Makes all later calls run their tasks in `pool`, which is copied, instead of the library's own; NULL: in the
 * library's own again. Results have the same bits. Must not be called during a call of the library.
 * MHA_INVALID: no `run`. MHA_UNSUPPORTED: a reserved word is not 0. */
MHA_API mha_status mha_threads_use(const mha_thread_pool *pool, mha_error *error);

/* Ends the threads of the library's own pool and waits until they have ended. A later call of the library starts new
 * ones. Must not be called during a call of the library. The end of the process does the same. */
MHA_API void mha_threads_end(void);

/* The instruction set of the kernels in use, and all those that this machine has: the best first, "scalar" last, NULL
 * past the end. */
MHA_API const char *mha_isa(void);
MHA_API const char *mha_isa_at(size_t index);
/* Chooses the instruction set of every later call: "scalar", "avx2", "avx512", "avx512_bf16" (AVX-512 that multiplies
 * BF16 numbers in pairs; listed where that is faster), "neon", or "auto" for the best. Must not be called during a
 * forward. The environment variable MHA_ISA makes the same choice at first use; a value that names no instruction set
 * of this machine is ignored there (the program mha refuses it). MHA_INVALID: `name` is NULL. MHA_NOT_FOUND: there is
 * no such name. MHA_UNSUPPORTED: this machine does not have it. */
MHA_API mha_status mha_isa_select(const char *name, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
