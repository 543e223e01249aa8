/* Sums and products of the exact path, in float64 or as a modelled precision adds them. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_SUMS_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_SUMS_H

#include "attention/core/exact/exact_attend.h"
#include "attention/core/exact/rounding.h"

/* A partial sum as the accumulators of the modelled precision hold it. */
double mha__exact_summed(const mha__resolved *r, double x);
/* Y (m, n) = Y + X B, row strides ldx, ldb, ldy: each element adds its k terms one by one, in their order. */
void mha__exact_sums(const mha__resolved *r, size_t m, size_t n, size_t k, const double *X, size_t ldx, const double *B,
                     size_t ldb, double *Y, size_t ldy);

/* y = x W + b for rows x (B, T, in), or without W (B, T, heads, d), and y (B * T, out), `ldy` apart. Numbers are rounded
 * as they are read. No data in W or b: there is none. A worker takes MHA__EXACT_PRODUCT_SIZE doubles of memory. */
enum { MHA__EXACT_PRODUCT_SIZE = 4096 };
typedef struct mha__exact_product {
    const mha__check *m;
    mha_view x, W, b;
    mha__rounding of_x, of_W, of_b;
    double *y;
    size_t out, ldy;
} mha__exact_product;
void mha__exact_multiply(const mha__exact_product *p);
/* The same with weights of the call, contiguous y, and inputs of the call; of rows made before, `of_x` says how they
 * are rounded. */
void mha__exact_project(const mha__check *m, const mha_view *x, const mha__rounding *of_x, mha_weight W, mha_weight b,
                        double *y, size_t out);

#endif
