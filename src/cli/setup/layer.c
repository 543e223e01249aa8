/* Makes a layer from options: weights from a file, or random in the shape that options or a model give. */
#include "cli/setup/request.h"

/* Whether the dotted parts of `asked` occur in this order in a prefix: "0" and "h.0" in "h.0.attn". A final dot is
 * ignored. */
static bool names_layer(const char *prefix, const char *asked)
{
    size_t length = strlen(asked);
    length -= length > 0 && asked[length - 1] == '.';
    for (const char *at = prefix; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
        if (strncmp(at, asked, length) == 0 && (at[length] == '.' || at[length] == 0))
            return length > 0 || !*prefix;
    return false;
}

/* ---------------------------------------------------------------- weights from a file */

/* Reads the model's facts from the configuration that is asked for, from the metadata of the file or, where these do
 * not describe the model, from the configuration beside it. */
static int read_facts(request *r, const arguments *args, const mha_file *file, const char *config, const char *layer)
{
    mha_error error = {0};
    mha_found_layer only;
    const bool asked = given(args, OPT_CONFIG);
    if (!layer && mha_model_find_layers(file, &only, 1) == 1)
        layer = only.prefix;
    const mha_status said = asked ? MHA_NOT_FOUND : mha_model_read_metadata(file, layer, &r->facts, &error);
    if (said == MHA_OK)
        r->facts_from = "metadata";
    else if (said != MHA_NOT_FOUND)
        return refuse_error(text_for(args, OPT_WEIGHTS), &error);
    if (!config || r->facts.has_semantics)
        return EXIT_DONE;
    r->facts_from = asked ? text_for(args, OPT_CONFIG) : "config.json";
    mha_status status = mha_model_read_layer(config, layer, &r->facts, &error);
    if (status == MHA_OK)
        status = mha_model_fit_file(file, &r->facts, &error);
    return status == MHA_OK ? EXIT_DONE : refuse_error(config, &error);
}

/* The layer that `asked` names, by the whole prefix of its tensors' names or by a part that no other layer has: "0".
 * If no layer or several match, `asked` is returned, and the library refuses it with a list. */
static const char *prefix_of_layer(const mha_file *file, const char *asked)
{
    const size_t n = mha_model_find_layers(file, NULL, 0);
    mha_found_layer *layers = keep(obtain(n, sizeof *layers));
    mha_model_find_layers(file, layers, n);
    size_t matches = 0, match = 0;
    for (size_t i = 0; i < n && asked; i++)
        if (names_layer(layers[i].prefix, asked)) {
            matches++;
            match = i;
        }
    return asked && matches == 1 ? layers[match].prefix : asked;
}

int request_weights(request *r, const arguments *args, mha_file **file)
{
    static const option_code preset[] = {OPT_PRESET, OPTION_COUNT},
                             kept[] = {OPT_HEADS, OPT_KV_HEADS, OPT_D_K, OPTION_COUNT};
    static const char expected[] = "nothing with --weights, whose file decides it";
    const char *config = NULL;
    TRY(refuse_each(args, preset, expected));
    TRY(refuse_fields(args, kept, expected));
    TRY(weights_open(args, file, &config));
    r->prefix = prefix_of_layer(*file, text_for(args, OPT_LAYER));
    const int code = read_facts(r, args, *file, config, r->prefix);
    r->asked = (mha_load_options){
        .layer = r->prefix,
        .n_heads = given(args, OPT_HEADS) ? count_of(args, OPT_HEADS) : 0,
        .kv_heads = count_of(args, OPT_KV_HEADS),
        .d_k = count_of(args, OPT_D_K),
        .facts = r->facts_from ? &r->facts : NULL,
        .has_dtype = given(args, OPT_DTYPE),
        .keep_quantised = true,
        .dtype = dtype_of(args, OPT_DTYPE),
        .orientation = given(args, OPT_ORIENTATION)
                           ? (mha_orientation)(MHA_ORIENTATION_IN_OUT + args->option[OPT_ORIENTATION].choice)
                           : MHA_ORIENTATION_AUTO,
    };
    return code;
}

static int layer_of_file(request *r, const arguments *args)
{
    mha_file *file = NULL;
    mha_error error = {0};
    int code = request_weights(r, args, &file);
    if (code == EXIT_DONE && mha_params_create(NULL, &r->table, &error) != MHA_OK)
        code = refuse_error("", &error);
    if (code == EXIT_DONE && mha_model_load_layer(file, &r->asked, r->table, &r->layer, &r->loaded, &error) != MHA_OK)
        code = refuse_field(text_for(args, OPT_WEIGHTS), &error);
    mha_file_close(file);
    return code;
}

/* ---------------------------------------------------------------- the shape of a model's layer */

/* Finds the only layer that --layer matches; without --layer the first one. */
static int choose_layer(const arguments *args, const mha_model *model, mha_model_layer *layer, mha_model_facts *facts)
{
    const char *asked = text_for(args, OPT_LAYER);
    const size_t n = mha_model_layer_count(model);
    size_t matches = 0, match = 0;
    for (size_t i = 0; i < n && asked; i++) {
        mha_model_layer_at(model, i, layer);
        if (names_layer(layer->prefix, asked)) {
            matches++;
            match = i;
        }
    }
    if (n > 0 && (!asked || matches == 1)) {
        mha_model_layer_at(model, match, layer);
        *facts = *mha_model_layer_facts(model, match);
        return EXIT_DONE;
    }
    if (n == 0)
        return refuse("--config", "expected a model with attention layers, found none");
    mha_model_layer first = {0}, last = {0};
    mha_model_layer_at(model, 0, &first);
    mha_model_layer_at(model, n - 1, &last);
    return refuse("--layer", "expected one of the %zu attention layers from %s to %s, found %s%s", n, first.prefix,
                  last.prefix, asked, matches ? ", which is a part of several" : "");
}

/* Reads the configuration of an attention layer of --preset or --config and the model's facts, but no weights. */
static int layer_of_model(request *r, const arguments *args, mha_config *config)
{
    counted_model m = {.params = NULL};
    mha_model_layer layer = {0};
    int code = counted_open(args, given(args, OPT_HEADS) ? count_of(args, OPT_HEADS) : 0, &m);
    if (code == EXIT_DONE && (code = choose_layer(args, m.model, &layer, &r->facts)) == EXIT_DONE) {
        *config = layer.config;
        config->dtype = dtype_of(args, OPT_DTYPE);
        config->bias_rows = r->facts.config.bias_rows;
        if (*r->facts.not_run && args->command != CMD_PARAMS)
            code = refuse(given(args, OPT_PRESET) ? "--preset" : "--config", "%s; it is counted, not computed",
                          r->facts.not_run);
        r->facts_from = given(args, OPT_PRESET) ? "preset" : args->option[OPT_CONFIG].text;
        snprintf(r->loaded.layer.prefix, sizeof r->loaded.layer.prefix, "%s", layer.prefix);
    }
    counted_close(&m);
    return code;
}

/* ---------------------------------------------------------------- either */

mha_config request_config(const arguments *args)
{
    const bool latent = given(args, option_of_field("kv_rank")),
               bias = latent ? given(args, OPT_BIAS) : !given(args, OPT_NO_BIAS);
    mha_config c = {.bias_q = bias, .bias_k = bias, .bias_v = bias, .bias_o = bias, .dtype = dtype_of(args, OPT_DTYPE)};
    const mha_config_field *f;
    for (size_t i = 0; (f = mha_config_field_at(i)) != NULL; i++) {
        const option_code option = option_of_field(f->word);
        char *at = (char *)&c + f->at;
        if (option == option_count() || field_of(option) != f)
            continue;
        const size_t size = count_of(args, option);
        const bool on = true;
        const int choice = (int)args->option[option].choice;
        if (f->kind == MHA_CONFIG_SIZE)
            memcpy(at, &size, f->bytes);
        else if (given(args, option) && f->kind == MHA_CONFIG_SWITCH)
            memcpy(at, &on, f->bytes);
        else if (given(args, option))
            memcpy(at, &choice, f->bytes);
    }
    return c;
}

static int make_layer(request *r, const arguments *args, mha_config config)
{
    mha_error error = {0};
    if (given(args, OPT_BIAS) && given(args, OPT_NO_BIAS))
        return refuse("--no-bias", "expected either --bias or --no-bias, found both");
    TRY(done_or_refuse_field(mha_config_resolve(&config, &error), "", &error));
    TRY(done_or_refuse_field(mha_params_create(NULL, &r->table, &error), "", &error));
    TRY(done_or_refuse_field(mha_layer_create(&config, r->table, NULL, &r->layer, &error), "", &error));
    r->random_weights = true;
    if (args->command == CMD_PARAMS) /* which only counts */
        return EXIT_DONE;
    TRY(expect_memory(mha_params_totals(r->table, NULL).parameter_bytes, "the weights"));
    mha_layer_init(r->layer, count_of(args, OPT_SEED));
    return EXIT_DONE;
}

/* Makes an equal layer with room for the sinks of --sinks, which may come from another file than its weights. */
static mha_status with_sinks(request *r, const mha_view *sinks, mha_error *error)
{
    mha_config config = *mha_layer_config(r->layer);
    mha_params *rows = NULL;
    mha_layer *layer = NULL;
    config.sinks = true;
    TRY(mha_params_create(NULL, &rows, error));
    mha_status status = mha_layer_create(&config, rows, NULL, &layer, error);
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT && status == MHA_OK; w++) {
        mha_tensor *weight = w == MHA_SINKS ? NULL : mha_layer_weight(r->layer, w);
        const mha_view from = weight ? mha_tensor_view(weight) : *sinks;
        if (weight || w == MHA_SINKS)
            status = mha_layer_set(layer, w, &from, error);
    }
    mha_layer_destroy(status == MHA_OK ? r->layer : layer);
    mha_params_destroy(status == MHA_OK ? r->table : rows);
    if (status == MHA_OK) {
        r->layer = layer;
        r->table = rows;
    }
    return status;
}

