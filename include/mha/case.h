/* Case files: a recorded call with the results somebody got; the judge, writing a case, and the diagnosis. */
#ifndef MHA_CASE_H
#define MHA_CASE_H

#include "mha/attention.h"
#include "mha/compare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- the words of a case */

/* A tensor or a metadata key that a case file may hold. All texts are static. */
typedef struct mha_case_word {
    const char *group;   /* "inputs", "weights", "results", ... */
    const char *name;    /* "query", "W_q", "num_heads"; "expected64.*" for a family of words */
    const char *also;    /* another spelling of the same word ("W_Q"); "" for none */
    const char *form;    /* of a tensor its shape; of a key its values ("mha, sdpa, rope") or "number", "text", ... */
    const char *missing; /* what holds without it: a value, another word or a sentence; "": nothing takes its place */
    const char *meaning;
} mha_case_word;

/* The list, group by group; src/verify/case/CASES.md shows it. NULL past its end. */
MHA_API const mha_case_word *mha_case_word_at(size_t index);

/* ---------------------------------------------------------------- case files */

/* One recorded call of attention with the results somebody got: a file of named tensors and string
 * metadata (safetensors or npz), described in src/verify/case/CASES.md. Kinds: `mha` (inputs are projected),
 * `sdpa` (query, key, value are given per head) and `rope` (rotation alone). */
typedef struct mha_case mha_case;

/* Reads a case whole. A tensor or metadata key this reader does not know is no error: the case then
 * has a skip reason and cannot be judged. Errors: as mha_file_open; MHA_INVALID, MHA_FORMAT for what
 * contradicts itself (a missing query, shapes in conflict, a number that is none), by name. */
MHA_API mha_status mha_case_open(const char *path, const mha_allocator *allocator, mha_case **result,
                                 mha_error *error);
MHA_API void mha_case_close(mha_case *c); /* NULL is allowed */

MHA_API const char *mha_case_name(const mha_case *c);        /* metadata `name`, else the file's own name */
MHA_API const char *mha_case_kind(const mha_case *c);        /* "mha", "sdpa" or "rope" */
MHA_API const char *mha_case_skip_reason(const mha_case *c); /* NULL: it can be judged */
MHA_API const mha_layer *mha_case_layer(const mha_case *c);  /* NULL without projections */
/* The recorded call without stages, cache and path: inputs, semantics, weights, borrowed from the case.
 * Inputs are as the file holds them (F32 or F64). Not for `rope`, whose call has only query and rope. */
MHA_API mha_call mha_case_call(const mha_case *c);
/* The cached rows the call starts from, (B, h_kv, P, d); no data without. */
MHA_API void mha_case_past(const mha_case *c, mha_view *keys, mha_view *values);

/* What a case says beside its call. */
typedef struct mha_case_notes {
    const char *name, *note;       /* may be NULL */
    mha_view past_key, past_value; /* the cache's rows before the call, when it had one: (B, h_kv, P, d) */
    const char *source;            /* who computed the results; NULL: this library */
} mha_case_notes;

/* A case without a file: a call and results that somebody recorded for it, to be judged and diagnosed. recorded[s] is
 * stage s in its own shape and any plain floating type and strides (without data: not recorded); its type says how
 * exact it can be, and F64 is held against float64. `notes` may be NULL. Inputs and results are copied; the layer and
 * what semantics and weights point to are borrowed until mha_case_close. A cache of the call is not read: the rows it
 * held before the call are notes->past_key and past_value. Errors: as mha_plan_call; MHA_INVALID (a recorded stage of
 * another shape or of no floating type); MHA_UNSUPPORTED (keys at other positions than the queries); MHA_NO_MEMORY. */
MHA_API mha_status mha_case_of_call(const mha_layer *layer, const mha_call *call,
                                    const mha_view recorded[MHA_STAGE_COUNT], const mha_case_notes *notes,
                                    mha_case **result, mha_error *error);

/* ---------------------------------------------------------------- the judge */

typedef enum mha_outcome { MHA_OUTCOME_PASSED = 0, MHA_OUTCOME_FAILED, MHA_OUTCOME_SKIPPED } mha_outcome;
MHA_API const char *mha_outcome_name(mha_outcome outcome); /* "passed", "failed", "skipped" */

/* One recorded tensor, yours, beside what was computed, which is exact within the tolerance. */
typedef struct mha_stage_verdict {
    char name[40];    /* stage, with a prefix where the case was run again: "weights", "packed.output" */
    char against[48]; /* the tensor of the file: "expected64.weights" */
    bool ok;
    double rtol, atol; /* ok means |exact - yours| <= atol + rtol |yours| everywhere */
    bool derived;      /* the file leaves it open: it follows from what float32 costs on this call, and from `stored` */
    mha_dtype stored;  /* the type yours was recorded in */
    size_t overflowed; /* elements of yours that are infinite because their type ends before; they count as equal */
    mha_difference difference; /* its actual tensor is what was computed, its expected one is yours */
    double yours, exact;       /* at difference.worst_index: the recorded number and the computed one */
    int worst_head; /* the head with most mismatches, then the largest rms; -1 where the stage has no heads */
} mha_stage_verdict;

typedef struct mha_verdict {
    mha_outcome outcome;
    mha_path path;    /* really used; the one asked for where none was run */
    char reason[400]; /* why it failed or was skipped; "" when it passed */
    size_t stage_count;
    mha_stage_verdict *stages; /* in the order data flows; owned by the verdict */
    size_t culprit;            /* index of the first stage that diverges; stage_count when none does */
} mha_verdict;

