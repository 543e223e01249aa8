/* The rows and totals of a parameter table, as text or JSON: the same wherever they are shown. */
#ifndef MHA_CLI_OUTPUT_PARAMETERS_H
#define MHA_CLI_OUTPUT_PARAMETERS_H

#include "cli/output/print.h"

/* The table with its totals. `layer` (may be NULL) gives the symbolic shapes, and with `per_head` each
 * head's slice of its weights below the row. */
void parameters_print(mha_params *params, const mha_layer *layer, bool per_head, table_style style);
/* The keys of the totals into `object`. */
void parameters_json_totals(json_t *object, mha_params *params);
/* The rows; with a layer, the slices of each head under "heads". */
json_t *parameters_json_rows(mha_params *params, const mha_layer *layer);

#endif
