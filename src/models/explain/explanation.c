/* A report on a configuration: kinds of attention layers, their values, and the keys that these came from. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lab/lab.h"
#include "mha/setting.h"
#include "models/explain/explain.h"
#include "models/gguf/gguf.h"

struct mha_config_explanation {
    char *json;
};

/* ---------------------------------------------------------------- the subject */

static mha_status open_file(mha__subject *s, mha_error *error)
{
    mha__architecture *described = NULL;
    const char *name = mha_file_metadata(s->file, "general.architecture");
    if (!name || strcmp(mha_file_format(s->file), "gguf") != 0)
        return mha__fail(error, MHA_FORMAT, mha_file_path(s->file),
                         "expected a config.json, or a GGUF file that names its architecture; found another file");
    TRY(mha__gguf_config(s->file, name, &s->config, error));
    TRY(mha__gguf_describe(name, &described, error));
    if (!described)
        return mha__fail(error, MHA_UNSUPPORTED, "general.architecture",
                         "expected an architecture that is described (mha help architectures), found '%.*s'",
                         MHA_CUT_ARGS(40, name));
    TRY(mha__gguf_model(s->file, s->config, described, s->table, &s->model, error));
    for (size_t i = 0; i < s->model->n_layers; i++) /* with the scaling of the rotation */
        mha__model_find_facts(s->model, i, &s->model->layers[i].facts);
    return MHA_OK;
}

static mha_status open_subject(const char *source, mha__subject *s, mha_error *error)
{
    struct stat found;
    const char *preset = NULL;
    char first[4] = "";
    mha_error of_file = {0};
    TRY(mha_params_create(NULL, &s->table, error));
    FILE *file = stat(source, &found) == 0 && !S_ISDIR(found.st_mode) ? fopen(source, "rb") : NULL;
    const bool is_gguf = file && fread(first, 1, sizeof first, file) == sizeof first && memcmp(first, "GGUF", 4) == 0;
    if (file)
        fclose(file);
    if (is_gguf) {
        TRY(mha_file_open(source, &s->file, error));
        return open_file(s, error);
    }
    const mha_status status = mha__config_read(source, &s->config, &of_file);
    if (status != MHA_NOT_FOUND || strchr(source, '/'))
        *(error ? error : &of_file) = of_file, preset = NULL;
    else
        TRY(mha__preset_find(source, &preset, error));
    if (preset)
        TRY(mha__json_parse(preset, strlen(preset), source, &s->config, error));
    else if (status != MHA_OK)
        return status;
    return mha__model_create_from(s->config, &(mha_model_spec){0}, NULL, s->table, &s->model, error);
}

static void close_subject(mha__subject *s)
{
    mha_model_destroy(s->model);
    mha_params_destroy(s->table);
    mha_file_close(s->file);
    json_decref(s->config);
}

/* ---------------------------------------------------------------- kinds of layers */

/* Rows that a cache keeps: null for every key; 0: no cache. */
static void put_cache(mha__subject *s, json_t *kind, size_t index)
{
    enum { LONG = 1 << 20 }; /* tokens, more than a window has */
    mha_model_lengths lengths;
    if (mha_model_layer_lengths(s->model, &(mha_model_pass){.batch = 1, .seq = LONG}, index, &lengths, NULL) != MHA_OK)
        return;
    const bool all = lengths.cached && lengths.cached == lengths.keys;
    mha__report_put(s, kind, "cached_rows", all ? json_null() : json_integer((json_int_t)lengths.cached));
    mha__report_put(s, kind, "cached_width", json_integer((json_int_t)lengths.cached_width));
    mha__report_put(s, kind, "latent_width", json_integer((json_int_t)lengths.latent_width));
    mha__report_put(s, kind, "cross", json_boolean(lengths.cross));
}

/* The kind of a layer with these values, which are taken over, among those so far; a new one is added. */
static json_t *kind_of(mha__subject *s, json_t *kinds, size_t index, json_t *values)
{
    const struct mha__model_layer *layer = &s->model->layers[index];
    json_t *kind;
    size_t i;
    json_array_foreach(kinds, i, kind)
    {
        const size_t first = (size_t)json_integer_value(json_array_get(json_object_get(kind, "layers"), 0));
        if (s->model->layers[first].description == layer->description &&
            json_equal(json_object_get(kind, "values"), values)) {
            json_decref(values);
            return kind;
        }
    }
    mha__report_append(s, kinds, kind = json_object());
    const char *pattern = layer->description->prefix;
    const bool prefixed = strncmp(pattern, "{model}", 7) == 0;
    mha__report_put(s, kind, "prefix", json_sprintf("%s%s", prefixed ? s->model->setup.architecture->base_prefix : "",
                                                    pattern + (prefixed ? 7 : 0)));
    mha__report_put(s, kind, "layers", json_array());
    mha__report_put(s, kind, "blocks", json_array());
    mha__report_put(s, kind, "uses", json_integer((json_int_t)layer->shown.uses));
    put_cache(s, kind, index);
    mha__report_put(s, kind, "caveat", *layer->facts.caveat ? json_string(layer->facts.caveat) : json_null());
    mha__report_put(s, kind, "not_run", *layer->facts.not_run ? json_string(layer->facts.not_run) : json_null());
    mha__report_put(s, kind, "values", values);
    return kind;
}

