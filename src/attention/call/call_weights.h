/* The weights of a call, and the norms of q and k that follow from them. */
#ifndef MHA_ATTENTION_CALL_CALL_WEIGHTS_H
#define MHA_ATTENTION_CALL_CALL_WEIGHTS_H

#include "attention/call/resolved.h"

/* The configuration of a layer of these sizes with every weight that a call without a layer may give, in the shapes of
 * those that it gives. */
mha_config mha__config_of_weights(const mha_view weights[MHA_WEIGHT_COUNT], size_t h, size_t h_kv, size_t d_k,
                                  size_t d_v);
/* Fills in r->weight and r->norm of a call whose sizes are known. Weights that are given have the shapes of a layer of
 * these sizes; MHA_INVALID and MHA_UNSUPPORTED name one that has not. */
mha_status mha__resolve_weights(mha__resolved *r, const mha_call *call, mha_error *error);

#endif
