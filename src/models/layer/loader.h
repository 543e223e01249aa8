/* A layer on its way from a file into a table: what is known of it so far. */
#ifndef MHA_MODELS_LOADER_H
#define MHA_MODELS_LOADER_H

#include "attention/layer/layer.h"
#include "lab/lab.h"
#include "models/layer/tensor_names.h"

/* Tensors that weights are computed from at load. */
enum {
    MHA_SOURCE_LOGIT_SCALE, /* Swin v2: of q_norm */
    MHA_SOURCE_W_1,         /* and of bias_table */
    MHA_SOURCE_B_1,
    MHA_SOURCE_W_2,
    MHA_SOURCE_RELATIVE, /* DeBERTa: relative embeddings, of relative_k and relative_q */
    MHA_SOURCE_RELATIVE_NORM,
    MHA_SOURCE_RELATIVE_NORM_BIAS,
    MHA_SOURCE_W_RELATIVE_K, /* their projections, where these are not those of queries and keys */
    MHA_SOURCE_B_RELATIVE_K,
    MHA_SOURCE_W_RELATIVE_Q,
    MHA_SOURCE_B_RELATIVE_Q,
    MHA_SOURCES
};

typedef struct mha__loader {
    const mha_file *file;
    mha_load_options options;
    mha__file_layer layer;
    char prefix[256];
    mha_orientation orientation;
    mha_config config;
    const mha_file_tensor *found[MHA_WEIGHT_COUNT]; /* NULL: not in the file. A fused tensor is at three indices */
    size_t blocks; /* of a fused tensor, each with its share of queries, keys and values; at least 1 */
    bool by_head[MHA_WEIGHT_COUNT]; /* what was found is the first of one tensor for each head */
    bool qvk;      /* values come before the keys in each block */
    const mha_file_tensor *value_half; /* where what was found for W_KVB makes only keys; NULL: it is whole */
    const char *bias_table; /* name of the tensor with the biases by position; NULL: not said */
    bool described;         /* a configuration says what the scores need */
    mha_gate gate; /* that the model's configuration says */
    uint64_t stated; /* the weights that it gives the layer, see mha_model_facts.weights */
    bool fused_gate;
    uint64_t made;                              /* weights that are made of `source`, see mha_model_facts.made */
    const mha_file_tensor *source[MHA_SOURCES]; /* NULL: nothing is made of it */
    const mha_model_facts *facts;               /* NULL: nothing is known */
    size_t tensors, ignored;
    mha_error *error;
} mha__loader;

/* An error about a tensor of the file. */
#define mha__refuse(l, tensor, status, ...)                                                                            \
    mha__fail_inside((l)->error, status, mha_file_path((l)->file), (tensor)->name, 0, __VA_ARGS__)

/* Whether the weight's matrix is stored with its outputs first. */
static inline bool mha__loader_turns(const mha__loader *l, mha_weight weight)
{
    return mha__weight_is_matrix(weight) && l->orientation == MHA_ORIENTATION_OUT_IN;
}

/* Whether the weight is part of a fused tensor of three weights. */
static inline bool mha__loader_fuses(const mha__loader *l, mha_weight weight)
{
    return mha__scheme_fuses(l->layer.scheme, weight);
}

/* Whether the weight lies in a tensor of queries and gates, head by head. */
static inline bool mha__loader_shares_gate(const mha__loader *l, mha_weight weight)
{
    return l->fused_gate && (mha_weight_at(weight)->of == MHA_W_Q || mha__is_gate_weight(weight));
}

/* Refuses a tensor of another shape; `what` and `more` describe it. */
mha_status mha__loader_expect(const mha__loader *l, const mha_file_tensor *tensor, const size_t *shape, int rank,
                              const char *what, const char *more);
/* Whether the weight is made of others. */
static inline bool mha__loader_makes(const mha__loader *l, mha_weight weight)
{
    return l->made >> weight & 1;
}

/* Rows of the tables of relative terms that are made, of keys as of queries. */
static inline size_t mha__relative_rows(const mha_model_facts *facts)
{
    return facts->config.relative_k_rows ? facts->config.relative_k_rows : facts->config.relative_q_rows;
}

/* Finds the tensors that weights are computed from. */
mha_status mha__loader_find_sources(mha__loader *l);
/* Holds their shapes against the configuration of the layer. */
mha_status mha__loader_check_sources(const mha__loader *l);
/* Reads them into rows of the layer, and makes the weights, which become derived rows. */
mha_status mha__loader_make(const mha__loader *l, mha_layer *layer);

/* Derives orientation and configuration from the tensors that were found, and holds their shapes against it. */
mha_status mha__loader_find_config(mha__loader *l);
/* Reads the weights into the layer of a rank's share; `split` is of that configuration. */
mha_status mha__loader_read(mha__loader *l, const mha_layer *layer, const mha_split *split, size_t rank);

#endif
