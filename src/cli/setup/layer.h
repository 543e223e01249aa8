/* Layers of public checkpoints: weights from a file, or the shape of a model's layer. */
#ifndef MHA_CLI_SETUP_LAYER_H
#define MHA_CLI_SETUP_LAYER_H

#include "cli/setup/call.h"

/* Table and layer of --weights, with what a configuration says about it into r->facts. */
int layer_of_file(request *r, const arguments *args);
/* The configuration of an attention layer of --preset or --config, and the model's facts; no weights. */
int layer_of_model(request *r, const arguments *args, mha_config *config);

#endif