const char *random_words(const arguments *args, bool weights, bool inputs)
{
    const char *model = text_for(args, given(args, OPT_PRESET) ? OPT_PRESET : OPT_CONFIG);
    const bool shape = weights && model_asked(args);
    if (!weights && !inputs)
        return NULL;
    const char *what = !inputs ? "weights" : weights ? "weights and inputs" : "inputs";
    return harmless(text_of("random %s (seed %zu)%s%s%s", what, count_of(args, OPT_SEED),
                            shape ? ": the shape of " : "", shape ? model : "", shape ? ", not its attention" : ""));
}

int request_layer(request *r, const arguments *args, const mha_config *config)
{
    mha_config made = config ? *config : request_config(args);
    mha_view sinks;
    mha_error error = {.status = MHA_NO_MEMORY};
    TRY(refuse_alone(args, OPT_ORIENTATION, OPT_WEIGHTS));
    if (given(args, OPT_WEIGHTS))
        TRY(layer_of_file(r, args));
    else {
        TRY(model_asked(args) ? layer_of_model(r, args, &made) : refuse_alone(args, OPT_LAYER, OPT_WEIGHTS));
        TRY(make_layer(r, args, made));
    }
    r->random = random_words(args, r->random_weights, false);
    if (!given(args, OPT_SINKS))
        return EXIT_DONE;
    TRY(tensor_of_option(args, OPT_SINKS, WIDE_FLOATS, &r->memory, &sinks));
    return done_or_refuse_field(with_sinks(r, &sinks, &error), "--sinks", &error);
}
