/* What a forward asks of a layer beside its weights. */
#ifndef MHA_ATTENTION_LAYER_H
#define MHA_ATTENTION_LAYER_H

#include "mha/layer.h"

/* The packed copy of a weight, NULL when there is none, of *dtype: F32, F16 or BF16 (may be NULL). */
const void *mha__layer_packed(const mha_layer *layer, mha_weight weight, mha_dtype *dtype);
/* Another number whenever packed copies have come or gone. */
unsigned long mha__layer_generation(const mha_layer *layer);

#endif
