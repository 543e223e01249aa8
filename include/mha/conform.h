/* Laboratory. The conformance suite: test cases for any kernel of attention, with their exact results. */
#ifndef MHA_CONFORM_H
#define MHA_CONFORM_H

#include "mha/case.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The suite's name and version. Another version may have other test cases; within one, the inputs of a test case have
 * the same bytes on every machine. */
#define MHA_CONFORM_VERSION "mha-conform 1.2"

/* How much is asked; each level has the test cases of those before it, too. */
typedef enum mha_conform_level {
    MHA_CONFORM_SMOKE = 0, /* seconds */
    MHA_CONFORM_FULL,      /* minutes */
    MHA_CONFORM_LARGE,     /* long sequences, beyond 2^15 and 2^16 keys */
    MHA_CONFORM_LEVEL_COUNT
} mha_conform_level;
MHA_API const char *mha_conform_level_name(mha_conform_level level); /* "smoke"; "?" outside the list */

/* One test case. Texts are static. */
typedef struct mha_conform_row {
    char name[80];                       /* "causal-tile.q65-s65" */
    const char *family, *regime;         /* "causal-tile"; where its numbers come from: "normal" */
    const char *settings;                /* what is asked of q, k and v: "causal window_left=16" */
    mha_conform_level level;
    char has[160];                            /* what a kernel needs for it, with blanks between: "causal gqa" */
    size_t B, h, h_kv, T_q, T_k, P, d_k, d_v; /* P: rows of the cache before the call */
} mha_conform_row;

/* The test cases, in an order that later versions keep. False past the end. */
MHA_API bool mha_conform_at(size_t index, mha_conform_row *row);

/* A word, and what it stands for. */
typedef struct mha_conform_word {
    const char *name, *meaning;
} mha_conform_word;
/* Where the numbers of test cases come from: hard regimes. NULL past the end. */
MHA_API const mha_conform_word *mha_conform_regime_at(size_t index);
/* The features that test cases may need of a kernel. NULL past the end. */
MHA_API const mha_conform_word *mha_conform_need_at(size_t index);

/* Whether a kernel that has these words, with blanks or commas between, is asked a test case: it needs no other. Words
 * with slashes between, "causal/mask", exclude each other: the kernel is asked no test case that needs two of them. */
MHA_API bool mha_conform_asks(const char *has, const mha_conform_row *row);

/* Checks `has` in that form: the suite knows each word, and a test case up to the level needs it. Else
 * MHA_INVALID; the message lists the known words, or the words or the level that exercise the word. */
MHA_API mha_status mha_conform_has(const char *has, mha_conform_level level, mha_error *error);

/* ---------------------------------------------------------------- conventions */

enum { MHA_CONFORM_CHOICES = 4, MHA_CONFORM_CONVENTIONS = 7 };

/* Something that kernels understand differently, none of them wrongly: its choices; the first holds unless
 * another is declared or found. */
typedef struct mha_conform_convention {
    const char *name, *meaning; /* "empty": "what a query gives that sees no key" */
    size_t count;
    mha_conform_word choices[MHA_CONFORM_CHOICES];
    const char *probe; /* the test case that only differs by this choice */
} mha_conform_convention;

/* MHA_CONFORM_CONVENTIONS rows; NULL past the end. */
MHA_API const mha_conform_convention *mha_conform_convention_at(size_t index);

/* The choice of each convention, counted from 0, and the draw of the numbers. */
typedef struct mha_conform_choices {
    size_t of[MHA_CONFORM_CONVENTIONS];
    uint64_t seed; /* 0: the suite's own numbers, which are public; else other numbers of the same regime */
    size_t longer; /* keys to add to the suite's, and queries if they are more than one or as many as the keys */
} mha_conform_choices;

/* Reads "empty=nan" or, with commas between, several of them. *choices keeps what is not named. MHA_INVALID: a
 * convention or a choice that is none; the message has those that are. */
