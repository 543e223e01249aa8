/* Cases with results of the oracle, right ones and wrong ones. */
#ifndef TEST_PLANTING_H
#define TEST_PLANTING_H

#include "mha/case.h"
#include "support/bugs/oracle_bugs.h"
#include "support/trial.h"
#include "verify/engine/case_inputs.h"

/* Runs the oracle on the call with the bugs of a program; NULL: none. */
void planting_run(rig *r, const mha__program *program, oracle *result);
/* A case in memory of the call and one stage, recorded in that type; NULL for what a case has no word for. It borrows
 * from the trial. */
mha_case *planting_case(rig *r, mha_stage stage, mha_dtype type, const oracle_stage *recorded);
/* The inputs of a case with the right output, whose case programs are made for; NULL for none. */
mha__inputs *planting_inputs(rig *r, const oracle *right, mha_case **c);
/* A stage of the case with a program, as the engine computes it; the caller frees result->value. */
bool planting_engine(const mha__inputs *inputs, const mha__program *program, mha_stage stage, oracle_stage *result);
/* The stage that shows the bug best: the output, but for bugs in the log-sum-exp. */
mha_stage planting_stage(const char *name);

/* A bug with numbers. */
typedef struct planting_bug {
    size_t index;
    char name[128]; /* with its number, if it has one */
    double *x;      /* its numbers, until 256 other bugs are drawn */
} planting_bug;
/* Draws numbers for a bug. False: the bug has none in this case. */
bool planting_draw(const mha_case *c, size_t index, uint64_t seed, planting_bug *bug);
/* Reads a name and its numbers as a match has them. */
bool planting_read(const mha_case *c, const char *text, planting_bug *bug);
/* Adds the bug to a program. False: it does not apply, or the oracle lacks it: latents and tables of pages. */
bool planting_add(const mha_case *c, const planting_bug *bug, mha__program *program);
/* True if the oracle computes a program in a ragged batch. */
bool planting_is_ragged(const mha__program *program);
/* Whether bug `which` of a match has this name, and this number if it has one. A name that comes without
 * its numbers stands for all of them; a match without a number stands for every number, as it is tried first. */
bool planting_is_named(const mha_bug_match *e, size_t which, const char *name);

#endif
