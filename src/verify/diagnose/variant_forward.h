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

/* What decides q, k and v as rows. Compared bytewise, so every field has a value. */
typedef struct dialect_projection {
    int source[3]; /* projection (or, without layer, input) taken for q, k, v */
    int packing, round_weights, round_inputs;
    int transposed[DIALECT_WEIGHTS], no_bias[DIALECT_WEIGHTS];
} dialect_projection;

/* All knobs. mha__dialect_of sets them to what the case says. */
typedef struct mha__dialect {
    dialect_projection projection;
    int split, merge, tiled; /* dialect_heads twice; tiled: query head i reads key/value head i % h_kv */
    int no_norm, norm_after_rope, norm_plus_one;
    int rope, rope_dim, rope_values, rope_inverse, rope_restart, rope_formula;
    double rope_base; /* used when there are no tables, or rope_formula */
    int64_t rope_shift_q, rope_shift_k;
    double scale, softcap;
    int cap_after_mask, cap_before_scale, cap_no_factor;
    int causal, causal_align; /* 0: the case's offsets; 1: top-left; 2: bottom-right */
    int64_t causal_shift;     /* key visible iff j <= i + offset + shift */
    int window;
    int64_t window_left, window_right, lengths_shift;
    int use_lengths, mask_kind, padding_kind, use_padding_fill;
    double mask_sign, alibi_sign; /* alibi 0: none */
    int alibi_from_0;
    int fill;
    double fill_value;
    int use_cache, use_sinks, plus_one, bias_row, zero_row;
    int axis, empty_nan, propagate;
} mha__dialect;

/* A case's numbers as doubles, read once, and room to compute in. */
typedef struct mha__dialect_bench mha__dialect_bench;

/* MHA_UNSUPPORTED for ragged batches and for cases that cannot be computed. */
mha_status mha__dialect_bench_create(const mha_case *c, mha__dialect_bench **bench, mha_error *error);
void mha__dialect_bench_destroy(mha__dialect_bench *bench);
mha__dialect mha__dialect_of(const mha_case *c);

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
