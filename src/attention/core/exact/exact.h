/* The exact path: a forward pass in float64 and plain loops. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_H

#include "attention/call/resolved.h"

/* The whole forward in float64. Returns the bytes of workspace; with `workspace` NULL it only counts
 * them. */
size_t mha__exact(const mha__resolved *r, char *workspace);
/* One end of it: Q, K and V of the new rows with their stages, or with `heads` the output of these. */
void mha__exact_end(const mha__resolved *r, char *workspace, const mha_view *heads);

#endif
