/* The weights of a call, and the norms of q and k that follow from them. */
#ifndef MHA_ATTENTION_CALL_WEIGHTS_H
#define MHA_ATTENTION_CALL_WEIGHTS_H

#include "attention/resolved.h"

/* Fills in r->weight and r->norm of a call whose sizes are known. Weights that are given have the shapes of a layer of
 * these sizes; MHA_INVALID and MHA_UNSUPPORTED name one that has not. */
mha_status mha__resolve_weights(mha__resolved *r, const mha_call *call, mha_error *error);

#endif
