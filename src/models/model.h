/* The inside of a model, for the files that build it, hold files against it and count with it. */
#ifndef MHA_MODELS_MODEL_H
#define MHA_MODELS_MODEL_H

#include "models/config.h"

enum { MHA_BLOCK_LIMIT = 100000 };

struct mha_model {
    mha_setup setup;
    mha_params *table;
    mha_dtype dtype;
    mha_tensor **rows; /* of the table, in order; NULL while they are only counted */
    size_t n_rows, rows_bytes;
};

/* The config.json of a preset; NULL for an unknown name. */
const char *mha_preset_text(const char *name);

#endif
