/* What the library goes by on this machine, measured where no call has done so. */
#ifndef MHA_BENCH_MACHINE_CHOICES_H
#define MHA_BENCH_MACHINE_CHOICES_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/kernels/fetching.h"

/* What it takes to hand work to a helper that is awake (0: none came), and for how many operations a call gets one more
 * thread because of that. How far ahead memory of each kind is fetched, in units of mha__fetched_unit, and whether
 * times decided it (not: MHA_FETCH, or no memory); keys in a group. */
typedef struct mha__choices {
    double handover_seconds, operations_for_a_thread;
    size_t ahead[MHA__FETCHED_COUNT], keys_in_group;
    bool measured[MHA__FETCHED_COUNT];
} mha__choices;
/* Allocates 80 MiB for some milliseconds. */
mha__choices mha__machine_choices(void);

#endif
