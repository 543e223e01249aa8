/* Layers of public checkpoints: weights from a file, or the shape of a model's layer. */
#include "cli/setup/layer.h"

#include <stdlib.h>
#include <string.h>

#include "cli/setup/model.h"
#include "cli/output/print.h"
#include "cli/setup/tensor_arg.h"

/* ---------------------------------------------------------------- weights from a file */

/* The file decides these; with both, one of them would be ignored. */
static int refuse_shapes(const arguments *args)
{
    static const option_code decided[] = {OPT_PRESET, OPT_D_MODEL, OPT_D_V,  OPT_D_Q,   OPT_KDIM,
                                          OPT_VDIM,   OPT_D_OUT,   OPT_BIAS, OPT_NO_BIAS};
    for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
        if (given(args, decided[i])) {
            char about[32];
            snprintf(about, sizeof about, "--%s", option_rows[decided[i]].name);
            return refuse(about, "expected nothing beside --weights, whose file decides it, found %s",
                          args->option[decided[i]].text ? args->option[decided[i]].text : "it");
        }
    return EXIT_DONE;
}

/* What --config says, or the config.json beside the weights, or the metadata in them. */
static int read_facts(request *r, const arguments *args, const mha_file *file)
{
    mha_error error = {0};
    char *config = NULL;
    int code = EXIT_DONE;
    if (given(args, OPT_CONFIG))
        config = text_of("%s", args->option[OPT_CONFIG].text);
    else
        code = config_beside(args->option[OPT_WEIGHTS].text, &config);
    if (code != EXIT_DONE)
        return code;
    if (config) {
        r->facts_from = given(args, OPT_CONFIG) ? args->option[OPT_CONFIG].text : "config.json";
        if (mha_model_read_config(config, &r->facts, &error) != MHA_OK)
            code = refuse_file(config, &error);
    } else if (mha_model_read_metadata(file, &r->facts))
        r->facts_from = "metadata";
    free(config);
    return code;
}

int layer_of_file(request *r, const arguments *args)
{
    const char *path = args->option[OPT_WEIGHTS].text;
    source s = {0};
    mha_error error = {0};
    int code = refuse_shapes(args);
    if (code == EXIT_DONE)
        code = source_open_whole(&s, path);
    if (code == EXIT_DONE)
        code = read_facts(r, args, s.file);
    mha_load_options options = {
        .layer = args->option[OPT_LAYER].text,
        .n_heads = given(args, OPT_HEADS) ? count_of(args, OPT_HEADS) : 0,
        .kv_heads = count_of(args, OPT_KV_HEADS),
        .d_k = count_of(args, OPT_D_K),
        .facts = r->facts_from ? &r->facts : NULL,
        .has_dtype = true,
        .dtype = request_dtype(args, OPT_DTYPE),
        .orientation = given(args, OPT_ORIENTATION)
                           ? (mha_orientation)(MHA_ORIENTATION_IN_OUT + args->option[OPT_ORIENTATION].choice)
                           : MHA_ORIENTATION_AUTO,
    };
    if (code == EXIT_DONE && mha_params_create(NULL, &r->table) != MHA_OK)
        code = refuse_error("", &(mha_error){.status = MHA_NO_MEMORY});
    if (code == EXIT_DONE && mha_model_load_layer(s.file, &options, r->table, &r->layer, &r->loaded, &error) != MHA_OK)
        code = refuse_error(path, &error);
    source_close(&s);
    return code;
}

/* ---------------------------------------------------------------- the shape of a model's layer */

/* The layer of --layer, with or without its final dot; the first one without. */
static int choose_layer(const arguments *args, const mha_model *model, mha_model_layer *layer)
{
    const char *prefix = args->option[OPT_LAYER].text;
    size_t length = prefix ? strlen(prefix) : 0, i = 0;
    length -= length > 0 && prefix[length - 1] == '.';
    for (; mha_model_layer_at(model, i, layer); i++)
        if (!prefix || (strlen(layer->prefix) == length && strncmp(layer->prefix, prefix, length) == 0))
            return EXIT_DONE;
    if (i == 0)
        return refuse("--config", "expected a model with attention layers, found none");
    mha_model_layer first = {0}, last = {0};
    mha_model_layer_at(model, 0, &first);
    mha_model_layer_at(model, i - 1, &last);
    return refuse("--layer", "expected one of the %zu attention layers from %s to %s, found %s", i, first.prefix, last.prefix,
                  prefix ? prefix : "none");
}

int layer_of_model(request *r, const arguments *args, mha_config *config)
{
    mha_params *params = NULL;
    mha_model *model = NULL;
    mha_model_layer layer;
    if (mha_params_create(NULL, &params) != MHA_OK)
        return refuse_error("", &(mha_error){.status = MHA_NO_MEMORY});
    int code = model_open(args, given(args, OPT_HEADS) ? count_of(args, OPT_HEADS) : 0, params, &model);
    if (code == EXIT_DONE && (code = choose_layer(args, model, &layer)) == EXIT_DONE) {
        *config = layer.config;
        config->dtype = request_dtype(args, OPT_DTYPE);
        r->facts = mha_model_get_facts(model);
        r->facts.causal = layer.causal;
        r->facts_from = given(args, OPT_PRESET) ? "preset" : args->option[OPT_CONFIG].text;
        snprintf(r->loaded.layer.prefix, sizeof r->loaded.layer.prefix, "%s", layer.prefix);
    }
    mha_model_destroy(model);
    mha_params_destroy(params);
    return code;
}
