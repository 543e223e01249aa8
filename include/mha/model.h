/* Laboratory. Public checkpoints and models: what a configuration says, a layer from a weights file, whole models. */
#ifndef MHA_MODEL_H
#define MHA_MODEL_H

#include "mha/attention.h"
#include "mha/file.h"
#include "mha/layer.h"
#include "mha/split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- what a configuration says */

/* A key that is missing in a config.json, and the default that its library uses. */
typedef struct mha_assumption {
    const char *key; /* as long as the model */
    int64_t value;
} mha_assumption;

enum { MHA_ALIBI_MAX_HEADS = 256 }; /* of a model whose configuration asks for ALiBi */

/* The attention layers of a model, as its config.json (or the metadata of a GGUF file) defines them. A number that it
 * does not state is 0. Later versions append fields. */
typedef struct mha_model_facts {
    char model_type[48];
    bool has_semantics; /* the model type is known; false: of the fields below, the first four of `config` are all */
    mha_config config; /* as stated, not resolved; dtype is unset, and bias_rows are those of `bias_table` */
    uint64_t weights;  /* 1 << MHA_B_Q, ...: those that the configuration gives a layer, made ones, too, but for a table
                        * of biases. mha_model_load_layer refuses a file that has others, or fewer; 0: not said */
    mha_semantics semantics; /* of a call, but for arrays: mha_model_semantics adds frequencies and slopes */
    /* Changes of a public checkpoint in GGUF: the rows of W_Q and W_K are in pairs, not in halves; the 1 that
     * the model adds to the weights of q/k norms is in them. */
    bool reordered, norm_folded;
    mha_rope_axes rope_axes; /* M-RoPE, for images; text has the same position on all axes: an ordinary rotation */
    /* The attention factor of the semantics and rope_dim/2 frequencies follow from it, for short sequences or as
     * mha_model_extend_context left them. */
    mha_rope_scaling rope_scaling;
    double rope_frequencies[MHA_ROPE_MAX_PAIRS];
    char bias_table[200]; /* its tensor, which layers may share; "" in the facts of a whole model */
    /* shift > 0: batch rows are the windows, semantics.bias.height x .width cells each, of images of this size that are
     * rolled by `shift` cells; mha_window_segments then says what they see; mha_model_semantics does not set it. */
    size_t shift, image_height, image_width;
    char relative_table[200]; /* relative embeddings, converted to tables of relative terms; "" as bias_table */
    char relative_norm[200];  /* what the names of their LayerNorm begin with, whose epsilon is norm_eps; "": none */
    bool relative_shared;     /* they are projected as keys and queries are, not by matrices of their own */
    /* 1 << MHA_Q_NORM, ...: weights that mha_model_load_layer makes of other tensors, see there. With bias_span > 0 an
     * MLP makes the table of biases; bias_table is then the beginning of the names of its tensors. */
    uint64_t made;
    size_t bias_span; /* cells that the offsets of keys are divided by */
    bool alibi;       /* with the slopes of n_heads heads */
    double alibi_slopes[MHA_ALIBI_MAX_HEADS];
    /* How a tensor that query, key and value share holds its heads: in so many blocks, each with its share of the query
     * heads, then of the key heads, then of the value heads; fused_qvk: of the values before the keys. 1: one after the
     * other as a whole; kv_heads: each key/value head after the query heads that use it. 0: not said. */
    size_t fused_blocks;
    bool fused_qvk;
    bool fused_gate; /* in the tensor of the queries: of each head first its query, then its gate */
    char caveat[160]; /* properties of the model that one layer does not reproduce; "" for nothing */
    char not_run[160]; /* why a forward pass does not compute this attention, which is only counted; "": it does */
} mha_model_facts;

