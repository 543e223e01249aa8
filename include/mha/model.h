/* Public checkpoints and models: configurations, attention layers found by the names of their tensors, whole models. */
#ifndef MHA_MODEL_H
#define MHA_MODEL_H

#include "mha/attention.h"
#include "mha/file.h"
#include "mha/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- what a configuration says */

/* A key that a config.json does not have, and the value its library would take. */
typedef struct mha_assumption {
    const char *key; /* static text */
    int64_t value;
} mha_assumption;

/* What a config.json (or the metadata of a GGUF file) says about the attention layers of its model.
 * Numbers are 0 where nothing is said. The caller decides whether to follow it: names in a weights file
 * never switch anything on. */
typedef struct mha_model_facts {
    char model_type[48];
    size_t d_model, n_heads, kv_heads, d_k;
    bool has_semantics; /* the rest is meant: the model type is a known one */
    bool causal;
    mha_rope_kind rope;
    size_t rope_dim;
    double rope_base, norm_eps, softcap;
    bool has_scale; /* otherwise 1/sqrt(d_k) */
    double scale;
    size_t window;      /* keys a query sees, itself included: mha_semantics.window_left is one less */
    const char *caveat; /* what a layer on its own leaves out, "" if nothing; static text */
} mha_model_facts;

/* Reads a config.json. An unknown model type gives the head counts alone (has_semantics false).
 * Errors: MHA_NOT_FOUND, MHA_FORMAT (JSON, with the byte), MHA_INVALID (a value, with its key), MHA_IO. */
MHA_API mha_status mha_model_read_config(const char *path, mha_model_facts *facts, mha_error *error);
/* The same from the file's own metadata, which only GGUF has; false, all zero, for other files. */
MHA_API bool mha_model_read_metadata(const mha_file *file, mha_model_facts *facts);

/* What the facts mean for a call: causal, scale, softcap, rotation, window, the epsilon of q/k norms; all else is zero.
 * Without has_semantics everything is. */
MHA_API mha_semantics mha_model_semantics(const mha_model_facts *facts);

/* ---------------------------------------------------------------- a layer from a weights file */

/* Which way a matrix lies in the file. The library's own is (in, out): y = x W. */
typedef enum mha_orientation {
    MHA_ORIENTATION_AUTO = 0, /* by the naming scheme; fused GPT-2 matrices by their shape */
    MHA_ORIENTATION_IN_OUT,   /* (in, out): own names, Conv1D */
    MHA_ORIENTATION_OUT_IN    /* (out, in): torch.nn.Linear, GGUF */
} mha_orientation;

/* An attention layer found in a file. */
typedef struct mha_found_layer {
    char prefix[256];   /* of its tensors' names, without the final dot; "" when they have none */
    const char *scheme; /* "BERT", "LLaMA", ...; static text */
} mha_found_layer;

/* What a file does not say about its layer. Zero means: not stated. */
typedef struct mha_load_options {
    const char *layer; /* prefix, with or without the final dot; may be left out when one layer is in the file */
    size_t n_heads, kv_heads, d_k; /* d_k may stand for n_heads */
    const mha_model_facts *facts;  /* fills in the three above; NULL: the file's own metadata, where it has some */
    mha_orientation orientation;
    bool has_dtype; /* dtype is meant; otherwise weights are held as F32 */
    mha_dtype dtype;
    const char *row_prefix; /* of the rows in the table; NULL: none */
} mha_load_options;

/* What was loaded. */
typedef struct mha_load_report {
    mha_found_layer layer;
    mha_orientation orientation; /* as found, never AUTO */
    size_t tensors;              /* read from the file */
    size_t ignored;              /* known names under the prefix that are no part of attention: norms, mask buffers */
} mha_load_report;

/* The attention layers of a file, in the order of its tensors: as many as fit in `layers` (may be NULL
 * when capacity is 0), their number in all returned. A layer counts when one of its query, key or value
 * matrices is there. */
MHA_API size_t mha_model_find_layers(const mha_file *file, mha_found_layer *layers, size_t capacity);

/* Reads one attention layer: finds its tensors by name, derives the configuration from their shapes and
 * the heads stated, allocates the weights through `table` and reads into them, transposing and widening
 * (F16, BF16) on the way; source_dtype of each row is the file's. Names never switch on causal or rotary:
 * that is for the caller to say. `options` and `report` may be NULL. The layer is the caller's to
 * destroy, before the table.
 * Errors: MHA_NOT_FOUND (no attention layer, none under the prefix, a missing tensor), MHA_INVALID
 * (several layers and no prefix, which are listed; a misshapen or unknown tensor; heads that do not
 * divide the width; heads not stated), MHA_UNSUPPORTED (a quantised or integer weight; the names of T5, whose
 * relative position bias is not computed), MHA_IO, MHA_NO_MEMORY. The table is then as before. */
MHA_API mha_status mha_model_load_layer(const mha_file *file, const mha_load_options *options, mha_params *table,
                                        mha_layer **layer, mha_load_report *report, mha_error *error);

/* ---------------------------------------------------------------- whole models */

/* A model: every tensor of its public checkpoint as a row of a parameter table, allocated (lazily) and named
 * as there. Tied weights are aliases; masks, position ids and rotary tables are buffers; key biases that
 * cannot change the output are marked inert. */
typedef struct mha_model mha_model;

/* Which one: a preset or a config.json. */
typedef struct mha_model_spec {
    const char *preset; /* "gpt2", ... (mha_preset_at), or the beginning of one name only ("vit"); or */
    const char *config; /* path of a config.json */
    const char
        *class_name; /* "BertForMaskedLM", "MaskedLM" or a part ("pooler"); NULL: by the config's architectures */
    size_t n_heads, kv_heads; /* replace the config's; 0: leave them */
    mha_dtype dtype;          /* of the weights: F32, F64, F16 or BF16 */
} mha_model_spec;

