/* A large parameter table told briefly: rows folded by name, part, role, layer or type, with shares of the whole. */
#ifndef MHA_CLI_OUTPUT_GROUP_ROWS_H
#define MHA_CLI_OUTPUT_GROUP_ROWS_H

#include "cli/options.h"
#include "cli/output/print.h"

/* How --depth, --group, --only and --sort ask for it. */
typedef struct census_view {
    const char *by;   /* "role", "layer", "dtype", "part"; NULL: by name */
    size_t depth;     /* > 0: by so many components of the name; 0: numbers in names become {i}, equal shapes fold */
    const char *only; /* group of the rows shown; NULL: all */
    const char *sort; /* "elements", "name"; NULL: in order of the table */
    bool whole;       /* nothing is folded */
} census_view;

census_view census_view_of(const arguments *args);
/* Whether a row is shown. */
bool census_shows(const census_view *view, const mha_tensor_info *info);
void census_print(mha_params *params, const census_view *view, table_style style);
/* The same as a list: name, tensors, elements, bytes, share of the parameters. */
json_t *census_json(mha_params *params, const census_view *view);

#endif
