/* The machine's own limits, measured: arithmetic and reading. */
#ifndef MHA_BENCH_MACHINE_PEAK_H
#define MHA_BENCH_MACHINE_PEAK_H

#include <stdbool.h>

#include "mha/status.h"

/* Measures the limits of this machine with `threads` threads: multiply-adds in registers with the instruction set in
 * use, in GFLOP/s (a multiply-add counts as two), and reads of memory beyond the caches, in GB/s. A NULL result is
 * not measured. Takes some tens of milliseconds; the reads allocate 512 MiB for that time. Errors: MHA_INVALID
 * (threads), MHA_NO_MEMORY. */
mha_status mha__machine_limits(int threads, double *peak_gflops, double *read_gbs);
/* Measures repeated reads of the same `bytes` bytes, in GB/s, including what caches keep of them. Allocates `bytes`
 * bytes for that time. Errors: MHA_INVALID (threads; less than 512 bytes for each), MHA_NO_MEMORY. */
mha_status mha__machine_reads(int threads, size_t bytes, double *read_gbs);

/* What the library goes by here: what it takes to hand work to a helper that is awake (0: none came), and for how many
 * operations a call gets one more thread because of that, both measured once; how many bytes ahead weights are fetched:
 * packed floats for few rows, and for one (0: not), and blocks of quantised ones; and how many groups of keys further
 * than the next one keys are fetched for 2 to 4 rows, of how many keys, and whether times decided it, taken now where
 * no call has done so (not: MHA_FETCH, or no memory). */
typedef struct mha__choices {
    double handover_seconds, operations_for_a_thread;
    size_t rows_ahead, row_ahead, blocks_ahead;
    size_t key_groups_ahead, keys_in_group;
    bool key_groups_measured;
} mha__choices;
mha__choices mha__machine_choices(void);

#endif
