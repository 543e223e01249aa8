/* An architecture as it was read: the keys of its config.json and the tensors of its public checkpoint, as data. */
#ifndef MHA_MODELS_DESCRIBE_ARCHITECTURE_H
#define MHA_MODELS_DESCRIBE_ARCHITECTURE_H

#include <jansson.h>

#include "base/arena.h"
#include "mha/setting.h"
#include "models/describe/expression.h"

/* Every list below ends with an all-zero row. Formulas are expressions (expression.h) over the
 * symbols of the architecture, evaluated in the order of its keys.
 *
 * Formulas of lengths also know seq and encoder_seq: tokens of a sequence, and those that an encoder reads.
 *
 * Symbols that every architecture defines, because the rest of the library reads them:
 *   d_model h h_kv d_k   and where they are not 0:  d_v (default d_k)  bias_q bias_k bias_v bias_o sinks
 *   qk_norm (1: per head, 2: per row)  causal  rope (1: interleaved, 2: half-split; of all d_k)
 *   bias_rule (1: buckets, 2: grid) and what belongs to it, see mha_bias: bias_one_way bias_buckets bias_distance,
 *   bias_height bias_width bias_class bias_span; logit_scale; windows of an image that is rolled: shift
 *   image_height image_width
 *   relative_rule (1: distance, 2: log buckets, 3: grid) and what belongs to it, see mha_relative: relative_rows
 *   relative_distance relative_k relative_q relative_shared relative_normed, or relative_height
 *   relative_width relative_unscaled; scale_parts
 *   moving: something other than rotation makes the scores depend on the key bias, which is then not inert
 *   i j: the numbers that stand for {i} and {j} in names, where blocks are counted; elsewhere 0
 *   experts top_k: where rows are routed, how many experts there are, and how many of them a token passes */

/* A symbol and where its value comes from. */
typedef struct mha__arch_key {
    const char *symbol;
    const char *keys;     /* config keys separated by blanks, the first one present is used; NULL: computed */
    const char *fallback; /* formula when no key is present: the default of the architecture's library */
    const char *null;     /* formula when the config says null; NULL: the fallback */
    const char *contains; /* for a key whose value is text: 1 when the text contains this, else 0 */
    const char *words;    /* for the same: all that the text may be, with blanks between. NULL: anything */
    const char *list;     /* formula: the symbol is a list of so many numbers; its fallback knows i. NULL: a number */
    const char *times;    /* formula: the key is a real number, by which this is multiplied and cut. NULL: no */
    const char *text;     /* formula when the value is text; NULL: text is no number */
    int positive;         /* the key is a real number: whether it is above 0 */
    int members;          /* the config lists the places of a list that are 1; others are 0 */
    int length;           /* the symbol is the length of the config's list */
    const char *matters;  /* formula over parts: whether a missing key is reported; NULL: it is */
} mha__arch_key;

/* The same for a real number. */
typedef struct mha__arch_real {
    const char *symbol, *keys;
    double fallback;            /* 0: none */
    const mha_setting *setting; /* that it is; NULL: none */
} mha__arch_real;

/* A model class of the library and the parts it adds; parts are symbols, 1 or 0. */
typedef struct mha__arch_class {
    const char *name, *parts;
} mha__arch_class;

typedef enum mha__arch_kind {
    MHA_ARCH_PARAMETER = 0,
    MHA_ARCH_BUFFER,    /* of the weights' dtype */
    MHA_ARCH_BUFFER_I64 /* position ids */
} mha__arch_kind;

/* One tensor, or one per block: {i} is the block, {j} the one inside it. All formulas but `blocks` know i. */
typedef struct mha__arch_tensor {
    const char *blocks; /* formula: number of blocks; NULL: one. Neighbours with one formula are added block by block */
    const char *inner;  /* formula: number of inner blocks; NULL: one. Neighbours with one formula go together */
    const char *prefix; /* in front of the name, "" for nothing; in both {model} stands for base_prefix */
    const char *name, *shape, *group, *role;
    const char *section;  /* formula: whether the rows of its section are there; NULL: always */
    const char *when;     /* the same of this row */
    const char *alias_of; /* the tensor whose storage it shares */
    const char *tied;     /* formula: whether the storage is shared; NULL: always */
    const char *frozen;   /* formula: whether it is not trained; NULL: never */
    mha__arch_kind kind;
    int unsaved; /* the library makes it, and a file may lack it */
    int routed;  /* a token passes top_k of `experts` parts of it, or of its inner blocks */
    const char *tokens; /* formula of lengths: vectors of a sequence that it multiplies; NULL: as costs.c says */
} mha__arch_tensor;

/* A symbol that has another value for some attention layers. */
typedef struct mha__arch_own {
    const char *symbol, *formula;
} mha__arch_own;

/* An attention layer, or one per block. */
typedef struct mha__arch_attention {
    const char *blocks, *inner, *prefix, *when;
    const char *uses;   /* formula: times that a forward pass runs each layer; NULL: once */
    const char *causal; /* formula; NULL: the symbol causal */
    const char *bias_table; /* name of the tensor that holds its biases by position; NULL: it has none */
    const char *relative_table, *relative_norm; /* of relative embeddings, of their norm; NULL: none */
    const mha__arch_own *own; /* NULL: none */
    const char *tokens, *keys; /* formulas of lengths: queries of a sequence, seq for NULL; keys, as many for NULL */
    const char *windows;       /* formula: windows of so many tokens that an image is cut into; NULL: it is not */
    int uncached;              /* causal, but run once: nothing is decoded with it */
    int cross;                 /* keys and values are made of what the encoder gives, and kept by a decoder */
} mha__arch_attention;

