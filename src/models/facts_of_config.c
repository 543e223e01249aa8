/* The facts of attention layers out of a config.json: of all of them, or of the one with a prefix. */
#include <string.h>

#include "models/config/config.h"
#include "models/model.h"

/* Width and head counts of a config with an unknown model type, under the keys that most libraries use. */
static mha_status read_sizes(const json_t *config, mha_model_facts *facts, mha_error *error)
{
    static const mha__size_keys keys = {"hidden_size n_embd d_model dim",
                                        "num_attention_heads n_head num_heads n_heads encoder_attention_heads",
                                        "num_key_value_heads n_kv_heads num_kv_heads", "head_dim d_kv"};
    const json_t *type = json_object_get(config, "model_type");
    mha__text_print(facts->model_type, sizeof facts->model_type, "%s",
                    json_is_string(type) ? json_string_value(type) : "");
    return mha__config_sizes(config, &keys, &facts->config, error);
}

static mha_status read_whole(const json_t *config, mha_model_facts *facts, mha_error *error)
{
    mha__setup setup;
    TRY(mha__setup_read(config, NULL, NULL, &setup, error));
    mha__setup_facts(&setup, &setup.values, facts);
    mha__setup_free(&setup);
    return MHA_OK;
}

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
    TRY(mha_params_create(NULL, &table, error));
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
    *facts = (mha_model_facts){0};
    TRY(mha__config_read(path, &config, error));
    const json_t *type = json_object_get(config, "model_type");
    const bool known = json_is_string(type) && mha__architecture_known(json_string_value(type));
    const mha_status status = !known  ? read_sizes(config, facts, error)
                              : layer ? read_layer(config, layer, facts, error)
                                      : read_whole(config, facts, error);
    json_decref(config);
    return status;
}

mha_status mha_model_read_config(const char *path, mha_model_facts *facts, mha_error *error)
{
    return mha_model_read_layer(path, NULL, facts, error);
}