/* Reads a config.json, or that of a folder; where layers differ, what all share. An unknown model type gives the widths
 * and head counts only (has_semantics false). A scaling of rotary positions that cannot be used is a caveat, no error.
 * Errors: MHA_NOT_FOUND, MHA_FORMAT (not JSON; with the byte), MHA_INVALID (a value, with its key), MHA_UNSUPPORTED
 * (see mha_model_create), MHA_IO. */
MHA_API mha_status mha_model_read_config(const char *path, mha_model_facts *facts, mha_error *error);
/* The same from the file's own metadata, which only GGUF has, for the layer of a prefix ("blk.5"), or for the whole
 * model (NULL), and from the factors in rope_freqs.weight or rope_factors_long.weight. model_type is then GGUF's name
 * of the architecture; one that is not described gives only the widths and head counts (has_semantics false). So do
 * metadata that are wrong, or that decide about attention in a way which is not described: not_run names them. Errors:
 * MHA_NOT_FOUND (another file, or one that names no architecture; the facts are all zero), MHA_NO_MEMORY. */
MHA_API mha_status mha_model_read_metadata(const mha_file *file, const char *layer, mha_model_facts *facts,
                                           mha_error *error);

/* The same for one attention layer, because layers may differ: in their window, in their rotation. `layer` is the
 * prefix of its tensors' names ("model.layers.5.self_attn"); for NULL, and for a prefix that the model does not have,
 * the facts are those of mha_model_read_config. Errors: as there; MHA_NO_MEMORY. */
MHA_API mha_status mha_model_read_layer(const char *path, const char *layer, mha_model_facts *facts, mha_error *error);

/* Makes facts of a config.json those of a file's layers: where its metadata name an architecture of which GGUF changes
 * the weights, `reordered` and `norm_folded` are set, and rotation and norms are as that makes them. Errors:
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_model_fit_file(const mha_file *file, mha_model_facts *facts, mha_error *error);

/* Computes the attention factor and rope_frequencies for `length` positions, on which dynamic scaling and longrope
 * depend. MHA_INVALID: see mha_rope_frequencies. */
MHA_API mha_status mha_model_extend_context(mha_model_facts *facts, size_t length, mha_error *error);

/* The semantics of a call: those of the facts with frequencies and slopes, which are borrowed from the facts. */
MHA_API mha_semantics mha_model_semantics(const mha_model_facts *facts);

/* ---------------------------------------------------------------- a layer from a weights file */

/* The order of a matrix's axes in the file. The library's own is (in, out): y = x W. */
typedef enum mha_orientation {
    MHA_ORIENTATION_AUTO = 0, /* that of the naming scheme; of fused GPT-2 matrices by their shape */
    MHA_ORIENTATION_IN_OUT,   /* (in, out): own names, Conv1D */
    MHA_ORIENTATION_OUT_IN    /* (out, in): torch.nn.Linear, GGUF */
} mha_orientation;

/* An attention layer found in a file. */
typedef struct mha_found_layer {
    char prefix[256];   /* of its tensors' names, without the final dot; "" for none */
    const char *scheme; /* "BERT", "LLaMA", ...; static text */
} mha_found_layer;

/* Properties of a layer that a weights file lacks. 0 and NULL mean: not given. */
typedef struct mha_load_options {
    const char *layer; /* prefix, with or without the final dot; NULL when the file has only one layer */
    size_t n_heads, kv_heads, d_k; /* d_k is enough: n_heads then follows from the width */
    const mha_model_facts *facts;  /* source of head numbers not given above; NULL: the file's metadata, if any */
    mha_orientation orientation;
    bool has_dtype; /* false: the weights become F32, or what `keep_quantised` says */
    mha_dtype dtype;
    bool keep_quantised; /* matrices that lie in the file in blocks, (out, in), keep their type, each its own */
    const char *row_prefix; /* of the row names in the table; NULL: none */
} mha_load_options;

/* The result of mha_model_load_layer. */
typedef struct mha_load_report {
    mha_found_layer layer;
    mha_orientation orientation; /* the one used, never AUTO */
    size_t tensors;              /* number read from the file */
    size_t ignored;              /* tensors under the prefix with a known name outside attention: norms, mask buffers */
} mha_load_report;

