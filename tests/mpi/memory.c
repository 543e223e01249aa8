/* Memory of the ranks over a long context: what mha_mpi_layer_memory says is what the kernel counts, within 10 %.
 * RANKS_TOKENS=n takes n tokens of context, RANKS_FULL=1 lets every query see all keys before it (minutes of work)
 * instead of a window: RANKS=8 RANKS_TOKENS=65536 RANKS_FULL=1 sh tests/mpi/run.sh mpiexec build/tests/mpi/memory */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "mha/mpi.h"
#include "support/sanitizer.h"
#include "support/trial.h"

static int rank, ranks;

__attribute__((noreturn)) static void wrong(const char *what, const char *found)
{
    fprintf(stderr, "rank %d of %d: %s: %s\n", rank, ranks, what, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* A number of /proc/self/status in bytes; 0 where there is none. */
static double status_of(const char *key)
{
    char line[256];
    unsigned long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && kilobytes == 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            kilobytes = strtoul(line + strlen(key), NULL, 10);
    if (file)
        fclose(file);
    return 1024.0 * (double)kilobytes;
}

/* From now on VmHWM is the largest resident memory from here on. False where the kernel does not do that. */
static int forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    int done = file && fputs("5\n", file) >= 0;
    if (file)
        done &= fclose(file) == 0;
    return done;
}

/* ---------------------------------------------------------------- one call */

enum { HEADS = 8, KV_HEADS = 8, D = 32, WIDTH = HEADS * D, WINDOW = 127 };

typedef struct memory {
    double figure, grown; /* bytes that are said, and that became resident */
} memory;

static void run(mha_split_scheme scheme, size_t T_q, size_t T, bool full, memory *m)
{
    static const mha_config config = {.d_model = WIDTH, .n_heads = HEADS, .kv_heads = KV_HEADS};
    const bool decodes = scheme == MHA_SPLIT_CACHE;
    mha_mpi_layer *layer;
    mha_share share;
    mha_mpi_memory said;
    mha_error error;
    mha_call call = {.path = MHA_PATH_FAST, .threads = 1, .semantics = {.visible.causal = true}};
    if (!full && !decodes)
        call.semantics.visible.window_left = WINDOW;
    const double before = status_of("VmRSS:");
    if (mha_mpi_layer_create(MPI_COMM_WORLD, scheme, &config, NULL, NULL, &layer, &error) ||
        mha_mpi_layer_share(layer, 1, T_q, T_q, MHA_F32, &share, &error))
        wrong("layer", error.message);
    mha_layer_init(mha_mpi_layer_own(layer), 1);
    const size_t rows = share.queries[0].count + (share.chunks > 1 ? share.queries[1].count : 0);
    float *x = calloc(rows * WIDTH, sizeof *x), *y = calloc(rows * WIDTH, sizeof *y);
    call.query = mha_rows(x, 1, rows, WIDTH), call.output = mha_rows(y, 1, rows, WIDTH);
    mha_random_fill(&call.query, 1, (uint64_t)rank, -1, 1);
    if (decodes) { /* all rows of the caches but those that come now */
        const size_t capacity = T / (size_t)ranks, held = rank == ranks - 1 ? capacity - T_q : capacity;
        const mha_cache_spec spec = {.batch = 1, .kv_heads = KV_HEADS, .d_k = D, .d_v = D, .capacity = capacity};
        float row[WIDTH] = {0};
        mha_view past = mha_view_of(row, MHA_F32, 4, (size_t[]){1, KV_HEADS, held, D});
        past.stride[1] = D, past.stride[2] = 0; /* the same row again and again */
        if (mha_cache_create(&spec, NULL, &call.cache, &error) ||
            mha_cache_load(call.cache, &past, &past, &error))
            wrong("cache", error.message);
    }
    if (mha_mpi_layer_memory(layer, &call, T_q, T_q, &said, &error) ||
        mha_mpi_forward(layer, &call, T_q, T_q, &error))
        wrong(mha_split_scheme_name(scheme), error.message);
    *m = (memory){(double)said.total, status_of("VmHWM:") - before};
    for (size_t i = 0; i < rows * WIDTH; i++)
        if (!isfinite(y[i]))
            wrong(mha_split_scheme_name(scheme), "a number that is none");
    free(x), free(y);
    mha_cache_destroy(call.cache);
    mha_mpi_layer_destroy(layer);
}

/* A short call first, so that code, threads and MPI's own buffers are there: what stands then is no memory of the
 * call. */
static void compare(mha_split_scheme scheme, size_t T, bool full)
{
    memory m, most;
    const size_t T_q = scheme == MHA_SPLIT_CACHE ? 1 : T;
    run(scheme, T_q == 1 ? 1 : 64 * (size_t)ranks, 64 * (size_t)ranks, full, &m);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!forget_peak())
        wrong("memory", "cannot be told of: /proc/self/clear_refs cannot be written to");
    const double base = status_of("VmRSS:");
    run(scheme, T_q, T, full, &m);
    MPI_Reduce(&m, &most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return;
    printf("%s, %zu tokens on %d ranks: %.1f MB are said, %.1f MB are resident, with %.1f MB before\n",
           mha_split_scheme_name(scheme), T, ranks, most.figure / 1e6, most.grown / 1e6, base / 1e6);
    if (!(fabs(most.grown - most.figure) <= 0.1 * most.figure))
        wrong(mha_split_scheme_name(scheme), "more than 10 % off");
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const size_t T = trial_number("RANKS_TOKENS", 32768);
    if (ADDRESS_SANITIZER && rank == 0)
        printf("skipped: AddressSanitizer keeps memory of its own next to every block\n");
    for (int scheme = 0; scheme < (ADDRESS_SANITIZER ? 0 : MHA_SPLIT_COUNT); scheme++)
        compare((mha_split_scheme)scheme, scheme == MHA_SPLIT_CACHE ? 4 * T : T, trial_number("RANKS_FULL", 0));
    MPI_Finalize();
    return 0;
}
