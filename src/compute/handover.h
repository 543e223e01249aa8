/* From how much work on a second thread is worth its while: what handing work over costs, measured once. */
#ifndef MHA_COMPUTE_HANDOVER_H
#define MHA_COMPUTE_HANDOVER_H

#include <stdbool.h>

typedef struct mha__handover {
    double seconds; /* from offering a job to a helper that is awake until it is at work, and back; 0: not measured */
    double operations_per_second; /* of one thread, at most */
    double least;                 /* operations that a thread gets at least: see mha__handover_least */
} mha__handover;

/* Measured on the first call, in at most a few milliseconds; the same ever after. */
mha__handover mha__handover_get(void);
/* So many operations that the handover takes an eighth of the time in which they are computed; within the limits below,
 * and what usual machines have where one of the numbers is not positive and finite. */
double mha__handover_least(double seconds, double operations_per_second);
/* How many of `threads` get `least` operations each; at least 1. */
int mha__threads_for(double operations, int threads, double least);

/* How many of `threads` are worth waking for this many floating-point operations. Measures the handover only where the
 * answer depends on it. Results never do: work is cut by the problem alone. */
int mha__parallel_worth(double operations, int threads);

#endif
