/* Explains a configuration: the values of its attention layers, and the keys that decide them. */
#ifndef MHA_MODELS_EXPLAIN_EXPLAIN_H
#define MHA_MODELS_EXPLAIN_EXPLAIN_H

#include "models/model.h"

/* A configuration under explanation, with its model. */
typedef struct mha__subject {
    json_t *config; /* owned: of a config.json, or the metadata of a GGUF file */
    mha_file *file; /* NULL: a config.json */
    mha_params *table;
    mha_model *model;
    bool starved; /* memory for a part of the report was missing */
} mha__subject;

/* Sets a field of a report, which takes over the value; NULL is missing memory. */
void mha__report_put(mha__subject *s, json_t *object, const char *name, json_t *value);
void mha__report_append(mha__subject *s, json_t *list, json_t *value);

/* The values of a layer with these facts, in the order of the tables of fields and settings: null where nothing is
 * given. NULL: the sizes do not go together, as those of no layer of a model do. */
json_t *mha__layer_values(mha__subject *s, const mha_model_facts *facts);
/* The keys that decide each of these values: an object by name, of objects by key: true, or false of a key that is not
 * there and has its default. A value depends on a key if another value of the key, or of the symbol or number that is
 * read from it, gives the layer another value. */
json_t *mha__layer_sources(mha__subject *s, size_t index, const json_t *values);

/* The keys, and objects of keys, that are read for the scaling of the rotation. */
static inline const char *mha__rotation_keys(const mha__subject *s)
{
    return s->file ? "rope context_length" : MHA_ROPE_KEYS;
}

/* A list of the keys of the configuration, with the effect of each. `sources`: of each kind of layer. */
json_t *mha__key_effects(mha__subject *s, const json_t *sources);
/* The key of a list that is read: the first that has a value, else the first that is there. false: none is, and `room`
 * has the first of the list. */
bool mha__key_read(const mha__subject *s, const char *keys, char room[64]);
/* The keys of the roots, as an object of sources. */
json_t *mha__root_keys(mha__subject *s, uint64_t roots);
/* The name of a key in its file: with the architecture's name in metadata; kept in `room`. */
const char *mha__key_name(const mha__subject *s, const char *key, char room[160]);

/* The differences of two reports. Errors: MHA_NO_MEMORY (NULL). */
json_t *mha__report_differences(mha__subject *s, const json_t *report, const json_t *against);

#endif
