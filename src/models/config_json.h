/* A config.json evaluated for the architecture that it names: every symbol gets its value. */
#ifndef MHA_MODELS_CONFIG_JSON_H
#define MHA_MODELS_CONFIG_JSON_H

#include <jansson.h>

#include "mha/model.h"
#include "models/architecture.h"

enum { MHA_SETUP_ASSUMED = 40 };

typedef struct mha__setup {
    const mha__architecture *architecture;
    const mha__arch_class *model_class;
    mha__values values;
    double rope_base, norm_eps, softcap, scale_square; /* 0: the architecture has none */
    bool rope_scaled;                                  /* the config asks for stretched rotary positions */
    size_t n_assumed;
    mha_assumption assumed[MHA_SETUP_ASSUMED];
} mha__setup;

/* Parses the text of a config.json into a JSON object, which the caller releases with json_decref. `path` is for
 * messages. */
mha_status mha__config_parse(const char *text, size_t length, const char *path, json_t **config, mha_error *error);
/* The same from a file. */
mha_status mha__config_load(const char *path, json_t **config, mha_error *error);

/* Evaluates an object. `class_name` NULL: the class that "architectures" names. n_heads and kv_heads, where not 0,
 * replace those of the config. */
mha_status mha__setup_read(const json_t *config, const char *class_name, size_t n_heads, size_t kv_heads,
                           mha__setup *setup, mha_error *error);

/* The keys a symbol is read from, with blanks between; the symbol itself where it is computed. Static text. */
const char *mha__setup_key(const mha__setup *setup, const char *symbol);

/* The attention configuration that the symbols describe: widths, heads, biases, norms; dtype is left F32. */
mha_config mha__values_attention(const mha__values *v);
/* What the setup says about the semantics of attention. */
mha_model_facts mha__setup_facts(const mha__setup *setup);

#endif
