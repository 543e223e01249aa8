/* Key biases that cannot change the output are marked as inert in the table of a model. */
#include <string.h>

#include "models/model.h"
#include "params/params.h"

/* The layer that a tensor belongs to: the first at or after `from`, round the list, whose prefix its name has. */
static size_t layer_of(const mha_model *model, const char *name, size_t from)
{
    for (size_t n = 0; n < model->n_layers; n++) {
        const size_t index = (from + n) % model->n_layers;
        const char *prefix = model->layers[index].shown.prefix;
        const size_t length = strlen(prefix);
        if (strncmp(name, prefix, length) == 0 && (length == 0 || name[length] == '.'))
            return index;
    }
    return model->n_layers;
}

mha_status mha__model_mark_inert(const mha_model *model, mha_error *error)
{
    size_t layer = 0;
    for (size_t i = 0; i < model->n_rows; i++) {
        mha_tensor *tensor = model->rows[i].tensor;
        const char *role = model->rows[i].description->role;
        const bool alone = strcmp(role, "b_K") == 0;
        if (!alone && strcmp(role, "b_QKV") != 0)
            continue;
        const mha_tensor_info info = mha_tensor_info_of(tensor);
        if (info.alias_of)
            continue;
        layer = layer_of(model, info.name, layer);
        const size_t inert = layer < model->n_layers ? model->layers[layer].inert_key_bias : 0;
        if (inert > info.elements)
            return mha__fail(error, MHA_INVALID, info.name,
                             "expected the key bias of its layer, %zu elements at least, found %zu", inert,
                             info.elements);
        const mha_status status =
            inert == 0 ? MHA_OK
                       : mha__tensor_set_inert(tensor, inert,
                                               alone ? "the key bias adds one number to all scores of a query; softmax "
                                                       "does not see it"
                                                     : "its slice for the keys adds one number to all scores of a "
                                                       "query; softmax does not see it");
        if (status != MHA_OK)
            return mha__fail(error, status, info.name, "no memory for a row's note");
    }
    return MHA_OK;
}
