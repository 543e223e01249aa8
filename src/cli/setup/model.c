/* Whole models on the command line: --preset and --config, and the config.json beside a file of weights. */
#include "cli/setup/request.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/lab.h"

bool model_asked(const arguments *args)
{
    return given(args, OPT_PRESET) || given(args, OPT_CONFIG);
}

int refuse_shapes(const arguments *args, const char *beside)
{
    static const option_code kept[] = {OPT_HEADS, OPT_KV_HEADS, OPTION_COUNT};
    return refuse_fields(args, kept, text_of("nothing with %s, which decides it", beside));
}

/* Whether an error is about a given option, not about a value of the file. */
static bool blames_option(const arguments *args, const mha_error *error)
{
    static const struct {
        const char *name;
        option_code option;
    } replaced[] = {{"class", OPT_CLASS},
                    {"heads", OPT_HEADS},
                    {"heads", OPT_HEAD_LIST},
                    {"kv_heads", OPT_KV_HEADS}};
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        if (strcmp(error->name, replaced[i].name) == 0 && given(args, replaced[i].option))
            return true;
    const char *described = text_for(args, OPT_ARCHITECTURE);
    if (!described)
        return false;
    if (strcmp(described, "-") == 0)
        described = "standard input";
    return strncmp(error->name, described, strlen(described) < 80 ? strlen(described) : 80) == 0;
}

mha_model_spec model_spec(const arguments *args, size_t n_heads)
{
    return (mha_model_spec){.preset = text_for(args, OPT_PRESET),
                            .config = text_for(args, OPT_CONFIG),
                            .architecture = text_for(args, OPT_ARCHITECTURE),
                            .class_name = text_for(args, OPT_CLASS),
                            .n_heads = n_heads,
                            .kv_heads = count_of(args, OPT_KV_HEADS),
                            .dtype = dtype_of(args, OPT_DTYPE)};
}

int model_open(const arguments *args, size_t n_heads, mha_params *params, mha_model **model)
{
    mha_error error = {0};
    const char *preset = args->option[OPT_PRESET].text, *config = args->option[OPT_CONFIG].text;
    if (preset && config)
        return refuse("--config", "expected either --preset or --config, found both");
    TRY(refuse_shapes(args, preset ? "--preset" : "--config"));
    const mha_model_spec spec = model_spec(args, n_heads);
    if (mha_model_create(&spec, params, model, &error) == MHA_OK)
        return EXIT_DONE;
    char *advice = strstr(error.message, "; or give d_k"); /* no advice for models: they decide d_k */
    if (advice)
        *advice = '\0';
    return config && !blames_option(args, &error) ? refuse_error(config, &error) : refuse_field("", &error);
}

mha_status counted_create(const mha_model_spec *spec, counted_model *m, mha_error *error)
{
    const mha_allocator allocator = mha__regions_allocator(&m->regions);
    *error = (mha_error){.status = MHA_NO_MEMORY};
    TRY(mha_params_create(&allocator, &m->params, error));
    return mha_model_create(spec, m->params, &m->model, error);
}

int counted_open(const arguments *args, size_t n_heads, counted_model *m)
{
    const mha_allocator allocator = mha__regions_allocator(&m->regions);
    const mha_error error = {.status = MHA_NO_MEMORY};
    TRY(done_or_refuse(mha_params_create(&allocator, &m->params, NULL), "", &error));
    return model_open(args, n_heads, m->params, &m->model);
}

void counted_close(counted_model *m)
{
    mha_model_destroy(m->model);
    mha_params_destroy(m->params);
}

const char *model_not_run(const mha_model *model)
{
    size_t i = 0;
    while (i + 1 < mha_model_layer_count(model) && !*mha_model_layer_facts(model, i)->not_run)
        i++;
    return mha_model_layer_facts(model, i)->not_run;
}

void model_print_name(const mha_model *model)
{
    say("%s", bold());
    say_harmless("%s", mha_model_title(model));
    say("%s", plain());
    say_harmless(" (%s)", mha_model_class(model));
}

/* ---------------------------------------------------------------- beside weights */

int config_beside(const char *path, const char **config)
{
    struct stat status = {0};
    *config = NULL;
    if (stat(path, &status) != 0 && errno != ENOENT) /* "-" is not a file */
        return refuse_errno(path, errno);
    const char *slash = S_ISDIR(status.st_mode) ? strchr(path, 0) : strrchr(path, '/');
    const char *beside = text_of("%.*s/config.json", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (access(beside, F_OK) == 0)
        *config = beside;
    else if (errno != ENOENT)
        return refuse_errno(beside, errno);
    return EXIT_DONE;
}

/* Whether a model's checkpoint names its layers as LLaMA's does. */
static bool named_like_llama(const mha_params *model)
{
    size_t i = 0;
    const size_t n = mha_params_count(model);
    while (i < n && strncmp(mha_tensor_info_of(mha_params_at(model, i)).name, "model.layers.", 13) != 0)
        i++;
    return i < n;
}

const char *unknown_name(const mha_file *file, const mha_params *model)
{
    const size_t n = strcmp(mha_file_format(file), "gguf") == 0 ? mha_file_count(file) : 0;
    const bool known = n > 0 && named_like_llama(model);
    char room[MHA_SPELLING];
    for (size_t i = 0; i < n; i++) {
        const char *name = mha_file_at(file, i)->name;
        size_t next = 0;
        if (strncmp(name, "rope_", 5) != 0 && (!known || !mha__other_spelling(name, &next, room)))
            return name;
    }
    return NULL;
}

int weights_open(const arguments *args, mha_file **file, const char **config)
{
    mha_error error = {0};
    const char *path = text_for(args, OPT_WEIGHTS);
    *config = NULL;
    TRY(done_or_refuse(mha_file_open(path, file, &error), path, &error));
    if (!model_asked(args))
        return config_beside(path, config);
    if (given(args, OPT_CONFIG))
        *config = text_for(args, OPT_CONFIG);
    return EXIT_DONE;
}
