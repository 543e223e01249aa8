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
    const uint64_t *block;
    size_t words; /* for each task */
    double operations[MOST_WORKERS];
    uint64_t sink[MOST_WORKERS];
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

typedef uint64_t words __attribute__((vector_size(64)));

static void sweep(void *context, size_t task, int worker)
{
    (void)worker;
    limits *l = context;
    const words *from = (const words *)(const void *)(l->block + task * l->words);
    words sum[4] = {{0}};
    for (size_t i = 0; i + 4 <= l->words / 8; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] ^= from[i + (size_t)k];
    sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
    l->sink[task] = sum[0][0];
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
    uint64_t *block = mha_allocate(&a, block_bytes);
    mha_status status = l && block ? MHA_OK : MHA_NO_MEMORY;
    if (status == MHA_OK) {
        for (size_t i = 0; i < block_bytes / sizeof *block; i += 64)
            block[i] = i; /* pages of zeros would all be one page */
        size_t tasks = (size_t)threads;
        *l = (limits){.kernels = mha_kernels_get(), .block = block, .words = block_bytes / sizeof *block / tasks / 32 * 32};
        double taken = fastest(tasks, threads, compute, l, 20), operations = 0;
        for (size_t i = 0; i < tasks; i++)
            operations += l->operations[i];
        *peak_gflops = operations / taken * 1e-9;
        taken = fastest(tasks, threads, sweep, l, 4);
        *read_gbs = (double)(l->words * tasks * sizeof *block) / taken * 1e-9;
    }
    mha_release(&a, block, block_bytes);
    mha_release(&a, l, sizeof *l);
    return status;
}
