/* Reads from a config.json the symbols and numbers that an architecture names. */
#ifndef MHA_MODELS_CONFIG_SYMBOLS_H
#define MHA_MODELS_CONFIG_SYMBOLS_H

#include "models/config/evaluate.h"

#define MHA_CONFIG_LARGEST ((int64_t)1 << 40) /* the largest whole number that is taken */

/* The value of a key; "a.b" is the key b of the object a. */
json_t *mha__config_value(const json_t *config, const char *key);
/* The value of the first key in the list `keys` that the config has and that is not null; its name is copied to
 * `room`. NULL: none. */
json_t *mha__config_first(const json_t *config, const char *keys, char room[64]);
/* Reads a size, a flag (1 or 0), or the number of named classes (id2label). */
mha_status mha__config_whole(const json_t *value, const char *key, int64_t *number, mha_error *error);

/* Gives a symbol its value, from the config or by its formula. */
mha_status mha__setup_read_key(const json_t *config, const mha__arch_key *key, mha__setup *setup, mha_error *error);
/* Reads the real numbers of the setup. */
mha_status mha__setup_read_reals(const json_t *config, mha__setup *setup, mha_error *error);

/* The keys of the sizes of attention layers, by any of which a configuration may name them, separated by blanks. */
typedef struct mha__size_keys {
    const char *d_model, *n_heads, *kv_heads, *d_k;
} mha__size_keys;

/* Reads these sizes, 0 where the configuration has none; the error is that of the first that is no whole number. */
mha_status mha__config_sizes(const json_t *config, const mha__size_keys *keys, mha_config *sizes, mha_error *error);

#endif
