/* What the exact path computes with, and the attention of its rows. */
#ifndef MHA_ATTENTION_EXACT_EXACT_ATTEND_H
#define MHA_ATTENTION_EXACT_EXACT_ATTEND_H

#include "attention/resolved.h"

/* Inputs and results in float64, row-major. */
typedef struct mha__judge {
    const mha__resolved *r;
    double *Q, *K, *V;            /* (rows, h, d_k), (rows, h_kv, d_k), (rows, h_kv, d_v) of the inputs */
    double *keys, *values;        /* (B, S, h_kv, d): K and V, or those in the cache */
    double *mixed;                /* (rows, h, d_v): sums of values; `heads`, but in the absorbed form */
    double *gate;                 /* (rows, h*d_v) or (rows, h) */
    double *heads, *output;       /* (rows, h, width of a head), (rows, d_out) */
    double *latents, *queries;    /* of latent attention: see mha__exact_memory */
    double *row;                  /* memory of the workers */
    size_t row_size;              /* doubles for each worker */
    size_t q_rows, k_rows;        /* B * T of the inputs */
    size_t S;                     /* rows of `keys` for each batch index */
} mha__judge;

/* A partial sum as the accumulators of the modelled precision hold it. */
double mha__exact_summed(const mha__resolved *r, double x);
/* Task b * T_q + i of mha__parallel_for: the sums of values of query i of sequence b under all heads, to `mixed`, and
 * its scores, weights and lse to the stages that are kept. `context`: an mha__judge. */
void mha__exact_attend_row(void *context, size_t task, int worker);

#endif
