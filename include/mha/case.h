/* Laboratory. Cases: recorded calls with somebody's results, in files or in memory; checked, written, diagnosed. */
#ifndef MHA_CASE_H
#define MHA_CASE_H

#include "mha/attention.h"
#include "mha/gradients.h"
#include "mha/compare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- the words of a case */

enum { MHA_CASE_FORM_BYTES = 120 };

/* A tensor or a metadata key that a case file may have. Its other texts are static. */
typedef struct mha_case_word {
    const char *group;   /* "inputs", "weights", "results", ... */
    const char *name;    /* "query", "W_q", "num_heads"; "expected64.*" for a family of words */
    const char *also;    /* other spellings of the same word ("W_Q"), separated by blanks; "" for none */
    char form[MHA_CASE_FORM_BYTES]; /* shape of a tensor; values of a key ("mha, sdpa, rope"), or "number", "text" */
    const char *missing; /* what is used when it is absent: a value, another word or a sentence; "": nothing */
    const char *meaning;
} mha_case_word;

/* The words, group by group, as in src/verify/case/CASES.md; all settings (mha/setting.h) are among them. False past
 * the end. */
MHA_API bool mha_case_word_at(size_t index, mha_case_word *word);

/* ---------------------------------------------------------------- case files */

/* One recorded call of attention with the results that some implementation gave: a file of named tensors and string
 * metadata (safetensors or npz), defined in src/verify/case/CASES.md. Its kind is `mha` (inputs are projected),
 * `sdpa` (query, key and value are given for each head) or `rope` (only rotation). */
typedef struct mha_case mha_case;

/* Reads a whole case into memory of `allocator` (NULL: the default). A tensor or metadata key that this reader does
 * not know is not an error: the case then has a skip reason and cannot be checked. The caller closes the case. Errors:
 * as of mha_file_open; MHA_INVALID or MHA_FORMAT, with the name of the tensor or key (the query is missing, shapes
 * conflict, a text is not the number it should be); MHA_UNSUPPORTED (keys at other positions than the queries). */
MHA_API mha_status mha_case_open(const char *path, const mha_allocator *allocator, mha_case **result,
                                 mha_error *error);
MHA_API void mha_case_close(mha_case *c); /* NULL is allowed */

MHA_API const char *mha_case_name(const mha_case *c);        /* metadata `name`, else the file's own name */
MHA_API const char *mha_case_kind(const mha_case *c);        /* "mha", "sdpa" or "rope" */
MHA_API const char *mha_case_skip_reason(const mha_case *c); /* NULL: it can be checked */
MHA_API const mha_layer *mha_case_layer(const mha_case *c);  /* NULL without projections */
/* The recorded call: inputs (F32 or F64, as in the file), semantics and weights, borrowed from the case; without
 * stages, cache and path. A case of kind `rope` has only query and rope, and its call cannot be planned; a case with a
 * skip reason has an empty call, without inputs. */
MHA_API mha_call mha_case_call(const mha_case *c);
/* The rows in the cache before the call, (B, h_kv, P, d); views without data when there was no cache. */
MHA_API void mha_case_past(const mha_case *c, mha_view *keys, mha_view *values);

/* Records of a case other than its call. */
typedef struct mha_case_notes {
    const char *name, *note;       /* may be NULL */
    mha_view past_key, past_value; /* rows in the cache before the call, (B, h_kv, P, d), as mha_cache_read gives them;
                                    * no data without a cache, nor past_value where latents are absorbed */
    const char *source;            /* the implementation that computed the results; NULL: this library */
    /* The gradients that came in (d_output, d_lse), and those that somebody computed from them; NULL: none. */
    const mha_gradients *gradients;
    bool has_computed;             /* of mha_case_of_call: all results were computed in `computed`, F32 or F64, */
    mha_dtype computed;            /* in whatever type they are stored; otherwise their type says it */
    mha_rope_origin rope_origin;
} mha_case_notes;

