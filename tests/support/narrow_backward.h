/* A backward as float32 may compute it: the steps of the exact path, with every number that one of them makes moved by
 * at most a roundoff of float32, up or down. */
#ifndef TEST_NARROW_BACKWARD_H
#define TEST_NARROW_BACKWARD_H

#include "mha/backward.h"

/* As mha_backward, into F64; the same seed moves numbers the same way. */
mha_status narrow_backward(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients, uint64_t seed,
                           mha_error *error);

#endif
