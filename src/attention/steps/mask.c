/* Which keys a query sees: causal, window and lengths leave an interval, inside which padding, mask and ALiBi give a
 * term for each key. A hidden key is left out of the softmax; no large negative number stands for it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/steps/mask.h"
#include "compute/kernels/kernels.h"

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

mha__interval mha__visible_interval(const mha__resolved *r, const mha__sequence *s, size_t b, size_t i)
{
    const mha_semantics *sem = &r->semantics;
    int64_t p = s->offset + (int64_t)i - r->first_key; /* the index of the key at the query's position */
    int64_t from = 0, to = (int64_t)s->S;
    if (sem->causal)
        to = at_most(to, p + 1);
    if (sem->window && sem->window_left >= 0 && p - sem->window_left > 0)
        from = p - sem->window_left;
    if (sem->window && sem->window_right >= 0)
        to = at_most(to, p + sem->window_right + 1);
    if (sem->kv_lengths)
        to = at_most(to, sem->kv_lengths[b] - sem->key_offset);
    return from < to ? (mha__interval){(size_t)from, (size_t)to} : (mha__interval){0, 0};
}

bool mha__visible_moves(const mha__resolved *r)
{
    return r->semantics.causal || r->semantics.window;
}

bool mha__visible_has_terms(const mha__resolved *r)
{
    const mha_semantics *sem = &r->semantics;
    return sem->mask.kind != MHA_MASK_NONE || sem->key_padding.kind != MHA_MASK_NONE || sem->alibi_slopes;
}

/* One row of a mask, broadcast: where it begins, its stride, the number of keys that it reaches. */
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

/* An element of an additive mask as a float: -inf and NaN as they are, and a finite double stays finite. */
static float additive(const mask_row *row, size_t j)
{
    ptrdiff_t at = (ptrdiff_t)j * row->step;
    if (row->dtype == MHA_F32)
        return ((const float *)row->values)[at];
    double x = ((const double *)row->values)[at];
    return isfinite(x) ? clamp(x) : (float)x;
}

/* The sum of two terms. A hidden key stays hidden whatever is added. */
static float both(float a, float b)
{
    if (a == -INFINITY || b == -INFINITY)
        return -INFINITY;
    return isfinite(a) && isfinite(b) ? clamp((double)a + b) : a + b;
}

static bool is_flagged(const mha_mask *mask, const mask_row *row, size_t j)
{
    return (((const uint8_t *)row->values)[(ptrdiff_t)j * row->step] != 0) == (mask->kind == MHA_MASK_HIDES);
}

/* Adds the terms of a mask. `flagged` is the term of a key that a boolean mask hides. True when a term is not 0. */
static bool apply_mask(const mha_mask *mask, const size_t *index, int full_rank, size_t S, float flagged,
                       mha__interval keys, float *terms)
{
    const mask_row row = row_of(mask, index, full_rank, S);
    const size_t n = keys.to - keys.from, rest = row.reach > keys.from ? row.reach - keys.from : 0;
    const size_t reached = rest < n ? rest : n;
    bool any = reached < n;
    if (mask->kind != MHA_MASK_ADDITIVE && flagged == -INFINITY && row.step == 1) {
        const uint8_t *flags = (const uint8_t *)row.values + keys.from;
        any |= mha__kernels_get()->hide(terms, flags, reached, mask->kind == MHA_MASK_HIDES);
    } else {
        for (size_t i = 0; i < reached; i++) {
            const size_t j = keys.from + i;
            const float add = mask->kind == MHA_MASK_ADDITIVE ? additive(&row, j)
                              : is_flagged(mask, &row, j)     ? flagged
                                                              : 0;
            any |= add != 0;
            terms[i] = both(terms[i], add);
        }
    }
    for (size_t i = reached; i < n; i++)
        terms[i] = -INFINITY;
    return any;
}

mha__interval mha__visible_unpadded(const mha__resolved *r, const mha__sequence *s, size_t b)
{
    const mha_mask *padding = &r->semantics.key_padding;
    mha__interval keys = {0, s->S};
    if (padding->kind == MHA_MASK_NONE || padding->kind == MHA_MASK_ADDITIVE || r->semantics.has_padding_fill)
        return keys;
    const mask_row row = row_of(padding, (const size_t[2]){b, 0}, 2, s->S);
    while (keys.from < keys.to && is_flagged(padding, &row, keys.to - 1))
        keys.to--;
    while (keys.from < keys.to && is_flagged(padding, &row, keys.from))
        keys.from++;
    return keys;
}

bool mha__visible_terms_alike(const mha__resolved *r)
{
    const mha_mask *mask = &r->semantics.mask;
    bool alike = !r->semantics.alibi_slopes;
    if (mask->kind == MHA_MASK_NONE)
        return alike;
    for (int k = 2; k <= 3 && k <= mask->values.rank; k++) /* queries, heads */
        alike &= mask->values.shape[mask->values.rank - k] == 1;
    return alike;
}

/* -slope * (distance - j) for j = 0, 1, ..., n - 1. */
static void slope_down(double slope, double distance, size_t n, float *terms)
{
    enum { AT_ONCE = 8 };
    size_t j = 0;
    if (fabs(slope) * (fabs(distance) + (double)n) <= FLT_MAX) /* all terms fit a float */
        for (; j + AT_ONCE <= n; j += AT_ONCE)
            for (int l = 0; l < AT_ONCE; l++)
                terms[j + (size_t)l] = (float)(-slope * (distance - (double)j - l));
    for (; j < n; j++)
        terms[j] = clamp(-slope * (distance - (double)j));
}

bool mha__visible_terms(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i,
                        mha__interval keys, float *terms)
{
    const mha_semantics *sem = &r->semantics;
    const size_t n = keys.to - keys.from;
    bool any = sem->alibi_slopes != NULL;
    if (any)
        slope_down(sem->alibi_slopes[head], (double)(s->offset + (int64_t)i - r->first_key - (int64_t)keys.from), n,
                   terms);
    else
        memset(terms, 0, n * sizeof *terms);
    if (sem->key_padding.kind != MHA_MASK_NONE)
        any |= apply_mask(&sem->key_padding, (const size_t[2]){b, 0}, 2, s->S,
                          sem->has_padding_fill ? clamp(sem->padding_fill) : -INFINITY, keys, terms);
    if (sem->mask.kind != MHA_MASK_NONE)
        any |= apply_mask(&sem->mask, (const size_t[4]){b, head, i, 0}, 4, s->S, -INFINITY, keys, terms);
    return any;
}

const float *mha__visible_terms_in_place(const mha__resolved *r, size_t b, size_t head, size_t i, mha__interval keys)
{
    const mha_semantics *sem = &r->semantics;
    if (sem->mask.kind != MHA_MASK_ADDITIVE || sem->mask.values.dtype != MHA_F32 || sem->alibi_slopes ||
        sem->key_padding.kind != MHA_MASK_NONE)
        return NULL;
    mask_row row = row_of(&sem->mask, (const size_t[4]){b, head, i, 0}, 4, r->plan.S);
    return row.step == 1 && keys.to <= row.reach ? (const float *)row.values + keys.from : NULL;
}

float mha__sink(const mha__resolved *r, size_t head)
{
    const mha_view *sinks = &r->weight[MHA_SINKS];
    const double sink = sinks->data ? mha_view_get(sinks, &head) : -INFINITY;
    return isfinite(sink) ? clamp(sink) : (float)sink;
}
