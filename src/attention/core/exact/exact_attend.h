/* Sums and products of the exact path, its latent attention, and the attention of its rows. */
#ifndef MHA_ATTENTION_CORE_EXACT_EXACT_ATTEND_H
#define MHA_ATTENTION_CORE_EXACT_EXACT_ATTEND_H

#include "attention/call/resolved.h"
#include "attention/core/exact/rounding.h"

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

/* ---------------------------------------------------------------- exact_sums.c: in float64 or as a precision adds */

/* A partial sum as the accumulators of the modelled precision hold it. */
double mha__exact_summed(const mha__resolved *r, double x);
/* Y (m, n) = Y + X B, row strides ldx, ldb, ldy: each element adds its k terms one by one, in their order. */
void mha__exact_sums(const mha__resolved *r, size_t m, size_t n, size_t k, const double *X, size_t ldx, const double *B,
                     size_t ldb, double *Y, size_t ldy);

/* y = x W + b for rows x (B, T, in), or without W (B, T, heads, d), and y (B * T, out), `ldy` apart. Reading rounds
 * numbers. No data in W or b: there is none. A worker takes MHA__EXACT_PRODUCT_SIZE doubles of memory. */
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

/* ---------------------------------------------------------------- exact_latent.c: queries, keys and values */

/* Makes Q, K and V of a layer with kv_rank, in the widths of the plan, not yet rotated. Keeps the latents. */
void mha__exact_latent(const mha__check *m);
/* The end of the absorbed form: heads (rows, h, d_v) = mixed (rows, h, kv_rank) W_V, head by head. */
void mha__exact_latent_leave(const mha__check *m);
/* The first `width` features of each of n rows x, `stride` apart: x w / sqrt(mean(x^2) + eps). */
void mha__exact_normalise_latents(const mha__resolved *r, mha_weight norm, size_t width, size_t stride, size_t n,
                                  double *x);

#endif
