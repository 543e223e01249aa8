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
/* What --preset, --config, --class, --kv-heads and --dtype ask for; `n_heads` 0: as many heads as it has. */
mha_model_spec model_spec(const arguments *args, size_t n_heads);
/* The model of --preset or --config with its --class and --dtype; `n_heads` 0: as many heads as it has. */
int model_open(const arguments *args, size_t n_heads, mha_params *params, mha_model **model);

/* The file of --weights, to be closed, and the config.json that says what it holds, to be freed: that of --config, or
 * else the one in the same directory; NULL when there is none. What was opened stays so on error. */
int weights_open(const arguments *args, mha_file **file, char **config);

#endif
