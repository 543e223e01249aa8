/* The exact path: which keys a query sees and what is added to a score, by the definitions in attention.h. */
#include <math.h>

#include "attention/exact/exact_visible.h"

/* The element of a mask at `index`, broadcast from the right; false when the mask is too short to have it. */
static bool mask_element(const mha_view *mask, const size_t *index, int rank, size_t S, double *value)
{
    size_t at[4] = {0};
    int missing = rank - mask->rank;
    for (int k = 0; k < mask->rank; k++)
        at[k] = mask->shape[k] == 1 ? 0 : index[missing + k];
    int last = mask->rank - 1;
    if (mask->shape[last] != 1 || S == 1)
        if (index[rank - 1] >= mask->shape[last])
            return false;
    *value = mha_view_get(mask, at);
    return true;
}

/* The number of the chunk of n positions that a position lies in; -1 is that before position 0. */
static int64_t chunk_of(int64_t position, int64_t n)
{
    return position >= 0 ? position / n : -((-position - 1) / n) - 1;
}

/* The element of one of a pattern's views at the last of these indices, broadcast. */
static double element_of(const mha_view *v, const size_t index[4])
{
    size_t at[4] = {0};
    for (int k = 0; k < v->rank; k++)
        at[k] = v->shape[k] == 1 ? 0 : index[4 - v->rank + k];
    return mha_view_get(v, at);
}

static int64_t whole_number(const mha_view *v, const size_t index[4])
{
    ptrdiff_t at = 0;
    for (int k = 0; k < v->rank; k++)
        at += v->shape[k] == 1 ? 0 : (ptrdiff_t)index[4 - v->rank + k] * v->stride[k];
    return ((const int64_t *)v->data)[at];
}

bool mha__exact_pads(const mha__resolved *r, size_t b, size_t i)
{
    const mha_mask *padding = &r->semantics.pattern.query_padding;
    if (padding->kind == MHA_MASK_NONE)
        return false;
    return (element_of(&padding->values, (const size_t[]){0, 0, b, i}) != 0) == (padding->kind == MHA_MASK_HIDES);
}

static bool list_names(const mha_view *lists, size_t b, size_t head, size_t i, int64_t position)
{
    for (size_t l = 0; l < lists->shape[lists->rank - 1]; l++)
        if (whole_number(lists, (const size_t[]){b, head, i, l}) == position)
            return true;
    return false;
}

/* Whether the pattern of a call lets query i see key j. */
static bool pattern_shows(const mha__resolved *r, size_t b, size_t head, size_t i, size_t j)
{
    const mha_pattern *p = &r->semantics.pattern;
    const mha_view *keys = p->k_segments.data ? &p->k_segments : &p->q_segments;
    if (mha__exact_pads(r, b, i))
        return false;
    if (p->q_segments.data &&
        whole_number(&p->q_segments, (const size_t[]){0, 0, b, i}) !=
            whole_number(keys, (const size_t[]){0, 0, b, j}))
        return false;
    if (p->blocks.kind != MHA_MASK_NONE) {
        const size_t at[4] = {b, head, i / p->block_queries, j / p->block_keys};
        if ((element_of(&p->blocks.values, at) != 0) == (p->blocks.kind == MHA_MASK_HIDES))
            return false;
    }
    return !p->key_lists.data || list_names(&p->key_lists, b, head, i, r->first_key + (int64_t)j);
}

/* Whether query i of sequence b sees key j, and what is added to that score. */
bool mha__exact_visible(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i, size_t j,
                        double *added)
{
    const mha_semantics *sem = &r->semantics;
    int64_t p = s->offset + (int64_t)i, key = r->first_key + (int64_t)j;
    *added = 0;
    if (sem->causal && key > p && key >= sem->prefix)
        return false;
    if (sem->window && sem->window_left >= 0 && key < p - sem->window_left && key >= sem->window_keep)
        return false;
    if (sem->chunk > 0 && chunk_of(key, sem->chunk) != chunk_of(p, sem->chunk))
        return false;
    if (sem->window && sem->window_right >= 0 && key > p + sem->window_right)
        return false;
    if (sem->kv_lengths && sem->key_offset + (int64_t)j >= sem->kv_lengths[b])
        return false;
    if (sem->alibi_slopes)
        *added -= sem->alibi_slopes[head] * (double)(p - key);
    if (sem->bias.rule != MHA_BIAS_RULE_NONE) {
        const mha_view *table = &r->weight[MHA_BIAS_TABLE];
        const double bias = mha_view_get(table, (size_t[]){mha_bias_row(&sem->bias, table->shape[0], p, key), head});
        if (bias == -INFINITY)
            return false;
        *added += bias;
    }
    const struct {
        const mha_mask *mask;
        int rank;
        size_t index[4];
        bool fills;
    } masks[] = {{&sem->key_padding, 2, {b, j}, sem->has_padding_fill}, {&sem->mask, 4, {b, head, i, j}, false}};
    for (int m = 0; m < 2; m++) {
        double value;
        if (masks[m].mask->kind == MHA_MASK_NONE)
            continue;
        if (!mask_element(&masks[m].mask->values, masks[m].index, masks[m].rank, s->S, &value))
            return false;
        if (masks[m].mask->kind == MHA_MASK_KEEPS || masks[m].mask->kind == MHA_MASK_HIDES) {
            bool hides = (value != 0) == (masks[m].mask->kind == MHA_MASK_HIDES);
            if (!hides)
                continue;
            value = masks[m].fills ? sem->padding_fill : -INFINITY;
        }
        if (value == -INFINITY)
            return false;
        *added += value;
    }
    return pattern_shows(r, b, head, i, j);
}
