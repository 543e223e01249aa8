/* Rows through a matrix and its bias, and gradients back through them:
 *
 *   y = x W + b      dW = x^T dy      db = the sum of dy over all rows      dx = dy W^T */
#include <string.h>

#include "attention/core/backward/backward.h"

void mha__matrix_clear(const mha_view *x)
{
    if (x->data)
        memset(x->data, 0, mha_view_elements(x) * sizeof(double));
}

bool mha__backward_take(mha__backward *b, mha_view *to, size_t rows, size_t width)
{
    *to = mha__arena_view(&b->memory, MHA_F64, 2, (const size_t[]){rows, width});
    return to->data != NULL;
}

bool mha__is_zero(const double *d, size_t n)
{
    bool zero = true;
    for (size_t c = 0; c < n && zero; c++)
        zero = d[c] == 0;
    return zero;
}

mha_weight mha__bias_of(mha_weight W)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight_info *info = mha_weight_at((mha_weight)w);
        if (info->kind == MHA_WEIGHT_BIAS && info->of == W)
            return (mha_weight)w;
    }
    return W;
}

void mha__matrix_forward(const mha__backward *b, mha_weight W, const mha_view *x, const mha_view *y)
{
    const mha_weight bias = mha__bias_of(W);
    const mha_view *matrix = &b->matrix[W], *added = &b->r->weight[bias];
    for (size_t i = 0; i < y->shape[0]; i++) {
        const double *from = mha__matrix_row(x, i);
        double *to = mha__matrix_row(y, i);
        for (size_t c = 0; c < y->shape[1]; c++)
            to[c] = matrix->data ? 0 : from[c];
        for (size_t k = 0; matrix->data && k < x->shape[1]; k++)
            for (size_t c = 0; c < y->shape[1]; c++)
                to[c] += from[k] * mha__matrix_row(matrix, k)[c];
        for (size_t c = 0; bias != W && added->data && c < y->shape[1]; c++)
            to[c] += mha_view_get(added, &c);
    }
}

void mha__matrix_back(const mha__backward *b, mha_weight W, const mha_view *x, const mha_view *dy, const mha_view *dx)
{
    const mha_weight bias = mha__bias_of(W);
    const mha_view *matrix = &b->matrix[W], *dW = &b->d[MHA_D_WEIGHTS + W], *db = &b->d[MHA_D_WEIGHTS + bias];
    for (size_t i = 0; i < dy->shape[0]; i++) {
        const double *d = mha__matrix_row(dy, i);
        if (mha__is_zero(d, dy->shape[1]))
            continue;
        for (size_t c = 0; bias != W && db->data && c < dy->shape[1]; c++)
            ((double *)db->data)[c] += d[c];
        for (size_t k = 0; matrix->data && k < x->shape[1]; k++) {
            double sum = 0;
            for (size_t c = 0; c < dy->shape[1]; c++)
                sum += d[c] * mha__matrix_row(matrix, k)[c];
            if (dx->data)
                mha__matrix_row(dx, i)[k] += sum;
            for (size_t c = 0; dW->data && c < dy->shape[1]; c++)
                mha__matrix_row(dW, k)[c] += mha__matrix_row(x, i)[k] * d[c];
        }
    }
}
