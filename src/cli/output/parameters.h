/* Shows the rows and totals of a parameter table, as text or JSON, in one form for all commands. */
#ifndef MHA_CLI_OUTPUT_PARAMETERS_H
#define MHA_CLI_OUTPUT_PARAMETERS_H

#include "cli/text/print.h"

/* Prints the table with its totals. `layer` (may be NULL) gives the symbolic shapes; with `per_head`, each head's
 * slice of a weight is shown below its row. */
void parameters_print(mha_params *params, const mha_layer *layer, bool per_head, table_style style);
/* A table of rows by themselves, each as --csv shows it. */
table *parameters_csv(void);
void parameters_csv_row(table *t, const mha_tensor_info *info);
/* Adds the keys of the totals to `object`. */
void parameters_json_totals(json_t *object, mha_params *params);
/* A row, or all of them; with a layer, the slices of each head are under "heads". */
json_t *parameters_json_row(const mha_tensor *tensor, const mha_layer *layer);
json_t *parameters_json_rows(mha_params *params, const mha_layer *layer);

#endif
