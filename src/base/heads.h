/* Rows of heads in views: split, swapped, found. */
#ifndef MHA_BASE_HEADS_H
#define MHA_BASE_HEADS_H

#include <string.h>

#include "base/base.h"

/* A view (B, T, heads*d) seen as (B, T, heads, d). */
static inline mha_view mha__split_heads(const mha_view *rows, size_t heads)
{
    mha_view v = *rows;
    v.rank = 4;
    v.shape[2] = heads;
    v.shape[3] = heads ? rows->shape[2] / heads : 0;
    v.stride[3] = rows->stride[2];
    v.stride[2] = (ptrdiff_t)v.shape[3] * rows->stride[2];
    return v;
}

/* A view (B, S, h_kv, d) of memory in the order (B, h_kv, S, d), or the reverse. */
static inline mha_view mha__swap_time_and_heads(mha_view v)
{
    return mha__view_swap(&v, 1, 2);
}

/* Element `index` of the first axis, without that axis. */
static inline mha_view mha__view_at(const mha_view *view, size_t index)
{
    mha_view v = mha_view_slice(view, 0, index, 1);
    v.rank--;
    memmove(v.shape, v.shape + 1, (size_t)v.rank * sizeof *v.shape);
    memmove(v.stride, v.stride + 1, (size_t)v.rank * sizeof *v.stride);
    return v;
}

/* Elements [from, from + n) of the axis that is so many from the last, unless it is broadcast; none of them where they
 * lie past the last element. */
static inline void mha__view_cut(mha_view *v, int from_last, size_t from, size_t n)
{
    const int axis = v->rank - 1 - from_last;
    const size_t extent = v->data && axis >= 0 ? v->shape[axis] : 0;
    if (extent > 1)
        *v = mha_view_slice(v, axis, from < extent ? from : extent, n);
}

/* Whether two views are the same elements at the same places. */
static inline bool mha__view_same(const mha_view *a, const mha_view *b)
{
    bool same = a->data == b->data && a->dtype == b->dtype && a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++)
        same = a->shape[k] == b->shape[k] && (a->shape[k] < 2 || a->stride[k] == b->stride[k]);
    return same;
}

/* Number of the first element of row (b, t) of head g in a view (B, T, heads, d), counted from the view's data. */
static inline ptrdiff_t mha__row_offset(const mha_view *v, size_t b, size_t t, size_t g)
{
    return (ptrdiff_t)b * v->stride[0] + (ptrdiff_t)t * v->stride[1] + (ptrdiff_t)g * v->stride[2];
}

/* Row (i, j, k) of a view of rank 4 as a view (1, 1, 1, d); the next row, which is not there, is `apart` elements away.
 */
static inline mha_view mha__one_row(const mha_view *v, size_t i, size_t j, size_t k, size_t apart)
{
    mha_view row = mha_view_slice(v, 0, i, 1);
    row = mha_view_slice(&row, 1, j, 1);
    row = mha_view_slice(&row, 2, k, 1);
    row.stride[1] = row.stride[2] = (ptrdiff_t)apart;
    return row;
}

/* The n elements along the last axis of a view from an index on, as doubles. */
void mha__view_read(const mha_view *view, const size_t *index, size_t n, double *to);

/* Row (b, t) of head g in a view (B, T, heads, d) of F16, BF16 or I8. */
static inline unsigned char *mha__narrow_row_at(const mha_view *v, size_t b, size_t t, size_t g)
{
    const uintptr_t bytes = v->dtype == MHA_I8 ? 1 : sizeof(uint16_t);
    return (unsigned char *)((uintptr_t)v->data + (uintptr_t)mha__row_offset(v, b, t, g) * bytes);
}

/* Row (b, t) of head g in a float view (B, T, heads, d). Computed in integers, because a view without elements may have
 * no data, and C does not define an offset from NULL. */
static inline float *mha__row(const mha_view *v, size_t b, size_t t, size_t g)
{
    return (float *)((uintptr_t)v->data + (uintptr_t)mha__row_offset(v, b, t, g) * sizeof(float));
}

#endif