/* Runs a case on a path and compares every expected tensor: `exact` against expected64.* with rtol64,
 * atol64 (against expected.* where that is all there is), the others against expected.* with rtol,
 * atol, atol.<tensor>. packed.*, permuted.*, repeated.*, prefill.* are run too. `stage` (NULL: all)
 * restricts to one stage. `threads` 0: as many as there are. What the library refuses to run as unsupported gives
 * MHA_OUTCOME_SKIPPED with the reason; where `fast` hands over to `blas` (attention.h, mha_path), verdict.path says so.
 * Errors: MHA_NO_MEMORY, MHA_NOT_FOUND (no stage of that name anywhere); *verdict is then empty. The caller clears the
 * verdict. */
MHA_API mha_status mha_case_judge(const mha_case *c, mha_path path, const char *stage, int threads,
                                  mha_verdict *verdict, mha_error *error);
MHA_API void mha_verdict_clear(mha_verdict *verdict);

/* ---------------------------------------------------------------- writing cases */

/* Writes a call and its results as a case that mha_case_open accepts: inputs, weights, semantics, and
 * every stage with data as expected.<stage> (F32) or, of the exact path, as expected64.<stage> (F64). It states no
 * tolerance: what a judge allows follows from the call. So it is also a template, in which only expected.output has to
 * be replaced by somebody's own result. Errors: MHA_INVALID; MHA_UNSUPPORTED (the format has no word for something,
 * which is named); MHA_IO. */
MHA_API mha_status mha_case_save(const char *path, const mha_layer *layer, const mha_call *call,
                                 const mha_case_notes *notes, mha_error *error);

/* ---------------------------------------------------------------- the diagnosis */

/* One way in which an attention differs from what was meant: "causal-top-left", "W_Q transposed". */
typedef struct mha_variant {
    const char *name, *help;
} mha_variant;

/* The list, in the order data flows: `at` gives NULL past its end. Static. */
MHA_API size_t mha_variant_count(void);
MHA_API const mha_variant *mha_variant_at(size_t index);

/* A recorded tensor explained: the case computed with these variants, on the rows that were judged. */
typedef struct mha_explanation {
    size_t count;            /* of variants; 0: the case as it says */
    const char *variants[2]; /* names */
    size_t heads;            /* 0, or: the case as it says, but with so many query heads */
    double max_abs;          /* largest difference from the tensor; infinite where only one has a number */
    double relative;         /* rms of the difference / rms of the tensor, plus the share of elements where only
                                one has a number */
    bool exact;              /* it reproduces the tensor */
    mha_dtype rounding;      /* within rounding to this type, where exact: F64, F32, or the type of the tensor */
    bool stated;             /* only within the tolerance that the case itself states, where exact */
} mha_explanation;

typedef struct mha_diagnosis {
    char tensor[48];  /* what was explained: "expected.output" */
    mha_dtype stored; /* the type it was recorded in */
    /* The simplest explanations that reproduce the tensor: they cannot be told apart on this input, so they
     * are one class; the case as it says stands alone. Without an exact one, those that come near (2 % in the rms),
     * simplest first. */
    size_t match_count;
    mha_explanation *matches;
    /* Single variants that this input cannot tell from the case as it says: they change nothing, or where that
     * reproduces the tensor, nothing that could be seen. */
    size_t undecided_count;
    const char **undecided;
    mha_explanation baseline; /* the case as it says */
    size_t closest_count;     /* at most 3, best first, with unequal results; 0: none is closer than the baseline */
    mha_explanation closest[3];
    size_t tried; /* explanations computed */
    struct {
        size_t judged, rows; /* on a large case some of the query rows (of all batch rows) are judged, with all keys */
    } part;
} mha_diagnosis;

/* How far a long call has come: `done` of at most `total` steps. Called by the calling thread. */
typedef struct mha_progress {
    void (*report)(void *context, size_t done, size_t total);
    void *context;
} mha_progress;

/* Looks for variants, alone and in pairs, that turn the case's inputs into a tensor it holds. `tensor`: its
 * name ("expected.output", or the stage alone); NULL: the output, else the last stage there is. Computed in
 * float64. The case as it says reproduces the tensor when mha_case_judge passes it: within the case's own rtol and
 * atol, else within the tolerance that is derived for it; a variant does, when rounding explains the difference that is
 * left, or rtol and atol allow it. `threads` 0: as many as there are; the answer is the same for any number. `progress` may be NULL. Errors:
 * MHA_NOT_FOUND (no such tensor), MHA_UNSUPPORTED (a ragged batch, a case that would be skipped), MHA_NO_MEMORY. The
 * caller clears the diagnosis. */
MHA_API mha_status mha_case_diagnose(const mha_case *c, const char *tensor, int threads, const mha_progress *progress,
                                     mha_diagnosis *diagnosis, mha_error *error);
MHA_API void mha_diagnosis_clear(mha_diagnosis *diagnosis);
/* What the case gives with some variants: stage `stage` into `result`, F32 or F64 of the stage's shape (output
 * (B, T_q, d_out) or (B, T_q, h, d_v), in any strides). MHA_NOT_FOUND: no such variant. MHA_UNSUPPORTED: one that
 * does not apply to this case. */
MHA_API mha_status mha_case_variant(const mha_case *c, const char *const *variants, size_t count, mha_stage stage,
                                    const mha_view *result, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
