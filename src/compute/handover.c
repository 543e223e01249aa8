/* From how much work on a second thread is worth its while: what handing work over costs, measured once. */
#include "compute/handover.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "compute/thread_pool.h"

/* Between these every machine is expected to be: a quarter of a microsecond of slow kernels, and 10 of fast ones. */
static const double lowest = 5e4, highest = 1e7, usual = 5e5;

double mha__handover_least(double seconds, double operations_per_second)
{
    const double part = 8;
    const double operations = part * seconds * operations_per_second;
    return !(seconds > 0) || !(operations_per_second > 0) || !isfinite(operations) ? usual
           : operations < lowest                                                   ? lowest
           : operations > highest                                                  ? highest
                                                                                   : operations;
}

int mha__threads_for(double operations, int threads, double least)
{
    return operations >= least * threads ? threads : operations < 2 * least ? 1 : (int)(operations / least);
}

/* ---------------------------------------------------------------- measuring */

/* In seconds: a helper that sleeps is awake by then; what takes longer is no handover, because the system let somebody
 * else run; no meeting begins later. */
static const double patience = 2e-4, longest = 2e-5, enough = 2e-3;

typedef struct meeting {
    atomic_int there; /* one bit for each worker */
    atomic_bool met;
} meeting;

/* Each of two workers waits for the other in its task, so that both must be at work. */
static void meet(void *context, size_t task, int worker)
{
    enum { BOTH = 3 };
    (void)task;
    meeting *m = context;
    const double start = mha__clock_seconds();
    atomic_fetch_or(&m->there, 1 << worker);
    while (atomic_load(&m->there) != BOTH)
        if (mha__clock_seconds() - start > patience)
            return;
    atomic_store(&m->met, true);
}

/* The shortest of some meetings, because others on the machine only make them longer; 0 when there was none. The first
 * ones start or wake the helper. */
static double shortest_meeting(void)
{
    enum { MEETINGS = 64 };
    const double first = mha__clock_seconds();
    double shortest = longest;
    for (int i = 0; i < MEETINGS && mha__clock_seconds() - first < enough; i++) {
        meeting m = {0};
        const double start = mha__clock_seconds();
        mha__parallel_for(2, 2, meet, &m);
        const double taken = mha__clock_seconds() - start;
        if (atomic_load(&m.met) && taken < shortest)
            shortest = taken;
    }
    return shortest < longest ? shortest : 0;
}

static double speed(void)
{
    enum { TRIES = 4, ROUNDS = 2000 };
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        float sink = 0; /* small sums: no exception is raised */
        const double start = mha__clock_seconds(), operations = mha__kernels_get()->peak(ROUNDS, &sink),
                     taken = mha__clock_seconds() - start;
        best = taken > 0 && operations / taken > best ? operations / taken : best;
    }
    return best;
}

static mha__handover measured;

static void measure(void)
{
    measured.seconds = shortest_meeting();
    measured.operations_per_second = speed();
    measured.least = mha__handover_least(measured.seconds, measured.operations_per_second);
}

mha__handover mha__handover_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure);
    return measured;
}

int mha__parallel_worth(double operations, int threads)
{
    const int most = mha__threads_for(operations, threads, lowest),
              least = mha__threads_for(operations, threads, highest);
    return most == least ? most : mha__threads_for(operations, threads, mha__handover_get().least);
}
