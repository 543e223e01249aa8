/* What the exact path computes with, and the attention of its rows. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_ATTEND_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_ATTEND_H

#include "attention/call/resolved.h"

/* Inputs and results in float64, row-major. */
typedef struct mha__check {
    const mha__resolved *r;
    double *Q, *K, *V;            /* (rows, h, d_k), (rows, h_kv, d_k), (rows, h_kv, d_v) of the inputs */
    double *keys, *values;        /* (B, S, h_kv, d): K and V, or those in the cache */
    double *mixed;                /* (rows, h, d_v): sums of values; `heads`, but in the absorbed form */
    double *gate;                 /* (rows, h*d_v) or (rows, h) */
    double *heads, *output;       /* (rows, h, width of a head), (rows, d_out) */
    double *latents;              /* of all queries, then of all keys, of latent attention */
    double *queries;              /* (rows, h, d_k) as the layer is stored, in the absorbed form */
    double *row;                  /* memory of the workers */
    size_t row_size;              /* doubles for each worker */
    size_t q_rows, k_rows;        /* B * T of the inputs */
    size_t S;                     /* rows of `keys` for each batch index */
} mha__check;

/* Bytes that a worker needs, and tasks of mha__parallel_for. */
size_t mha__exact_attend_size(const mha__resolved *r);
size_t mha__exact_attend_tasks(const mha__resolved *r);
/* A task: the sums of values of some queries of a sequence under all heads, to `mixed`, and their scores, weights and
 * lse to the stages that are kept. `context`: an mha__check. */
void mha__exact_attend_rows(void *context, size_t task, int worker);

#endif
