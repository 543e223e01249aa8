/* Sums of products of the exact path, in float64 or as a modelled precision adds them. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_SUMS_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_SUMS_H

#include "attention/core/exact/rounding.h"
#include "attention/call/resolved.h"

/* A partial sum as the accumulators of the modelled precision hold it. */
double mha__exact_summed(const mha__resolved *r, double x);
/* Y (m, n) = Y + X B, row strides ldx, ldb, ldy: each element adds its k terms one by one, in their order. */
void mha__exact_sums(const mha__resolved *r, size_t m, size_t n, size_t k, const double *X, size_t ldx, const double *B,
                     size_t ldb, double *Y, size_t ldy);
/* n elements along the last axis of a view from an index on, rounded. */
void mha__exact_read(const mha_view *from, const size_t *index, size_t n, const mha__rounding *rounding, double *to);

#endif
