/* A case's numbers as doubles, and the rows of q, k and v that a variant makes of them. */
#ifndef MHA_VERIFY_DIAGNOSE_VARIANT_INPUTS_H
#define MHA_VERIFY_DIAGNOSE_VARIANT_INPUTS_H

#include "verify/diagnose/knobs.h"

/* Read once, then shared by all threads. */
typedef struct mha__variant_inputs {
    const mha_case *c;
    mha__arena pool;
    size_t S;                                               /* cached and new keys */
    double *x[3];                                           /* inputs of q, k, v: (B, T, E) */
    double *W[PROJECTION_COUNT], *b[PROJECTION_COUNT];      /* NULL where the case has none */
    size_t in[PROJECTION_COUNT], out[PROJECTION_COUNT];     /* rows and columns of the W */
    size_t T[3], h[3], d[3];                                /* of q, k, v */
    double *norm[2];                                        /* weights of the q and k norm, or NULL */
    size_t norm_terms[2];
    double *past[2], *bias_kv[2], *sinks; /* or NULL */
} mha__variant_inputs;

/* MHA_UNSUPPORTED for ragged batches and for cases that cannot be computed. */
mha_status mha__variant_inputs_create(const mha_case *c, mha__variant_inputs **inputs, mha_error *error);
void mha__variant_inputs_destroy(mha__variant_inputs *inputs); /* NULL is allowed */

/* Rows computed before, which many variants share: products x W, and rows of q, k or v ready for attention. A slot is
 * used again when it is the one that was used longest ago. */
typedef struct mha__row_slot {
    mha__row_knobs key; /* only the knobs that these rows depend on; the others are 0 */
    int which;          /* q, k or v; -1: empty */
    bool product;       /* x W alone */
    bool all_rows;      /* else only those of the queries that were needed at that time */
    size_t b, used;
    double *rows; /* (T, h*d) of one batch row */
} mha__row_slot;

/* What one thread needs to make rows. `needed`: the query rows (B, T_q) that are ever asked for; NULL: all. */
typedef struct mha__row_maker {
    const mha__variant_inputs *inputs;
    const unsigned char *needed;
    mha__row_slot *slots;
    size_t count, clock;
    double *W;       /* a matrix put together for a variant; also room for rows that are gathered */
    double *x;       /* input rows gathered or rounded */
    double *bias;    /* of one projection */
    double *unsplit; /* rows before heads are split */
} mha__row_maker;

enum { MHA_ROW_SLOTS_LEAST = 8, MHA_ROW_SLOTS_MOST = 160 };

/* `bytes`: at most so much for the slots, but for a least number of them. False without memory. */
bool mha__row_maker_begin(mha__row_maker *maker, const mha__variant_inputs *inputs, const unsigned char *needed,
                          size_t bytes, mha__arena *pool);
/* The rows of q, k or v (T, h, d) of one batch row, rotated; valid until a few others were made. `all_rows`: query rows
 * that are not needed are computed as well. */
const double *mha__rows_make(mha__row_maker *maker, const mha__row_knobs *knobs, int which, size_t b, bool all_rows);
/* The same before heads are split, bias and all: (T, h*d), all rows. Valid until the next call. */
const double *mha__rows_unsplit(mha__row_maker *maker, const mha__row_knobs *knobs, int which, size_t b);
/* W_O as the variant has it, and its bias (NULL: none). */
const double *mha__output_matrix(mha__row_maker *maker, const mha__row_knobs *knobs, const double **bias);

/* Where element (t, head, f) lies in a (T, h*d) row block. */
size_t mha__head_column(int heads, size_t T, size_t h, size_t d, size_t t, size_t head, size_t f);
/* The position of query row 0 as the case has it. */
int64_t mha__case_offset(const mha_case *c, size_t b);

#endif