/* Makes a case in memory, to be checked and diagnosed, from a call and the results that were recorded for it.
 * `recorded` lists `count` stages, each at most once, in their shapes, of any plain floating type, with any strides (a
 * view without data was not recorded; `ms` is not read). The type says how exact a result can be: F64 is compared with
 * the results in float64 (unless notes->computed says more). `notes` may be NULL.
 * Inputs and results are copied; the layer, and all that semantics and weights point to, are borrowed until
 * mha_case_close. Of a cache of the call only its type is read: where that rounds what the path of the call computes,
 * the tolerance allows for it. Its rows before the call are notes->past_key and past_value. Stages over keys that a
 * call with pages has kept become those of the call without pages: after the last key of a shorter sequence follow
 * hidden keys, zeros by mha/pages.h, and then the extra rows.
 * Errors: as of mha_plan_call; MHA_INVALID (a recorded stage of another shape, not of a floating type, or twice in
 * the list; notes->computed is neither F32 nor F64; notes->rope_origin does not fit the call); MHA_UNSUPPORTED (keys at
 * other positions than the queries, keys of earlier calls, a cache that has evicted rows, a ragged batch in pages);
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_case_of_call(const mha_layer *layer, const mha_call *call,
                                    const mha_keep *recorded, size_t count, const mha_case_notes *notes,
                                    mha_case **result, mha_error *error);

/* ---------------------------------------------------------------- the checker */

typedef enum mha_outcome { MHA_OUTCOME_PASSED = 0, MHA_OUTCOME_FAILED, MHA_OUTCOME_SKIPPED } mha_outcome;
MHA_API const char *mha_outcome_name(mha_outcome outcome); /* "passed", "failed", "skipped" */

/* The comparison of one recorded tensor ("yours") with the computed one, which is exact within the tolerance. */
typedef struct mha_stage_verdict {
    char name[40];    /* of the stage; with a prefix for another way to run the case: "weights", "packed.output" */
    char against[48]; /* the recorded tensor, by its word: "expected.output", also where the file spells it `output` */
    bool ok;
    bool checked; /* false: intermediates may overflow float32, so the derived tolerance is infinite and the stage was
                       * not compared; `ok` is then false */
    double rtol, atol; /* ok means |exact - yours| <= atol + rtol |exact| everywhere */
    bool derived;      /* the case has no tolerance: it is derived from the rounding errors of the call and `stored` */
    mha_dtype stored;  /* type of the recorded tensor */
    size_t overflowed; /* recorded elements that are infinite because `stored` ends below the exact value: equal */
    mha_difference difference; /* actual: the computed tensor; expected: the recorded one */
    double yours, exact;       /* at difference.worst_index: the recorded number and the computed one */
    int worst_head; /* the head with most mismatches, among equals with the largest rms; -1: the stage has no heads */
} mha_stage_verdict;

/* How many query rows of each batch row the exact path computes and compares, under all heads, where it is to be fewer
 * than there are: for a large case. 0, as a case begins: 256 of a case that would take more than 2e10 multiply-adds,
 * all of others. On other paths all rows are compared, and the tolerance, where none is stated, is derived from these.
 * Half of the rows are drawn, always the same; half are the first, the last, both sides of edges of tiles of 16 to 128
 * rows, and those of the result that differ most from the row before them. Errors confined to other rows are not
 * seen. The diagnosis compares about so many rows, too. Results are the same bits as those of the whole. */
MHA_API void mha_case_sample(mha_case *c, size_t rows);
/* How many query rows of each batch row mha_case_check compares on a path; *all: of so many. */
MHA_API size_t mha_case_rows(const mha_case *c, mha_path path, size_t *all);

typedef struct mha_verdict {
    mha_outcome outcome;
    mha_path path;    /* the path that was used; the one asked for when none was run */
    char reason[400]; /* why it failed or was skipped; "" when it passed */
    size_t stage_count;
    mha_stage_verdict *stages; /* in the order data flows; owned by the verdict */
    size_t culprit;            /* index of the first stage that diverges; stage_count when none does */
} mha_verdict;