/* Finds the attention layers of a file, in the order of its tensors. Writes the first `capacity` of them to `layers`
 * (may be NULL when capacity is 0) and returns the number of all. A layer counts when at least one of its query, key
 * and value matrices is in the file. */
MHA_API size_t mha_model_find_layers(const mha_file *file, mha_found_layer *layers, size_t capacity);

/* Reads one attention layer: finds its tensors by name, derives the configuration from their shapes and the number of
 * heads, allocates the weights through `table`, and reads into them, transposed and converted where needed;
 * source_dtype of a row is the type in the file. Names decide nothing about causality or rotation: the caller does.
 * `options` and `report` may be NULL. The caller destroys the layer, before the table. Errors: MHA_NOT_FOUND (no
 * attention layer, none under the prefix, a missing tensor), MHA_INVALID (several layers and no prefix: the message
 * lists them; a misshapen or unknown tensor, or one that the facts do not give the layer; heads that do not divide the
 * width or are not given), MHA_UNSUPPORTED (an integer weight, or a quantised one that is not decoded; a file with
 * tables of biases by position, which only facts of the layer, from mha_model_read_layer, give to layers), MHA_IO,
 * MHA_NO_MEMORY. The table is then as before.
 *
 * Weights of facts->made are made at load, in double precision, and are derived rows; what they are made of are rows
 * of parameters: logit_scale; bias_W_1, bias_b_1, bias_W_2; relative_embeddings, relative_norm, W_relative_k and so on.
 * mha_layer_set of one does not make the other anew.
 *   q_norm[i, c] = exp(min(logit_scale[i], ln 100))              (Swin v2, Liu et al. 2022, equation 2)
 *   bias_table[row, i] = 16 sigmoid(W_2 max(0, W_1 u + b_1))_i   (the same, section 3.3)
 * where u = sign(t) log2(1 + |8 t / bias_span|) / 3 of the offsets t of a query's row and column from the key's;
 *   relative_k = E W_K + b_K, relative_q = E W_Q + b_Q           (DeBERTa, He et al. 2021, equation 4)
 * of the relative embeddings E, normalised if the model does that, with matrices of their own or the layer's. */
MHA_API mha_status mha_model_load_layer(const mha_file *file, const mha_load_options *options, mha_params *table,
                                        mha_layer **layer, mha_load_report *report, mha_error *error);

/* The same for one rank's share of the layer: allocated and read is only its part of every weight (mha_split_part,
 * mha_file_read_part). `split` says scheme, ranks and, unless they are 0, the sizes of a call; its config becomes that
 * of the whole layer. Errors: also those of mha_split_check; MHA_INVALID (no such rank). */
MHA_API mha_status mha_model_load_share(const mha_file *file, const mha_load_options *options, mha_split *split,
                                        size_t rank, mha_params *table, mha_layer **layer, mha_load_report *report,
                                        mha_error *error);

/* ---------------------------------------------------------------- whole models */

/* A model: every tensor of its public checkpoint as a row of a parameter table, under the checkpoint's name,
 * allocated but without values. Tied weights are aliases; masks, position ids and rotary tables are buffers; key
 * biases that cannot change the output are marked inert. */
typedef struct mha_model mha_model;

/* The model to be created: a preset or a config.json. */
typedef struct mha_model_spec {
    const char *preset; /* "gpt2", ... (mha_preset_at), or the first letters of only one name ("vit"); or */
    const char *config; /* path of a config.json, or of a folder that has one */
    const char
        *class_name; /* "BertForMaskedLM", "MaskedLM" or a part ("pooler"); NULL: `architectures` of the config */
    size_t n_heads, kv_heads; /* instead of those in the config; 0: as in the config */
    mha_dtype dtype;          /* of the weights: F32, F64, F16 or BF16 */
    const char *architecture; /* path of a description (src/models/architectures/README.md); NULL: the built-in one of
                               * the config's model_type */
} mha_model_spec;

