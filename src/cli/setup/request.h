/* A call of the command line: its layer, its inputs and its settings. */
#ifndef MHA_CLI_SETUP_REQUEST_H
#define MHA_CLI_SETUP_REQUEST_H

#include "cli/options/options.h"

/* The request of a command line, made ready: a layer with its weights, a call with its inputs. */

typedef struct request {
    mha_params *table;
    mha_layer *layer;
    mha_call call;
    mha_plan plan;
    mha_keep keep[MHA_STAGE_COUNT]; /* the call's list, one entry for each stage in their order */
    mha_cache *cache; /* for --cache-dtype */
    void *workspace;
    mha__arena memory; /* of inputs, masks and stages */
    bool unbatched; /* the query input has no batch axis; written tensors have none either */
    bool random_weights, random_inputs;
    const char *random;      /* both in words: random_words; NULL: nothing is random */
    mha_load_report loaded;  /* what was read from --weights */
    mha_load_options asked;  /* how it was read */
    const char *prefix;      /* of the layer that is asked for */
    mha_model_facts facts;   /* facts of the model in a preset or configuration */
    const char *facts_from;  /* their source: "preset", "config.json", "metadata"; NULL without */
} request;

/* Makes a layer from options: weights from a file, or random in the shape that options or a model give. */

/* The configuration of the shape options; not yet resolved. */
mha_config request_config(const arguments *args);
/* Makes table and layer with the weights of --weights, or random ones in the shape of --preset, --config or `config`
 * (NULL: that of the shape options). Returns 0, or the exit code after one line on standard error. */
int request_layer(request *r, const arguments *args, const mha_config *config);

/* The parts drawn at random, in words: "random weights and inputs (seed 0)", and the model that gives only the shape.
 * NULL when neither was. */
const char *random_words(const arguments *args, bool weights, bool inputs);

/* Opens the file of --weights and makes `asked`; the layer is not read. The caller closes the file, also after an
 * error. */
int request_weights(request *r, const arguments *args, mha_file **file);

/* Makes the call of a layer from options: inputs, semantics, outputs; and runs it. */

/* Functions that can fail return 0, or the exit code after one line on standard error. */

/* Makes the layer, reads inputs, semantics, path and threads, then plans. Random inputs are uniform in
 * [-sqrt(3), sqrt(3)), variance 1, from the streams 32 (query), 33 (key) and 34 (value) of the seed. */
int request_call(request *r, const arguments *args, const mha_config *config);
/* Allocates memory for a stage, which is then kept: F64 on the exact path, else F32. */
int request_keep(request *r, mha_stage stage);
/* The view of a stage; without data while the stage is not kept. */
mha_view *request_stage(request *r, mha_stage stage);
/* Runs the call once. */
int request_run(request *r, double *milliseconds);
void request_free(request *r);

/* Floating-point operations of one forward, two for each multiply-add: the projections, and Q K^T and A V for each
 * query and each key that position and length let it see. Masks are ignored, and softmax is not counted. */
double request_flops(const request *r);

/* Settings of a call, taken from the options that name them. */

/* Puts the numbers, switches and choices that are given into *semantics; others stay as they are. Returns 0, or the
 * exit code after one line on standard error. */
int settings_of_options(const arguments *args, mha_semantics *semantics);
/* Reads the arrays that are given, from files or lists, into memory of the request and its call. The inputs of the
 * call must be known. Returns as settings_of_options does. */
int arrays_of_options(request *r, const arguments *args);
/* Whether an option says what attention computes, and not only where rows stand. */
bool options_state_attention(const arguments *args);

/* Opens recorded results to be checked or diagnosed: a case file, or --expected with weights and inputs. */

/* Refuses options that need --expected when a case file is given, because the case file states them itself, and
 * --expected without --weights and --input. Returns 0, or the exit code after one line on standard error. */
int recorded_check(const arguments *args);
/* Makes a case of --expected: the layer and the call of the options, stored in *r, and the tensor of the file as the
 * stage of --stage. The case must be closed before *r is freed. */
int recorded_open(request *r, const arguments *args, mha_case **c);

/* Whole models on the command line: --preset and --config, and the config.json beside a file of weights. */

/* Whether a whole model is asked for. */
bool model_asked(const arguments *args);
/* Refuses options that the architecture, or the file of weights, decides. */
int refuse_shapes(const arguments *args, const char *beside);
/* The model that --preset, --config, --class, --kv-heads and --dtype describe; `n_heads` 0: its own number. */
mha_model_spec model_spec(const arguments *args, size_t n_heads);
/* Makes the model of --preset or --config with its --class and --dtype; `n_heads` 0: its own number of heads. */
int model_open(const arguments *args, size_t n_heads, mha_params *params, mha_model **model);

/* A model and its table, for counting. It is zero before. The caller closes it, also after an error. */
typedef struct counted_model {
    mha__regions regions;
    mha_params *params;
    mha_model *model;
} counted_model;
mha_status counted_create(const mha_model_spec *spec, counted_model *m, mha_error *error);
/* The same for the model that model_open makes. */
int counted_open(const arguments *args, size_t n_heads, counted_model *m);
void counted_close(counted_model *m);

/* Why mha computes no attention of the model, or not that of one of its layers; "": it computes all. */
const char *model_not_run(const mha_model *model);

/* Finds the config.json in the directory of a file, or in the directory `path`. *config: NULL when there is none. */
int config_beside(const char *path, const char **config);
/* Prints "Title (class)" of a model; both may come from a description that somebody wrote. */
void model_print_name(const mha_model *model);

/* The first tensor of a GGUF file whose name in the model's checkpoint is unknown; NULL: every name is known. */
const char *unknown_name(const mha_file *file, const mha_params *model);

/* Opens the file of --weights, and finds the config.json that describes it: that of --config, else the one in the
 * same directory, else NULL. The caller closes the file, also after an error. */
int weights_open(const arguments *args, mha_file **file, const char **config);

/* Reads FILE[:TENSOR] of the command line: finds the file and the tensor, and reads it into memory. */

typedef struct source {
    mha_file *file;
    const mha_file_tensor *tensor; /* NULL when no tensor was named */
} source;

/* Opens the file. A file whose name is the whole text wins, else the last colon separates file and tensor; "-" is
 * standard input. Returns 0, or the exit code after one line on standard error. */
int source_open(source *s, const char *text);
/* Chooses the named tensor, or the file's only one; with several, refuses and lists their names. */
int source_choose(source *s, const char *about);
/* Reads a tensor as `dtype` into memory of the arena. */
int source_read(const source *s, const mha_file_tensor *tensor, mha_dtype dtype, mha__arena *arena, mha_view *view);

/* The types that an option's tensor may have, and the types they are read as. */
typedef enum tensor_types {
    FLOATS,              /* as float32 */
    WIDE_FLOATS,         /* float64 as it is, other floats as float32 */
    NUMBERS_AS_THEY_ARE, /* floats of any type, unconverted */
    NUMBERS_OR_TRUTH     /* as WIDE_FLOATS; also whole numbers and booleans, as they are */
} tensor_types;

/* Reads the tensor that an option names into memory of the arena. */
int tensor_of_option(const arguments *args, option_code option, tensor_types types, mha__arena *arena, mha_view *view);

/* Lists the case files that operands name: files as given, directories with every .safetensors and .npz in them. */

typedef struct case_list {
    const char **paths; /* those of a directory in alphabetical order */
    size_t n, capacity;
} case_list;

/* Adds the cases of the operands, at least one. Returns 0, or the exit code after one line on standard error. */
int case_list_read(case_list *list, const arguments *args);

#endif
