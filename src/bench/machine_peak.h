/* The machine's own limits, measured: arithmetic and reading. */
#ifndef MHA_BENCH_MACHINE_PEAK_H
#define MHA_BENCH_MACHINE_PEAK_H

#include "mha/status.h"

/* What this machine can do at best right now with `threads` threads: multiply-adds in registers with the
 * instruction set in use, in GFLOP/s (a multiply-add is two), and reading memory beyond the caches, in GB/s.
 * Either may be NULL and is not measured then. Takes some tens of milliseconds; reading allocates 512 MiB for
 * that time. Errors: MHA_INVALID (threads), MHA_NO_MEMORY. */
mha_status mha__machine_limits(int threads, double *peak_gflops, double *read_gbs);
/* Reading the same `bytes` bytes again and again, in GB/s: what caches keep of them counts. Allocates as much for
 * that time. Errors: MHA_INVALID (threads; less than 512 bytes for each), MHA_NO_MEMORY. */
mha_status mha__machine_reads(int threads, size_t bytes, double *read_gbs);

#endif