/* The model types that are built in, by index; NULL past the last one. Static text. */
MHA_API const char *mha_architecture_at(size_t index);

/* Adds the model's rows to `table`, which must outlive the model. Errors: MHA_NOT_FOUND (preset, file), MHA_FORMAT,
 * MHA_INVALID (a value of the config; an unknown class), MHA_UNSUPPORTED (an unknown model type; keys on which numbers
 * may depend, and which are not known), MHA_NO_MEMORY; the message lists the known classes or types; the table is then
 * as before. */
MHA_API mha_status mha_model_create(const mha_model_spec *spec, mha_params *table, mha_model **model, mha_error *error);
/* Removes the model's rows. NULL is allowed. */
MHA_API void mha_model_destroy(mha_model *model);

MHA_API const char *mha_model_title(const mha_model *model); /* "BERT": static text */
MHA_API const char *mha_model_class(const mha_model *model); /* "BertForMaskedLM": static text */
MHA_API const mha_model_facts *mha_model_facts_of(const mha_model *model); /* as long as the model */
/* The keys that the config lacks, with the defaults used. `key` may list several spellings. Returns their number; the
 * list lives as long as the model. */
MHA_API size_t mha_model_assumptions(const mha_model *model, const mha_assumption **list);
/* The name of a key of the config that nothing reads and that is not known to be without effect, by index; NULL past
 * the last one. No number depends on it: its value is a text, or it is a key of other model types. Others are refused
 * by mha_model_create, unless `no_effect` of a description names them. The name lives as long as the model. */
MHA_API const char *mha_model_unread_key(const mha_model *model, size_t index);

/* Active parameters, those that one token uses: all, but only the top k of the routed experts. *experts, *chosen: how
 * many experts there are, and how many a token uses; 0 without experts. Both may be NULL. */
MHA_API size_t mha_model_active_parameters(const mha_model *model, size_t *experts, size_t *chosen);

/* One attention layer of a model. */
typedef struct mha_model_layer {
    char prefix[200];  /* of its tensors' names */
    mha_config config; /* resolved; bias_rows: of a table of its own. Facts say which one a layer shares */
    bool causal;
    size_t uses; /* times that one forward pass runs the layer: 12 for the only layer of ALBERT */
} mha_model_layer;

MHA_API size_t mha_model_layer_count(const mha_model *model);
/* The configuration of one attention layer; past the end mha_model_facts_of. Valid as long as the model. */
MHA_API const mha_model_facts *mha_model_layer_facts(const mha_model *model, size_t index);
/* false past the end. */
MHA_API bool mha_model_layer_at(const mha_model *model, size_t index, mha_model_layer *layer);

/* One forward pass over `batch` sequences of `seq` tokens: of text or, where an encoder reads something else, of the
 * decoder. `encoder_seq`: the encoder's tokens, the keys and values of cross-attention; 0: as many as
 * the configuration says (the frames of Whisper), or else `seq`. The length of an image, or of its windows, is what the
 * configuration says, whatever `seq` is: in ViT and Swin, and in the vision tower of CLIP. Tokens of wav2vec2 are the
 * frames after the convolutions. Nothing asks whether a model takes so many tokens. */
typedef struct mha_model_pass {
    size_t batch, seq, encoder_seq;
} mha_model_pass;

