/* What a query sees: which keys are hidden from it, and what is added to its scores. */
#include <math.h>

#include "verify/variant_forward/variant_bench.h"

/* The mask's value for a score; `missing` for keys beyond the mask's last column. */
static double mask_value(const mha_view *v, const mha__score_at *at, size_t S, double missing)
{
    const size_t whole[] = {at->b, at->h, at->i, at->j};
    size_t index[4] = {0};
    for (int k = 0; k < v->rank; k++) {
        size_t wanted = whole[4 - v->rank + k];
        index[k] = v->shape[k] == 1 ? 0 : wanted;
    }
    size_t reach = v->shape[v->rank - 1];
    if (reach > 1 && reach < S && at->j >= reach)
        return missing;
    return mha_view_get(v, index);
}

static bool rules_hide(const mha__variant_inputs *w, const mha__knobs *k, const mha__score_at *at)
{
    const mha_case *c = w->c;
    const int64_t offset = mha__case_offset(c, at->b), i = (int64_t)at->i, j = (int64_t)at->j;
    const int64_t bottom = (int64_t)w->S - (int64_t)c->T_q;
    const int64_t causal_offset = k->causal_align == CAUSAL_TOP_LEFT       ? 0
                                  : k->causal_align == CAUSAL_BOTTOM_RIGHT ? bottom
                                                                           : offset;
    if (k->causal && j > i + causal_offset + k->causal_shift)
        return true;
    if (k->window && k->window_left >= 0 && j < i + offset - k->window_left)
        return true;
    if (k->window && k->window_right >= 0 && j > i + offset + k->window_right)
        return true;
    if (k->use_lengths && c->semantics.key_offset + j >= c->semantics.kv_lengths[at->b] + k->lengths_shift)
        return true;
    return !k->use_cache && at->j < c->P;
}

/* Visibility is implemented in three places (steps/mask.c, exact.c and here); only this one has knobs. */
bool mha__variant_hides(const mha__variant_inputs *w, const mha__knobs *k, const mha__score_at *at, double *added)
{
    const mha_semantics *s = &w->c->semantics;
    bool hidden = rules_hide(w, k, at);
    *added = 0;
    if (k->mask_kind == MHA_MASK_ADDITIVE) {
        double m = k->mask_sign * mask_value(&s->mask.values, at, w->S, -INFINITY * k->mask_sign);
        hidden |= m == -INFINITY;
        *added += m == -INFINITY ? 0 : m;
    } else if (k->mask_kind != MHA_MASK_NONE) {
        double hides = k->mask_kind == MHA_MASK_HIDES;
        hidden |= (mask_value(&s->mask.values, at, w->S, hides) != 0) == (k->mask_kind == MHA_MASK_HIDES);
    }
    const mha_view *padding = &s->key_padding.values;
    if (k->padding_kind != MHA_MASK_NONE) {
        double p = mha_view_get(padding, (const size_t[]){padding->shape[0] == 1 ? 0 : at->b, at->j});
        if (k->padding_kind == MHA_MASK_ADDITIVE) {
            hidden |= p == -INFINITY;
            *added += p == -INFINITY ? 0 : p;
        } else if ((p != 0) == (k->padding_kind == MHA_MASK_HIDES)) {
            if (k->use_padding_fill)
                *added += s->padding_fill;
            else
                hidden = true;
        }
    }
    if (k->alibi_sign != 0) {
        int64_t offset = k->alibi_from_0 ? 0 : mha__case_offset(w->c, at->b);
        *added -= k->alibi_sign * s->alibi_slopes[at->h] * (double)(offset + (int64_t)at->i - (int64_t)at->j);
    }
    return hidden;
}

bool mha__variant_heads_see_alike(const mha_case *c, const mha__knobs *k)
{
    const mha_view *mask = &c->semantics.mask.values;
    const bool by_head = k->mask_kind != MHA_MASK_NONE && mask->rank >= 3 && mask->shape[mask->rank - 3] > 1;
    return !by_head && k->alibi_sign == 0;
}

bool mha__variant_sees_alike(const mha__variant_inputs *w, const mha__knobs *one, const mha__knobs *other, size_t b,
                             size_t i)
{
    const size_t heads =
        mha__variant_heads_see_alike(w->c, one) && mha__variant_heads_see_alike(w->c, other) ? 1 : w->c->H;
    for (size_t h = 0; h < heads; h++)
        for (size_t j = 0; j < w->S; j++) {
            const mha__score_at at = {b, h, i, j};
            double x, y;
            const bool hidden = mha__variant_hides(w, one, &at, &x);
            if (hidden != mha__variant_hides(w, other, &at, &y) || (!hidden && x != y))
                return false;
        }
    return true;
}

size_t mha__variant_count_hidden(const mha__variant_inputs *inputs, const mha__knobs *knobs, size_t b, size_t i)
{
    double added;
    size_t count = 0;
    for (size_t j = 0; j < inputs->S; j++)
        count += mha__variant_hides(inputs, knobs, &(mha__score_at){b, 0, i, j}, &added);
    return count;
}
