/* Which keys a query sees: causal, window, chunk and lengths leave an interval, inside which padding, mask, ALiBi and a
 * bias by position give a term for each key, a pattern hides some, and a window hides those between the ones that it
 * keeps and its own. A hidden key is left out of the softmax; no large negative number stands for it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/core/terms/terms.h"
#include "attention/visibility/pattern.h"
#include "compute/kernels/kernels.h"

mha__interval mha__visible_interval(const mha__resolved *r, const mha__sequence *s, size_t b, size_t i)
{
    const mha__visibility *v = &r->visibility;
    if (v->pads && mha__pattern_pads(&r->masks.pattern, b, i))
        return (mha__interval){0, 0};
    return mha__visible_keys(v, s->offset + (int64_t)i, mha__visible_length(v, b, s->S));
}

/* A row of a mask, which says as much of keys as the mask is wide, or the same of all S. */
static mha__mask_row row_of(const mha_mask *mask, const size_t *index, int full_rank, size_t S)
{
    mha__mask_row row = mha__mask_row_at(&mask->values, index, full_rank);
    if (S == 1)
        row.step = mask->values.stride[mask->values.rank - 1];
    else if (row.n == 1)
        row.n = S;
    return row;
}

/* An element of an additive mask as a float. */
static float additive(const mha__mask_row *row, size_t j)
{
    ptrdiff_t at = (ptrdiff_t)j * row->step;
    if (row->dtype == MHA_F32)
        return ((const float *)(const void *)row->values)[at];
    return mha__finite_term(((const double *)(const void *)row->values)[at]);
}

static bool is_flagged(const mha_mask *mask, const mha__mask_row *row, size_t j)
{
    return (((const uint8_t *)row->values)[(ptrdiff_t)j * row->step] != 0) == (mask->kind == MHA_MASK_HIDES);
}

/* Adds the terms of a mask. `flagged` is the term of a key that a boolean mask hides. True when a term is not 0. */
static bool apply_mask(const mha_mask *mask, const size_t *index, int full_rank, size_t S, float flagged,
                       mha__interval keys, float *terms)
{
    const mha__mask_row row = row_of(mask, index, full_rank, S);
    const size_t n = keys.to - keys.from, rest = row.n > keys.from ? row.n - keys.from : 0;
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
            terms[i] = mha__terms_sum(terms[i], add);
        }
    }
    for (size_t i = reached; i < n; i++)
        terms[i] = -INFINITY;
    return any;
}

static void add_to_trimmer(mha__trimmer *t, const mha_mask *mask, int full_rank, size_t S, bool fills)
{
    if (mask->kind == MHA_MASK_NONE)
        return;
    const size_t i = t->n++;
    const bool adds = mask->kind == MHA_MASK_ADDITIVE;
    mha__mask_row at[4]; /* the first, and the next along each axis but the last */
    for (size_t axis = 0; axis < 4; axis++)
        at[axis] = row_of(mask, (const size_t[4]){axis == 1, axis == 2, axis == 3}, full_rank, S);
    const bool tells = at->step == 1 && !fills && at->dtype != MHA_F64;
    t->mask[i].by = !tells ? MHA_TRIMS_REACH : adds ? MHA_TRIMS_TERMS : MHA_TRIMS_FLAGS;
    t->mask[i].hides = mask->kind == MHA_MASK_HIDES;
    t->mask[i].values = at->values;
    t->mask[i].batch = (const char *)at[1].values - (const char *)at->values;
    t->mask[i].head = (const char *)at[2].values - (const char *)at->values;
    t->mask[i].query = (const char *)at[3].values - (const char *)at->values;
    t->mask[i].reach = at->n == 1 ? SIZE_MAX : at->n;
    t->mask[i].element = adds ? sizeof(float) : 1;
    t->adds |= t->mask[i].by != MHA_TRIMS_FLAGS;
    t->alike &= t->mask[i].head == 0 && t->mask[i].query == 0;
}

mha__trimmer mha__visible_trimmer(const mha__resolved *r)
{
    const mha__masks *m = &r->masks;
    mha__trimmer t = {.adds = r->visibility.adds || r->visibility.keeps, .alike = true, .kernels = r->kernels};
    add_to_trimmer(&t, &m->padding, 2, r->plan.S, m->fill != -INFINITY);
    add_to_trimmer(&t, &m->mask, 4, r->plan.S, false);
    if (r->visibility.pattern) {
        t.pattern = &m->pattern, t.first_key = r->first_key, t.in_order = true;
        for (size_t b = 0; b < r->plan.B; b++)
            t.in_order &= mha__pattern_in_order(t.pattern, b, mha__resolved_sequence(r, b).S);
        t.alike = false;
    }
    return t;
}

