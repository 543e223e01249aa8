/* One call in float32: all of it, or one of its two ends. run.c checks everything first. */
#ifndef MHA_ATTENTION_FORWARD_H
#define MHA_ATTENTION_FORWARD_H

#include "attention/call/resolved.h"

/* `workspace` is aligned, and of the plan's size. If not `whole`: Q, K and V of the new rows with their stages, or with
 * `given`, (B, T_q, h*d_v) or (B, T_q, h, d_v), the output of these. */
void mha__forward(const mha__resolved *r, char *workspace, bool whole, const mha_view *given);

#endif
