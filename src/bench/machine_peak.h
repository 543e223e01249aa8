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

#endif
