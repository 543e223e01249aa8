/* The library's one thread pool, and its only OpenMP pragmas. */
#include <omp.h>

#include "compute/parallel.h"

void mha_parallel_for(size_t n, int threads, mha_task task, void *context)
{
    if (n < 2 || threads < 2) {
        for (size_t i = 0; i < n; i++)
            task(context, i, 0);
        return;
    }
    const int team = (size_t)threads > n ? (int)n : threads; /* NOLINT: the pragma reads it */
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (size_t i = 0; i < n; i++)
        task(context, i, omp_get_thread_num());
}

int mha_parallel_worth(double operations, int threads)
{
    const double share = 2e6; /* about ten microseconds, several times what starting a team takes */
    return operations >= share * threads ? threads : operations < 2 * share ? 1 : (int)(operations / share);
}

int mha_parallel_default(void)
{
    int threads = omp_get_max_threads();
    return threads < 1 ? 1 : threads;
}

void mha_parallel_set_default(int threads)
{
    omp_set_num_threads(threads);
}
