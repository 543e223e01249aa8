/* Whole models on the command line: --preset and --config, for mha params and mha heads; and files as they are. */
#ifndef MHA_CLI_MODEL_H
#define MHA_CLI_MODEL_H

#include "cli/options.h"
#include "cli/print.h"

/* Whether a whole model is asked for. */
bool model_asked(const arguments *args);
/* The model of --preset or --config with its --class and --dtype, `n_heads` 0: as many heads as it has. Gives 0, or
 * the exit code after one line on standard error. */
int model_open(const arguments *args, size_t n_heads, mha_params *params, mha_model **model);

/* What a forward pass of --batch sequences of --seq tokens costs: operations, key/value cache, workspace of a layer. */
int model_costs_print(const arguments *args, const mha_model *model);
int model_costs_json(const arguments *args, const mha_model *model, json_t *root);

/* mha params --preset, --config, --weights; mha heads --preset, --config. */
int run_model_params(const arguments *args);
int run_model_heads(const arguments *args);

#endif
