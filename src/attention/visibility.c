/* Which keys a query may see: causal, window and lengths leave an interval; padding, mask and ALiBi speak
 * key by key inside it. A hidden key is excluded, never pushed down by a large number. */
#include <float.h>
#include <math.h>

#include "attention/visibility.h"

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

mha_interval mha_visible_interval(const mha_request *r, const mha_sequence *s, size_t b, size_t i)
{
    const mha_semantics *sem = r->semantics;
    int64_t p = s->offset + (int64_t)i - r->first_key; /* the key index that stands where the query does */
    int64_t from = 0, to = (int64_t)s->S;
    if (sem->causal)
        to = at_most(to, p + 1);
    if (sem->window && sem->window_left >= 0 && p - sem->window_left > 0)
        from = p - sem->window_left;
    if (sem->window && sem->window_right >= 0)
        to = at_most(to, p + sem->window_right + 1);
    if (sem->kv_lengths)
        to = at_most(to, sem->kv_lengths[b]);
    return from < to ? (mha_interval){(size_t)from, (size_t)to} : (mha_interval){0, 0};
}

bool mha_visible_moves(const mha_request *r)
{
    return r->semantics->causal || r->semantics->window;
}

bool mha_visible_has_terms(const mha_request *r)
{
    const mha_semantics *sem = r->semantics;
    return sem->mask.kind != MHA_MASK_NONE || sem->key_padding.kind != MHA_MASK_NONE || sem->alibi_slopes;
}

/* One row of a mask, broadcast: where it starts, its step, how many keys it reaches. */
typedef struct mask_row {
    const void *values;
    mha_dtype dtype;
    ptrdiff_t step;
    size_t reach;
} mask_row;

static mask_row row_of(const mha_mask *mask, const size_t *index, int full_rank, size_t S)
{
    const mha_view *v = &mask->values;
    ptrdiff_t at = 0;
    for (int k = 0; k < v->rank - 1; k++)
        if (v->shape[k] > 1)
            at += (ptrdiff_t)index[full_rank - v->rank + k] * v->stride[k];
    size_t width = v->shape[v->rank - 1], element = 0;
    (void)mha_dtype_bytes(v->dtype, 1, &element);
    bool broadcast = width == 1 && S != 1;
    return (mask_row){(const char *)v->data + at * (ptrdiff_t)element, v->dtype, broadcast ? 0 : v->stride[v->rank - 1],
                      broadcast ? S : width};
}

static float clamp(double x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

/* What an additive mask says; -inf and NaN as they are, a finite double stays finite as a float. */
static float additive(const mask_row *row, size_t j)
{
    ptrdiff_t at = (ptrdiff_t)j * row->step;
    if (row->dtype == MHA_F32)
        return ((const float *)row->values)[at];
    double x = ((const double *)row->values)[at];
    return isfinite(x) ? clamp(x) : (float)x;
}

static void apply_mask(const mha_mask *mask, const size_t *index, int full_rank, size_t S, bool has_fill, double fill,
                       mha_interval keys, float *terms)
{
    mask_row row = row_of(mask, index, full_rank, S);
    for (size_t j = keys.from; j < keys.to; j++) {
        float *term = &terms[j - keys.from];
        float add = 0.0f;
        if (j >= row.reach)
            add = -INFINITY;
        else if (mask->kind == MHA_MASK_ADDITIVE)
            add = additive(&row, j);
        else if ((((const uint8_t *)row.values)[(ptrdiff_t)j * row.step] != 0) == (mask->kind == MHA_MASK_HIDES))
            add = has_fill ? clamp(fill) : -INFINITY;
        if (*term == -INFINITY)
            continue;
        *term = isfinite(*term) && isfinite(add) ? clamp((double)*term + add) : *term + add;
        if (add == -INFINITY)
            *term = -INFINITY; /* hidden, whatever else is added */
    }
}

size_t mha_visible_terms(const mha_request *r, const mha_sequence *s, size_t b, size_t head, size_t i, mha_interval keys,
                         float *terms)
{
    const mha_semantics *sem = r->semantics;
    const size_t index[4] = {b, head, i, 0}, padding_index[2] = {b, 0};
    for (size_t j = keys.from; j < keys.to; j++) {
        double distance = (double)(s->offset + (int64_t)i - r->first_key - (int64_t)j);
        terms[j - keys.from] = sem->alibi_slopes ? clamp(-sem->alibi_slopes[head] * distance) : 0.0f;
    }
    if (sem->key_padding.kind != MHA_MASK_NONE)
        apply_mask(&sem->key_padding, padding_index, 2, s->S, sem->has_padding_fill, sem->padding_fill, keys, terms);
    if (sem->mask.kind != MHA_MASK_NONE)
        apply_mask(&sem->mask, index, 4, s->S, false, 0, keys, terms);
    size_t visible = 0;
    for (size_t j = keys.from; j < keys.to; j++)
        visible += terms[j - keys.from] != -INFINITY;
    return visible;
}

const float *mha_visible_terms_in_place(const mha_request *r, size_t b, size_t head, size_t i, mha_interval keys)
{
    const mha_semantics *sem = r->semantics;
    if (sem->mask.kind != MHA_MASK_ADDITIVE || sem->mask.values.dtype != MHA_F32 || sem->alibi_slopes ||
        sem->key_padding.kind != MHA_MASK_NONE)
        return NULL;
    mask_row row = row_of(&sem->mask, (const size_t[4]){b, head, i, 0}, 4, r->plan.S);
    return row.step == 1 && keys.to <= row.reach ? (const float *)row.values + keys.from : NULL;
}
