/* Whole models on the command line: --preset and --config, for mha params and mha heads; and files as they are. */
#ifndef MHA_CLI_SETUP_MODEL_H
#define MHA_CLI_SETUP_MODEL_H

#include "cli/options.h"
#include "cli/output/print.h"

/* Whether a whole model is asked for. */
bool model_asked(const arguments *args);
/* The model of --preset or --config with its --class and --dtype, `n_heads` 0: as many heads as it has. Gives 0, or
 * the exit code after one line on standard error. */
int model_open(const arguments *args, size_t n_heads, mha_params *params, mha_model **model);

/* What a forward pass of --batch sequences of --seq tokens costs: operations, key/value cache, workspace of a layer
 * (the plan is all zero for a model without attention layers). */
typedef struct model_costs {
    mha_model_costs model;
    mha_plan layer;
} model_costs;
int model_costs_get(const arguments *args, const mha_model *model, model_costs *costs);
void model_costs_print(const arguments *args, const model_costs *costs);
void model_costs_json(const arguments *args, const model_costs *costs, json_t *root);

/* mha params --preset, --config, --weights; mha heads --preset, --config. */
int run_model_params(const arguments *args);
int run_model_heads(const arguments *args);

#endif
