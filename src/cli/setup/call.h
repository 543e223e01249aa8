/* Makes the call of a layer from options: inputs, semantics, outputs; and runs it. */
#ifndef MHA_CLI_SETUP_CALL_H
#define MHA_CLI_SETUP_CALL_H

#include "cli/setup/request.h"

/* Functions that can fail return 0, or the exit code after one line on standard error. */

/* Reads inputs, semantics, path and threads, then plans. Random inputs are uniform in [-sqrt(3), sqrt(3)), variance
 * 1, from the streams 32 (query), 33 (key) and 34 (value) of the seed. */
int request_call(request *r, const arguments *args);
/* Allocates memory for a stage, which is then kept: F64 on the exact path, else F32. */
int request_keep(request *r, mha_stage stage);
/* The view of a stage; without data while the stage is not kept. */
mha_view *request_stage(request *r, mha_stage stage);
/* Runs the call once. */
int request_run(request *r, double *milliseconds);
void request_free(request *r);

/* Floating-point operations of one forward, two for each multiply-add: the projections, and Q K^T and A V for each
 * query and each key that position and length let it see. Masks are ignored, and softmax is not counted. */
double request_flops(const request *r);

#endif
