/* Laboratory. The power of a test: which known bugs its inputs and its tolerance would let pass. */
#ifndef MHA_POWER_H
#define MHA_POWER_H

#include "mha/case.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When a test takes a result x for the right one, y. */
typedef enum mha_criterion_kind {
    MHA_CRITERION_BOUND = 0, /* as mha_case_check on the float paths: within the tolerance that the case states, or
                                else within the one that is derived from its call */
    MHA_CRITERION_CLOSE,     /* |x - y| <= atol + rtol |y| everywhere: numpy.isclose, torch.allclose */
    MHA_CRITERION_NMSE,      /* sum (x - y)^2 <= limit * sum y^2 */
    MHA_CRITERION_COSINE,    /* x.y >= limit * |x| |y| */
    MHA_CRITERION_EITHER,    /* |x - y| <= max(atol, rtol |y|) everywhere */
    MHA_CRITERION_SHARE,     /* as MHA_CRITERION_CLOSE, but in a share `limit` of the elements */
    /* |x - y| <= limit * e everywhere; e: the largest error of a kernel that rounds to `precision` and rounds scores to
     * it, too. Of stages, only of the output. */
    MHA_CRITERION_ERRORS
} mha_criterion_kind;
MHA_API const char *mha_criterion_name(mha_criterion_kind kind); /* "close"; "?" outside the list */

typedef struct mha_criterion {
    mha_criterion_kind kind;
    double rtol, atol; /* of MHA_CRITERION_CLOSE, _EITHER and _SHARE */
    double limit;      /* of MHA_CRITERION_NMSE, _COSINE, _SHARE and _ERRORS */
    const char *stage; /* the stage that the test compares; NULL: the output */
    /* The type in which the tested implementation computes, as a fused kernel does (mha_precision_of), and stores its
     * results: F32, TF32 (stored in F32), F16 or BF16. A bug that does nothing but round inputs or weights to this
     * type or to a finer one is right for it, and is not tried. */
    mha_dtype precision;
} mha_criterion;

typedef enum mha_power_result {
    MHA_POWER_REJECTED = 0,
    MHA_POWER_ACCEPTED, /* wrong, and the test takes it for right */
    MHA_POWER_SAME      /* this input does not show it: the result is the right one, but for rounding in float64 */
} mha_power_result;

/* One bug that applies to the case, or of a backward that applies to the call. Texts are static. */
typedef struct mha_power_row {
    const char *bug, *help;  /* its name and what it is */
    const char *seen_in;     /* of a backward: the gradient with the largest violation, "query"; else NULL */
    mha_power_result result;
    double max_abs; /* largest |x - y|; infinite where only one of them is finite */
    /* Its largest violation as a multiple of what the test allows: more than 1 is rejected. With a cosine: (1 - cosine)
     * / (1 - limit). Infinite where only x or only y is finite. */
    double factor;
    /* The same as a multiple of the derived tolerance; of a backward, of the error bound of each element. At most 1: as
     * far as float32 can tell, this input does not show the bug. */
    double excess;
} mha_power_row;

typedef struct mha_power {
    mha_stage stage;
    mha_criterion criterion; /* as it was applied: of MHA_CRITERION_BOUND and _ERRORS, rtol and atol are filled in */
    double derived_rtol, derived_atol; /* the tolerance derived from the call, for results stored in `precision` */
    double largest;                    /* largest finite |y| */
    size_t count;
    mha_power_row *rows; /* in the order of mha_bug_at or mha_gradient_bug_at */
    size_t rejected, accepted, same;
    size_t faint; /* accepted rows whose excess is at most 1 */
} mha_power;

/* Computes a case with each bug that applies to it, one at a time and in float64, and asks whether a test that
 * compares the result with the right one would accept it. What the case records is not used. `threads` 0:
 * mha_threads_available(); any number gives the same answer. `progress` may be NULL. The caller clears the result.
 * Errors: MHA_NOT_FOUND (no such stage); MHA_INVALID (a tolerance or limit that is negative or NaN, a cosine above 1,
 * a precision that is none); MHA_UNSUPPORTED (as of mha_case_diagnose; MHA_CRITERION_ERRORS of another stage than the
 * output); MHA_NO_MEMORY. */
MHA_API mha_status mha_case_power(const mha_case *c, const mha_criterion *criterion, int threads,
                                  const mha_progress *progress, mha_power *result, mha_error *error);
MHA_API void mha_power_clear(mha_power *result);

