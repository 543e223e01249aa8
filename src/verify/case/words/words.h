/* The words of the case format: the tensors and metadata keys of one table, and the settings of mha/setting.h. */
#ifndef MHA_VERIFY_CASE_WORDS_WORDS_H
#define MHA_VERIFY_CASE_WORDS_WORDS_H

#include "mha/case.h"
#include "mha/setting.h"

/* The tensors of a case that are neither weights nor results nor settings. */
typedef enum case_tensor {
    CASE_QUERY,
    CASE_KEY,
    CASE_VALUE,
    CASE_PAST_KEY,
    CASE_PAST_VALUE,
    CASE_PAGE_KEYS,
    CASE_PAGE_VALUES,
    CASE_PAGE_TABLE,
    CASE_PAGE_LENGTHS,
    CASE_FACTORS,
    CASE_ROPE_SECTIONS,
    CASE_ROPE_POSITIONS,
    CASE_ROPE_AXES_FREQUENCIES,
    CASE_PREFILL,
    CASE_PACKED,
    CASE_IN_PROJ,
    CASE_IN_BIAS,
    CASE_OUT_PROJ,
    CASE_OUT_BIAS,
    CASE_TOKENS,
    CASE_D_OUTPUT,
    CASE_D_LSE,
    CASE_TENSOR_COUNT
} case_tensor;

/* Sets of weights: the recorded one, and two more that give the same output. */
typedef enum case_weights { CASE_RECORDED, CASE_PERMUTED, CASE_REPEATED, CASE_WEIGHTS_COUNT } case_weights;

/* The slots of recorded results: the stages of a forward and two more, the stages of a backward, the gradients. */
enum {
    CASE_PREFILL_OUTPUT = MHA_STAGE_COUNT,
    CASE_QK,
    CASE_BACKWARDS,
    CASE_GRADIENTS = CASE_BACKWARDS + MHA_BACKWARD_STAGE_COUNT,
    CASE_RESULT_COUNT = CASE_GRADIENTS + MHA_GRADIENT_COUNT
};

/* The content of a tensor, and the type it is read as. */
typedef enum case_content {
    CASE_REAL,   /* F32 and F64 as they are, shorter floats widened to F32 */
    CASE_DOUBLE, /* floats as F64 */
    CASE_ANY,    /* BOOL and U8 as they are, floats as CASE_REAL, integers as CASE_COUNT */
    CASE_COUNT   /* integers as I64 */
} case_content;

typedef enum case_word_kind {
    WORD_TENSOR,       /* `code` is a case_tensor */
    WORD_WEIGHT,       /* `code` is an mha_weight */
    WORD_RESULT,       /* `code` is a slot of results */
    WORD_OTHER_TENSOR, /* a family, "expected64.*": a prefix to words of this table */
    WORD_KEY,          /* a metadata key; its values and its default are parsed from `form` and `missing` */
    WORD_OTHER_KEY,    /* a family of metadata keys, "atol.*" */
    WORD_WEIGHTS,      /* the weights of mha/layer.h come here in the list of words, each of kind WORD_WEIGHT */
    WORD_STAGES,       /* the stages of mha/attention.h come here, each of kind WORD_RESULT */
    WORD_GRADIENTS,    /* the gradients of mha/backward.h come here, each of kind WORD_RESULT */
    WORD_BACKWARDS,    /* the stages of a backward come here, each of kind WORD_RESULT */
    WORD_SETTINGS      /* all settings come here in the list of words */
} case_word_kind;

typedef struct mha__case_word {
    mha_case_word shown;
    const char *foreign; /* names of it in other programs, separated by blanks; used in messages only */
    case_word_kind kind;
    int code;
    case_content content; /* of a tensor */
    int low, high;        /* allowed ranks of a tensor; 0 for keys */
} mha__case_word;

const mha__case_word *mha__case_word_at(size_t index); /* NULL past the end */

/* ---------------------------------------------------------------- words by name (find_words.c) */

const char *mha__case_tensor_name(case_tensor tensor);
/* The name a case gives to a weight of the layer: "W_q", "head_sink", "q_norm_weight". */
const char *mha__case_weight_name(mha_weight weight);
/* The name of a recorded gradient: "expected.d_query", "expected.d_W_q". */
const char *mha__case_gradient_name(mha_gradient gradient);
/* The row of a metadata key that is neither a setting nor one of a family; NULL for an unknown key. */
const mha__case_word *mha__case_key(const char *key);
/* The setting of that name or alias that a case has as a metadata key, or as a tensor; NULL for none. */
const mha_setting *mha__case_setting(const char *name, bool is_key);
bool mha__setting_is_array(const mha_setting *setting);

/* The meaning of a tensor's name. */
typedef struct mha__case_place {
    const mha__case_word *word; /* a tensor, a weight, a result or a gradient; NULL: none of these */
    case_weights set;           /* for a weight */
    enum { PLACE_FLOAT, PLACE_DOUBLE, PLACE_FUSED } record; /* of a result: expected, expected64, expected_fast */
} mha__case_place;

mha__case_place mha__case_place_of(const char *tensor);
/* Whether a metadata key is known, by its own name or as a member of a family. */
bool mha__case_knows_key(const char *key);
/* Whether a name is marked as the author's own: "my.debug", "my_debug". */
bool mha__case_is_own(const char *name);

/* ---------------------------------------------------------------- unknown words (unknown_words.c) */

/* The known word that is probably meant by an unknown name: the one that other programs give this name, else the
 * nearest in letters, of which at most a third may differ. NULL when none is near. */
const char *mha__case_nearest(const char *name, bool is_key);
/* Whether the word nearest to an unknown tensor is `word`. If the two have too different letters, no other word is
 * compared: a checkpoint has thousands of unknown names. */
bool mha__case_means(const char *name, const char *word);
/* The message about an unknown tensor or key: the nearest word, the known words, and how to name one's own. */
void mha__case_explain_unknown(char *text, size_t size, const char *name, bool is_key);

#endif
