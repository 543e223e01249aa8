/* A case as read from its file, and functions that read its metadata. */
#ifndef MHA_VERIFY_CASE_RECORD_H
#define MHA_VERIFY_CASE_RECORD_H

#include "base/arena.h"
#include "mha/file.h"
#include "verify/attempt/attempt.h"
#include "verify/case/words/words.h"

typedef enum case_kind { CASE_MHA, CASE_SDPA, CASE_ROPE } case_kind;

typedef struct case_expected {
    const char *name; /* "expected64.weights"; NULL: the file has none */
    mha_view view;    /* as the file shapes it, F32 or F64 */
    mha_dtype stored; /* type when first recorded: the recorded values contain a rounding to this type */
    double atol; /* stated for this slot only, whether the slot has a tensor or not; NaN where the file states none */
} case_expected;

struct mha_case {
    mha__arena pool;
    mha_file *file;
    case_kind kind;
    mha_layout layout;
    char name[128];
    char skip[400]; /* why the case cannot be checked; "" when it can be */
    size_t B, T_q, T_k, P, H, H_kv, d_k, d_v;
    size_t q_rank, kv_rank, d_rope; /* of latent attention */
    size_t E_q, E_k, E_v, E_out; /* widths of the inputs and of the output, heads merged */
    mha_view tensors[CASE_TENSOR_COUNT];
    mha_pages pages; /* of a call with pages, whose rows are those of past_key and past_value, too; no data: none */
    mha_view weights[CASE_WEIGHTS_COUNT][MHA_WEIGHT_COUNT];
    bool has_set[CASE_WEIGHTS_COUNT];
    case_expected expected[2][CASE_RESULT_COUNT]; /* expected.*, expected64.* */
    mha_stage qk_stage;                           /* the stage in expected.qk */
    mha_params *params[CASE_WEIGHTS_COUNT];
    mha_layer *layers[CASE_WEIGHTS_COUNT]; /* owned by the case; NULL without projections */
    const mha_layer *layer;                /* the layer of the recorded weights; NULL without projections */
    bool *packed;                          /* whether `layers` are packed; NULL when the case owns no layer */
    mha_rope_kind permuted_rope;           /* the pairing that belongs to the permuted weights */
    mha_semantics semantics;
    mha_rope_origin origin;  /* of its tables of the rotation; no axes: not known */
    bool absorbed;           /* of latent attention; the sizes above are those of the layer */
    mha_precision precision; /* of the kernel that computed the results */
    bool cache_rounds;       /* its cache rounded new rows to the type `cache` */
    mha_dtype cache;
    bool overflow; /* float32 may overflow: its result may equal expected.* or expected64.* */
    double rtol, atol, rtol64, atol64; /* NaN where the file has none */
    size_t sample;                     /* query rows that are checked; 0: as many as sample.c says */
    bool limited;  /* the next two are set; else MHA_TIME_LIMIT and MHA_MEMORY_LIMIT apply */
    double time_limit, memory_limit;
};

/* ---------------------------------------------------------------- metadata */

/* Reads a key as a number; `missing` when the file has no such key. MHA_INVALID for text that is not a number, for
 * NaN, and for numbers outside the range of double (1e999, 1e-400); "inf" is a number. */
mha_status mha__case_number(const mha_case *c, const char *key, double missing, double *value, mha_error *error);
/* Reads a key as a whole number of at least `low`; `missing` when the file has no such key. */
mha_status mha__case_whole(const mha_case *c, const char *key, int64_t low, int64_t missing, int64_t *value,
                           mha_error *error);
/* Reads a key of the table of words as a number; without the key, the table's default, or NaN if it is no number. */
mha_status mha__case_value(const mha_case *c, const char *key, double *value, mha_error *error);
/* Reads a key of the table of words as the index of its value among those allowed. When the file lacks the key, the
 * index of the default; -1 when the default is not among them. Keys with "0, 1" also take false and true. */
mha_status mha__case_choice(const mha_case *c, const char *key, int *choice, mha_error *error);

/* ---------------------------------------------------------------- from a call, to a file */

/* mha_case_of_call, of a call whose cache may have its rows; `notes` is not NULL (from_call.c). */
mha_status mha__case_of_call(const mha_layer *layer, const mha_call *call, const mha_keep *recorded, size_t count,
                             const mha_case_notes *notes, mha_case **result, mha_error *error);

/* Writes the case, in the words that this library prefers (save.c). */
mha_status mha__case_write(mha_case *c, const char *path, const mha_case_notes *notes, mha_error *error);

/* ---------------------------------------------------------------- reading (read_case.c, sizes.c, build.c) */

/* Floats of less than 32 bits, which are widened to F32 when they are read or copied. */
bool mha__is_short_float(mha_dtype dtype);
/* Reads a tensor as what it contains; errors name it (read_tensor.c). */
mha_status mha__case_read_tensor(mha_case *c, const mha_file_tensor *t, case_content content, mha_view *view,
                                 mha_error *error);
