/* --preset list: allocates and counts the built-in models. */
#include "cli/output/presets.h"

#include <string.h>

#include "base/base.h"
#include "cli/output/print.h"

bool presets_asked(const arguments *args)
{
    return given(args, OPT_PRESET) && strcmp(args->option[OPT_PRESET].text, "list") == 0;
}

/* Refuses options that say what to do with a model: the list only shows the models. */
static int refuse_others(const arguments *args)
{
    for (option_code code = 0; code < option_count(); code++)
        if (given(args, code) && code != OPT_PRESET && code != OPT_FORMAT && code != OPT_JSON && code != OPT_QUIET)
            return refuse_option(code, "expected nothing beside --preset list, which lists the models");
    return EXIT_DONE;
}

static void add_model(const mha_model *model, const char *name, size_t parameters, table *t, json_t *list)
{
    const mha_model_facts *facts = mha_model_facts_of(model);
    const mha_config *c = &facts->config;
    const size_t layers = mha_model_layer_count(model);
    table_cell(t, name);
    table_cell(t, mha_model_title(model));
    table_cell(t, mha_model_class(model));
    table_format(t, "%zu", c->d_model);
    table_format(t, "%zu", c->n_heads);
    table_format(t, "%zu", c->kv_heads);
    table_format(t, "%zu", c->d_k);
    table_format(t, "%zu", layers);
    table_count(t, parameters);
    json_array_append_new(list, json_pack("{ss ss ss ss so so so so so so}", "name", name, "architecture",
                                          mha_model_title(model), "model_type", facts->model_type, "class",
                                          mha_model_class(model), "d_model", json_count(c->d_model), "heads",
                                          json_count(c->n_heads), "kv_heads", json_count(c->kv_heads), "d_k",
                                          json_count(c->d_k), "attention_layers", json_count(layers),
                                          "total_parameters", json_count(parameters)));
}

static int add_preset(const char *name, table *t, json_t *list)
{
    mha_params *params = NULL;
    mha_model *model = NULL;
    mha_error error = {.status = MHA_NO_MEMORY};
    mha__regions regions = {.count = 0};
    const mha_allocator allocator = mha__regions_allocator(&regions);
    mha_status status = mha_params_create(&allocator, &params);
    if (status == MHA_OK)
        status = mha_model_create(&(mha_model_spec){.preset = name}, params, &model, &error);
    if (status == MHA_OK)
        add_model(model, name, mha_params_totals(params, NULL).parameters, t, list);
    mha_model_destroy(model);
    mha_params_destroy(params);
    return status == MHA_OK ? EXIT_DONE : refuse_error("", &error);
}

int list_presets(const arguments *args)
{
    static const char *const titles[] = {"name",  "model",   "class",   ">d_model",   ">heads", ">kv_heads",
                                         ">d_k", ">attention layers", ">parameters"};
    int code = refuse_others(args);
    if (code != EXIT_DONE)
        return code;
    const char *format = args->option[OPT_FORMAT].text;
    const bool json = given(args, OPT_JSON) || strcmp(format, "json") == 0;
    table *t = table_create(table_style_named(format), sizeof titles / sizeof *titles, titles);
    json_t *list = json_array();
    const char *name;
    for (size_t i = 0; code == EXIT_DONE && (name = mha_preset_at(i, NULL)); i++)
        code = add_preset(name, t, list);
    if (code == EXIT_DONE && !json && !given(args, OPT_QUIET))
        table_print(t);
    else
        table_drop(t);
    if (code == EXIT_DONE && json)
        json_print(json_pack("{so}", "presets", list));
    else
        json_decref(list);
    return code;
}