/* Runs a case on a path and compares every recorded tensor. Gradients are compared with those of mha_backward on every
 * path, each element by its own mha_gradient_bound where no tolerance is stated: the verdict then shows that of the
 * worst element. On the exact path expected64.* is compared with
 * tolerances rtol64 and atol64 (expected.* if there is no other); on other paths expected.* with rtol, atol,
 * atol.<tensor>. packed.*, permuted.*, repeated.* and prefill.* are run, too. `stage` restricts the comparison to one
 * stage; NULL: all. `threads` 0: mha_threads_available(). A call that the library does not support gives
 * MHA_OUTCOME_SKIPPED with the reason, and so does one without a wrong stage, with an unchecked one; when `fast`
 * hands over to `blas` (end of attention.h), verdict.path is `blas`. The caller clears the verdict. Errors:
 * MHA_NO_MEMORY, MHA_NOT_FOUND (there is no stage of that name), MHA_INVALID (path or threads); *verdict is then
 * empty. */
MHA_API mha_status mha_case_check(const mha_case *c, mha_path path, const char *stage, int threads,
                                  mha_verdict *verdict, mha_error *error);
MHA_API void mha_verdict_clear(mha_verdict *verdict);

/* ---------------------------------------------------------------- writing cases */

/* Writes a call and its results as a case that mha_case_open accepts: inputs, weights, semantics, and every stage
 * with data as expected.<stage> (F32), or for a call on the exact path as expected64.<stage> (F64), and the gradients
 * of notes->gradients likewise. A cache and pages
 * are taken as in mha_case_of_call. The case has no tolerance, so that the checker derives it from the call. It may
 * serve as a template in which expected.output is replaced by the result of another implementation. Errors:
 * MHA_INVALID; MHA_UNSUPPORTED (the message names what the format cannot express); MHA_IO; MHA_NO_MEMORY. */
MHA_API mha_status mha_case_save(const char *path, const mha_layer *layer, const mha_call *call,
                                 const mha_case_notes *notes, mha_error *error);

/* ---------------------------------------------------------------- the diagnosis */

/* One way in which an implementation may differ from what a case says: "causal-top-left", "causal, aligned ...". Some
 * bugs have a number, which the diagnosis finds: "case-lacks-softcap", with the softcap. */
typedef struct mha_bug {
    const char *name, *help;
} mha_bug;

/* All known bugs, in the order data flows: `at` gives NULL past the end. Static. */
MHA_API size_t mha_bug_count(void);
MHA_API const mha_bug *mha_bug_at(size_t index);

/* The case computed with up to two bugs, compared with a recorded tensor. The baseline is the case computed
 * without a bug, exactly as it is described. */
typedef struct mha_bug_match {
    size_t count;            /* number of bugs; 0: the baseline, or another number of heads */
    const char *bugs[2];     /* their names; "unnamed": a change that no known bug makes */
    double number[2];        /* the number that was found for each; NaN: none, or one for each batch row or head */
    char found[2][160];      /* the same in words: "30", "5, 9, 7"; or the only places of the bug: "in heads 1-3",
                                "in batch row 1, rows 8-15"; both: "2 in heads 1 and 3"; "..." at its end: there
                                were more; "": it has none; of an unnamed change its parts: "scores: rows of k read
                                one tile of 64 late, in heads 4-7" */
    size_t heads;            /* 0, or: the baseline but for this number of query heads */
    double max_abs;          /* largest difference from the tensor; infinite where only one side is finite */
    double relative;         /* rms of the difference / rms of the tensor, plus the share of elements in which only one
                                side is finite */
    bool exact;              /* the match reproduces the tensor; the next two fields say how closely */
    mha_dtype rounding;      /* within rounding to this type: F64, F32, the type of the tensor, or the low precision of
                                the kernel (mha_precision_of), which the case need not say */
    bool stated;             /* only within the tolerance that the case states */
} mha_bug_match;

/* Limits of mha_case_diagnose: seconds on a monotonic clock, and the memory in units of 1e9 bytes that it writes beyond
 * that of the case. When a limit is reached, the diagnosis ends with what it knows by then. The unmodified case is
 * compared in any case. Candidates are tried in the same order on any machine, the most common first, so that the time
 * decides only where the list ends. INFINITY: no limit. Negative numbers and NaN count as 0. */
#define MHA_TIME_LIMIT 60.0  /* as a case begins */
#define MHA_MEMORY_LIMIT 1.5 /* as a case begins */
MHA_API void mha_case_limit(mha_case *c, double seconds, double gigabytes);
typedef enum mha_limit { MHA_LIMIT_NONE = 0, MHA_LIMIT_TIME, MHA_LIMIT_MEMORY } mha_limit;

