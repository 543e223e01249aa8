/* A layer with random weights and a table of its own. */
#ifndef TEST_LAYER_H
#define TEST_LAYER_H

#include "mha/layer.h"

/* To be destroyed; making it may not fail. */
mha_layer *made_layer(mha_config config, uint64_t seed);

#endif
