/* Sums and products of the exact path, in float64 or as a modelled precision adds them. */
#include <string.h>

#include "attention/core/exact/exact_attend.h"
#include "base/heads.h"
#include "compute/sizes.h"
#include "compute/thread_pool.h"

double mha__exact_summed(const mha__resolved *r, double x)
{
    return r->precision.sums == MHA_F32 ? x : mha__round_to(r->precision.sums, x);
}

void mha__exact_sums(const mha__resolved *r, size_t m, size_t n, size_t k, const double *X, size_t ldx, const double *B,
                     size_t ldb, double *Y, size_t ldy)
{
    if (r->precision.sums == MHA_F32) {
        r->kernels->ordered_sums(m, n, k, X, ldx, B, ldb, Y, ldy);
        return;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t p = 0; p < k; p++)
            for (size_t c = 0; c < n; c++)
                Y[i * ldy + c] = mha__exact_summed(r, Y[i * ldy + c] + X[i * ldx + p] * B[p * ldb + c]);
}

/* n elements along the last axis of a view from an index on, rounded. */
static void read_numbers(const mha_view *from, const size_t *index, size_t n, const mha__rounding *rounding, double *to)
{
    mha__view_read(from, index, n, to);
    for (size_t c = 0; c < n && rounding->dtype != MHA_F32; c++)
        to[c] = mha__rounded(rounding, to[c]);
}

/* ---------------------------------------------------------------- products */

enum { ROWS_AT_ONCE = 64, COLUMNS = 64, TERMS = 32 }; /* of an output that is computed together; of its sums */
_Static_assert((ROWS_AT_ONCE + COLUMNS) * TERMS == MHA__EXACT_PRODUCT_SIZE, "a worker's memory");

/* Inputs [from, to) of a row. */
static void read_inputs(const mha__exact_product *p, size_t row, size_t from, size_t to, double *x)
{
    const size_t T = p->x.shape[1], d = p->x.shape[p->x.rank - 1];
    for (size_t c = from, end; c < to; c = end) { /* head by head */
        const size_t by_head[MHA_MAX_RANK] = {row / T, row % T, c / d, c % d},
                     by_row[MHA_MAX_RANK] = {row / T, row % T, c};
        end = mha__smaller(c - c % d + d, to);
        read_numbers(&p->x, p->x.rank == 4 ? by_head : by_row, end - c, &p->of_x, x + c - from);
    }
}

/* Some rows and columns of y: each element is one sum over the inputs in their order. */
static void product_task(void *context, size_t task, int worker)
{
    const mha__exact_product *p = context;
    double *x = p->m->row + (size_t)worker * p->m->row_size, *w = x + (size_t)ROWS_AT_ONCE * TERMS;
    const size_t rows = p->x.shape[0] * p->x.shape[1], across = mha__ceil_div(p->out, COLUMNS),
                 from = task / across * ROWS_AT_ONCE, to = mha__smaller(from + ROWS_AT_ONCE, rows),
                 left = task % across * COLUMNS, right = mha__smaller(left + COLUMNS, p->out), n = right - left,
                 in = p->W.data ? p->W.shape[0] : 0;
    for (size_t i = from; i < to; i++)
        if (p->W.data)
            memset(p->y + i * p->ldy + left, 0, n * sizeof *p->y);
        else
            read_inputs(p, i, left, right, p->y + i * p->ldy + left);
    for (size_t k = 0, end; k < in; k = end) {
        end = mha__smaller(k + TERMS, in);
        for (size_t i = from; i < to; i++)
            read_inputs(p, i, k, end, x + (i - from) * TERMS);
        for (size_t t = k; t < end; t++)
            read_numbers(&p->W, (size_t[MHA_MAX_RANK]){t, left}, n, &p->of_W, w + (t - k) * COLUMNS);
        mha__exact_sums(p->m->r, to - from, n, end - k, x, TERMS, w, COLUMNS, p->y + from * p->ldy + left, p->ldy);
    }
    for (size_t i = from; p->b.data && i < to; i++)
        for (size_t c = left; c < right; c++)
            p->y[i * p->ldy + c] += mha__rounded(&p->of_b, mha_view_get(&p->b, &c));
}

void mha__exact_multiply(const mha__exact_product *p)
{
    mha__exact_product shared = *p;
    mha__parallel_for(mha__ceil_div(p->x.shape[0] * p->x.shape[1], ROWS_AT_ONCE) * mha__ceil_div(p->out, COLUMNS),
                      p->m->r->plan.threads, product_task, &shared);
}

void mha__exact_project(const mha__check *m, const mha_view *x, const mha__rounding *of_x, mha_weight W, mha_weight b,
                        double *y, size_t out)
{
    const mha_view *matrix = &m->r->weight[W], *bias = &m->r->weight[b];
    const mha_precision *p = &m->r->precision;
    const mha_dtype inputs = matrix->data ? p->inputs : mha__stored_in(p->inputs);
    mha__exact_multiply(&(mha__exact_product){.m = m, .x = *x, .W = *matrix, .b = *bias,
                                              .of_x = of_x ? *of_x : mha__rounding_of_view(inputs, x),
                                              .of_W = mha__rounding_of_view(p->weights, matrix),
                                              .of_b = mha__rounding_of_view(mha__stored_in(p->weights), bias),
                                              .y = y, .out = out, .ldy = out});
}