/* A description of the difference between a tensor and the baseline, independent of its cause. */
typedef enum mha_clue_kind {
    MHA_CLUE_RANGE = 0,   /* only the indices first ... last of the axis differ: "only head 3 differs" */
    MHA_CLUE_EVERY,       /* every step-th index from `first` on differs, and no other */
    MHA_CLUE_NONFINITE,   /* only `first` of `extent` elements differ, each NaN or infinite on one side */
    MHA_CLUE_FACTOR,      /* the tensor is factor[0] times the baseline; 0: it is zero throughout */
    MHA_CLUE_VECTOR,      /* the difference is one vector, the same in every row */
    MHA_CLUE_ROW_FACTORS, /* each row of each head is the baseline's times a number of its own, factor[0] ... [1] */
    MHA_CLUE_MOVED,       /* index `first` of the tensor is index `last` of the baseline */
    MHA_CLUE_SHIFTED,     /* index i of the tensor is index i + shift of the baseline, where there is one */
    MHA_CLUE_REVERSED     /* the axis is that of the baseline in reverse order */
} mha_clue_kind;
/* "range", "every", ..., "reversed" */
MHA_API const char *mha_clue_kind_name(mha_clue_kind kind);

typedef enum mha_clue_axis {
    MHA_CLUE_BATCH_ROWS = 0, /* sequences of a ragged batch */
    MHA_CLUE_HEADS,  /* also after W_O, if only one head differs */
    MHA_CLUE_ROWS,   /* of queries; of keys for stages of k and v */
    MHA_CLUE_KEYS,   /* columns of scores and weights */
    MHA_CLUE_COLUMNS /* features of a head, or of the output */
} mha_clue_axis;
/* "batch row", "head", "row", "key", "column" */
MHA_API const char *mha_clue_axis_name(mha_clue_axis axis);

typedef struct mha_clue {
    mha_clue_kind kind;
    mha_clue_axis axis;
    size_t first, last, step, extent; /* `extent`: how many indices the axis has */
    ptrdiff_t shift;
    double factor[2];
} mha_clue;

/* Writes a clue as a sentence without its full stop, cut to `size` bytes. Returns `text`. */
MHA_API char *mha_clue_text(const mha_clue *clue, char *text, size_t size);

typedef struct mha_diagnosis {
    char tensor[48];  /* name of the tensor that is explained: "expected.output" */
    mha_dtype stored; /* its type */
    /* The matches with the fewest bugs that reproduce the tensor; this input cannot tell them from each
     * other. An unnamed change is among them only where no bug and no pair reproduces the tensor. If the baseline
     * reproduces it, only that one. If none does and the case says no precision: the baseline
     * as a kernel of 16 or 8 bits rounds it, or single bugs as one of 16 bits does (baseline.exact is then false;
     * large cases, checked on a sample, are tried only with 16 bits).
     * If nothing does, the matches within 2 % in the rms, those with the fewest bugs first. */
    size_t match_count;
    mha_bug_match *matches;
    /* Single bugs that this input cannot tell from the baseline: they do not change the result, or, if the
     * baseline reproduces the tensor, change it less than can be seen. */
    size_t undecided_count;
    const char **undecided;
    mha_bug_match baseline;
    size_t closest_count; /* at most 3, best first, with different results; 0: none explains most of the difference */
    mha_bug_match closest[3];
    /* Descriptions of the difference; none if a match reproduces the tensor. */
    size_t clue_count;
    mha_clue *clues;
    size_t tried; /* number of candidates computed, without unnamed changes */
    struct {
        mha_limit reached; /* the limit (mha_case_limit) that ended the search, or left candidates out */
        double seconds, gigabytes; /* these limits */
        size_t untried; /* known bugs, and pairs of them, that were not tried: none of them is ruled out. Unnamed
                         * changes together count as one */
        size_t slices;  /* slices of a large case that were not compared: matches are then not exact */
    } limits;
    struct {
        size_t checked, rows; /* query rows that were compared, each with all keys; query rows of all batch rows */
        /* 0, or of a large case: into how many slices it was cut, each a batch row with one key/value head. One was
         * searched, all others agree with what was found; `checked` and `rows` count the rows of every slice. */
        size_t slices;
    } part;
} mha_diagnosis;

