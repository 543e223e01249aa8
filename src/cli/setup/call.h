/* From options to a call of a layer: its inputs, what attention shall mean, where results go; and running it. */
#ifndef MHA_CLI_SETUP_CALL_H
#define MHA_CLI_SETUP_CALL_H

#include "cli/setup/request.h"

/* Functions that can fail give 0, or the exit code after one line on standard error. */

/* Inputs, semantics, path and threads, then the plan. Random inputs are uniform in [-sqrt(3), sqrt(3)),
 * variance 1, from the streams 32 (query), 33 (key) and 34 (value) of the seed. */
int request_call(request *r, const arguments *args);
/* Memory for a stage: F64 on the exact path, else F32. */
int request_keep(request *r, mha_stage stage);
/* The view of a stage, without data while it is not kept. */
mha_view *request_stage(request *r, mha_stage stage);
/* Runs the call once. */
int request_run(request *r, double *milliseconds);
void request_free(request *r);

/* Floating-point operations of one forward: two for each multiply-add of the projections, and of Q K^T and A V for the
 * pairs of a query and a key that it sees by position and length; a mask is not looked into, softmax is not counted. */
double request_flops(const request *r);

#endif