/* The lengths of one attention layer in a pass, in each sequence. */
typedef struct mha_model_lengths {
    size_t queries, keys; /* of the sequence or, where windows of an image attend for themselves, of one window */
    size_t windows;       /* of them; 1: the sequence as a whole */
    bool cross;           /* keys and values are made of what the encoder gives */
    size_t cached;        /* rows that a cache keeps for decoding: `keys`, or as many as the window or the chunk of a
                           * layer has, the newest one included, if these are fewer; 0: the layer has no cache */
    uint64_t pairs;       /* of a query and a key, in all windows */
    uint64_t visible; /* those of them that causality, window and chunk leave; what padding hides is not known here,
                       * nor are the borders in windows of an image that is rolled (shift) */
    size_t cached_width; /* elements of a cached row: its key and value in all key/value heads */
    size_t latent_width; /* the same where latents are cached instead (mha_call.absorbed); 0: the layer has none */
} mha_model_lengths;

/* The lengths of attention layer `index`. Errors: MHA_NOT_FOUND (past the end), MHA_INVALID (seq: numbers that do
 * not fit in 64 bits; encoder_seq of a model without cross-attention; a formula of a description). */
MHA_API mha_status mha_model_layer_lengths(const mha_model *model, const mha_model_pass *pass, size_t index,
                                           mha_model_lengths *lengths, mha_error *error);

/* Operations and memory of a forward pass, by the part of the model. A multiply-add is two operations. What is counted:
 *   each matrix, times the vectors that it multiplies: in blocks and for "token logits" every token of its own tower or
 *   side, for patches every patch, for poolers and classifiers as many as the model's library gives them: one, or every
 *   token where tokens are classified or the last one's answer is picked. Of experts that a router chooses among, as
 *   many as a token uses (top_k, and the shared ones); of the router all;
 *   scores and weighted sums, for each query head; products with tables of relative positions;
 *   linear attention: its matrices, its convolution, and for each token and head three products with a state of
 *   d_k x d_v: what the state holds for the key, the change that is added, what the query reads.
 * Not counted: look-ups, norms, softmax, activations, additions, rotations; tables that are made only of weights (of
 * relative positions), and what `not_counted` names. */
typedef struct mha_model_costs {
    uint64_t projections;   /* W_Q, W_K, W_V, W_O (or those of latents), gates, of all attention layers, each use */
    uint64_t scores_full;   /* Q K^T and A V over all pairs */
    uint64_t scores_causal; /* the same over visible pairs only, see mha_model_lengths */
    uint64_t feed_forward, heads;
    uint64_t patches; /* what stands before the blocks: patches, convolutions, projections of embeddings */
    uint64_t cache_elements;  /* keys and values in the caches of all layers, cross-attention's included; 0: none */
    uint64_t latent_elements; /* the same where latents are cached instead (mha_call.absorbed); 0: no layer has them */
    uint64_t cross_elements;  /* of cache_elements, those of cross-attention */
    uint64_t relative;        /* products with tables of relative positions: of each query, or key, and each row */
    uint64_t linear;          /* layers of linear attention; 0: the model has none */
    uint64_t state_elements;  /* of their states, which do not grow with the sequence; convolutions' included */
    char not_counted[160];    /* what else the pass would do; "": nothing */
} mha_model_costs;

/* Computes the costs. Errors: MHA_INVALID, as of mha_model_layer_lengths; *costs is then untouched. */
MHA_API mha_status mha_model_costs_of(const mha_model *model, const mha_model_pass *pass, mha_model_costs *costs,
                                      mha_error *error);

/* ---------------------------------------------------------------- caches, byte by byte */

/* Adds a buffer to `table` for each cache that decoding needs after the pass: keys, values, latents and index keys of
 * `dtype`, (batch, heads, rows, width), and states of linear attention in F32. The group of a row is its kind of cache.
 * I8 has a scale in each row, as a cache has (mha/cache.h). `page` > 1: rows are rounded up to pages of so many;
 * `ahead`: rows that a window has in addition. vLLM has pages of 16 tokens; llama.cpp allocates multiples of 256 cells,
 * and windows with room for a micro-batch, 512 tokens. Errors: those of mha_model_layer_lengths and mha_params_add. */
