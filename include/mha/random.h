/* Random numbers computed from a counter by Philox4x32-10 (Salmon et al. 2011): element i is the same on every machine,
 * in any order. */
#ifndef MHA_RANDOM_H
#define MHA_RANDOM_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills an F32, F64, F16 or BF16 view, row-major element e with low + (high - low) * u, computed in float: u is the
 * e-th number of `stream` under `seed`, uniform in [0, 1), a multiple of 2^-24. Nothing happens for another dtype. */
MHA_API void mha_random_fill(const mha_view *view, uint64_t seed, uint64_t stream, float low, float high);

#ifdef __cplusplus
}
#endif
#endif
