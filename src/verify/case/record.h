/* A case as read from its file: the words of the format, what the file says, and how to ask for it. */
#ifndef MHA_VERIFY_CASE_RECORD_H
#define MHA_VERIFY_CASE_RECORD_H

#include "base/arena.h"
#include "mha/file.h"
#include "mha/case.h"

/* ---------------------------------------------------------------- the format's words */

typedef enum case_kind { CASE_MHA, CASE_SDPA, CASE_ROPE } case_kind;

/* What a tensor holds, and what it is read as. */
typedef enum case_content {
    CASE_REAL,   /* F32 and F64 as they are, shorter floats widened to F32 */
    CASE_DOUBLE, /* floats as F64 */
    CASE_MASK,   /* BOOL and U8 as they are, or as CASE_REAL */
    CASE_COUNT   /* integers as I64 */
} case_content;

/* Code, name, content, ranks allowed. The weights have a list of their own, below. */
#define CASE_TENSOR_LIST(X)                                                                        \
    X(CASE_QUERY, "query", CASE_REAL, 2, 4)                                                        \
    X(CASE_KEY, "key", CASE_REAL, 2, 4)                                                            \
    X(CASE_VALUE, "value", CASE_REAL, 2, 4)                                                        \
    X(CASE_ATTN_MASK, "attn_mask", CASE_MASK, 1, 4)                                                \
    X(CASE_PADDING, "key_padding_mask", CASE_MASK, 1, 2)                                           \
    X(CASE_LENGTHS, "kv_lengths", CASE_COUNT, 1, 1)                                                \
    X(CASE_OFFSET, "position_offset", CASE_COUNT, 1, 1)                                            \
    X(CASE_PAST_KEY, "past_key", CASE_REAL, 4, 4)                                                  \
    X(CASE_PAST_VALUE, "past_value", CASE_REAL, 4, 4)                                              \
    X(CASE_COS, "cos_cache", CASE_REAL, 2, 3)                                                      \
    X(CASE_SIN, "sin_cache", CASE_REAL, 2, 3)                                                      \
    X(CASE_POSITIONS, "position_ids", CASE_COUNT, 1, 2)                                            \
    X(CASE_ALIBI, "alibi_slopes", CASE_DOUBLE, 1, 1)                                               \
    X(CASE_CU_Q, "cu_seqlens_q", CASE_COUNT, 1, 1)                                                 \
    X(CASE_CU_K, "cu_seqlens_k", CASE_COUNT, 1, 1)                                                 \
    X(CASE_PREFILL, "prefill.query", CASE_REAL, 3, 3)                                              \
    X(CASE_PACKED, "packed.qkv", CASE_REAL, 3, 3)                                                  \
    X(CASE_IN_PROJ, "torch.in_proj_weight", CASE_REAL, 2, 2)                                       \
    X(CASE_IN_BIAS, "torch.in_proj_bias", CASE_REAL, 1, 1)                                         \
    X(CASE_OUT_PROJ, "torch.out_proj.weight", CASE_REAL, 2, 2)                                     \
    X(CASE_OUT_BIAS, "torch.out_proj.bias", CASE_REAL, 1, 1)

typedef enum case_tensor {
#define CASE_TENSOR_ENUM(code, name, content, low, high) code,
    CASE_TENSOR_LIST(CASE_TENSOR_ENUM)
#undef CASE_TENSOR_ENUM
    CASE_TENSOR_COUNT
} case_tensor;

const char *mha__case_tensor_name(case_tensor tensor);
/* The name a case gives to a weight of the layer: "W_q", "head_sink", "q_norm_weight". */
const char *mha__case_weight_name(mha_weight weight);

/* Sets of weights: as recorded, and the identity cases' other weights with the same output. */
typedef enum case_weights { CASE_RECORDED, CASE_PERMUTED, CASE_REPEATED, CASE_WEIGHTS_COUNT } case_weights;

/* The slots of expected tensors: the stages, and two that are no stage by name. */
enum { CASE_PREFILL_OUTPUT = MHA_STAGE_COUNT, CASE_QK, CASE_EXPECTED_COUNT };

typedef struct case_expected {
    const char *name; /* "expected64.weights"; borrowed from the file. NULL: the file has none */
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
    char skip[400]; /* why it cannot be judged; "" when it can */
    size_t B, T_q, T_k, P, H, H_kv, d_k, d_v;
    size_t E_q, E_k, E_v, E_out; /* widths of the inputs and of the output, heads merged */
    mha_view tensors[CASE_TENSOR_COUNT];
    mha_view weights[CASE_WEIGHTS_COUNT][MHA_WEIGHT_COUNT];
    bool has_set[CASE_WEIGHTS_COUNT];
    case_expected expected[2][CASE_EXPECTED_COUNT]; /* expected.*, expected64.* */
    mha_stage qk_stage;                             /* what `qk` is */
    mha_params *params[CASE_WEIGHTS_COUNT];
    mha_layer *layers[CASE_WEIGHTS_COUNT]; /* made here; NULL without projections */
    const mha_layer *layer;                /* of the recorded weights; NULL without projections */
    mha_rope_kind permuted_rope;           /* the pairing that goes with the permuted weights */
    mha_semantics semantics;
    mha_extras extras;
    bool overflow; /* float32 may give either recorded result */
    double rtol, atol, rtol64, atol64; /* NaN where the file has none */
};

/* Metadata as numbers: `missing` when the key is absent. MHA_INVALID names key and text. */
mha_status mha__case_number(const mha_case *c, const char *key, double missing, double *value, mha_error *error);
/* Fills sizes and widths, which are told by the tensors. */
mha_status mha__case_read_sizes(mha_case *c, mha_error *error);
/* Reads names, kinds and values of the file: all of the struct up to the layers. */
mha_status mha__case_read(mha_case *c, mha_error *error);
/* Builds layers, semantics and extras from what was read, and validates the call. */
mha_status mha__case_build(mha_case *c, mha_error *error);
/* Plans the call and checks the shapes of what was recorded against the plan. */
mha_status mha__case_check_plan(mha_case *c, mha_error *error);
mha_status mha__case_whole(const mha_case *c, const char *key, int64_t low, int64_t missing, int64_t *value,
                          mha_error *error);
/* One of a few words: its place in the list `words` (which ends in NULL), `missing` when the key is absent. */
mha_status mha__case_word(const mha_case *c, const char *key, const char *const *words, int missing, int *value,
                         mha_error *error);

/* A contiguous stage of the plan's shape seen as the case's file shapes it, `rank` extents: output in the
 * case's layout, `qk` without the extra rows of S', no batch extent where the layout has none. */
mha_view mha__case_shape(const mha_case *c, const mha_view *stage, mha_stage which, bool is_qk, size_t S, int rank);

#endif
