/* From options to a layer with its weights: read from a file, or random in the shape that options or a model give. */
#include "cli/setup/layer.h"

#include <stdlib.h>
#include <string.h>

#include "cli/setup/model.h"
#include "cli/output/print.h"
#include "cli/setup/tensor_arg.h"

/* ---------------------------------------------------------------- weights from a file */

/* The file decides these; with both, one of them would be ignored. */
static const option_code decided[] = {OPT_PRESET, OPT_D_MODEL, OPT_D_V,  OPT_D_Q,     OPT_KDIM,
                                      OPT_VDIM,   OPT_D_OUT,   OPT_BIAS, OPT_NO_BIAS, OPTION_COUNT};

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

static int layer_of_file(request *r, const arguments *args)
{
    const char *path = args->option[OPT_WEIGHTS].text;
    source s = {0};
    mha_error error = {0};
    int code = refuse_each(args, decided, "nothing beside --weights, whose file decides it");
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
        .dtype = dtype_of(args, OPT_DTYPE),
        .orientation = given(args, OPT_ORIENTATION)
                           ? (mha_orientation)(MHA_ORIENTATION_IN_OUT + args->option[OPT_ORIENTATION].choice)
                           : MHA_ORIENTATION_AUTO,
    };
    if (code == EXIT_DONE && mha_params_create(NULL, &r->table) != MHA_OK)
        code = refuse_error("", &(mha_error){.status = MHA_NO_MEMORY});
    if (code == EXIT_DONE && mha_model_load_layer(s.file, &options, r->table, &r->layer, &r->loaded, &error) != MHA_OK)
        code = refuse_field(path, &error);
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

/* The configuration of an attention layer of --preset or --config, and the model's facts; no weights. */
static int layer_of_model(request *r, const arguments *args, mha_config *config)
{
    mha_params *params = NULL;
    mha_model *model = NULL;
    mha_model_layer layer;
    if (mha_params_create(NULL, &params) != MHA_OK)
        return refuse_error("", &(mha_error){.status = MHA_NO_MEMORY});
    int code = model_open(args, given(args, OPT_HEADS) ? count_of(args, OPT_HEADS) : 0, params, &model);
    if (code == EXIT_DONE && (code = choose_layer(args, model, &layer)) == EXIT_DONE) {
        *config = layer.config;
        config->dtype = dtype_of(args, OPT_DTYPE);
        r->facts = mha_model_get_facts(model);
        r->facts.causal = layer.causal;
        r->facts_from = given(args, OPT_PRESET) ? "preset" : args->option[OPT_CONFIG].text;
        snprintf(r->loaded.layer.prefix, sizeof r->loaded.layer.prefix, "%s", layer.prefix);
    }
    mha_model_destroy(model);
    mha_params_destroy(params);
    return code;
}

/* ---------------------------------------------------------------- either */

mha_config request_config(const arguments *args)
{
    bool bias = !given(args, OPT_NO_BIAS);
    return (mha_config){.d_model = count_of(args, OPT_D_MODEL),
                        .n_heads = count_of(args, OPT_HEADS),
                        .kv_heads = count_of(args, OPT_KV_HEADS),
                        .d_k = count_of(args, OPT_D_K),
                        .d_v = count_of(args, OPT_D_V),
                        .d_q = count_of(args, OPT_D_Q),
                        .d_kin = count_of(args, OPT_KDIM),
                        .d_vin = count_of(args, OPT_VDIM),
                        .d_out = count_of(args, OPT_D_OUT),
                        .bias_q = bias,
                        .bias_k = bias,
                        .bias_v = bias,
                        .bias_o = bias,
                        .dtype = dtype_of(args, OPT_DTYPE)};
}

/* Counting needs no numbers; running does, and memory for them. */
static int fill_layer(request *r, const arguments *args)
{
    int code = expect_memory(mha_params_totals(r->table, NULL).parameter_bytes, "the weights");
    if (code == EXIT_DONE)
        mha_layer_init(r->layer, count_of(args, OPT_SEED));
    return code;
}

static int make_layer(request *r, const arguments *args, const mha_config *config)
{
    mha_error error = {0};
    if (given(args, OPT_BIAS) && given(args, OPT_NO_BIAS))
        return refuse("--no-bias", "expected either --bias or --no-bias, found both");
    mha_config resolved = *config;
    mha_status status = mha_config_resolve(&resolved, &error);
    if (status == MHA_OK && (status = mha_params_create(NULL, &r->table)) != MHA_OK)
        error = (mha_error){.status = status};
    if (status == MHA_OK)
        status = mha_layer_create(&resolved, r->table, NULL, &r->layer, &error);
    if (status != MHA_OK)
        return refuse_field("", &error);
    r->random_weights = true;
    return args->command == CMD_PARAMS && !given(args, OPT_MERGED_QK) ? EXIT_DONE : fill_layer(r, args);
}

int request_layer(request *r, const arguments *args, const mha_config *config)
{
    mha_config of_model;
    int code = refuse_alone(args, OPT_ORIENTATION, OPT_WEIGHTS);
    if (code != EXIT_DONE)
        return code;
    if (given(args, OPT_WEIGHTS))
        return layer_of_file(r, args);
    code = model_asked(args) ? layer_of_model(r, args, &of_model) : refuse_alone(args, OPT_LAYER, OPT_WEIGHTS);
    return code == EXIT_DONE ? make_layer(r, args, model_asked(args) ? &of_model : config) : code;
}
