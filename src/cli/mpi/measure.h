/* The machine at hand, in the numbers of mha/split_time.h, and what these say of a call. */
#ifndef MHA_CLI_MPI_MEASURE_H
#define MHA_CLI_MPI_MEASURE_H

#include "cli/setup/request.h"
#include "mha/split_time.h"

/* Collective. What the slowest rank reaches while all ranks do the same, times the ranks of a node that take turns on a
 * core: F from the call on one process, M from reading memory, L and B from messages to the next rank. On one rank no
 * message is sent: L is 0, and B as M. Returns 0, or the exit code. */
int measure_machine(request *q, int ranks, mha_machine *machine);
/* Milliseconds of a call on this machine by the model of cost; NaN where there are none. */
double predict(const mha_split *split, bool causal, const mha_machine *machine);

#endif
