/* A config.json evaluated for the architecture that it names: every symbol gets its value. */
#ifndef MHA_MODELS_CONFIG_EVALUATE_H
#define MHA_MODELS_CONFIG_EVALUATE_H

#include <jansson.h>

#include "mha/model.h"
#include "models/describe/architecture.h"
#include "models/config/rotation.h"

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

/* What an error about a symbol is called: the keys it is read from, with blanks between, or, where it is computed, the
 * row of the description, in `room`. */
const char *mha__setup_key(const mha__setup *setup, const char *symbol, char room[MHA_ARCH_ROW]);

/* The attention configuration that the symbols describe: widths, heads, biases, norms; dtype is left F32. */
mha_config mha__values_attention(const mha__values *v);
enum { MHA_BIAS_MOST_ROWS = 65536 }; /* of a table, see mha_config */
/* The bias by position that the symbols describe, and the rows of its table: too many where they make no sense. */
mha_bias mha__values_bias(const mha__values *v, size_t *rows);
/* The number of features that are rotated, made even. */
size_t mha__values_rope_dim(const mha__values *v);
/* What the setup says about the semantics of attention; `values`: its own, or those of one layer. */
void mha__setup_facts(const mha__setup *setup, const mha__values *values, mha_model_facts *facts);

#endif