/* Adds the model's rows to `table`, which must outlive it. Errors: MHA_NOT_FOUND (preset, file), MHA_FORMAT,
 * MHA_INVALID (a value of the config, the class: with those that are known), MHA_UNSUPPORTED (model type:
 * likewise), MHA_NO_MEMORY; then no row stays behind. */
MHA_API mha_status mha_model_create(const mha_model_spec *spec, mha_params *table, mha_model **model, mha_error *error);
/* Removes the model's rows. NULL is allowed. */
MHA_API void mha_model_destroy(mha_model *model);

MHA_API const char *mha_model_title(const mha_model *model); /* "BERT": static text */
MHA_API const char *mha_model_class(const mha_model *model); /* "BertForMaskedLM": static text */
MHA_API mha_model_facts mha_model_facts_of(const mha_model *model);
/* Keys the config did not have, with the defaults taken for them. `keys` may list several spellings. */
MHA_API size_t mha_model_assumptions(const mha_model *model, const mha_assumption **list);

/* One attention layer of a model. */
typedef struct mha_model_layer {
    char prefix[200];  /* of its tensors' names */
    mha_config config; /* resolved */
    bool causal;
    size_t uses; /* how often a forward pass runs it: 12 for ALBERT's one block */
} mha_model_layer;

MHA_API size_t mha_model_layer_count(const mha_model *model);
/* false past the end. */
MHA_API bool mha_model_layer_at(const mha_model *model, size_t index, mha_model_layer *layer);

/* What a forward pass over `batch` sequences of `seq` tokens asks of the machine. A multiply-add is two operations.
 * Matrices of blocks multiply every token; "token logits" too; poolers and classifiers one token per sequence;
 * patch projections every patch. Scores and weighted sums count query heads. Embedding look-ups, norms, softmax and
 * activations are not counted. In an encoder-decoder both sides have `seq` tokens. */
typedef struct mha_model_costs {
    uint64_t projections;   /* W_Q, W_K, W_V, W_O of all attention layers, each use */
    uint64_t scores_full;   /* Q K^T and A V over all T x T pairs */
    uint64_t scores_causal; /* the same over the pairs a causal mask leaves, T (T + 1) / 2, where the layer is causal */
    uint64_t feed_forward, heads, patches;
    uint64_t cache_elements; /* keys and values that causal self-attention keeps; 0: nothing to keep */
} mha_model_costs;

/* Counts them. MHA_INVALID when the operations of that many tokens do not fit in 64 bits; *costs is then untouched. */
MHA_API mha_status mha_model_costs_of(const mha_model *model, size_t batch, size_t seq, mha_model_costs *costs,
                                      mha_error *error);

/* The presets built in, in the order of their names; NULL past the end. `config` (may be NULL) receives the
 * text of its config.json. */
MHA_API const char *mha_preset_at(size_t index, const char **config);

/* ---------------------------------------------------------------- checkpoints as they are */

/* What a tensor of a file is found to be when held against a model. */
typedef enum mha_finding_kind {
    MHA_FINDING_MISSING,   /* the model has it, the file does not */
    MHA_FINDING_EXTRA,     /* the file has it, the model does not */
    MHA_FINDING_MISSHAPEN, /* both have it, with different shapes */
    MHA_FINDING_TIED,      /* tied in the model, stored on its own in the file */
    MHA_FINDING_BUFFER,    /* in the file, but no parameter: public counters include it by mistake */
    MHA_FINDING_COUNT
} mha_finding_kind;

/* "missing", "extra", "misshapen", "stored twice", "buffer"; "?" outside the list. */
MHA_API const char *mha_finding_name(mha_finding_kind kind);

typedef struct mha_finding {
    mha_finding_kind kind;
    const char *name;              /* in the file; the model's where the file has none */
    const char *other;             /* the name it is tied to, or NULL */
    int expected_rank, found_rank; /* 0 and no shape where there is none */
    size_t expected_shape[MHA_MAX_RANK], found_shape[MHA_MAX_RANK];
    size_t elements; /* in the file, or in the model where the file has none */
} mha_finding;

typedef void (*mha_finding_function)(void *context, const mha_finding *finding);

/* Sums over the tensors of a file, by its header. */
typedef struct mha_file_totals {
    size_t tensors, elements, bytes; /* all of them */
    size_t parameters;               /* elements without buffers */
    size_t buffers;
    size_t unique;    /* parameters, tied ones once */
    size_t attention; /* parameters of recognised attention layers: projections, their biases, q/k norms */
} mha_file_totals;

/* Registers a row per tensor of the file, lazily allocated with the file's dtype, shape and name, its role and
 * group ("attention" where a layer is recognised), buffers as buffers. Nothing is read but where two tensors
 * with names that models tie have equal shapes: these are compared in up to 64 places, and reported
 * (MHA_FINDING_TIED) when equal. `found` and `totals` may be NULL. Errors: MHA_NO_MEMORY, MHA_IO. */
MHA_API mha_status mha_file_list_params(const mha_file *file, mha_params *table, mha_finding_function found,
                                        void *context, mha_file_totals *totals, mha_error *error);
/* Holds a file against a model, tensor by tensor: every difference is told to `found`. Names may differ by
 * the model's own prefix ("bert.", "transformer."). Returns the number of missing, extra and misshapen tensors. */
MHA_API size_t mha_model_check_file(const mha_model *model, const mha_file *file, mha_finding_function found,
                                    void *context);

#ifdef __cplusplus
}
#endif
#endif