MHA_API mha_status mha_model_add_caches(const mha_model *model, const mha_model_pass *pass, mha_dtype dtype,
                                        size_t page, size_t ahead, mha_params *table, mha_error *error);
/* The kinds of caches, by index: "all keys", "window", "latents", ...; NULL past the last one. Static text. */
MHA_API const char *mha_cache_kind_at(size_t index);

/* A part of the bytes that an engine allocates: "needed", "cells", ..., "unexplained". */
typedef struct mha_log_part {
    const char *name; /* static text */
    int64_t bytes;
} mha_log_part;

enum { MHA_LOG_PARTS = 12 };
typedef struct mha_log_split {
    const char *engine;    /* "llama.cpp", "vLLM": static text */
    int64_t bytes;         /* as the log states them, in all or of one vLLM worker */
    double rounding;       /* bytes by which the printed numbers may be wrong */
    size_t count;
    mha_log_part parts[MHA_LOG_PARTS]; /* that sum to these bytes; the first is what mha_model_add_caches counts */
} mha_log_split;

/* Reads the caches that a log of llama.cpp or vLLM states and splits them into those that the pass needs, and the rest.
 * Each part is the difference of two allocations, but for the rounding of the log and for "unexplained", what is left.
 * pass->seq 0 becomes the log's own length. Errors: MHA_NOT_FOUND, MHA_IO; MHA_FORMAT (no cache in it); MHA_INVALID
 * (seq); those of mha_model_add_caches. */
MHA_API mha_status mha_model_split_log(const mha_model *model, const char *path, mha_model_pass *pass, mha_dtype dtype,
                                       mha_log_split *split, mha_error *error);

/* The model of the metadata in a GGUF file; its table has no rows for tensors. Errors: those of mha_model_create;
 * MHA_NOT_FOUND (another file). */
MHA_API mha_status mha_model_of_metadata(const mha_file *file, mha_params *table, mha_model **model, mha_error *error);

/* The name of a built-in preset, in alphabetical order; NULL past the end. `config` (may be NULL) receives the text
 * of its config.json. Static text. */
MHA_API const char *mha_preset_at(size_t index, const char **config);

/* ---------------------------------------------------------------- a configuration, explained */

/* A report on a configuration: the values of each kind of attention layer, the keys that decide them, and the keys
 * without effect, with the reason. */
typedef struct mha_config_explanation mha_config_explanation;

/* Explains `source`: the path of a config.json, of a folder that has one, or of a GGUF file, else the name of a preset.
 * Unless `against` is NULL, it is a second source, and the report has the differences. The caller destroys
 * *explanation, which is untouched on error. Errors: those of mha_model_create and mha_file_open; MHA_FORMAT (another
 * file); MHA_UNSUPPORTED (metadata that decide about attention in a way that is not described). */
MHA_API mha_status mha_explain(const char *source, const char *against, mha_config_explanation **explanation,
                               mha_error *error);
MHA_API void mha_config_explanation_destroy(mha_config_explanation *explanation); /* NULL is allowed */
/* The report, a JSON object. The text lives as long as the explanation.
 *   source, format ("config", "gguf"), architecture, model_type, attention_layers
 *   kinds: objects, layers of one description with equal values:
 *     prefix           of tensors' names, with {i} for the block
 *     layers, blocks   indices of the layers, and their blocks
 *     uses, cross      as in mha_model_layer and mha_model_lengths
 *     cached_rows      keys that a cache keeps: a number, null for all, 0 for no cache
 *     cached_width, latent_width   elements of a row, as in mha_model_lengths
 *     caveat, not_run  as in mha_model_facts; null: none
 *     values           {name, value, keys, defaults}: fields of mha_config by their word, settings of mha_semantics,
 *                      and numbers of mha_model_facts, as a forward of the layer reads them; `keys` of the
 *                      configuration that decide the value, and keys that it lacks, whose `defaults` do
 *   keys: {key, value, effect, values, reason}. effect: "values" (in the list), "layers" (how many run), "tensors"
 *     outside attention, "costs" (active parameters, visible keys, operations), "none" (unused, with the reason),
 *     "other" (read, but no number here depends on it), "unknown" (no known reader uses it)
 *   differences, with `against`: numbers {name, layers, value, against}, which change results; keys, the same of keys
 *     of the configurations. Numbers within float32 rounding are equal, because GGUF stores float32; changes of
 *     weights by converters to GGUF are no differences. */
