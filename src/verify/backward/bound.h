/* What rounding may cost the gradients of a call, head by head and then row by row. */
#ifndef MHA_VERIFY_BACKWARD_BOUND_H
#define MHA_VERIFY_BACKWARD_BOUND_H

#include <float.h>

#include "attention/core/backward/backward.h"

/* The arithmetic, what it may do to the stages of the forward, and the errors of the gradients so far. */
typedef struct mha__gradient_errors {
    const mha_backward_precision *precision;
    mha_gradients none;           /* what `sizes` is given: nothing is rounded */
    double unit, sums;            /* roundoff of one operation, of a partial sum */
    double tiny;                  /* results below it may be zero */
    double under;                 /* what a partial sum may lose below the numbers of its type */
    double score, lse;            /* errors of these stages */
    double added;                 /* what softcap, masks and relative terms add to that of a score */
    bool independent;             /* float32 without a layer: the roundings of pairs are independent */
    double weight;                /* of a sigmoid's weights */
    double rows[3];               /* of an element of q, k and v as they are attended to */
    double projected[3];          /* of one of q, k and v as they were projected, before norm, limits and rotation */
    double latents[2], heads, gated; /* of the latents of queries and keys, of the heads, and of what W_O reads */
    /* Its d, d_x, d_heads, d_gated, d_gates, gates, gated, kept and latents (but q and kv, which have room) are the
     * errors of those of the backward; its map has what they are sums of. */
    mha__backward sizes;
    double *spare;                /* (T_q + S', d_k) */
    double *room[3];              /* a row of any kind */
    /* bound_sums.c: of rows of dO, V, Q and K; of queries and of keys. */
    double *repeats[4], *alike[2];
    /* (T_q, S'): errors of scores; those of pairs that are independent, of dS for dQ, of dS for dK, and of P. */
    double *scores, *own[3], *products;
} mha__gradient_errors;

/* Errors of a backward that has begun, all 0; e is freed in any case. Errors: MHA_UNSUPPORTED (calls without a bound),
 * MHA_NO_MEMORY, and as of mha_error_bound. */
mha_status mha__bound_begin(mha__gradient_errors *e, const mha__backward *b, const mha_backward_precision *precision,
                            double unit, mha_error *error);
/* bound_forward.c: makes the errors of the stages of a layer's forward those that its numbers have, where they are
 * smaller. False: there is no memory. */
bool mha__bound_forward(mha__gradient_errors *e, const mha__backward *b);
/* Rotates a row of heads and its errors E, forward. */
void mha__bound_rotate(const mha__gradient_errors *e, const mha__resolved *r, size_t heads, double *d, double *E,
                       size_t batch, size_t t, int64_t position);
/* Sets all errors to 0, and rounding to that of a precision: the same backward is run once more. */
mha_status mha__bound_restart(mha__gradient_errors *e, const mha__backward *b, const mha_backward_precision *precision,
                              mha_error *error);
/* Adds what storing a gradient at last costs, and makes the errors infinite that may be beyond the range. */
void mha__bound_end(mha__gradient_errors *e, const mha__backward *b);
void mha__bound_free(mha__gradient_errors *e);

/* The largest number of the arithmetic. */
static inline double mha__gradient_largest(const mha__gradient_errors *e)
{
    return e->unit > 0x1p-30 ? FLT_MAX : DBL_MAX;
}

/* n u / (1 - n u), infinite where that has no meaning. */
double mha__gradient_gamma(double n, double u);
/* bound_sums.c: the error of a sum over u and the root of the squares of its partial sums; the error of x . y, with
 * `repeats` equal terms; how often a number of a row repeats. */
#define MHA__ROUNDINGS 3.5
double mha__bound_dot(const mha__gradient_errors *e, const double *x, const double *y, size_t n, double repeats);
/* E_S of a pair: of rows that are off by e->rows, the score rounded; at most e->score. */
double mha__bound_score(const mha__gradient_errors *e, const mha__sizes *plan, const double *q, const double *k,
                        double repeats);
double mha__bound_repeats(const double *x, size_t n);
/* Raises `alike` of each row to the number of rows that are like it. `mantissas`: room for all. */
void mha__bound_alike(const double *rows, size_t count, size_t n, double *alike, double *mantissas);
/* The errors of the sums D of a head of a sequence, to e->sizes.map. */
void mha__bound_sums(mha__gradient_errors *e, const mha__backward *b, const mha__map *map);
/* The errors of the gradients of that head, to e->sizes.map; mha__map_gather adds them to those of all heads. */
void mha__bound_map(mha__gradient_errors *e, const mha__backward *b, const mha__map *map);
/* The errors of the gradients of a layer's end, as mha__backward_output makes these. */
void mha__bound_output(mha__gradient_errors *e, const mha__backward *b);
/* Takes the errors of d of query, key and value back to the rows that were projected, as mha__backward_rows does. */
void mha__bound_rows(mha__gradient_errors *e, const mha__backward *b);
/* From there to those of the inputs and of the weights that made q, k and v, as mha__backward_inputs does. */
void mha__bound_inputs(mha__gradient_errors *e, const mha__backward *b);
/* The steps that have no map. */
void mha__bound_step(mha__gradient_errors *e, const mha__backward *b, mha__backward_step step);

/* bound_stages.c: room for the errors of the stages that are kept; false: there is no memory. */
bool mha__bound_begin_stages(mha__gradient_errors *e, const mha__backward *b);
/* Whether the errors of a stage are wanted. */
static inline bool mha__bound_keeps(const mha__gradient_errors *e, mha_backward_stage stage)
{
    return e->sizes.kept[stage].data;
}
/* Keeps the error of a number x of query i and key j of a map; `any`: it may be any number. */
void mha__bound_keep_pair(const mha__gradient_errors *e, mha_backward_stage stage, const mha__map *map, size_t i,
                          size_t j, double x, double E, bool any);
/* Keeps the errors of the stages that a step without a map made. */
void mha__bound_keep_rows(const mha__gradient_errors *e, const mha__backward *b, mha__backward_step step);

/* E_y of n numbers y after a norm of x, which are off by E_x. */
void mha__bound_normed(const mha__gradient_errors *e, const mha__norm *norm, size_t first, size_t n, const double *x,
                       const double *E_x, const double *y, double *E_y);
/* Turns gradients d of n normalised numbers and their errors E into those of x, as mha__norm_back does, and adds the
 * errors of the gradients of weight and bias, which are sums over so many rows, to norm->d_weight and d_bias. */
void mha__bound_norm(const mha__gradient_errors *e, const mha__norm *norm, size_t first, size_t n, double rows,
                     const double *x, const double *E_x, double *d, double *E);

#endif
