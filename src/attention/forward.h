/* One call in float32: all of it, or one of its two ends. run.c checks everything first. */
#ifndef MHA_ATTENTION_FORWARD_H
#define MHA_ATTENTION_FORWARD_H

#include "attention/call/resolved.h"

/* `workspace` is aligned, and of the plan's size. */
void mha__forward(const mha__resolved *r, char *workspace);
/* Q, K and V of the new rows with their stages, and nothing else. */
void mha__forward_inputs(const mha__resolved *r, char *workspace);
/* The output of these heads, (B, T_q, h*d_v) or (B, T_q, h, d_v). */
void mha__forward_output(const mha__resolved *r, char *workspace, const mha_view *heads);

#endif