/* ---------------------------------------------------------------- tests of gradients */

/* Computes the gradients of a call with each bug of a backward that it has what it takes for, one at a time and in
 * float64, and asks whether a test would accept them that compares those which `gradients` has memory for with the
 * right ones, each by the criterion: as mha_backward, it writes the right ones there. MHA_CRITERION_BOUND: each element
 * within its own mha_gradient_bound, of a backward of criterion->precision; its tolerances and stage are not read. A
 * rounding that such a backward makes is no bug, and is not tried. Every bug takes one backward. Of the result, stage,
 * derived tolerance and `largest` are 0. The caller clears it. Errors: as of mha_backward; MHA_INVALID (as of
 * mha_case_power; no memory for any gradient); MHA_UNSUPPORTED: a layer in less than 32 bits, MHA_CRITERION_ERRORS. */
MHA_API mha_status mha_examine_gradients(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients,
                                         const mha_criterion *criterion, mha_power *result, mha_error *error);
/* The same of the backward of a case, of the gradient that criterion->stage names ("d_query"), or, where it is NULL, of
 * those that the case records; of query, key and value as far as it has these, where it records none. Errors also:
 * MHA_NOT_FOUND (no d_output; no such gradient), MHA_UNSUPPORTED (a case that is skipped). */
MHA_API mha_status mha_case_examine_gradients(const mha_case *c, const mha_criterion *criterion,
                                              mha_power *result, mha_error *error);

/* ---------------------------------------------------------------- published tests */

/* Published tests, sorted by name: `at` gives the name, and in *json (may be NULL) its file, which
 * src/verify/power/benchmarks/README.md defines: source, cases and criterion. NULL past the end. Static texts. */
MHA_API const char *mha_benchmark_at(size_t index, const char **json);
/* mha_case_power of each case of a published test, whose inputs are drawn anew. A bug is accepted if every case accepts
 * it or does not show it; max_abs, factor and excess are the largest. Of the result, criterion, derived tolerance and
 * `largest` are those of the first case. Errors: MHA_NOT_FOUND (no such test); as of
 * mha_case_power. */
MHA_API mha_status mha_benchmark_power(const char *name, int threads, const mha_progress *progress, mha_power *result,
                                       mha_error *error);
/* mha_case_suggest for the call of the test's first case, in as few rows; *criterion becomes that of this case. Errors
 * also: MHA_NOT_FOUND. */
MHA_API mha_status mha_benchmark_suggest(const char *name, const char *path, int threads, const mha_progress *progress,
                                         mha_criterion *criterion, mha_error *error);

/* ---------------------------------------------------------------- inputs that show more */

/* Parts of a call whose contents mha_case_suggest makes up. */
enum {
    MHA_WITH_MASK = 1,    /* numbers added to the scores, other ones for each head; some are -inf */
    MHA_WITH_KEEPS = 2,   /* a boolean mask, another one for each batch row; not with MHA_WITH_MASK */
    MHA_WITH_PADDING = 4, /* a key padding mask */
    MHA_WITH_LENGTHS = 8, /* another number of keys for each batch row */
    MHA_WITH_EMPTY = 16,  /* lengths, too, the last of them 0: queries that see no key */
    MHA_WITH_POISON = 32  /* NaN in the key and value rows that lengths hide; not where they are queries, too */
};

/* The kind of call for which inputs are wanted. */
typedef struct mha_suggestion {
    mha_config config; /* of the layer */
    bool by_head;      /* no layer: query, key and value are given for each head; of config, heads and widths */
    size_t batch, q_len, kv_len; /* 0: short, with unequal lengths */
    size_t past_len;             /* rows in the cache before the call */
    mha_semantics semantics;     /* what the attention does; its arrays may be given, or be made up by `with` */
    unsigned with;               /* sum of MHA_WITH_... */
    uint64_t seed;
} mha_suggestion;

/* Writes a case on which mha_case_power finds most: short rows of unequal lengths, scores that differ
 * much, heads that differ. Random inputs of several sizes are tried; the case with the fewest bugs that are
 * accepted or not shown is written, with its exact result as expected64.output. `threads` and `progress` are as in
 * mha_case_power. Errors: MHA_INVALID (parts that do not go together, and as of mha_plan_call); as of mha_case_save
 * and mha_case_power. */
MHA_API mha_status mha_case_suggest(const char *path, const mha_suggestion *wish, int threads,
                                    const mha_progress *progress, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