/* Whether a value states something: a switch that is on, a number, a word other than "none". */
static bool states(const json_t *value)
{
    return !json_is_null(value) && !json_is_false(value) &&
           !(json_is_string(value) && strcmp(json_string_value(value), "none") == 0);
}

/* A list of records in place of the values: those that are given, or that a key of the configuration decides, switches
 * also by its default; and whether the layer is causal and rotates. */
static json_t *with_sources(mha__subject *s, const json_t *values, const json_t *sources)
{
    const char *name, *key;
    json_t *value, *flag, *list = json_array();
    json_object_foreach((json_t *)(uintptr_t)values, name, value)
    {
        json_t *keys = json_array(), *defaults = json_array(), *row = json_object();
        json_object_foreach(json_object_get(sources, name), key, flag)
            mha__report_append(s, json_is_true(flag) ? keys : defaults, json_string(key));
        const mha_setting *setting = mha_setting_find(name);
        const bool sourced = json_array_size(keys) > 0 || (json_is_false(value) && json_array_size(defaults) > 0);
        const bool shown = states(value) || (sourced && !(setting && setting->needs)) ||
                           mha__text_among("causal rope", name);
        mha__report_put(s, row, "name", json_string(name));
        mha__report_put(s, row, "value", json_incref(value));
        mha__report_put(s, row, "keys", keys);
        mha__report_put(s, row, "defaults", defaults);
        if (shown)
            mha__report_append(s, list, row);
        else
            json_decref(row);
    }
    return list;
}

static json_t *report_of(mha__subject *s)
{
    const mha_model *model = s->model;
    json_t *report = json_object(), *kinds = json_array(), *sources = json_array(), *kind;
    size_t k;
    mha__report_put(s, report, "architecture", json_string(mha_model_title(model)));
    mha__report_put(s, report, "model_type", json_string(model->setup.architecture->name));
    mha__report_put(s, report, "format", json_string(s->file ? "gguf" : "config"));
    mha__report_put(s, report, "attention_layers", json_integer((json_int_t)model->n_layers));
    mha__report_put(s, report, "kinds", kinds);
    for (size_t i = 0; i < model->n_layers; i++) {
        kind = kind_of(s, kinds, i, mha__layer_values(s, &model->layers[i].facts));
        mha__report_append(s, json_object_get(kind, "layers"), json_integer((json_int_t)i));
        mha__report_append(s, json_object_get(kind, "blocks"), json_integer(model->layers[i].i));
    }
    json_array_foreach(kinds, k, kind)
    {
        const size_t first = (size_t)json_integer_value(json_array_get(json_object_get(kind, "layers"), 0));
        json_t *of = mha__layer_sources(s, first, json_object_get(kind, "values"));
        mha__report_append(s, sources, of);
        mha__report_put(s, kind, "values", with_sources(s, json_object_get(kind, "values"), of));
    }
    mha__report_put(s, report, "keys", mha__key_effects(s, sources));
    json_decref(sources);
    return report;
}

/* ---------------------------------------------------------------- the interface */

static mha_status explain_one(const char *source, json_t **report, mha_error *error)
{
    mha__subject s = {0};
    const mha_status status = open_subject(source, &s, error);
    *report = status == MHA_OK ? report_of(&s) : NULL;
    close_subject(&s);
    if (!s.starved)
        return status;
    json_decref(*report);
    *report = NULL;
    return mha__fail(error, MHA_NO_MEMORY, source, "no memory for the report");
}

mha_status mha_explain(const char *source, const char *against, mha_config_explanation **explanation, mha_error *error)
{
    json_t *report, *other = NULL;
    mha__subject s = {0};
    TRY(explain_one(source, &report, error));
    mha_status status = against ? explain_one(against, &other, error) : MHA_OK;
    mha__report_put(&s, report, "source", json_string_nocheck(source));
    if (other)
        mha__report_put(&s, report, "differences", mha__report_differences(&s, report, other));
    mha_config_explanation *made = status == MHA_OK ? calloc(1, sizeof *made) : NULL;
    if (made)
        made->json = json_dumps(report, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (status == MHA_OK && (!made || !made->json || s.starved)) {
        mha_config_explanation_destroy(made);
        status = mha__fail(error, MHA_NO_MEMORY, source, "no memory for the report");
    }
    json_decref(report);
    json_decref(other);
    if (status == MHA_OK)
        *explanation = made;
    return status;
}

const char *mha_config_explanation_json(const mha_config_explanation *explanation)
{
    return explanation->json;
}

void mha_config_explanation_destroy(mha_config_explanation *explanation)
{
    if (explanation)
        free(explanation->json);
    free(explanation);
}
