/* Makes a layer from options: weights from a file, or random in the shape that options or a model give. */
#ifndef MHA_CLI_SETUP_LAYER_H
#define MHA_CLI_SETUP_LAYER_H

#include "cli/setup/request.h"

/* The configuration of the shape options; not yet resolved. */
mha_config request_config(const arguments *args);
/* Makes table and layer with the weights of --weights, or random ones in the shape of --preset, --config or `config`.
 * Returns 0, or the exit code after one line on standard error. */
int request_layer(request *r, const arguments *args, const mha_config *config);

/* Opens the file of --weights and makes `asked`; the layer is not read. The caller closes the file, also after an
 * error. */
int request_weights(request *r, const arguments *args, mha_file **file);

#endif
