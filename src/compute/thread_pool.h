/* The library's one thread pool. */
#ifndef MHA_COMPUTE_THREAD_POOL_H
#define MHA_COMPUTE_THREAD_POOL_H

#include <stddef.h>

#include "mha/system.h"

/* Runs task(context, i, worker) for every i in [0, n), on at most `threads` workers numbered from 0, the calling
 * thread one of them; each task runs exactly once, one at a time per worker, in no promised order. A worker that is
 * free takes the next task, so a helper that comes late, or never (no thread could be started, or the caller is inside
 * an OpenMP region, where all processors are in use), costs nothing but its help. Any number of threads may call it at
 * once. */
void mha__parallel_for(size_t n, int threads, mha_task task, void *context);

/* The number of threads, at most `threads`, that shortens a task of `operations` floating-point operations. Results do
 * not depend on it. */
int mha__parallel_worth(double operations, int threads);

/* MHA_INVALID for a number of threads that no call may ask for; 0 asks for the default. */
mha_status mha__parallel_check(int threads, mha_error *error);

/* The OpenMP team size of the calling thread, and setting it: an OpenBLAS that threads by OpenMP follows it. 1, and
 * nothing, where no OpenMP runtime is loaded. */
int mha__openmp_default(void);
void mha__openmp_set_default(int threads);

#endif