MHA_API const char *mha_config_explanation_json(const mha_config_explanation *explanation);

/* ---------------------------------------------------------------- checkpoints as they are */

/* A difference between a file and a model in one tensor. */
typedef enum mha_finding_kind {
    MHA_FINDING_MISSING,   /* the model has it, the file does not */
    MHA_FINDING_EXTRA,     /* the file has it, the model does not */
    MHA_FINDING_MISSHAPEN, /* both have it, with different shapes */
    MHA_FINDING_TIED,      /* tied in the model, stored on its own in the file */
    MHA_FINDING_BUFFER,    /* in the file, but not a parameter: public counters include it by mistake */
    MHA_FINDING_COUNT
} mha_finding_kind;

/* "missing", "extra", "misshapen", "stored twice", "buffer"; "?" outside the list. */
MHA_API const char *mha_finding_name(mha_finding_kind kind);

typedef struct mha_finding {
    mha_finding_kind kind;
    const char *name;              /* in the file, or in the model where the file lacks the tensor */
    const char *other;             /* name of the tensor that this one is tied to, or NULL */
    int expected_rank, found_rank; /* 0, with an unset shape, on the side that lacks the tensor */
    size_t expected_shape[MHA_MAX_RANK], found_shape[MHA_MAX_RANK];
    size_t elements; /* in the file, or in the model where the file lacks the tensor */
} mha_finding;

typedef void (*mha_finding_function)(void *context, const mha_finding *finding); /* *finding lives for the call */

/* Sums over the tensors of a file, from its header. */
typedef struct mha_file_totals {
    size_t tensors, elements, bytes; /* of all tensors; scales and zero points are bytes, not elements */
    size_t bytes_here;               /* of all tensors, each read as its reads_as: F32 for a quantised one */
    size_t parameters;               /* elements that are not buffers */
    size_t buffers;                  /* elements of buffers */
    size_t unique;    /* parameters, tied ones counted once */
    size_t attention; /* parameters of recognised attention layers: projections, their biases, q/k norms */
} mha_file_totals;

/* Adds a row to `table` for each tensor of the file, with its name, dtype, shape, role and group ("attention" where a
 * layer is recognised), allocated but without values. Data is read only where two tensors of equal type and shape
 * have names that models tie: up to 64 pieces of it are compared, and `found` gets MHA_FINDING_TIED when they are
 * equal. `found` and `totals` may be NULL. Errors: MHA_NO_MEMORY, MHA_IO. */
MHA_API mha_status mha_file_list_params(const mha_file *file, mha_params *table, mha_finding_function found,
                                        void *context, mha_file_totals *totals, mha_error *error);
/* The built-in model types whose public checkpoints name their tensors as this file does, as far as names tell; several
 * when these are the same (llama, mistral). Every tensor of the file that is no buffer must be one of the model's.
 * Writes the first `capacity` names (static text), the likeliest first, to `names` and returns the number of all; 0
 * without memory. */
MHA_API size_t mha_file_architectures(const mha_file *file, const char **names, size_t capacity);
/* Compares the tensors of a file with those of a model by name and shape, and calls `found` for every difference.
 * Names may differ by the prefix of the model's class ("bert.", "transformer."). Returns the number of missing, extra
 * and misshapen tensors. */
MHA_API size_t mha_model_check_file(const mha_model *model, const mha_file *file, mha_finding_function found,
                                    void *context);

#ifdef __cplusplus
}
#endif
#endif
