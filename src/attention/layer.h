/* What a forward asks of a layer beside its weights. */
#ifndef MHA_ATTENTION_LAYER_H
#define MHA_ATTENTION_LAYER_H

#include "mha/attention.h"

/* The packed copy of a weight, NULL when there is none, of *dtype: F32, F16 or BF16 (may be NULL). */
const void *mha__layer_packed(const mha_layer *layer, mha_weight weight, mha_dtype *dtype);
/* Another number whenever packed copies have come or gone. */
unsigned long mha__layer_generation(const mha_layer *layer);

/* How many elements of the key bias cannot change the output: it adds one number to all scores of a query, which
 * softmax does not see, but for features that rotate, and unless a key norm, a cap or a row without the bias comes in
 * between. */
size_t mha__inert_key_bias(const mha_config *config, const mha_semantics *semantics);

#endif
