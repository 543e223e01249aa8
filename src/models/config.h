/* A config.json brought together with the architecture it names: every symbol gets its value. */
#ifndef MHA_MODELS_CONFIG_H
#define MHA_MODELS_CONFIG_H

#include <jansson.h>

#include "mha/model.h"
#include "models/architecture.h"

enum { MHA_SETUP_ASSUMED = 40 };

typedef struct mha_setup {
    const mha_architecture *architecture;
    const mha_arch_class *model_class;
    mha_values values;
    double rope_base, norm_eps, softcap, scale_square; /* 0: the architecture has none */
    bool rope_scaled;                                  /* the config asks for stretched rotary positions */
    size_t n_assumed;
    mha_assumption assumed[MHA_SETUP_ASSUMED];
} mha_setup;

/* Reads the text of a config.json into a JSON object, which the caller gives back with json_decref.
 * `path` is for messages. */
mha_status mha_config_parse(const char *text, size_t length, const char *path, json_t **config, mha_error *error);
/* The same from a file. */
mha_status mha_config_load(const char *path, json_t **config, mha_error *error);

/* Evaluates an object. `class_name` NULL: by its "architectures". n_heads and kv_heads replace what the config
 * says, where they are not 0. */
mha_status mha_setup_read(const json_t *config, const char *class_name, size_t n_heads, size_t kv_heads,
                          mha_setup *setup, mha_error *error);

/* The keys a symbol is read from, with blanks between; the symbol itself where it is computed. Static text. */
const char *mha_setup_key(const mha_setup *setup, const char *symbol);

/* The attention configuration of a setup: widths, heads, biases, norms; dtype is left F32. */
mha_config mha_setup_attention(const mha_setup *setup);
/* What it says about attention's meaning. */
mha_model_facts mha_setup_facts(const mha_setup *setup);

#endif