/* Reads the semantics, by the rows of mha/setting.h (read_settings.c). */
mha_status mha__case_read_settings(mha_case *c, mha_error *error);
enum { MHA__SPELLING_BYTES = 64 };
/* The name or alias by which the file calls a setting; its name where the file has none. Returns `found`. */
const char *mha__case_spelling(const mha_case *c, const char *setting, char found[MHA__SPELLING_BYTES]);
/* Checks the lengths of arrays of numbers against the sizes of the case. */
mha_status mha__case_check_lengths(const mha_case *c, mha_error *error);
/* Fills sizes and widths from the shapes of the tensors. */
mha_status mha__case_read_sizes(mha_case *c, mha_error *error);
/* The number of key/value heads that fits h query heads when the rows of q, k and v, all heads side by side, have
 * these widths; 0 when none fits. */
size_t mha__kv_heads_of(size_t q, size_t k, size_t v, size_t h);
/* Builds layers, completes the semantics that were read, and validates the call. */
mha_status mha__case_build(mha_case *c, mha_error *error);
/* The part of that in build_rope.c: semantics.rope and permuted_rope. */
mha_status mha__case_build_rope(mha_case *c, mha_error *error);
static inline mha_rope_kind mha__other_pairing(mha_rope_kind kind)
{
    return kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
}
/* Sets c->origin from the tensors of the case, whose axes are of that kind, and checks it against query and tables. */
mha_status mha__case_read_origin(mha_case *c, mha_rope_axes_kind kind, mha_error *error);
/* The part in build_pages.c: keys in pages become cached rows. After the settings are read, before the sizes. */
mha_status mha__case_unpage(mha_case *c, mha_error *error);
/* The part in build_masks.c: kinds of masks that the file leaves out, and key_padding with a fill. */
mha_status mha__case_build_masks(mha_case *c, mha_error *error);
/* Brings semantics to the form of a case: positions of the first query rows are an array, a window that is open on both
 * sides is none, and keys have the positions of the queries. `rows`: sequences of the call. MHA_UNSUPPORTED: keys have
 * other positions. */
mha_status mha__case_settle(mha_case *c, size_t rows, mha_error *error);
/* Removes from the case's weights and semantics what keys_only leaves out of the softmax. */
void mha__case_keys_only(mha_case *c);
/* Packs the weights of the layers that the case owns, once: the fast path is checked as it is normally used. */
mha_status mha__case_pack(const mha_case *c, mha_error *error);
/* Checks the shapes of the recorded results against the plan of the call. */
mha_status mha__case_check_expected(const mha_case *c, const mha_plan *plan, mha_error *error);

/* ---------------------------------------------------------------- roundings */

/* What an attempt needs to run a call of the case. */
mha__request mha__case_request(const mha_case *c, const mha_layer *layer, const mha_call *call);
/* Makes a request round where the kernel that computed the results did. */
void mha__case_round(const mha_case *c, mha__request *request);
/* Whether that kernel rounded anywhere beyond float32. */
bool mha__case_rounds(const mha_case *c);
/* The type to which it rounded; MHA_F32: none of less than 32 bits. */
mha_dtype mha__case_rounding(const mha_case *c);
/* Whether the cache of a call rounds what its path computes; then *type is its type. */
bool mha__cache_rounds(const mha_call *call, mha_dtype *type);

/* ---------------------------------------------------------------- gradients (case_gradients.c) */

/* True if the case records a result in a slot, in float32 or float64. */
bool mha__case_records(const mha_case *c, int slot);
/* Whether the case records gradients; whether it records stages of its backward. */
bool mha__case_has_gradients(const mha_case *c);
bool mha__case_has_backwards(const mha_case *c);
/* A recorded gradient, or memory of its shape, in the axes of the plan. */
mha_view mha__case_gradient(const mha_case *c, const mha_plan *plan, mha_gradient gradient, const mha_view *recorded);
/* The backward of a case: its call, with the cache or the pages that it has, a plan of it, and what comes in; nothing
 * goes out yet. */
typedef struct mha__case_backward {
    mha_call call;
    mha_plan plan;
    mha_gradients gradients;
    mha_cache *cache;
} mha__case_backward;
/* Freed in any case. MHA_UNSUPPORTED: a backward that is not computed. */
mha_status mha__case_backward_begin(const mha_case *c, mha__case_backward *b, mha_error *error);
void mha__case_backward_free(mha__case_backward *b);
/* Checks the shapes of recorded gradients and stages and of what comes in against the plan of the call. */
mha_status mha__case_check_gradients(const mha_case *c, mha_error *error);

/* ---------------------------------------------------------------- results */

/* A tensor in the shape that the file gives a query, key or value, or for CASE_D_OUTPUT an output, as the library takes
 * it: (B, T, width) or (B, T, heads, width). */
mha_view mha__case_as(const mha_case *c, case_tensor like, const mha_view *v);

/* A contiguous stage of the plan's shape, seen in the shape that the case's file gives it, with `rank` extents:
 * output in the case's layout, `qk` without the extra rows of S', no batch extent where the layout has none. */
mha_view mha__case_shape(const mha_case *c, const mha_view *stage, mha_stage which, bool is_qk, size_t S, int rank);

#endif
