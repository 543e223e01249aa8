/* The rotation that a config.json asks for: frequencies for long contexts, and those of layers with a window. */
#ifndef MHA_MODELS_CONFIG_ROTATION_H
#define MHA_MODELS_CONFIG_ROTATION_H

#include <jansson.h>

#include "mha/model.h"

/* How the layers that the symbol `local` marks turn, [1], and all others, [0]. */
typedef struct mha__rope_config {
    double base[2]; /* 0: none is stated here */
    mha_rope_scaling scaling[2];
    mha_rope_axes axes;
    char fault[120]; /* why the scaling is left out: an unknown kind, a number without a meaning; "": it is not */
} mha__rope_config;

/* The keys that are read for it. */
#define MHA_ROPE_KEYS "rope_parameters rope_scaling max_position_embeddings original_max_position_embeddings"

/* Reads rope_parameters or rope_scaling, for a rotation of `dim` features. What is wrong in it is a fault, no error:
 * parameters can be counted all the same. */
void mha__rope_config_read(const json_t *config, size_t dim, double base, mha__rope_config *rope);

#endif
