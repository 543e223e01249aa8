/* The numbers of a whole layer, from input to output, for the walk through the computation. */
#ifndef MHA_PICTURE_WALK_H
#define MHA_PICTURE_WALK_H

#include "picture/picture.h"
#include "verify/attempt/attempt.h"

enum { MHA__WALK_NUMBERS = 1 << 18 }; /* most numbers of a walk */

/* Runs the call once more on the exact path and keeps its numbers as layer->walk: of the chosen sequence or the first
 * one, of the chosen head or all. Matrices of weights are left out where there is no room for them; where there is none
 * for the rest, layer->walk stays NULL, and layer->no_walk says why. MHA_NO_MEMORY and as of mha_forward. */
mha_status mha__walk_add(mha__picture_layer *layer, mha__arena *memory, const mha__request *request,
                         const mha__picture_choice *choice, mha_error *error);

#endif
