/* The library's one thread pool. */
#ifndef MHA_PARALLEL_H
#define MHA_PARALLEL_H

#include <stddef.h>

typedef void (*mha_task)(void *context, size_t task, int worker);

/* Runs task(context, i, worker) for every i in [0, n), on at most `threads` workers numbered from 0;
 * each task runs exactly once, one at a time per worker, in no promised order. A smaller team than
 * asked for (inside a caller's own parallel region) does all tasks too. */
void mha_parallel_for(size_t n, int threads, mha_task task, void *context);

/* How many of `threads` are worth waking for so many floating-point operations. */
int mha_parallel_worth(double operations, int threads);

/* The team that the OpenMP runtime would form for the calling thread by itself, at least 1; and the same
 * set, for the calling thread alone. mha_parallel_for does not look at it. */
int mha_parallel_default(void);
void mha_parallel_set_default(int threads);

#endif
