/* --preset list, or a table of several models: allocates and counts them. */
#include "cli/output/report.h"

#include <unistd.h>

/* Whether a value of --preset or --config is several, with commas between; a file may have a comma in its name. */
static bool is_several(const arguments *args, option_code option)
{
    const char *text = text_for(args, option);
    return args->command == CMD_PARAMS && text && strchr(text, ',') && access(text, F_OK) != 0;
}

bool presets_asked(const arguments *args)
{
    return (given(args, OPT_PRESET) && strcmp(args->option[OPT_PRESET].text, "list") == 0) ||
           is_several(args, OPT_PRESET) || is_several(args, OPT_CONFIG);
}

static json_t *model_record(const mha_model *model, const char *name, const mha_params *params)
{
    const mha_model_facts *facts = mha_model_facts_of(model);
    const mha_config *c = &facts->config;
    return record_of("name", J(name), "architecture", J(mha_model_title(model)), "model_type", J(facts->model_type),
                     "class", J(mha_model_class(model)), "d_model", J(c->d_model), "heads", J(c->n_heads), "kv_heads",
                     J(c->kv_heads), "d_k", J(c->d_k), "attention_layers", J(mha_model_layer_count(model)),
                     "total_parameters", J(mha_params_totals(params, NULL).parameters), NULL);
}

static int add_model(const arguments *args, const mha_model_spec *spec, json_t *list)
{
    counted_model m = {.params = NULL};
    const char *name = spec->preset ? spec->preset : spec->config;
    mha_error error;
    mha_status status = counted_create(spec, &m, &error);
    if (status == MHA_OK) {
        const mha_model_pass pass = {.batch = count_of(args, OPT_BATCH), .seq = count_of(args, OPT_COST_SEQ)};
        json_t *record = model_record(m.model, name, m.params);
        json_array_append_new(list, record);
        if (given(args, OPT_COST_SEQ)) {
            status = mha_model_add_caches(m.model, &pass, dtype_of(args, OPT_LEDGER_DTYPE), 1, 0, m.params, &error);
            size_t bytes = 0;
            for (size_t i = 0; mha_cache_kind_at(i); i++)
                bytes += mha_params_totals(m.params, mha_cache_kind_at(i)).buffer_bytes;
            record_with(record, "cache_bytes", J(bytes), NULL);
        }
    }
    counted_close(&m);
    return status == MHA_OK ? EXIT_DONE : refuse_error(spec->config ? name : "", &error);
}

/* Adds the models of a list with commas between. */
static int add_models(const arguments *args, const char *names, bool are_files, json_t *list)
{
    size_t i = 0, all = 1;
    for (const char *at = names; at && *at; at++)
        all += *at == ',';
    for (size_t n; names && *names; names += n + (names[n] == ',')) {
        n = strcspn(names, ",");
        const char *name = text_of("%.*s", (int)n, names);
        progress_show(i++, all);
        TRY(add_model(args, &(mha_model_spec){.preset = are_files ? NULL : name, .config = are_files ? name : NULL},
                      list));
    }
    return EXIT_DONE;
}

int list_presets(const arguments *args)
{
    static const char *const columns[] = {
        "name: name", "??model: architecture", "???class: class", ">d_model: d_model: %d", ">heads: heads: %d",
        "?>kv_heads: kv_heads: %d", "?>d_k: d_k: %d", ">attention layers: attention_layers: %d",
        ">parameters: total_parameters", ">cache: cache_bytes: %B"};
    const bool all = !is_several(args, OPT_PRESET) && !is_several(args, OPT_CONFIG);
    const char *name = text_for(args, OPT_PRESET);
    for (option_code o = 0; o < option_count(); o++)
        if (given(args, o) && o != OPT_PRESET && o != OPT_FORMAT && o != OPT_CSV && o != OPT_WIDE && o != OPT_JSON &&
            o != OPT_QUIET &&
            (all || (o != OPT_CONFIG && o != OPT_COST_SEQ && o != OPT_BATCH && o != OPT_LEDGER_DTYPE)))
            return refuse_option(o, "expected nothing with --preset list or several models, of which it is a table");
    for (size_t i = all; all && mha_preset_at(i - 1, NULL); i++) /* their names, as if they were given */
        name = i == 1 ? mha_preset_at(0, NULL) : text_more(name, ",%s", mha_preset_at(i - 1, NULL));
    json_t *list = json_array(), *root = keep_json(record_of(all ? "presets" : "models", list, NULL));
    progress_begin(args, "models");
    int code = add_models(args, name, false, list);
    if (code == EXIT_DONE)
        code = add_models(args, text_for(args, OPT_CONFIG), true, list);
    progress_end();
    if (code == EXIT_DONE && report_is_text(args, root))
        REPORT_TABLE(list, columns);
    return code;
}
