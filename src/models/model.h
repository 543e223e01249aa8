/* The inside of a model, for the files of this room and for claims. */
#ifndef MHA_MODELS_MODEL_H
#define MHA_MODELS_MODEL_H

#include "models/config/config.h"

enum { MHA_BLOCK_LIMIT = 2048 }; /* DeepNet has 1,000 layers, Switch-C 2,048 experts in one */

struct mha_model {
    mha__setup setup;
    mha_model_facts facts; /* of all layers together */
    mha_params *table;
    mha_dtype dtype;
    struct mha__model_row {
        mha_tensor *tensor;
        const mha__arch_tensor *description;
        int64_t i, j; /* its block */
    } * rows; /* of the table, in order; NULL while they are only counted */
    size_t n_rows, rows_bytes;
    uint64_t of_rows, of_layers; /* roots that decide rows and tensors; how many attention layers run */
    size_t seen; /* rows of the description that have been looked at, those that are not there included */
    struct mha__model_layer {
        mha_model_layer shown;
        mha_model_facts facts;
        const mha__arch_attention *description;
        int64_t i, j; /* its block */
        size_t inert_key_bias; /* elements of its key bias that softmax does not see */
    } * layers; /* NULL while they are only counted */
    size_t n_layers, layers_bytes;
};

/* Makes i and j in formulas the numbers of a block. */
static inline void mha__values_set_block(mha__values *values, int64_t i, int64_t j)
{
    mha__values_set(values, "i", i);
    mha__values_set(values, "j", j);
}

/* mha_model_create from a config that has been parsed; preset and config of `spec` are ignored. `described`: its
 * architecture, which is taken over, also after an error; NULL: that of the config. */
mha_status mha__model_create_from(const json_t *config, const mha_model_spec *spec, mha__architecture *described,
                                  mha_params *table, mha_model **model, mha_error *error);

/* Finds what the setup says of one attention layer, or past the end of all, as when the model was made. */
void mha__model_find_facts(const mha_model *model, size_t index, mha_model_facts *facts);

/* The symbols as attention layer `index` has them, with their roots. */
void mha__model_layer_values(const mha_model *model, size_t index, mha__values *own);
/* The facts of a layer with these symbols in place of its own. */
void mha__model_facts_with(const mha_model *model, size_t index, const mha__values *own, mha_model_facts *facts);

/* The index of the attention layer with a prefix, which may have the final dot and may lack the model's own prefix;
 * the number of layers where there is none. */
size_t mha__model_find_layer(const mha_model *model, const char *prefix);

/* Marks the key biases that softmax does not see, in tensors of their own or with queries and values. Errors:
 * MHA_INVALID (a description whose tensor is too small for its layer), MHA_NO_MEMORY. */
mha_status mha__model_mark_inert(const mha_model *model, mha_error *error);

/* The text of a preset's config.json; `name` is its name or the first letters of only one name. */
mha_status mha__preset_find(const char *name, const char **config, mha_error *error);

#endif