/* A layer, or one per block, that goes from token to token with a state of a fixed size (linear attention). */
typedef struct mha__arch_state {
    const char *blocks, *when;
    const char *products; /* formula: multiply-adds of one token that no matrix of the table shows */
    const char *elements; /* formula: of the state */
} mha__arch_state;

/* A configuration that the tensors below do not describe. */
typedef struct mha__arch_refusal {
    const char *when, *why;
} mha__arch_refusal;

typedef struct mha__architecture {
    char name[48];    /* the model type */
    char source[120]; /* the path of the description, or the model type */
    const char *title;
    const char *base_prefix; /* prefix of tensor names that files of the bare model lack and files of a class have */
    const mha__arch_key *keys;
    const mha__arch_real *reals;
    const mha__arch_class *classes; /* the first is the default */
    const char *parts;              /* parts that no class adds, but formulas may name, with blanks between */
    bool of_metadata; /* its keys are those of a GGUF, which the room gguf checks */
    const char *no_effect;          /* keys of a config that change nothing, see README.md; "": none */
    const char *class_families;     /* beginning of the classes' names, and its alternatives; NULL: only one */
    const mha__arch_tensor *tensors;
    const mha__arch_attention *attention;
    const mha__arch_refusal *refusals;
    const mha__arch_refusal *not_run; /* attention layers that are counted, but not computed */
    const mha__arch_refusal *not_counted; /* operations of a forward pass that mha_model_costs lacks */
    const mha__arch_state *states;
    const char *caveat; /* properties of the model that one attention layer does not reproduce; "": nothing */
    json_t *text;       /* owns the text of all rows */
    mha__arena memory;  /* of the rows */
} mha__architecture;

/* Reads the built-in description of a model type that is known or, unless `path` is NULL, that of a file; *made is
 * released with mha__architecture_free. Errors: MHA_NOT_FOUND, MHA_IO, MHA_FORMAT and MHA_INVALID (of a file; the
 * message names the row), MHA_NO_MEMORY. */
mha_status mha__architecture_read(const char *model_type, const char *path, mha__architecture **made,
                                  mha_error *error);
void mha__architecture_free(mha__architecture *architecture);
/* The whole description of a model type that is known, which the caller releases. Errors: MHA_NO_MEMORY. */
mha_status mha__architecture_text(const char *model_type, json_t **whole, mha_error *error);
/* Makes an architecture of a whole description, which it takes over; the same errors as of a file. */
mha_status mha__architecture_make(json_t *whole, const char *name, const char *source, mha__architecture **made,
                                  mha_error *error);
/* Entries of `own` replace those of `base`: one by one if both have an object, which is not for classes, else as a
 * whole. false: there is no memory. */
bool mha__architecture_put(json_t *base, json_t *own);
/* Makes the rows of a description from its whole text (`text`, `source` and an empty memory are there). */
mha_status mha__architecture_read_rows(mha__architecture *architecture, mha_error *error);
/* Hands on a status; a formula that is wrong is blamed on a row of the description. */
mha_status mha__architecture_blame(const mha__architecture *architecture, const char *row, mha_status status,
                                   mha_error *error);
/* The name of an error that a row of the description is to blame for, in `room`: "PATH, ROW". */
enum { MHA_ARCH_ROW = 200 };
const char *mha__architecture_row(const mha__architecture *architecture, const char *row, char room[MHA_ARCH_ROW]);
/* Whether there is a built-in description. */
bool mha__architecture_known(const char *model_type);
/* Whether some built-in description reads a key of a config, or a member of this name of an object, or knows it to be
 * without effect. */
bool mha__architecture_knows(const char *key);
/* The model type that is spelled most alike; NULL: none is spelled alike. */
const char *mha__architecture_nearest(const char *model_type);

/* The words of the `group` column. */
#define MHA_GROUP_ATTENTION "attention"
#define MHA_GROUP_FFN "ffn"
#define MHA_GROUP_NORM "norm"
#define MHA_GROUP_EMBEDDING "embedding"
#define MHA_GROUP_HEAD "head"

/* Parses a text into a JSON object, which the caller releases with json_decref. `path` is for messages. */
mha_status mha__json_parse(const char *text, size_t length, const char *path, json_t **object, mha_error *error);
/* The same from a file. */
mha_status mha__json_read(const char *path, json_t **object, mha_error *error);
/* The same from a file, or from the config.json in a folder. */
mha_status mha__config_read(const char *path, json_t **object, mha_error *error);

/* Hands on the status of a symbol's formulas, evaluated with the values of those before it. A formula that failed is
 * blamed on the description; where the symbol needs itself or a later one, the message says so. */
mha_status mha__symbol_order_blame(const mha__architecture *architecture, const mha__arch_key *key,
                                   const mha__values *values, mha_status status, mha_error *error);

/* Refuses a negative value of a symbol that is a size in attention. */
mha_status mha__symbol_check(const mha__architecture *architecture, const char *symbol, int64_t value,
                             mha_error *error);

#endif
