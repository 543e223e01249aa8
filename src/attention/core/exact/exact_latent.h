/* The exact path: queries, keys and values of multi-head latent attention. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_LATENT_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_LATENT_H

#include "attention/call/resolved.h"

/* Memory of one call. */
typedef struct mha__exact_memory {
    double *workers; /* `size` doubles for each, at least mha__exact_latent_size */
    size_t size;
    double *latents; /* of all queries, then of all keys: mha__exact_latents_size */
    double *queries; /* (rows, h, d_k) as the layer is stored; in the absorbed form alone */
} mha__exact_memory;

size_t mha__exact_latent_size(const mha__resolved *r);
size_t mha__exact_latents_size(const mha__resolved *r);
/* Q (rows, h, d_k), K (rows, h_kv, d_k) and V (rows, h_kv, d_v) of a layer with kv_rank, in the widths of the plan, not
 * yet rotated. Keeps the latents. */
void mha__exact_latent(const mha__resolved *r, const mha__exact_memory *memory, double *Q, double *K, double *V);
/* The end of the absorbed form: heads (rows, h, d_v) = mixed (rows, h, kv_rank) W_V, head by head. */
void mha__exact_latent_leave(const mha__resolved *r, const mha__exact_memory *memory, const double *mixed,
                             double *heads);

#endif
