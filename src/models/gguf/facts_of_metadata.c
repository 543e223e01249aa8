/* The facts of attention layers out of the metadata of a GGUF file. */
#include <math.h>
#include <string.h>

#include "models/config/config.h"
#include "models/gguf/gguf.h"
#include "models/model.h"

/* Checks what the rows of a description cannot say: epsilon, and the number of layers where these differ. */
static mha_status check_facts(const mha_model *model, const char *layer, size_t at, const mha_model_facts *facts,
                              mha_error *error)
{
    const uint64_t normed = UINT64_C(1) << MHA_Q_NORM | UINT64_C(1) << MHA_K_NORM | UINT64_C(1) << MHA_QA_NORM |
                            UINT64_C(1) << MHA_KVA_NORM;
    if (facts->weights & normed && facts->semantics.qkv.norm_eps == 0)
        return mha__fail(error, MHA_NOT_FOUND, "attention.layer_norm_rms_epsilon",
                         "expected the epsilon of the norms of queries and keys, found none");
    if (layer && at == model->n_layers && model->setup.architecture->attention->own->symbol)
        return mha__fail(error, MHA_NOT_FOUND, "block_count",
                         "expected more than %zu layers, which differ, found no '%.*s'", model->n_layers,
                         MHA_CUT_ARGS(40, layer));
    return MHA_OK;
}

/* Says which defaults of the family stand in for metadata that decide about attention. */
static void name_assumed(const mha__setup *setup, mha_model_facts *facts)
{
    char list[100] = "";
    for (size_t i = 0; i < setup->n_assumed; i++) {
        const mha_assumption *a = &setup->assumed[i];
        const size_t used = strlen(list);
        if (strncmp(a->key, "attention.", 10) == 0 || strncmp(a->key, "rope.", 5) == 0)
            mha__text_print(list + used, sizeof list - used, "%s%s = %lld", used ? ", " : "", a->key,
                            (long long)a->value);
    }
    if (*list)
        mha__text_print(facts->caveat, sizeof facts->caveat, "assumed, as its metadata do not say it: %s", list);
}

mha_status mha__gguf_model(const mha_file *file, json_t *config, mha__architecture *described, mha_params *table,
                           mha_model **model, mha_error *error)
{
    const mha_status status = mha__gguf_settle(described, config, error);
    *model = NULL;
    if (status != MHA_OK) {
        mha__architecture_free(described);
        return status;
    }
    TRY(mha__model_create_from(config, &(mha_model_spec){0}, described, table, model, error));
    return mha__gguf_scaling(file, config, &(*model)->setup.values, &(*model)->setup.rope.scaling[0], error);
}

mha_status mha_model_of_metadata(const mha_file *file, mha_params *table, mha_model **model, mha_error *error)
{
    const char *name = mha_file_metadata(file, "general.architecture");
    json_t *config = NULL;
    mha__architecture *described = NULL;
    if (!name || strcmp(mha_file_format(file), "gguf") != 0)
        return mha__fail(error, MHA_NOT_FOUND, mha_file_path(file),
                         "expected a GGUF file that names its architecture, found another");
    mha_status status = mha__gguf_config(file, name, &config, error);
    if (status == MHA_OK)
        status = mha__gguf_describe(name, &described, error);
    if (status == MHA_OK && !described)
        status = mha__fail(error, MHA_UNSUPPORTED, "general.architecture",
                           "expected an architecture that is described (mha help architectures), found '%.*s'",
                           MHA_CUT_ARGS(40, name));
    if (status == MHA_OK)
        status = mha__gguf_model(file, config, described, table, model, error);
    json_decref(config);
    return status;
}

static mha_status read_model(const mha_file *file, json_t *config, mha__architecture *described, const char *layer,
                             mha_model_facts *facts, mha_error *error)
{
    mha_params *table = NULL;
    mha_model *model = NULL;
    mha_status status = mha_params_create(NULL, &table, error);
    if (status == MHA_OK)
        status = mha__gguf_model(file, config, described, table, &model, error);
    else
        mha__architecture_free(described);
    if (model) {
        const size_t at = layer ? mha__model_find_layer(model, layer) : model->n_layers;
        mha__model_find_facts(model, at, facts);
        if (status == MHA_OK)
            status = check_facts(model, layer, at, facts, error);
        name_assumed(&model->setup, facts);
    }
    mha_model_destroy(model);
    mha_params_destroy(table);
    return status;
}

mha_status mha_model_read_metadata(const mha_file *file, const char *layer, mha_model_facts *facts, mha_error *error)
{
    static const mha__size_keys keys = {"embedding_length", "attention.head_count", "attention.head_count_kv",
                                        "attention.key_length"};
    const char *name = mha_file_metadata(file, "general.architecture");
    json_t *config = NULL;
    mha__architecture *described = NULL;
    mha_error why = {0};
    *facts = (mha_model_facts){0};
    if (!name || strcmp(mha_file_format(file), "gguf") != 0)
        return mha__fail(error, MHA_NOT_FOUND, mha_file_path(file),
                         "expected a GGUF file that names its architecture, found another");
    mha_status status = mha__gguf_config(file, name, &config, &why);
    if (status == MHA_OK)
        status = mha__gguf_describe(name, &described, &why);
    if (described)
        status = read_model(file, config, described, layer, facts, &why);
    if (status != MHA_OK) {
        *facts = (mha_model_facts){0};
        mha__text_print(facts->not_run, sizeof facts->not_run, "%s: %s", why.name, why.message);
    }
    if (!facts->has_semantics) /* the plain numbers, as far as they are some, whatever the architecture means */
        (void)mha__config_sizes(config, &keys, &facts->config, NULL);
    mha__text_print(facts->model_type, sizeof facts->model_type, "%s", name);
    json_decref(config);
    const bool unread = status == MHA_NO_MEMORY || status == MHA_IO;
    return unread ? mha__fail(error, status, why.name, "%s", why.message) : MHA_OK;
}

mha_status mha_model_fit_file(const mha_file *file, mha_model_facts *facts, mha_error *error)
{
    mha_model_facts own;
    const mha_status status = mha_model_read_metadata(file, NULL, &own, error);
    if (status != MHA_OK)
        return status == MHA_NOT_FOUND ? MHA_OK : status;
    mha_semantics *s = &facts->semantics;
    facts->reordered = own.reordered && s->qkv.rope.kind == MHA_ROPE_HALF_SPLIT;
    facts->norm_folded = own.norm_folded && s->qkv.norm.plus_one;
    s->qkv.rope.kind = facts->reordered ? MHA_ROPE_INTERLEAVED : s->qkv.rope.kind;
    s->qkv.norm.plus_one = s->qkv.norm.plus_one && !facts->norm_folded;
    return MHA_OK;
}
