/* Inputs and weights of a case as doubles, read once and then shared by all threads. */
#ifndef MHA_VERIFY_ENGINE_CASE_INPUTS_H
#define MHA_VERIFY_ENGINE_CASE_INPUTS_H

#include "verify/engine/program.h"

typedef struct mha__inputs {
    const mha_case *c; /* ragged batch: its sequences are batch rows, padded to the longest */
    mha__arena pool;
    size_t S;                                           /* number of cached and new keys */
    double *x[3];                                       /* inputs of q, k and v: (B, T, E) */
    double *weight[MHA_WEIGHT_COUNT];                   /* NULL if the case has none */
    size_t in[PROJECTION_COUNT], out[PROJECTION_COUNT]; /* rows and columns of each W; rows of a latent: its width */
    size_t x_width[3];                                  /* features of each x */
    size_t T[3], h[3], d[3];                            /* rows, heads, features of q, k, v */
    size_t gates;                                       /* columns of W_G: h or h*d_v */
    size_t norm_weights[2];                             /* of the norms of q and k */
    bool norm_over_row[2];
    double *past[2];                                    /* cached rows, or NULL */
    bool one_list;                                      /* given positions apply to queries and keys */
    size_t first[3];                                    /* first row of a sequence in the ragged batch */
    struct mha__inputs *sequences;                     /* ragged batch: a batch of one row for each; else NULL */
    struct mha__inputs *other;  /* batch rows as time, or a ragged batch as one sequence; or NULL */
    struct mha__inputs *turned; /* heads as time, or NULL */
} mha__inputs;

/* The weights of a projection. */
static inline mha_weight mha__projection_W(int projection)
{
    return (mha_weight)(MHA_W_Q + 2 * projection);
}
static inline mha_weight mha__projection_b(int projection)
{
    return (mha_weight)(MHA_B_Q + 2 * projection);
}

/* MHA_UNSUPPORTED: no path can compute the case. */
mha_status mha__inputs_create(const mha_case *c, mha__inputs **inputs, mha_error *error);
void mha__inputs_destroy(mha__inputs *inputs); /* NULL is allowed */

/* Number of rows after the real keys of a case. A bug that omits these rows hides them. */
static inline size_t mha__rows_beyond(const mha_case *c)
{
    return (c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL) + (size_t)c->semantics.softmax.zero_row;
}
/* Position of query row 0 of batch row b in the case. */
int64_t mha__first_query(const mha_case *c, size_t b);
/* Returns the rank of a stage and writes its shape, as in the plan of the case's call. A stage of a ragged batch has
 * shape (sequences, longest length, ...). */
int mha__run_shape(const mha__inputs *inputs, mha_stage stage, size_t shape[4]);
/* True if the lines of a stage belong to query rows, in order. A run can then skip some of them. */
bool mha__stage_by_query(const mha_case *c, mha_stage stage);

/* Ragged batches (sequences.c). Creates `sequences` and `other`; returns false without memory. */
bool mha__inputs_split(mha__inputs *inputs);
/* Writes a ragged batch as one row with a segment for each sequence, in memory of `pool`.
 * False: it is none, something in it depends on where a sequence begins, or there is no memory. */
bool mha__case_join(const mha_case *c, mha__arena *pool, mha_case *joined);
/* Reduces a program to sequence b of a ragged batch. */
void mha__enter_sequence(mha__program *p, size_t b);
/* Copies a recorded stage of `elements` numbers into the order of a computed one: zeros pad the shorter sequences of a
 * ragged batch. Other batches have one order for both. */
void mha__stage_spread(const mha__inputs *inputs, mha_stage stage, size_t elements, const double *recorded,
                       double *padded);
/* Removes padding rows from a computed stage, as in a recorded one, and updates `shape`. */
void mha__stage_pack(const mha__inputs *inputs, mha_stage stage, double *values, size_t shape[4]);
/* Writes a stage of sequence b to `padded` and pads it with zeros. */
void mha__stage_place(const mha__inputs *inputs, mha_stage stage, size_t b, const double *own, double *padded);

#endif
