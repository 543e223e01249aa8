/* A weight in the layout of the kernels. */
#ifndef MHA_ATTENTION_LAYER_PACKING_H
#define MHA_ATTENTION_LAYER_PACKING_H

#include "params/params.h"

/* Packs a matrix (mha__tensor_pack): F32, F16 and BF16 can be unpacked again; F64, which is rounded to F32, and blocks
 * keep their numbers beside the panels. MHA_NO_MEMORY. */
mha_status mha__matrix_pack(mha_tensor *matrix, mha_error *error);
/* Whether the panels are all that there is of a tensor. */
bool mha__is_packed_alone(const mha_tensor *tensor);
/* Fills the panels of a matrix that is packed alone with what mha_random_fill gives the matrix. */
void mha__matrix_fill_packed(mha_tensor *matrix, uint64_t seed, uint64_t stream, float low, float high);

#endif
