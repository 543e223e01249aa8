/* Makes a layer from options: weights from a file, or random in the shape that options or a model give. */
#ifndef MHA_CLI_SETUP_LAYER_H
#define MHA_CLI_SETUP_LAYER_H

#include "cli/setup/request.h"

/* The configuration of the shape options; not yet resolved. */
mha_config request_config(const arguments *args);
/* Makes table and layer with the weights of --weights, or random ones in the shape of --preset, --config or `config`.
 * Returns 0, or the exit code after one line on standard error. */
int request_layer(request *r, const arguments *args, const mha_config *config);

/* What was drawn at random, in words: "random weights and inputs (seed 0)", and of which model that is the shape alone.
 * Must be freed; NULL when neither was. */
char *random_words(const arguments *args, bool weights, bool inputs);

/* Opens the file of --weights and makes `asked`; the layer is not read. The caller closes the file, also after an
 * error. */
int request_weights(request *r, const arguments *args, mha_file **file);

#endif
