/* Attention as people write it, mistakes included: one forward with a knob for each way to differ. */
#ifndef MHA_VERIFY_DIAGNOSE_VARIANT_FORWARD_H
#define MHA_VERIFY_DIAGNOSE_VARIANT_FORWARD_H

#include "verify/case/record.h"

enum { DIALECT_Q, DIALECT_K, DIALECT_V, DIALECT_O, DIALECT_WEIGHTS };

/* Which column of which projection is taken for column c of q, k or v. */
typedef enum dialect_packing {
    PACKING_RIGHT,
    PACKING_READ_INTERLEAVED, /* a packed tensor of blocks q|k|v read as h times (q, k, v) */
    PACKING_READ_BLOCKS       /* a packed tensor of h times (q, k, v) read as blocks */
} dialect_packing;

typedef enum dialect_rounding { ROUND_NOT, ROUND_F16, ROUND_BF16, ROUNDINGS } dialect_rounding;

/* How heads lie in a row of features. */
typedef enum dialect_heads {
    HEADS_RIGHT,       /* column h*d + f */
    HEADS_INTERLEAVED, /* column f*h_count + h: viewed as (d, h) */
    HEADS_UNTRANSPOSED /* (T, h*d) viewed as (h, T, d) without moving anything */
} dialect_heads;

typedef enum dialect_fill {
    FILL_EXCLUDE, /* a hidden key takes no part */
    FILL_REPLACE, /* its score becomes `fill_value` */
    FILL_ADD      /* `fill_value` is added to it in float32 */
} dialect_fill;

typedef enum dialect_axis { AXIS_KEYS, AXIS_QUERIES, AXIS_HEADS } dialect_axis;

/* What decides q, k and v as rows: fields of int alone, so that it can be compared as bytes. */
typedef struct dialect_projection {
    int source[3]; /* projection (or, without layer, input) taken for q, k, v */
    int packing, round_weights, round_inputs;
    int transposed[DIALECT_WEIGHTS], no_bias[DIALECT_WEIGHTS];
} dialect_projection;

/* Every knob beside those of the projections: type and name, in one list from which the structure and the comparison
 * follow. Values of an enumeration are in int.
 *   split, merge       dialect_heads            tiled          query head i reads key/value head i % h_kv
 *   rope_base          used when there are no tables, or with rope_formula
 *   causal_align       0: the case's offsets; 1: top-left; 2: bottom-right
 *   causal_shift       a key is visible iff j <= i + offset + shift
 *   alibi_sign         0: no ALiBi              fill           dialect_fill, with fill_value
 *   axis               dialect_axis */
#define DIALECT_KNOBS(X)                                                                                               \
    X(int, split) X(int, merge) X(int, tiled)                                                                          \
    X(int, no_norm) X(int, norm_after_rope) X(int, norm_plus_one)                                                      \
    X(int, rope) X(int, rope_dim) X(int, rope_values) X(int, rope_inverse) X(int, rope_restart) X(int, rope_formula)   \
    X(double, rope_base) X(int64_t, rope_shift_q) X(int64_t, rope_shift_k)                                             \
    X(double, scale) X(double, softcap)                                                                                \
    X(int, cap_after_mask) X(int, cap_before_scale) X(int, cap_no_factor)                                              \
    X(int, causal) X(int, causal_align) X(int64_t, causal_shift)                                                       \
    X(int, window) X(int64_t, window_left) X(int64_t, window_right) X(int64_t, lengths_shift)                          \
    X(int, use_lengths) X(int, mask_kind) X(int, padding_kind) X(int, use_padding_fill)                                \
    X(double, mask_sign) X(double, alibi_sign) X(int, alibi_from_0)                                                    \
    X(int, fill) X(double, fill_value)                                                                                 \
    X(int, use_cache) X(int, use_sinks) X(int, plus_one) X(int, bias_row) X(int, zero_row)                             \
    X(int, axis) X(int, empty_nan) X(int, propagate)

/* All knobs. mha__dialect_of sets them to what the case says. */
typedef struct mha__dialect {
    dialect_projection projection;
#define DIALECT_KNOB(type, name) type name;
    DIALECT_KNOBS(DIALECT_KNOB)
#undef DIALECT_KNOB
} mha__dialect;

/* A case's numbers as doubles, read once, and room to compute in. */
typedef struct mha__dialect_bench mha__dialect_bench;

/* MHA_UNSUPPORTED for ragged batches and for cases that cannot be computed. */
mha_status mha__dialect_bench_create(const mha_case *c, mha__dialect_bench **bench, mha_error *error);
void mha__dialect_bench_destroy(mha__dialect_bench *bench);
mha__dialect mha__dialect_of(const mha_case *c);
bool mha__dialect_is(const mha__dialect *a, const mha__dialect *b); /* every knob stands alike */

/* Rank and shape of a stage, as in mha_plan. */
int mha__dialect_shape(const mha__dialect_bench *bench, mha_stage stage, size_t shape[4]);
/* Computes `stage` of batch rows [from, from + count) into `result`, row-major in that shape: the numbers of
 * the exact path when every knob is as the case says. Query rows of mha__dialect_skipped that others do not
 * depend on are left out: what stands in their place is unspecified. */
void mha__dialect_run(mha__dialect_bench *bench, const mha__dialect *dialect, mha_stage stage, size_t from, size_t count,
                     double *result);

/* One flag for each query row; all 0 at first. */
unsigned char *mha__dialect_skipped(mha__dialect_bench *bench);

/* ---------------------------------------------------------------- the variants */

typedef struct mha__variant_entry {
    mha_variant shown;
    /* Turns the knobs; false where the case has nothing of the kind. */
    bool (*apply)(const mha_case *c, mha__dialect *d);
} mha__variant_entry;

const mha__variant_entry *mha__variant_entry_at(size_t index); /* NULL past the end */

#endif
