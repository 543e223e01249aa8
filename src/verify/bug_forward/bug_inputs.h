/* Inputs and weights of a case as doubles, and the rows of q, k and v that a bug makes from them. */
#ifndef MHA_VERIFY_BUG_FORWARD_BUG_INPUTS_H
#define MHA_VERIFY_BUG_FORWARD_BUG_INPUTS_H

#include "verify/bugs/knobs.h"

/* Inputs and matrices of q, k and v as they follow from latents. */
typedef struct mha__bug_latents_read {
    double *x[3], *W[3];
} mha__bug_latents_read;

/* Read once and then shared by all threads. */
typedef struct mha__bug_inputs {
    const mha_case *c; /* of a ragged batch: with its sequences as batch rows, all as long as the longest */
    mha__arena pool;
    size_t S;                                           /* cached and new keys */
    double *x[3];                                       /* inputs of q, k, v: (B, T, E) */
    double *W[PROJECTION_COUNT], *b[PROJECTION_COUNT];  /* NULL when the case has none */
    size_t in[PROJECTION_COUNT], out[PROJECTION_COUNT]; /* rows and columns of each W */
    size_t T[3], h[3], d[3];                            /* of q, k, v */
    double *gate; /* (B, T_q, gates): what the heads are gated by, before the sigmoid; NULL: nothing */
    size_t gates; /* h or h*d_v */
    /* Of latent attention: the raw latents of queries and keys, and what each bug makes of them; x and W are what
     * is right: the latents, normalised, and matrices that make q, k and v of them. */
    double *latents[2];
    mha__bug_latents_read of_latents[LATENT_COUNT];
    double *norm[2];        /* weights of the q and k norms, or NULL */
    double *norm_bias[2];   /* their biases, or NULL */
    size_t norm_weights[2]; /* how many there are */
    bool norm_over_row[2];
    double *past[2], *bias_kv[2], *sinks, *bias_table; /* or NULL */
    double *relative[3];                               /* tables from MHA_RELATIVE_K on, or NULL */
    mha_view axes[AXES_COUNT][2];      /* cosines and sines of each bug in positions of several axes, if any */
    bool one_list;                     /* the positions that are given hold for queries and keys */
    size_t first[3];                   /* the row of the ragged batch at which a sequence begins */
    struct mha__bug_inputs *sequences; /* of a ragged batch, each as a batch of one row; else NULL */
    /* The same read in another way, if it can be: with batch rows for time, or a ragged batch as one sequence. */
    struct mha__bug_inputs *other;
    struct mha__bug_inputs *turned; /* with heads for time, if they can be */
} mha__bug_inputs;

/* MHA_UNSUPPORTED for cases that no path can compute. */
mha_status mha__bug_inputs_create(const mha_case *c, mha__bug_inputs **inputs, mha_error *error);
void mha__bug_inputs_destroy(mha__bug_inputs *inputs); /* NULL is allowed */

/* Makes the tables of `axes`; false without memory (bug_axes.c). */
bool mha__bug_axes(mha__bug_inputs *inputs);

/* Replaces x, W and cached latents by those of plain projections; false without memory (bug_latent.c). */
bool mha__bug_latents(mha__bug_inputs *inputs);

/* Rows after the real keys in the case. A bug that switches them off hides them. */
static inline size_t mha__extra_rows(const mha_case *c)
{
    return (c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL) + (size_t)c->semantics.softmax.zero_row;
}

/* The rank and shape of a stage, as in the plan of the case's call; of a ragged batch (sequences, longest length, ...)
 * throughout. */
int mha__bug_shape(const mha__bug_inputs *inputs, mha_stage stage, size_t shape[4]);
/* Whether the lines of a stage belong to query rows in order, so that some of them can be computed alone. */
bool mha__stage_is_by_query(const mha_case *c, mha_stage stage);

/* Ragged batches (bug_ragged.c). Makes their `sequences` and `other`; false without memory. */
bool mha__bug_split(mha__bug_inputs *inputs);
/* Cuts what semantics say of each sequence of a ragged batch to what they say of sequence b. */
void mha__cut_to_sequence(mha_semantics *s, size_t b);
/* Copies a recorded stage, of so many elements, into the order in which bugs compute it: zeros fill what is shorter
 * than the longest sequence. Other batches have one order for both. */
void mha__ragged_spread(const mha__bug_inputs *inputs, mha_stage stage, size_t elements, const double *recorded,
                        double *padded);
/* Moves the rows of a computed stage together, as they are recorded, and changes `shape` accordingly. */
void mha__ragged_pack(const mha__bug_inputs *inputs, mha_stage stage, double *values, size_t shape[4]);
/* Writes a stage of sequence b to its place among those that are padded. */
void mha__ragged_place(const mha__bug_inputs *inputs, mha_stage stage, size_t b, const double *own, double *padded);

/* What rows of q, k or v depend on: knobs, and settings. What they do not depend on is 0. */
typedef struct mha__row_key {
    int source[3], transposed[PROJECTION_COUNT], no_bias[PROJECTION_COUNT];
#define KNOB(type, name) type name;
    ROW_KNOB_LIST(KNOB)
#undef KNOB
    mha_qkv qkv;
} mha__row_key;

