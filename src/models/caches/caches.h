/* Allocates the caches of a model, as it needs them or as an engine does. */
#ifndef MHA_MODELS_CACHES_CACHES_H
#define MHA_MODELS_CACHES_CACHES_H

#include "models/model.h"

/* How caches are allocated. Index 0: layers that keep all keys; 1: those that keep a window or chunk. */
typedef struct mha__cache_plan {
    mha_model_pass pass;
    mha_dtype types[2]; /* of keys and latents; of values */
    size_t page, ahead; /* rows are rounded up to whole pages; rows that a window has in addition */
    size_t rows[2];     /* rows of a sequence; 0: as many as the layer needs */
    size_t layers[2];   /* number of layers: fewer, or the last one again; 0: the model's */
    size_t states;      /* sequences with states of linear attention */
    size_t ranks;       /* that share the key/value heads; 0: 1 */
    bool latent_values; /* next to a latent, which is key and value, its values again */
    bool of_heads;      /* keys and values of all heads instead of latents */
    bool column_less;   /* convolutions keep one token less than their kernel has */
} mha__cache_plan;

/* mha_model_add_caches by a plan; `own` (may be NULL) receives the numbers of layers. */
mha_status mha__caches_add(const mha_model *model, const mha__cache_plan *plan, mha_params *table, size_t own[2],
                           mha_error *error);

#endif
