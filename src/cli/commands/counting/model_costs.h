/* The costs of a forward pass of a whole model: operations by part, key/value cache, workspace. */
#ifndef MHA_CLI_COMMANDS_COUNTING_MODEL_COSTS_H
#define MHA_CLI_COMMANDS_COUNTING_MODEL_COSTS_H

#include "cli/options.h"
#include "cli/output/print.h"

/* The costs of a forward pass of --batch sequences of --seq tokens: operations, key/value cache, and the plan of a
 * layer (all zero for a model without attention layers), which has the workspace's size. */
typedef struct model_costs {
    mha_model_costs model;
    mha_plan layer;
} model_costs;

/* Returns 0, or the exit code after one line on standard error. */
int model_costs_get(const arguments *args, const mha_model *model, model_costs *costs);
void model_costs_print(const arguments *args, const model_costs *costs);
void model_costs_json(const arguments *args, const model_costs *costs, json_t *root);

#endif
