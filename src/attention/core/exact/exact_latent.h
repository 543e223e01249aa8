/* The exact path: queries, keys and values of multi-head latent attention. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_LATENT_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_LATENT_H

#include "attention/core/exact/exact_attend.h"

/* Makes Q, K and V of a layer with kv_rank, in the widths of the plan, not yet rotated. Keeps the latents. */
void mha__exact_latent(const mha__check *m);
/* The end of the absorbed form: heads (rows, h, d_v) = mixed (rows, h, kv_rank) W_V, head by head. */
void mha__exact_latent_leave(const mha__check *m);
/* The first `width` features of each of n rows x, `stride` apart: x w / sqrt(mean(x^2) + eps). */
void mha__exact_normalise_latents(const mha__resolved *r, mha_weight norm, size_t width, size_t stride, size_t n,
                                  double *x);

#endif