/* Computed rows that many bugs share: products x W, and rows of q, k or v ready for attention. The least recently
 * used slot is the first to be replaced. */
typedef struct mha__row_slot {
    mha__row_key key;
    int which;     /* q, k or v; -1: empty */
    bool product;  /* x W without bias */
    bool all_rows; /* false: only the query rows that were needed */
    size_t b, used;
    double *rows; /* (T, h*d) of one batch row */
} mha__row_slot;

/* One thread's memory for making rows. `needed`: the query rows (B, T_q) that may be asked for (NULL: all). */
typedef struct mha__row_maker {
    const mha__bug_inputs *inputs;
    const unsigned char *needed;
    mha__row_slot *slots;
    size_t count, clock;
    size_t sequence;   /* of a ragged batch: the one that is computed */
    double *W;         /* a matrix assembled for a bug; also memory for gathered rows */
    double *x;         /* input rows gathered or rounded */
    double *bias;      /* bias of one projection */
    double *unsplit;   /* rows before heads are split */
    double *turn;      /* cosines, sines and features of one head */
    double largest[3]; /* of q, k and v in all batch rows, and what it depends on; 0: not known */
    mha__row_key largest_of[3];
} mha__row_maker;

enum { MHA_ROW_SLOTS_LEAST = 8, MHA_ROW_SLOTS_MOST = 160 };

/* `bytes`: the most memory for the slots, apart from a minimum number of slots. False without memory. */
bool mha__row_maker_begin(mha__row_maker *maker, const mha__bug_inputs *inputs, const unsigned char *needed,
                          size_t bytes, mha__arena *pool);
/* The rows of q, k or v (T, h, d) of one batch row, rotated; valid for a few more calls. `all_rows`: also the query
 * rows that are not needed. */
const double *mha__rows_make(mha__row_maker *maker, const mha__knobs *knobs, int which, size_t b, bool all_rows);
/* The rows of q, k or v before heads are split, with bias: (T, h*d), all rows. Valid until the next call. */
const double *mha__rows_unsplit(mha__row_maker *maker, const mha__knobs *knobs, int which, size_t b);
/* W_O as the bug reads it, at least its first columns, and its bias (NULL: none). */
const double *mha__output_matrix(mha__row_maker *maker, const mha__knobs *knobs, size_t columns, const double **bias);

/* What happens to the rows of q, k or v (bug_turn.c). Splitting into heads makes (T, h, d) of (T, h*d). */
void mha__rows_split(const mha__bug_inputs *w, int heads, int which, const double *from, double *to);
/* The gate of a query's input row x at a column of W_G: x W_G + b_G, with these two rounded. */
double mha__bug_gate_of(const mha_case *c, const double *x, size_t column, int rounding);
/* Changes an input row of n numbers as the bug changes rows; not their order. */
void mha__bug_input_row(const mha__knobs *k, const double *from, size_t n, double *to);
void mha__rows_scale(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b, double *x);
/* Rounds n numbers of q, k or v, as they are multiplied. */
void mha__rows_shorten(const mha__knobs *k, int which, size_t n, double *x);
/* The rows of q, k or v, (T, h, d), quantised; `most`: the largest number of the tensor, where it has one scale. */
void mha__rows_quantise(const mha__knobs *k, int which, size_t T, size_t h, size_t d, double most, double *x);
void mha__rows_normalise(const mha__bug_inputs *w, const mha__knobs *k, int which, double *x);
/* `memory`: for three numbers of each feature of a head. */
void mha__rows_rotate(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b, double *x, double *memory);
/* Cached keys (P, h_kv, d_k) rotated by their positions; `memory` as above. */
void mha__rows_rotate_past(const mha__bug_inputs *w, const mha__knobs *k, size_t b, double *x, double *memory);
/* Whether what is read of a packed tensor as a head of q, k or v is one of q, k or v (0, 1, 2), and which head
 * (bug_moves.c, as the next three). */
int mha__packed_head(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t *head);
/* Which batch row the rows of q, k or v are taken from. */
size_t mha__moved_batch(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b);
/* Moves rows (T, h, d) to where the bug finds them; `copy` has room for as many. */
void mha__rows_move(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b, double *rows, double *copy);
/* Which of T rows of batch row b stands at t, by the knobs of MOVE_KNOB_LIST; T: zeros. */
size_t mha__moved_row(const mha__knobs *k, size_t b, size_t T, size_t t);
/* i modulo n, from 0 on. */
static inline size_t mha__wrapped(int64_t i, size_t n)
{
    const int64_t m = i % (int64_t)n;
    return (size_t)(m < 0 ? m + (int64_t)n : m);
}
/* The index of element (t, head, f) in (T, h*d) rows. */
size_t mha__head_column(int heads, size_t T, size_t h, size_t d, size_t t, size_t head, size_t f);
/* The position of query row 0 in the case. */
int64_t mha__case_offset(const mha_case *c, size_t b);

#endif
