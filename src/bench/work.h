/* The work of a call: its stages, and its pairs of a query and a key, from which counts of operations follow. */
#ifndef MHA_BENCH_WORK_H
#define MHA_BENCH_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "mha/attention.h"

/* Whether a planned call has a stage, and that differs from the stage before it. */
bool mha__stage_happens(const mha_plan *plan, mha_stage stage);

/* Whether anything in a planned call may hide keys from queries, a -infinity in its table of biases included. */
bool mha__plan_hides_keys(const mha_plan *plan);

/* The pairs that a planned call computes: of all sequences, without those that lengths hide, with extra rows. Masks and
 * patterns are not considered. */
uint64_t mha__plan_pairs(const mha_plan *plan);

#endif
