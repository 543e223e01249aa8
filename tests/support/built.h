/* Models that tests make of presets, configurations and descriptions, each with a table of its own. */
#ifndef TEST_BUILT_H
#define TEST_BUILT_H

#include "mha/model.h"

typedef struct built {
    mha_params *table;
    mha_model *model; /* NULL after an error */
    mha_error error;
} built;

/* Makes a model. After an error the table has no row. unbuild releases both, after an error, too. */
mha_status build(built *b, mha_model_spec spec);
/* The same of texts: a config.json and, unless it is NULL, a description. `class_name` may be NULL. */
mha_status build_text(built *b, const char *config, const char *class_name, const char *description);
void unbuild(built *b);

/* The path of a config.json of this text, until the next one is written. */
const char *config_file(const char *text);

#endif
