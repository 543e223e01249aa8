/* Cases with results of the oracle, right ones and wrong ones. */
#ifndef TEST_PLANTING_H
#define TEST_PLANTING_H

#include "mha/case.h"
#include "support/bugs/oracle_bugs.h"
#include "support/trial.h"

/* Runs the oracle on the call with up to two bugs; NULL: none. */
void planting_run(rig *r, const oracle_bug *one, const oracle_bug *other, oracle *result);
/* A case in memory of the call and one stage, recorded in that type; NULL for what a case has no word for. It borrows
 * from the trial. */
mha_case *planting_case(rig *r, mha_stage stage, mha_dtype type, const oracle_stage *recorded);
/* The stage that shows the bug best: the output, but for bugs in the log-sum-exp. */
mha_stage planting_stage(const oracle_bug *m);
/* Whether bug `which` of a match has this name, and this number if it has one. A name that comes without
 * its numbers stands for all of them; a match without a number stands for every number, as it is tried first. */
bool planting_is_named(const mha_bug_match *e, size_t which, const char *name);

#endif
