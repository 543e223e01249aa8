/* Attention kernels as they are written in a hurry, in float32: each right on most inputs, and wrong on some. */
#ifndef TEST_CARELESS_H
#define TEST_CARELESS_H

#include "mha/mha.h"

typedef struct careless {
    const char *name;   /* "maximum-from-0" */
    const char *help;
    const char *regime; /* the family of questions that shows it */
} careless;

/* The kernels; the first has no bug. NULL past the end. */
const careless *careless_at(size_t index);

/* Computes kernel `index` of a call with causal and kv_lengths at most, into an F32 view (B, T_q, h, d_v). */
void careless_run(size_t index, const mha_call *call, const mha_view *output);

#endif
