/* A case as read from its file, and how to ask what it says. */
#ifndef MHA_VERIFY_CASE_RECORD_H
#define MHA_VERIFY_CASE_RECORD_H

#include "base/arena.h"
#include "mha/file.h"
#include "verify/case/words.h"

typedef enum case_kind { CASE_MHA, CASE_SDPA, CASE_ROPE } case_kind;

typedef struct case_expected {
    const char *name; /* "expected64.weights"; NULL: the file has none */
    mha_view view;    /* as the file shapes it, F32 or F64 */
    mha_dtype stored; /* the type it had when somebody recorded it: its error contains a rounding to this type */
    double atol;      /* stated for this slot alone, whether it has a tensor or not; NaN where the file states none */
} case_expected;

struct mha_case {
    mha__arena pool;
    mha_file *file;
    case_kind kind;
    mha_layout layout;
    char name[128];
    char skip[400]; /* why the case cannot be judged; "" when it can */
    size_t B, T_q, T_k, P, H, H_kv, d_k, d_v;
    size_t E_q, E_k, E_v, E_out; /* widths of the inputs and of the output, heads merged */
    mha_view tensors[CASE_TENSOR_COUNT];
    mha_view weights[CASE_WEIGHTS_COUNT][MHA_WEIGHT_COUNT];
    bool has_set[CASE_WEIGHTS_COUNT];
    case_expected expected[2][CASE_EXPECTED_COUNT]; /* expected.*, expected64.* */
    mha_stage qk_stage;                             /* the stage that expected.qk holds */
    mha_params *params[CASE_WEIGHTS_COUNT];
    mha_layer *layers[CASE_WEIGHTS_COUNT]; /* made here; NULL without projections */
    const mha_layer *layer;                /* of the recorded weights; NULL without projections */
    bool *packed;                          /* whether `layers` are packed; NULL without any */
    mha_rope_kind permuted_rope;           /* the pairing that goes with the permuted weights */
    mha_semantics semantics;
    bool overflow; /* a float32 result may be that of expected.* or of expected64.* */
    double rtol, atol, rtol64, atol64; /* NaN where the file has none */
};

/* ---------------------------------------------------------------- metadata */

/* A key as a number, `missing` without it. MHA_INVALID for text that is no number, for NaN, and for numbers that no
 * double holds (1e999, 1e-400); "inf" is one. */
mha_status mha__case_number(const mha_case *c, const char *key, double missing, double *value, mha_error *error);
/* A key as a whole number of `low` or more, `missing` without it. */
mha_status mha__case_whole(const mha_case *c, const char *key, int64_t low, int64_t missing, int64_t *value,
                           mha_error *error);
/* A key of the table of words as a number; without it the default of the table, NaN where that is no number. */
mha_status mha__case_value(const mha_case *c, const char *key, double *value, mha_error *error);
/* A key of the table of words as one of the values there: its place among them; without it that of the default, -1
 * where the default is none of them. Of "0, 1" also false and true. */
mha_status mha__case_choice(const mha_case *c, const char *key, int *choice, mha_error *error);

/* ---------------------------------------------------------------- reading (read_case.c, sizes.c, build.c) */

/* Fills everything from the file but layers and semantics. */
mha_status mha__case_read(mha_case *c, mha_error *error);
/* Fills sizes and widths from the shapes of the tensors. */
mha_status mha__case_read_sizes(mha_case *c, mha_error *error);
/* The number of key/value heads that h query heads go with when q, k and v are so wide with all heads side by side; 0
 * when there is none. */
size_t mha__kv_heads_of(size_t q, size_t k, size_t v, size_t h);
/* Builds layers and semantics from what was read, and validates the call. */
mha_status mha__case_build(mha_case *c, mha_error *error);
/* Packs the weights of the case's own layers, once: no path needs it, but the fast path is judged as it is used. */
mha_status mha__case_pack(const mha_case *c, mha_error *error);
/* Plans the call and checks the shapes of what was recorded against the plan. */
mha_status mha__case_check_plan(mha_case *c, mha_error *error);

/* ---------------------------------------------------------------- results */

/* A contiguous stage of the plan's shape seen as the case's file shapes it, `rank` extents: output in the
 * case's layout, `qk` without the extra rows of S', no batch extent where the layout has none. */
mha_view mha__case_shape(const mha_case *c, const mha_view *stage, mha_stage which, bool is_qk, size_t S, int rank);

#endif