MHA_API mha_status mha_conform_choices_put(const char *text, mha_conform_choices *choices, mha_error *error);

/* ---------------------------------------------------------------- one test case */

typedef struct mha_test_case mha_test_case;

/* Makes test case `index` with numbers of F32, F16 or BF16, each exact in that type, as it is understood by `choices`
 * (NULL: the first ones). The caller destroys it. Errors: MHA_NOT_FOUND (past the end); MHA_INVALID (another type);
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_test_case_create(size_t index, mha_dtype dtype, const mha_conform_choices *choices,
                                        mha_test_case **test_case, mha_error *error);
MHA_API void mha_test_case_destroy(mha_test_case *test_case); /* NULL is allowed */

MHA_API const mha_conform_row *mha_test_case_row(const mha_test_case *test_case);
/* The call that is asked for: query (B, T_q, h, d_k), key and value in the type of the test case, semantics and
 * weights, all of it owned by the test case; without output, path and cache, and of a precision (mha_precision_of)
 * below F32. Its views have strides where `has` has the word strides. */
MHA_API const mha_call *mha_test_case_call(const mha_test_case *test_case);
/* The rows in the cache before the call, (B, h_kv, P, d); views without data without a cache. */
MHA_API void mha_test_case_past(const mha_test_case *test_case, mha_view *keys, mha_view *values);
/* The gradient of the output that a backward begins with, (B, T_q, h, d_v) in the type of the test case, owned by the
 * test case: where `has` has the word backward, else a view without data. It is 0 for queries that see no key where
 * `empty` reads as their mean, which has gradients of its own. */
MHA_API void mha_test_case_d_output(const mha_test_case *test_case, mha_view *d_output);
/* Whether a convention matters to this test case. */
MHA_API bool mha_test_case_differs(const mha_test_case *test_case, size_t convention);

/* The result of a test case. A view without data: none. */
typedef struct mha_test_result {
    mha_view output;       /* (B, T_q, h, d_v) */
    mha_view lse;          /* (B, h, T_q) */
    mha_view gradients[3]; /* those of query, key and value (MHA_D_QUERY, MHA_D_KEY, MHA_D_VALUE), in their shapes */
} mha_test_result;

/* The right result, in F64: lse where `has` has the word lse, gradients where it has the word backward (those of
 * mha_backward). Owned by the test case; computed when it is first asked for. Errors: MHA_NO_MEMORY. */
MHA_API mha_status mha_test_case_exact(mha_test_case *test_case, mha_test_result *exact, mha_error *error);

/* Compares a result, in the shapes above and of any plain floating type with any strides, with the right one: output
 * and lse within the tolerance that mha_tolerance derives from the call and the type of the result, that of
 * mha_case_check, and each element of the gradients within its own mha_gradient_bound. What is not asked for is not
 * looked at. Without gradients only the forward is checked. The caller clears the verdict.
 * Errors: MHA_INVALID (shapes, types; no output, no lse, or not all three gradients); MHA_NO_MEMORY. */
MHA_API mha_status mha_test_case_check(mha_test_case *test_case, const mha_test_result *result, mha_verdict *verdict,
                                       mha_error *error);

/* The test case and a result (NULL: none) as a case, for mha_case_diagnose, mha_case_explain_gradients and
 * mha_case_power. It borrows the test case; the caller closes it first. Errors as of mha_test_case_check. */
MHA_API mha_status mha_test_case_as_case(const mha_test_case *test_case, const mha_test_result *result, mha_case **c,
                                         mha_error *error);

/* Writes the test case with its exact result as a case file (expected64.output, expected64.d_query), or with a given
 * result instead. Strides are not written. Errors: as of mha_case_save and mha_test_case_check. */
MHA_API mha_status mha_test_case_save(mha_test_case *test_case, const char *path, const mha_test_result *result,
                                      mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
