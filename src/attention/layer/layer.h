/* Functions on layers for the rest of the library: packed weights, inert elements. */
#ifndef MHA_ATTENTION_LAYER_LAYER_H
#define MHA_ATTENTION_LAYER_LAYER_H

#include "mha/attention.h"

/* The panels of a weight; NULL: it is no matrix of the layer, or the layer is not packed. */
const void *mha__layer_packed(const mha_layer *layer, mha_weight weight);
/* How a weight is divided among heads: head i has `width` elements from i * width on along `axis`. heads 0: the config
 * has no such weight, or all heads share it. */
typedef struct mha__weight_heads {
    int axis;
    size_t heads, width;
    bool of_keys; /* heads counts key/value heads, not query heads */
} mha__weight_heads;

/* The same under a resolved config. */
mha__weight_heads mha__config_weight_heads(const mha_config *config, mha_weight weight);

/* Renews the panels of weights that have their numbers as well. */
void mha__layer_repack(mha_layer *layer);
/* Releases the panels, after unpacking them where they are all there is; a matrix for which there is no memory stays in
 * them, and is unpacked by its next view. */
void mha__layer_unpack(mha_layer *layer);
/* Removes the rows of the gradients of the weights. */
void mha__layer_remove_gradients(mha_layer *layer);
/* A number that changes whenever weights are packed or unpacked, or views of them dropped. */
unsigned long mha__layer_generation(const mha_layer *layer);

/* Adds the row of a parameter that weights of the layer are made of, named prefix + spec->role; it goes with the
 * layer. Errors: MHA_INVALID, MHA_NO_MEMORY. */
mha_status mha__layer_add_source(mha_layer *layer, const mha_tensor_spec *spec, const char *prefix, mha_tensor **row,
                                 mha_error *error);

/* Whether a weight is a table of relative terms; or the gate of the heads, or its bias. */
bool mha__is_relative_table(mha_weight weight);
bool mha__is_gate_weight(mha_weight weight);

/* Gives the layer of this configuration a weight of this shape: sets its switch, the rows of its table, or the kind of
 * its gate. n_heads and d_k are set; norms are the caller's, as their shapes leave open what was meant. */
void mha__config_add_weight(mha_config *config, mha_weight weight, int rank, const size_t shape[]);

/* The norm that a weight of this shape belongs to, of `heads` heads of d_k features; NONE for a view without data. */
mha_norm mha__norm_of_weight(const mha_view *weight, size_t heads, size_t d_k);

/* The number of elements of the key bias that cannot change the output: mha_layer_mark_inert says which. */
size_t mha__inert_key_bias(const mha_config *config, const mha_semantics *semantics);

/* ---------------------------------------------------------------- packing.c: a weight in the layout of the kernels */

/* Packs a matrix (mha__tensor_pack): F32, F16 and BF16 can be unpacked again; F64, which is rounded to F32, and blocks
* keep their numbers next to the panels. MHA_NO_MEMORY. */
mha_status mha__matrix_pack(mha_tensor *matrix, mha_error *error);
/* Whether the panels are all that there is of a tensor. */
bool mha__is_packed_alone(const mha_tensor *tensor);
/* Fills the panels of a matrix without other numbers as mha_random_fill fills the matrix. */
void mha__matrix_fill_packed(mha_tensor *matrix, uint64_t seed, uint64_t stream, float low, float high);

#endif
