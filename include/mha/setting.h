/* The settings of a call's mha_semantics and the fields of a layer's mha_config, one row each, for other
 * languages to read and write. */
#ifndef MHA_SETTING_H
#define MHA_SETTING_H

#include "mha/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The parts of mha_semantics, in the order of the equation. */
typedef enum mha_setting_group {
    MHA_SETTINGS_PLACE,   /* where rows stand */
    MHA_SETTINGS_QKV,     /* what is done to q, k and v before they meet */
    MHA_SETTINGS_VISIBLE, /* which keys a query sees */
    MHA_SETTINGS_ADDED,   /* what is added to scores */
    MHA_SETTINGS_SOFTMAX, /* how scores become weights */
    MHA_SETTINGS_GROUP_COUNT
} mha_setting_group;

typedef enum mha_setting_kind {
    MHA_SETTING_SWITCH, /* bool */
    MHA_SETTING_WHOLE,  /* int64_t, from `least` to `most` */
    MHA_SETTING_COUNT,  /* size_t, from `least` to `most` */
    MHA_SETTING_REAL,   /* double, finite, from `lowest` to `highest` */
    MHA_SETTING_CHOICE, /* an enum, whose values from 0 on have the words of `choices` */
    MHA_SETTING_VIEW,   /* mha_view of `shape`, in memory of the caller */
    MHA_SETTING_WHOLES, /* const int64_t *, `shape` numbers in memory of the caller */
    MHA_SETTING_REALS,  /* const double *, likewise */
    MHA_SETTING_KIND_COUNT
} mha_setting_kind;

/* Items of a WHOLES or REALS setting: it has one number for each. */
typedef enum mha_setting_per {
    MHA_PER_NOTHING,  /* a setting of another kind */
    MHA_PER_ROW,      /* batch row, or sequence of a ragged batch */
    MHA_PER_HEAD,     /* query head */
    MHA_PER_SEQUENCE, /* sequence of a ragged batch, and one more for the end */
    MHA_PER_COUNT
} mha_setting_per;

/* One setting. Rows are static; later versions append fields and rows. A text that a row does not have is NULL. */
typedef struct mha_setting {
    const char *name;    /* "rope_dim": the word, the keyword; the option is --rope-dim */
    const char *aliases; /* other names that are read as this one, separated by blanks */
    const char *foreign; /* names in other programs, for messages. They are not read: some count differently */
    const char *field;   /* of mha_semantics: "qkv.rope.base" */
    mha_setting_group group;
    mha_setting_kind kind;
    const char *choices; /* "none|interleaved|half_split=half": a word for each value from 0 on; after '=' other
                          * spellings that are read */
    int64_t least, most;
    double lowest, highest;
    const char *unset;   /* what holds while it is not given: "0", "1/sqrt(d_k)" */
    const char *needs;   /* "bias_rule=buckets": has no effect unless that setting is given, with one of these words
                          * (separated by commas) */
    const char *shape;   /* of arrays, in the symbols of mha.h: "(B, h, T_q, S)" */
    mha_setting_per per; /* of a WHOLES or REALS setting: the item of each number */
    const char *meaning; /* one line */
    size_t at;           /* offset in mha_semantics */
    size_t given_at;     /* of the bool that says that it is given; SIZE_MAX: it is given when it is not 0 */
    bool in_float;       /* the number is a float on every path but the exact one, which computes in double */
} mha_setting;

/* Row `index`, in the order of the groups; NULL past the end. */
MHA_API const mha_setting *mha_setting_at(size_t index);

/* The row of a name or alias, in which '-' and '_' are the same; NULL for none. */
MHA_API const mha_setting *mha_setting_find(const char *name);

/* Whether a setting differs from all-zero semantics: a number that is not 0 or whose has_ field is true, an array with
 * data. */
MHA_API bool mha_setting_given(const mha_setting *setting, const mha_semantics *semantics);

/* Sets a number, switch or choice from text: "0", "1", "false", "true" of a switch; digits; a word of a choice in any
 * of its spellings. The bool that marks it as given (has_scale) is set with it, and cleared by the number that `unset`
 * is: window_left -1. *semantics is untouched on error: MHA_INVALID with the range or the words that are expected;
 * MHA_UNSUPPORTED for an array, which has no text. */
MHA_API mha_status mha_setting_put(const mha_setting *setting, const char *text, mha_semantics *semantics,
                                   mha_error *error);

/* The same from a number: 0 or 1 of a switch, the value of a choice. A double holds whole numbers up to 2^53; beyond,
 * take the text. */
MHA_API mha_status mha_setting_put_number(const mha_setting *setting, double number, mha_semantics *semantics,
                                          mha_error *error);

/* The number, switch (0, 1) or choice (its value) that is set, `unset` where that is a number and nothing is given; NaN
 * for arrays and for what has no number (`unset` "1/sqrt(d_k)"). */
MHA_API double mha_setting_number(const mha_setting *setting, const mha_semantics *semantics);

/* Writes the same as text that mha_setting_put reads back to the same bits: digits, "0" or "1", a word. Returns `text`,
 * cut to `size` bytes; 40 hold every number. A view is its type and shape ("F32 (2, 8)"), another array is its
 * shape in symbols; "none" without data. */
MHA_API char *mha_setting_text(const mha_setting *setting, const mha_semantics *semantics, char *text, size_t size);

/* Numbers that a WHOLES or REALS setting points to in a call of B batch rows and h query heads; 0 while it is not
 * given, and of other kinds. */
MHA_API size_t mha_setting_length(const mha_setting *setting, const mha_semantics *semantics, size_t B, size_t h);

/* ---------------------------------------------------------------- the configuration of a layer */

typedef enum mha_config_kind {
    MHA_CONFIG_SIZE,   /* size_t, at most `most` */
    MHA_CONFIG_SWITCH, /* bool */
    MHA_CONFIG_CHOICE, /* an enum, whose values from 0 on have the words of `choices` */
    MHA_CONFIG_TYPE,   /* mha_dtype */
    MHA_CONFIG_TYPES   /* mha_dtype[MHA_WEIGHT_ROOM] */
} mha_config_kind;

/* One field of mha_config. Rows are static; later versions append fields and rows. */
typedef struct mha_config_field {
    const char *name; /* "n_heads": the field, the keyword */
    const char *word; /* "heads": the word of the program's options and reports */
    mha_config_kind kind;
    const char *choices; /* "none|head|row|each_head"; NULL of other kinds */
    const char *unset;   /* what holds while it is 0: "512", another size ("d_model") or how it is computed; NULL: 0 */
    size_t most;
    const char *meaning; /* one line */
    size_t at, bytes;    /* in mha_config */
} mha_config_field;

/* Row `index`, in the order of the struct; NULL past the end. */
MHA_API const mha_config_field *mha_config_field_at(size_t index);

/* Whether two configs have equal values in every field. */
MHA_API bool mha_config_same(const mha_config *a, const mha_config *b);

#ifdef __cplusplus
}
#endif
#endif
