/* The machine's own limits, measured: multiply-adds in registers, and reads beyond the caches. */
#include <stdint.h>
#include <time.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"
#include "compute/parallel.h"
#include "mha/system.h"

enum { ROUNDS = 200000, MOST_WORKERS = 1024 };
static const size_t block_bytes = (size_t)128 << 20;

typedef struct limits {
    const mha_kernels *kernels;
    const float *block;
    size_t floats; /* for each task */
    double operations[MOST_WORKERS];
    bool sink[MOST_WORKERS];
} limits;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void compute(void *context, size_t task, int worker)
{
    (void)worker;
    limits *l = context;
    float sink = 0.0f;
    l->operations[task] = l->kernels->peak(ROUNDS, &sink);
    l->sink[task] = sink != 0.0f;
}

static void sweep(void *context, size_t task, int worker)
{
    (void)worker;
    limits *l = context;
    l->sink[task] = l->kernels->read(l->block + task * l->floats, l->floats) != 0.0f;
}

/* The best of a few tries: what others do on the machine only ever slows one down. */
static double fastest(size_t tasks, int threads, mha_task task, limits *l, int tries)
{
    double best = 1e30;
    for (int i = 0; i < tries; i++) {
        double start = seconds();
        mha_parallel_for(tasks, threads, task, l);
        double taken = seconds() - start;
        best = taken < best ? taken : best;
    }
    return best;
}

mha_status mha_machine_limits(int threads, double *peak_gflops, double *read_gbs)
{
    if (threads < 1 || threads > MOST_WORKERS)
        return MHA_INVALID;
    mha_allocator a = mha_allocator_default();
    limits *l = mha_allocate(&a, sizeof *l);
    float *block = mha_allocate(&a, block_bytes);
    mha_status status = l && block ? MHA_OK : MHA_NO_MEMORY;
    if (status == MHA_OK) {
        for (size_t i = 0; i < block_bytes / sizeof *block; i += 128)
            block[i] = 1.0f; /* pages of zeros would all be one page */
        size_t tasks = (size_t)threads;
        *l = (limits){.kernels = mha_kernels_get(), .block = block, .floats = block_bytes / sizeof *block / tasks / 128 * 128};
        double taken = fastest(tasks, threads, compute, l, 20), operations = 0;
        for (size_t i = 0; i < tasks; i++)
            operations += l->operations[i];
        *peak_gflops = operations / taken * 1e-9;
        taken = fastest(tasks, threads, sweep, l, 4);
        *read_gbs = (double)(l->floats * tasks * sizeof *block) / taken * 1e-9;
    }
    mha_release(&a, block, block_bytes);
    mha_release(&a, l, sizeof *l);
    return status;
}
