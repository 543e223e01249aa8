/* The names that public checkpoints give the tensors of an attention layer, and layers found by these names. */
#ifndef MHA_MODELS_LAYER_TENSOR_NAMES_H
#define MHA_MODELS_LAYER_TENSOR_NAMES_H

#include "mha/model.h"

enum { MHA_SCHEME_OTHERS = 12 }; /* with the NULL that ends the list */

/* The source of the order of query, key and value in a fused tensor: see mha_model_facts.fused_blocks. */
typedef enum mha__fused_order {
    MHA_FUSED_PLAIN_UNLESS_SAID = 0, /* one after the other, unless the model's configuration says otherwise */
    MHA_FUSED_AS_SAID,               /* the configuration, which is needed */
    MHA_FUSED_PLAIN                  /* one after the other, whatever the configuration says: a converter did that */
} mha__fused_order;

/* A naming scheme (schemes.json). Names are relative to the layer's prefix, the path of the module with the
 * projections: "bert.encoder.layer.0.attention". A name of all three projections is that of one fused tensor, which
 * holds the three side by side along its outputs. */
typedef struct mha__scheme {
    const char *name;
    mha_orientation orientation; /* AUTO: the shape of the fused matrix decides */
    bool free_widths;            /* keys, values and output may have widths of their own (d_kin, d_vin, d_v, d_out) */
    mha__fused_order order;      /* of query, key and value in a fused tensor */
    const char *names[MHA_WEIGHT_COUNT]; /* NULL: the scheme has no such weight */
    const char *sinks_bare;              /* another name of sinks */
    const char *key_half, *value_half;   /* in place of W_KVB: of each head what makes its keys, and its values */
    const char *logit_scale;             /* q_norm is computed from it, see mha_model_facts.made */
    const char *relative_k, *relative_q; /* modules that make relative_k and relative_q of relative embeddings */
    bool relative_k_plain;               /* the first has no bias */
    bool normed;                         /* a layer without q_norm has another scheme */
    const char *head_norms;              /* beginning of the names of q_norm and k_norm in one tensor for each head:
                                          * its number and ".weight" follow */
    const char *scope; /* names that start with prefix + scope belong to the layer; NULL: those with the prefix */
    const char *others[MHA_SCHEME_OTHERS]; /* known under the scope, but no part of attention */
} mha__scheme;

const mha__scheme *mha__scheme_at(size_t index); /* NULL past the end */

/* Whether one tensor holds the weight and the two that belong with it: W_Q, W_K, W_V or b_Q, b_K, b_V. */
bool mha__scheme_fuses(const mha__scheme *scheme, mha_weight weight);
/* Whether `name`, relative to a layer's prefix, is that of one head's part of MHA_Q_NORM or MHA_K_NORM. */
bool mha__scheme_names_head_norm(const mha__scheme *scheme, mha_weight weight, const char *name);
/* Whether `name`, relative to a layer's prefix, is that of the weight. */
bool mha__scheme_names(const mha__scheme *scheme, mha_weight weight, const char *name);

/* A layer in a file: the scheme of its names, and the first tensor found of it, whose name begins with a prefix of
 * prefix_length bytes, final dot included. */
typedef struct mha__file_layer {
    const mha__scheme *scheme;
    const mha_file_tensor *tensor;
    mha_weight weight; /* the weight in `tensor`; the first one of a fused tensor */
    size_t prefix_length;
} mha__file_layer;

/* The next layer whose first tensor stands at or after *index in the file; moves *index on. */
bool mha__file_layer_next(const mha_file *file, size_t *index, mha__file_layer *layer);

/* The name of a weight of the layer, prefix included, in `text`; NULL when the scheme has none or it does not fit. */
const char *mha__file_layer_name(const mha__file_layer *layer, mha_weight weight, char *text, size_t size);
/* The tensor that holds a weight of the layer, or NULL. */
const mha_file_tensor *mha__file_layer_tensor(const mha_file *file, const mha__file_layer *layer, mha_weight weight);

/* The second tensor of a W_KVB in two, (h, kv_rank, d_n) for the keys and then (h, d_v, kv_rank) for the values; NULL:
 * it is in one. */
const mha_file_tensor *mha__file_layer_value_half(const mha_file *file, const mha__file_layer *layer);

/* The tensor that holds one head's part of MHA_Q_NORM or MHA_K_NORM, or NULL. */
const mha_file_tensor *mha__file_layer_head_norm(const mha_file *file, const mha__file_layer *layer, mha_weight weight,
                                                 size_t head);

/* The tensor that a configuration names; files of the bare model lack the beginning of its name. NULL: none. */
const mha_file_tensor *mha__file_named(const mha_file *file, const char *name);

/* The complete layer that a tensor belongs to, with `weight` set to that of the tensor; false: there is no such
 * layer. */
bool mha__file_layer_of(const mha_file *file, const mha_file_tensor *tensor, mha__file_layer *layer);

/* The query, key and value weights in this order, matrices and biases. */
extern const mha_weight mha__matrices_in[3], mha__biases_in[3];

static inline bool mha__weight_is_matrix(mha_weight weight)
{
    return mha_weight_at(weight)->kind == MHA_WEIGHT_MATRIX;
}

/* Whether a layer of these names must have the weight: its matrices, and the norms of latents. */
bool mha__scheme_needs(const mha__scheme *scheme, mha_weight weight);

#endif
