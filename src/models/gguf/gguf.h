/* The metadata of a GGUF file as a configuration, described by the family of its architecture. */
#ifndef MHA_MODELS_GGUF_H
#define MHA_MODELS_GGUF_H

#include "models/config/config.h"

/* The description of an architecture by its name in GGUF (architectures.json): that of the family which it is like,
 * with the keys of metadata in place of those of a config.json. NULL, without an error: it has none. */
mha_status mha__gguf_describe(const char *name, mha__architecture **made, mha_error *error);
/* The metadata of a file under "NAME.", as such a description reads them: "attention.head_count" is the key head_count
 * of the object attention. "tensors" are the names of tensors in blocks, after the number of the block. The caller
 * releases it. */
mha_status mha__gguf_config(const mha_file *file, const char *name, json_t **config, mha_error *error);
/* Refuses metadata that decide about attention, which the description does not read. A period of windows becomes the
 * list of layers that have one, where the description reads a list. */
mha_status mha__gguf_settle(const mha__architecture *architecture, json_t *config, mha_error *error);
/* How rotary positions are scaled, `pairs` of features of them: by metadata, or by factors that are tensors. */
mha_status mha__gguf_scaling(const mha_file *file, const json_t *config, const mha__values *values,
                             mha_rope_scaling *scaling, mha_error *error);

/* The model of a file's metadata, with the scaling of its rotation. `config` and `described` are those of the functions
 * above; the description is taken over, also after an error. The facts of its layers are those before the scaling.
 * *model is the caller's also after an error of the scaling; NULL after others. */
mha_status mha__gguf_model(const mha_file *file, json_t *config, mha__architecture *described, mha_params *table,
                           mha_model **model, mha_error *error);

#endif