bool mha__visible_trim(const mha__trimmer *t, size_t b, size_t head, size_t query, mha__interval *keys)
{
    enum { LATER = 4, MOST_BYTES = 2048 }; /* the row that is fetched meanwhile, and how much of it */
    bool adds = t->adds;
    for (size_t i = 0; i < t->n; i++) {
        const ptrdiff_t apart = t->mask[i].query;
        const char *row = t->mask[i].values + (ptrdiff_t)b * t->mask[i].batch + (ptrdiff_t)head * t->mask[i].head +
                          (ptrdiff_t)query * apart;
        keys->to = keys->to < t->mask[i].reach ? keys->to : t->mask[i].reach;
        if (keys->from >= keys->to)
            return false;
        const size_t bytes = (keys->to - keys->from) * t->mask[i].element;
        const uintptr_t ahead = (uintptr_t)row + (uintptr_t)(LATER * apart) + keys->from * t->mask[i].element;
        for (size_t at = 0; apart != 0 && at < bytes && at < MOST_BYTES; at += 64) /* hints: any address is allowed */
            __builtin_prefetch((const void *)(ahead + at));
        if (t->mask[i].by == MHA_TRIMS_FLAGS)
            adds |= t->kernels->trim((const uint8_t *)row, t->mask[i].hides, &keys->from, &keys->to);
        else if (t->mask[i].by == MHA_TRIMS_TERMS)
            t->kernels->trim_terms((const float *)(const void *)row, &keys->from, &keys->to);
    }
    if (t->pattern)
        adds |= mha__pattern_trim(t->pattern, t->first_key, t->in_order, b, head, query, &keys->from, &keys->to);
    return adds;
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
        terms[j] = mha__clamp(-slope * (distance - (double)j));
}

/* Hides the keys [from, to) among those whose terms these are. */
static bool hide(float *terms, mha__interval keys, int64_t from, int64_t to)
{
    from = mha__at_least(from, (int64_t)keys.from), to = mha__at_most(to, (int64_t)keys.to);
    for (int64_t j = from; j < to; j++)
        terms[j - (int64_t)keys.from] = -INFINITY;
    return from < to;
}

bool mha__visible_terms(const mha__resolved *r, const mha__added *added, const mha__sequence *s, size_t b, size_t head,
                        size_t i, mha__interval keys, float *terms)
{
    const mha__masks *m = &r->masks;
    const mha__visibility *v = &r->visibility;
    const bool slopes = r->added.alibi_slopes, bias = r->added.bias.rule != MHA_BIAS_RULE_NONE;
    const int64_t p = s->offset + (int64_t)i - r->first_key; /* the index of the key at the query's position */
    const size_t n = keys.to - keys.from;
    bool any = v->adds;
    if (slopes)
        slope_down(r->added.alibi_slopes[head], (double)(p - (int64_t)keys.from), n, terms);
    else if (!any)
        memset(terms, 0, n * sizeof *terms);
    else if (!bias)
        memcpy(terms, added->relative, n * sizeof *terms);
    if (bias)
        mha__bias_terms(r, added->bias_rows, s, head, i, keys, slopes, terms);
    for (size_t j = 0; added->relative && (slopes || bias) && j < n; j++)
        terms[j] = mha__terms_sum(terms[j], added->relative[j]);
    if (m->padding.kind != MHA_MASK_NONE)
        any |= apply_mask(&m->padding, (const size_t[2]){b, 0}, 2, s->S, m->fill, keys, terms);
    if (m->mask.kind != MHA_MASK_NONE)
        any |= apply_mask(&m->mask, (const size_t[4]){b, head, i, 0}, 4, s->S, -INFINITY, keys, terms);
    if (v->keeps) /* keys between those that are kept and the window's own */
        any |= hide(terms, keys, v->keep - r->first_key, mha__window_begin(v, p));
    if (v->pattern)
        any |= mha__pattern_hide(&m->pattern, r->first_key, b, head, i, keys.from, keys.to, terms);
    return any;
}

const float *mha__visible_terms_in_place(const mha__resolved *r, size_t b, size_t head, size_t i, mha__interval keys)
{
    if (!r->visibility.in_place)
        return NULL;
    mha__mask_row row = row_of(&r->masks.mask, (const size_t[4]){b, head, i, 0}, 4, r->plan.S);
    return row.step == 1 && keys.to <= row.n ? (const float *)(const void *)row.values + keys.from : NULL;
}

float mha__sink(const mha__resolved *r, size_t head)
{
    const mha_view *sinks = &r->weight[MHA_SINKS];
    const double sink = sinks->data ? mha_view_get(sinks, &head) : -INFINITY;
    return mha__finite_term(sink);
}
