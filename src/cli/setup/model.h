/* Whole models on the command line: --preset and --config, and the config.json beside a file of weights. */
#ifndef MHA_CLI_SETUP_MODEL_H
#define MHA_CLI_SETUP_MODEL_H

#include "cli/options/options.h"
#include "cli/text/print.h"

/* Functions that can fail return 0, or the exit code after one line on standard error. */

/* Whether a whole model is asked for. */
bool model_asked(const arguments *args);
/* Refuses options that the architecture, or the file of weights, decides. */
int refuse_shapes(const arguments *args, const char *beside);
/* The model that --preset, --config, --class, --kv-heads and --dtype describe; `n_heads` 0: its own number. */
mha_model_spec model_spec(const arguments *args, size_t n_heads);
/* Makes the model of --preset or --config with its --class and --dtype; `n_heads` 0: its own number of heads. */
int model_open(const arguments *args, size_t n_heads, mha_params *params, mha_model **model);

/* Why mha computes no attention of the model, or not that of one of its layers; "": it computes all. */
const char *model_not_run(const mha_model *model);

/* Finds the config.json in the directory of a file, or in the directory `path`. *config: NULL when there is none. */
int config_beside(const char *path, const char **config);
/* Prints "Title (class)" of a model; both may come from a description that somebody wrote. */
void model_print_name(const mha_model *model);

/* The first tensor of a GGUF file whose name in the model's checkpoint is unknown; NULL: every name is known. */
const char *unknown_name(const mha_file *file, const mha_params *model);

/* Opens the file of --weights, and finds the config.json that describes it: that of --config, else the one in the
 * same directory, else NULL. The caller closes the file, also after an error. */
int weights_open(const arguments *args, mha_file **file, const char **config);

#endif
