/* The inside of a model, for the files that build it, hold files against it and count with it. */
#ifndef MHA_MODELS_MODEL_H
#define MHA_MODELS_MODEL_H

#include "models/config_json.h"

enum { MHA_BLOCK_LIMIT = 100000 };

struct mha_model {
    mha__setup setup;
    mha_params *table;
    mha_dtype dtype;
    struct mha__model_row {
        mha_tensor *tensor;
        const mha__arch_tensor *description;
    } * rows; /* of the table, in order; NULL while they are only counted */
    size_t n_rows, rows_bytes;
};

/* mha_model_create from a config that has been read; spec's preset and config are not looked at. */
mha_status mha__model_create_from(const json_t *config, const mha_model_spec *spec, mha_params *table,
                                  mha_model **model, mha_error *error);

/* The config.json of a preset, by its name or the beginning of one name only. */
mha_status mha__preset_find(const char *name, const char **config, mha_error *error);

#endif
