/* The exact path: queries, keys and values of multi-head latent attention. */
#ifndef MHA_ATTENTION_EXACT_EXACT_LATENT_H
#define MHA_ATTENTION_EXACT_EXACT_LATENT_H

#include "attention/resolved.h"

/* The memory of the workers: `size` doubles for each, at least mha__exact_latent_size. */
typedef struct mha__exact_memory {
    double *memory;
    size_t size;
} mha__exact_memory;

size_t mha__exact_latent_size(const mha__resolved *r);
/* Q (rows, h, d_k), K (rows, h_kv, d_k) and V (rows, h_kv, d_v) of a layer with kv_rank, in the widths of the plan, not
 * yet rotated. Keeps the latents. */
void mha__exact_latent(const mha__resolved *r, const mha__exact_memory *rows, double *Q, double *K, double *V);
/* The end of the absorbed form: heads (rows, h, d_v) = mixed (rows, h, kv_rank) W_V, head by head. */
void mha__exact_latent_leave(const mha__resolved *r, const double *mixed, double *heads);

#endif
