/* How public checkpoints call the tensors of an attention layer: the one table, and finding layers by it. */
#ifndef MHA_MODELS_NAMING_H
#define MHA_MODELS_NAMING_H

#include "mha/model.h"

/* One name, as it follows the layer's prefix, and the weight it holds. */
typedef struct mha__name {
    const char *name;
    mha_weight weight; /* the first one, when fused */
    bool fused;        /* query, key and value side by side along the outputs */
} mha__name;

enum { MHA_SCHEME_NAMES = 14, MHA_SCHEME_OTHERS = 8 }; /* with the NULL that ends a list */

typedef struct mha__scheme {
    const char *name;
    mha_orientation orientation; /* AUTO: told by the shape of the fused matrix */
    bool free_widths;            /* keys, values and output may have widths of their own (d_kin, d_vin, d_v, d_out) */
    const char *scope;           /* names that start with prefix + scope belong to the layer; NULL: prefix */
    mha__name names[MHA_SCHEME_NAMES];
    const char *others[MHA_SCHEME_OTHERS]; /* known under the scope, but no part of attention */
} mha__scheme;

/* A layer in a file: prefix_length bytes of `tensor`'s name, final dot included. */
typedef struct mha__layer_place {
    const mha__scheme *scheme;
    const mha_file_tensor *tensor;
    size_t prefix_length;
} mha__layer_place;

const mha__scheme *mha__scheme_at(size_t index); /* NULL past the end */

/* The next layer whose first tensor stands at or after *index in the file; moves *index on. */
bool mha__layer_next(const mha_file *file, size_t *index, mha__layer_place *place);

/* The layer's tensor called prefix + name, or NULL. */
const mha_file_tensor *mha__layer_tensor(const mha_file *file, const mha__layer_place *place, const char *name);

/* What a tensor is to the complete layer it belongs to; NULL: it belongs to none. */
const mha__name *mha__layer_member(const mha_file *file, const mha_file_tensor *tensor);

/* The names of a scheme, while they last. */
static inline bool mha__scheme_has(const mha__scheme *scheme, size_t i)
{
    return scheme->names[i].name;
}

/* W_Q, W_K, W_V, W_O: what every layer must have. */
static inline bool mha__weight_is_matrix(mha_weight weight)
{
    return weight == MHA_W_Q || weight == MHA_W_K || weight == MHA_W_V || weight == MHA_W_O;
}

#endif
