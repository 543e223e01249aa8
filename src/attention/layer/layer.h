/* Functions on layers for the rest of the library: packed copies, inert elements. */
#ifndef MHA_ATTENTION_LAYER_LAYER_H
#define MHA_ATTENTION_LAYER_LAYER_H

#include "mha/attention.h"

/* The packed copy of a weight, NULL when there is none, of *dtype: F32, F16 or BF16 (may be NULL). */
const void *mha__layer_packed(const mha_layer *layer, mha_weight weight, mha_dtype *dtype);
/* A number that changes whenever packed copies are made or released. */
unsigned long mha__layer_generation(const mha_layer *layer);

/* Adds the row of a parameter that weights of the layer are made of, named prefix + spec->role; it goes with the
 * layer. Errors: MHA_INVALID, MHA_NO_MEMORY. */
mha_status mha__layer_add_source(mha_layer *layer, const mha_tensor_spec *spec, const char *prefix, mha_tensor **row,
                                 mha_error *error);

/* Whether a weight is a table of relative terms. */
static inline bool mha__is_relative_table(mha_weight weight)
{
    return weight == MHA_RELATIVE_K || weight == MHA_RELATIVE_COLUMNS || weight == MHA_RELATIVE_Q;
}

/* The norm that a weight of this shape belongs to, of `heads` heads of d_k features; NONE for a view without data. */
mha_norm mha__norm_of_weight(const mha_view *weight, size_t heads, size_t d_k);

/* The number of elements of the key bias that cannot change the output: mha_layer_mark_inert says which. */
size_t mha__inert_key_bias(const mha_config *config, const mha_semantics *semantics);

#endif
