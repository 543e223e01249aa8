/* A layer with random weights and a table of its own. */
#include "support/layer.h"
#include "support/unit.h"

mha_layer *made_layer(mha_config config, uint64_t seed)
{
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_layer_create(&config, NULL, NULL, &layer, &error), error);
    mha_layer_init(layer, seed);
    return layer;
}
