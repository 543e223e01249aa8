/* The facts of one attention layer, read from a config.json and the layer's prefix. */
#include <string.h>

#include "models/json_text.h"
#include "models/model.h"

size_t mha__model_find_layer(const mha_model *model, const char *prefix)
{
    const char *base = model->setup.architecture->base_prefix;
    size_t n = strlen(prefix), at = 0;
    n -= n > 0 && prefix[n - 1] == '.';
    for (; at < model->n_layers; at++) {
        const char *name = model->layers[at].shown.prefix;
        const char *bare = base && strncmp(name, base, strlen(base)) == 0 ? name + strlen(base) : name;
        const bool whole = strlen(name) == n && strncmp(name, prefix, n) == 0;
        if (whole || (strlen(bare) == n && strncmp(bare, prefix, n) == 0))
            break;
    }
    return at;
}

/* The facts of the layer with a prefix; those of the whole model when it has no such layer. */
static mha_status read_layer(json_t *config, const char *prefix, mha_model_facts *facts, mha_error *error)
{
    mha_params *table = NULL;
    mha_model *model = NULL;
    if (mha_params_create(NULL, &table) != MHA_OK)
        return mha__fail(error, MHA_NO_MEMORY, "model", "no memory for a table of parameters");
    (void)json_object_del(config, "architectures"); /* attention does not depend on the class */
    const mha_status status = mha__model_create_from(config, &(mha_model_spec){0}, NULL, table, &model, error);
    if (model)
        *facts = *mha_model_layer_facts(model, mha__model_find_layer(model, prefix));
    mha_model_destroy(model);
    mha_params_destroy(table);
    return status;
}

mha_status mha_model_read_layer(const char *path, const char *layer, mha_model_facts *facts, mha_error *error)
{
    json_t *config = NULL;
    TRY(mha_model_read_config(path, facts, error));
    if (!layer || !facts->has_semantics)
        return MHA_OK;
    TRY(mha__config_read(path, &config, error));
    const mha_status status = read_layer(config, layer, facts, error);
    json_decref(config);
    return status;
}
