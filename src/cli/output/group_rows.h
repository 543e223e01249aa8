/* Summarises a large parameter table: rows grouped by name, part, role, layer or type, with shares of the whole. */
#ifndef MHA_CLI_OUTPUT_GROUP_ROWS_H
#define MHA_CLI_OUTPUT_GROUP_ROWS_H

#include "cli/options/options.h"
#include "cli/text/print.h"

/* The view that --depth, --group, --only and --sort ask for. */
typedef struct census_view {
    const char *by;   /* "role", "layer", "dtype", "part"; NULL: by name */
    size_t depth;     /* > 0: by this many components of the name; 0: by pattern (numbers become {i}) and shape */
    const char *only; /* the only group shown; NULL: all */
    const char *sort; /* "elements", "name"; NULL: in table order */
    bool whole;       /* nothing is grouped */
    const mha_file *file; /* of quantised tensors: bytes are those in it, and those here; NULL: none */
} census_view;

census_view census_view_of(const arguments *args);
/* Adds what a row takes in the file, scales and zero points included, and here, once it is read. */
void bytes_of_row(const mha_file *file, const mha_tensor_info *info, size_t *in_file, size_t *here);
/* Whether the view shows a row. */
bool census_shows(const census_view *view, const mha_tensor_info *info);
void census_print(mha_params *params, const census_view *view, table_style style);
/* Draws the parameters of the rows that --only leaves into the file of --picture. Returns 0, at once without that
 * option, or the exit code after one line. */
int census_draw(mha_params *params, const char *title, const arguments *args);
/* The summary as a list: name, tensors, elements, bytes, share of the parameters. */
json_t *census_json(mha_params *params, const census_view *view);

#endif
