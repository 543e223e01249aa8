/* Latent attention by its definition, in plain loops: what a layer with kv_rank should compute, or what it would
 * compute with a bug. Attention between q, k and v is that of the library without a layer, on the exact path. */
#ifndef TEST_LATENT_H
#define TEST_LATENT_H

#include "mha/attention.h"

/* Writes the output (B, T_q, d_out) of a call without a cache, on floats that lie side by side. `bug`: NULL, or the
 * name of one of the library's bugs of latents. */
void latent_expect(const mha_layer *layer, const mha_call *call, const char *bug, double *output);

double latent_weight(const mha_layer *layer, mha_weight weight, size_t i, size_t j);

#endif
