/* Measures the machine's own limits: multiply-adds in registers, and reads beyond the caches. */
#include <stdint.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "compute/thread_pool.h"
#include "mha/system.h"
#include "bench/machine_peak.h"

enum { MOST_WORKERS = 1024 };
#ifndef BENCH_PEAK_ROUNDS
#define BENCH_PEAK_ROUNDS 200000
#endif
/* Sixteen times a last-level cache of 32 MiB, which still keeps a third of a repeatedly swept block of 128 MiB. */
#ifndef BENCH_READ_MIB
#define BENCH_READ_MIB 512
#endif
static const size_t block_bytes = (size_t)BENCH_READ_MIB << 20;
static const double enough_seconds = 4e-3;

typedef struct limits {
    const mha__kernels *kernels;
    const float *block;
    size_t floats; /* read by each task */
    double operations[MOST_WORKERS];
    bool sink[MOST_WORKERS];
} limits;

static void compute(void *context, size_t task, int worker)
{
    (void)worker;
    limits *l = context;
    float sink = 0.0f;
    l->operations[task] = l->kernels->peak(BENCH_PEAK_ROUNDS, &sink);
    l->sink[task] = sink != 0.0f;
}

static void sweep(void *context, size_t task, int worker)
{
    (void)worker;
    limits *l = context;
    l->sink[task] = l->kernels->read(l->block + task * l->floats, l->floats) != 0.0f;
}

/* The shortest of a few tries: other work on the machine can only slow a try down. */
static double fastest(size_t tasks, int threads, mha_task task, limits *l, int tries)
{
    double best = 1e30;
    for (int i = 0; i < tries; i++) {
        double start = mha__clock_seconds();
        mha__parallel_for(tasks, threads, task, l);
        double taken = mha__clock_seconds() - start;
        best = taken < best ? taken : best;
    }
    return best;
}

/* The mean time of sweeps that fill some milliseconds; a benchmark on the same bytes is timed likewise. */
static double mean_sweep(int threads, limits *l)
{
    double start = mha__clock_seconds(), taken;
    int sweeps = 0;
    do {
        mha__parallel_for((size_t)threads, threads, sweep, l);
        sweeps++;
        taken = mha__clock_seconds() - start;
    } while (taken < enough_seconds);
    return taken / sweeps;
}

mha_status mha__machine_reads(int threads, size_t bytes, double *read_gbs)
{
    const size_t unit = 128 * sizeof(float);
    if (threads < 1 || threads > MOST_WORKERS || bytes / unit < (size_t)threads)
        return MHA_INVALID;
    mha_allocator a = mha__allocator_default();
    limits *l = mha__allocate(&a, sizeof *l);
    float *block = mha__allocate(&a, bytes);
    mha_status status = l && block ? MHA_OK : MHA_NO_MEMORY;
    if (status == MHA_OK) {
        for (size_t i = 0; i < bytes / sizeof *block; i += 128)
            block[i] = 1.0f; /* every page is written: unwritten pages would share one page of zeros */
        size_t tasks = (size_t)threads;
        *l = (limits){.kernels = mha__kernels_get(), .block = block, .floats = bytes / unit / tasks * 128};
        double best = mean_sweep(threads, l);
        for (int i = 0; i < 3; i++) {
            double taken = mean_sweep(threads, l);
            best = taken < best ? taken : best;
        }
        *read_gbs = (double)(l->floats * tasks * sizeof *block) / best * 1e-9;
    }
    mha__release(&a, block, bytes);
    mha__release(&a, l, sizeof *l);
    return status;
}

mha_status mha__machine_limits(int threads, double *peak_gflops, double *read_gbs)
{
    if (threads < 1 || threads > MOST_WORKERS)
        return MHA_INVALID;
    if (peak_gflops) {
        mha_allocator a = mha__allocator_default();
        limits *l = mha__allocate(&a, sizeof *l);
        if (!l)
            return MHA_NO_MEMORY;
        size_t tasks = (size_t)threads;
        *l = (limits){.kernels = mha__kernels_get()};
        double taken = fastest(tasks, threads, compute, l, 20), operations = 0;
        for (size_t i = 0; i < tasks; i++)
            operations += l->operations[i];
        *peak_gflops = operations / taken * 1e-9;
        mha__release(&a, l, sizeof *l);
    }
    return read_gbs ? mha__machine_reads(threads, block_bytes, read_gbs) : MHA_OK;
}
