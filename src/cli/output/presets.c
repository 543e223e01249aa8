/* --preset list: allocates and counts the built-in models. */
#include "cli/output/report.h"

bool presets_asked(const arguments *args)
{
    return given(args, OPT_PRESET) && strcmp(args->option[OPT_PRESET].text, "list") == 0;
}

static json_t *model_record(const mha_model *model, const char *name, size_t parameters)
{
    const mha_model_facts *facts = mha_model_facts_of(model);
    const mha_config *c = &facts->config;
    return record_of("name", J(name), "architecture", J(mha_model_title(model)), "model_type", J(facts->model_type),
                     "class", J(mha_model_class(model)), "d_model", J(c->d_model), "heads", J(c->n_heads), "kv_heads",
                     J(c->kv_heads), "d_k", J(c->d_k), "attention_layers", J(mha_model_layer_count(model)),
                     "total_parameters", J(parameters), NULL);
}

static int add_preset(const char *name, json_t *list)
{
    counted_model m = {.params = NULL};
    mha_error error;
    const mha_status status = counted_create(&(mha_model_spec){.preset = name}, &m, &error);
    if (status == MHA_OK)
        json_array_append_new(list, model_record(m.model, name, mha_params_totals(m.params, NULL).parameters));
    counted_close(&m);
    return done_or_refuse(status, "", &error);
}

int list_presets(const arguments *args)
{
    static const char *const columns[] = {
        "name: name", "??model: architecture", "???class: class", ">d_model: d_model: %d", ">heads: heads: %d",
        "?>kv_heads: kv_heads: %d", "?>d_k: d_k: %d", ">attention layers: attention_layers: %d",
        ">parameters: total_parameters"};
    int code = EXIT_DONE;
    const char *name;
    for (option_code o = 0; o < option_count(); o++) /* the list only shows the models */
        if (given(args, o) && o != OPT_PRESET && o != OPT_FORMAT && o != OPT_CSV && o != OPT_WIDE && o != OPT_JSON &&
            o != OPT_QUIET)
            return refuse_option(o, "expected nothing with --preset list, which lists the models");
    json_t *list = json_array(), *root = keep_json(record_of("presets", list, NULL));
    size_t n = 0;
    while (mha_preset_at(n, NULL))
        n++;
    progress_begin(args, "models");
    for (size_t i = 0; code == EXIT_DONE && (name = mha_preset_at(i, NULL)); i++) {
        progress_show(i, n);
        code = add_preset(name, list);
    }
    progress_end();
    if (code == EXIT_DONE && report_is_text(args, root))
        REPORT_TABLE(list, columns);
    return code;
}
