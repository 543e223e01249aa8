/* A config.json read for the architecture that it names: symbols, rotation, keys that nothing reads. */
#ifndef MHA_MODELS_CONFIG_CONFIG_H
#define MHA_MODELS_CONFIG_CONFIG_H

#include <jansson.h>

#include "mha/model.h"
#include "models/describe/architecture.h"

/* The rotation that a config.json asks for: frequencies for long contexts, and those of layers with a window. */

/* How the layers that the symbol `local` marks turn, [1], and all others, [0]. */
typedef struct mha__rope_config {
    double base[2]; /* 0: none is stated here */
    mha_rope_scaling scaling[2];
    mha_rope_axes axes;
    char fault[120]; /* why the scaling is left out: an unknown kind, a number without a meaning; "": it is not */
} mha__rope_config;

/* The keys that are read for it. */
#define MHA_ROPE_OBJECTS "rope_parameters rope_scaling"
#define MHA_ROPE_KEYS MHA_ROPE_OBJECTS " max_position_embeddings original_max_position_embeddings"

/* Reads rope_parameters or rope_scaling, for a rotation of `dim` features. What is wrong in it is a fault, no error:
 * parameters can be counted all the same. */
void mha__rope_config_read(const json_t *config, size_t dim, double base, mha__rope_config *rope);

/* A config.json evaluated for the architecture that it names: every symbol gets its value. */

enum { MHA_LIST_LIMIT = 100000 };

typedef struct mha__setup {
    mha__architecture *architecture; /* owned */
    const mha__arch_class *model_class;
    mha__values values;
    mha_semantics numbers; /* settings that are real numbers */
    double rope_local_base, scale_square;
    mha__rope_config rope;
    const char *not_run;                               /* why attention is counted, but not computed; NULL: it is */
    size_t n_assumed;
    mha_assumption assumed[MHA_VALUES];
    size_t n_unread;
    const char **unread; /* keys that nothing reads, in the architecture's memory */
} mha__setup;

/* Evaluates an object. Of `spec`, preset and config are ignored; NULL: the first class of the model, whatever the
 * config says, as for attention, which does not depend on it. `described`: its architecture, which is taken over, also
 * after an error; NULL: that of the config. The caller releases the setup with mha__setup_free; after an error there
 * is nothing to be released. */
mha_status mha__setup_read(const json_t *config, const mha_model_spec *spec, mha__architecture *described,
                           mha__setup *setup, mha_error *error);
void mha__setup_free(mha__setup *setup);

/* The name of a symbol in errors: the keys that it is read from, with blanks between, or, if it is computed, the
 * row of the description, in `room`. */
const char *mha__setup_key(const mha__setup *setup, const char *symbol, char room[MHA_ARCH_ROW]);

/* The attention configuration that the symbols describe: widths, heads, biases, norms; dtype is left F32. */
mha_config mha__values_attention(const mha__values *v);
enum { MHA_BIAS_MOST_ROWS = 65536 }; /* of a table, see mha_config */
/* The bias by position that the symbols describe, and the rows of its table: too many where they make no sense. */
mha_bias mha__values_bias(const mha__values *v, size_t *rows);
/* The number of features that are rotated, made even. */
size_t mha__values_rope_dim(const mha__values *v);
/* The semantics of attention in a setup; `values`: its own, or those of one layer. */
void mha__setup_facts(const mha__setup *setup, const mha__values *values, mha_model_facts *facts);

/* Reads from a config.json the symbols and numbers that an architecture names. */

#define MHA_CONFIG_LARGEST ((int64_t)1 << 40) /* the largest whole number that is taken */

/* The value of a key; "a.b.c" is the key c of the object b of the object a. */
json_t *mha__config_value(const json_t *config, const char *key);
/* The value of the first key in the list `keys` that the config has and that is not null; its name is copied to
 * `room`. NULL: none. */
json_t *mha__config_first(const json_t *config, const char *keys, char room[64]);
/* Reads a size, a flag (1 or 0), or the number of named classes (id2label). */
mha_status mha__config_whole(const json_t *value, const char *key, int64_t *number, mha_error *error);

/* The root of a symbol in records of evaluations (mha__trace): a bit; 0: it has no key, or is past the 64th with one.
 * Symbols without a key have the roots of their formulas. */
uint64_t mha__setup_root(const mha__setup *setup, const mha__arch_key *key);
/* Gives a symbol its value, from the config or by its formula. */
mha_status mha__setup_read_key(const json_t *config, const mha__arch_key *key, mha__setup *setup, mha_error *error);
/* Where the setup keeps a real number that is no setting. */
static inline double *mha__setup_real(mha__setup *setup, const mha__arch_real *real)
{
    return real->symbol[0] == 's' ? &setup->scale_square : &setup->rope_local_base;
}
/* Reads the real numbers of the setup. */
mha_status mha__setup_read_reals(const json_t *config, mha__setup *setup, mha_error *error);

/* Alternative keys of the sizes of attention layers in a configuration, separated by blanks. */
typedef struct mha__size_keys {
    const char *d_model, *n_heads, *kv_heads, *d_k;
} mha__size_keys;

/* Reads these sizes, 0 where the configuration has none; the error is that of the first that is no whole number. */
mha_status mha__config_sizes(const json_t *config, const mha__size_keys *keys, mha_config *sizes, mha_error *error);

/* Keys of a config.json that nothing reads. */

/* Looks for keys that the architecture neither reads nor knows to be without effect. Those that cannot decide a number
 * become the setup's `unread`; others are refused by name. Errors: MHA_UNSUPPORTED, MHA_NO_MEMORY. */
mha_status mha__config_keys_check(const json_t *config, mha__setup *setup, mha_error *error);
/* The topic of a key that is known to be without effect with this value, "training"; NULL: none. Static text. */
const char *mha__config_key_topic(const mha__architecture *architecture, const char *key, const json_t *value);
/* Whether the architecture reads some members of an object with this key. */
bool mha__config_key_has_members(const mha__architecture *architecture, const char *key);
/* Whether a value cannot state anything: null, or an empty list or object. */
bool mha__config_says_nothing(const json_t *value);

#endif