/* A function that a long call calls, in the calling thread, with `done` of at most `total` steps. The total may
 * fall on the way, when it is found that less is to be tried. */
typedef struct mha_progress {
    void (*report)(void *context, size_t done, size_t total);
    void *context;
} mha_progress;

/* Looks for single bugs and pairs of bugs with which the case's inputs give one of its recorded tensors. `tensor`: its
 * name ("expected.output", or only the stage). NULL: the output; if the output is correct, the first recorded stage
 * that mha_case_check fails; without an output, the last recorded stage. The search computes in float64. The baseline
 * reproduces the tensor if mha_case_check passes it: within rtol and atol of the case, or else within the derived
 * tolerance. A bug reproduces it if rounding explains the remaining difference, or if rtol and atol allow it. `threads`
 * 0: mha_threads_available(). The number of threads changes the answer only if a limit is reached. `progress` may be
 * NULL. If a case without projections takes more than 2e9 multiply-adds, the search takes one batch row and key/value
 * head, and compares the answer with all others; if no answer holds for all, it searches the whole case. Each sequence
 * of a ragged batch is a batch row of its own: a bug reproduces all of them or none. The search ends at the limits of
 * mha_case_limit. The caller clears the diagnosis. Errors: MHA_NOT_FOUND (no such tensor), MHA_UNSUPPORTED (a case that
 * would be skipped), MHA_INVALID (threads), MHA_NO_MEMORY. */
MHA_API mha_status mha_case_diagnose(const mha_case *c, const char *tensor, int threads, const mha_progress *progress,
                                     mha_diagnosis *diagnosis, mha_error *error);
MHA_API void mha_diagnosis_clear(mha_diagnosis *diagnosis);
/* Writes which limit left what out, as a sentence without its full stop, cut to `size` bytes: "not all known bugs were
 * tried: 412 of 716 (time limit 60 s)"; "" when no limit was reached. Returns `text`. */
MHA_API char *mha_diagnosis_limit_text(const mha_diagnosis *diagnosis, char *text, size_t size);
/* Writes the answer of a diagnosis as one sentence without its full stop, cut to `size` bytes: "your numbers equal,
 * within float32 rounding, causal-missing (no causal mask)". MHA_DIAGNOSIS_TEXT bytes hold the usual ones. Returns
 * `text`. */
enum { MHA_DIAGNOSIS_TEXT = 1024 };
MHA_API char *mha_diagnosis_text(const mha_diagnosis *diagnosis, char *text, size_t size);

/* Pairs of queries and keys, of all heads, up to which bugs are looked for in a case. */
enum { MHA_EXPLAINED_PAIRS = 1 << 20 };

/* The bugs of a backward that give all gradients that a case records or, if it records only stages of its backward,
 * the wrong stages: mha_gradient_explain, with the precision of the case. Errors: MHA_NOT_FOUND (it
 * records none), MHA_UNSUPPORTED (a case that would be skipped, whose gradients have no bound, or of more than
 * MHA_EXPLAINED_PAIRS), MHA_NO_MEMORY. */
MHA_API mha_status mha_case_explain_gradients(const mha_case *c, mha_gradient_match *list, size_t room,
                                              size_t *count, bool *right, mha_error *error);
/* Computes a case with `count` bugs, each a name, or a name, a blank and its numbers ("case-lacks-softcap 30",
 * "case-lacks-lengths 5, 9, 7") or, of one without, its only places in the output ("causal-missing
 * in batch row 1, heads 0 and 2-3, rows 8-15") or, of an unnamed change, what a diagnosis of the case says of it, and
 * writes one stage to `result`: F32 or F64, of the stage's shape
 * (output: (B, T_q, d_out) or (B, T_q, h, d_v)), any strides. A bug changes each sequence of a ragged batch by
 * itself.
 * MHA_NOT_FOUND: there is no such bug. MHA_UNSUPPORTED: a bug does not apply to this case, or comes without its
 * numbers. MHA_INVALID: they cannot be read. */
MHA_API mha_status mha_case_with_bugs(const mha_case *c, const char *const *bugs, size_t count, mha_stage stage,
                                      const mha_view *result, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
