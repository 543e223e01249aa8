/* Inputs and weights of a case as doubles, read once and then shared by all threads. */
#ifndef MHA_VERIFY_ENGINE_INPUTS_H
#define MHA_VERIFY_ENGINE_INPUTS_H

#include "verify/engine/program.h"

typedef struct mha__inputs {
    const mha_case *c; /* of a ragged batch: with its sequences as batch rows, all as long as the longest */
    mha__arena pool;
    size_t S;                                           /* cached and new keys */
    double *x[3];                                       /* inputs of q, k, v: (B, T, E) */
    double *W[PROJECTION_COUNT], *b[PROJECTION_COUNT];  /* NULL where the case has none, and of latents */
    size_t in[PROJECTION_COUNT], out[PROJECTION_COUNT]; /* rows and columns of each W, of latents the normed ones */
    size_t x_width[3];                                  /* of each x */
    size_t T[3], h[3], d[3];                            /* of q, k, v */
    double *W_G, *b_G;                                  /* of the gate, or NULL */
    size_t gates;                                       /* columns of W_G: h or h*d_v */
    double *norm[2], *norm_bias[2];                     /* of q and k, or NULL */
    size_t norm_weights[2];
    bool norm_over_row[2];
    double *past[2], *bias_kv[2], *sinks, *bias_table; /* or NULL */
    double *relative[3];                               /* tables from MHA_RELATIVE_K on, or NULL */
    bool one_list;                                     /* positions that are given hold for queries and keys */
    size_t first[3];                                   /* row of the ragged batch at which a sequence begins */
    struct mha__inputs *sequences;                     /* of a ragged batch, each as a batch of one row; else NULL */
    struct mha__inputs *other;  /* other calls: with batch rows for time, or a ragged batch as one sequence; */
    struct mha__inputs *turned; /* with heads for time. NULL: there is none */
} mha__inputs;

/* MHA_UNSUPPORTED for cases that no path can compute. */
mha_status mha__inputs_create(const mha_case *c, mha__inputs **inputs, mha_error *error);
void mha__inputs_destroy(mha__inputs *inputs); /* NULL is allowed */

/* Rows after the real keys in the case. A bug that switches them off hides them. */
static inline size_t mha__rows_beyond(const mha_case *c)
{
    return (c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL) + (size_t)c->semantics.softmax.zero_row;
}
/* The position of query row 0 in the case. */
int64_t mha__first_query(const mha_case *c, size_t b);
/* The rank and shape of a stage, as in the plan of the case's call; of a ragged batch (sequences, longest length, ...)
 * throughout. */
int mha__run_shape(const mha__inputs *inputs, mha_stage stage, size_t shape[4]);
/* Whether the lines of a stage belong to query rows in order, so that some can be computed without the others. */
bool mha__stage_by_query(const mha_case *c, mha_stage stage);

/* Ragged batches (sequences.c). Makes their `sequences` and `other`; false without memory. */
bool mha__inputs_split(mha__inputs *inputs);
/* Cuts what semantics say of each sequence of a ragged batch to what they say of sequence b. */
void mha__cut_semantics(mha_semantics *s, size_t b);
/* Copies a recorded stage with a number of elements into the order in which it is computed: zeros follow a sequence
 * that is shorter than the longest. Other batches have one order for both. */
void mha__stage_spread(const mha__inputs *inputs, mha_stage stage, size_t elements, const double *recorded,
                       double *padded);
/* Moves the rows of a computed stage together, as they are recorded, and changes `shape` accordingly. */
void mha__stage_pack(const mha__inputs *inputs, mha_stage stage, double *values, size_t shape[4]);
/* Writes a stage of sequence b to its place among those that are padded. */
void mha__stage_place(const mha__inputs *inputs, mha_stage stage, size_t b, const double *own, double *padded);

#endif
