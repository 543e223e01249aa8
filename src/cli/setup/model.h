/* Whole models on the command line: --preset and --config, and the config.json beside a file of weights. */
#ifndef MHA_CLI_SETUP_MODEL_H
#define MHA_CLI_SETUP_MODEL_H

#include "cli/options.h"
#include "cli/output/print.h"

/* Functions that can fail give 0, or the exit code after one line on standard error. */

/* Whether a whole model is asked for. */
bool model_asked(const arguments *args);
/* Refuses options for what the architecture, or the file of weights, decides by itself. */
int refuse_shapes(const arguments *args, const char *beside);
/* The model of --preset or --config with its --class and --dtype; `n_heads` 0: as many heads as it has. */
int model_open(const arguments *args, size_t n_heads, mha_params *params, mha_model **model);

/* The config.json that belongs to a file of weights: in its directory, or in the directory that `path` is.
 * *config is to be freed; NULL when there is none. */
int config_beside(const char *path, char **config);

#endif
