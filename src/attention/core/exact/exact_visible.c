/* The exact path: which keys a query sees and what is added to a score, by the definitions in attention.h. */
#include <math.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_visible.h"
#include "attention/core/terms/terms.h"

/* The number of the chunk of n positions that a position lies in; -1 is that before position 0. */
static int64_t chunk_of(int64_t position, int64_t n)
{
    return position >= 0 ? position / n : -((-position - 1) / n) - 1;
}

double mha__exact_element(const mha_view *v, const size_t index[4])
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
    const mha_mask *padding = &mha__semantics_of(r)->visible.pattern.query_padding;
    if (padding->kind == MHA_MASK_NONE)
        return false;
    return (mha__exact_element(&padding->values, (const size_t[]){0, 0, b, i}) != 0) ==
           (padding->kind == MHA_MASK_HIDES);
}

static bool list_names(const mha_view *lists, size_t b, size_t head, size_t i, int64_t position)
{
    for (size_t l = 0; l < lists->shape[lists->rank - 1]; l++)
        if (whole_number(lists, (const size_t[]){b, head, i, l}) == position)
            return true;
    return false;
}

static bool segments_differ(const mha_pattern *p, size_t b, size_t i, size_t j)
{
    const mha_view *keys = p->k_segments.data ? &p->k_segments : &p->q_segments;
    return p->q_segments.data && whole_number(&p->q_segments, (const size_t[]){0, 0, b, i}) !=
                                     whole_number(keys, (const size_t[]){0, 0, b, j});
}

static bool block_hides(const mha_pattern *p, size_t b, size_t head, size_t i, size_t j)
{
    if (p->blocks.kind == MHA_MASK_NONE)
        return false;
    const size_t at[4] = {b, head, i / p->block_queries, j / p->block_keys};
    return (mha__exact_element(&p->blocks.values, at) != 0) == (p->blocks.kind == MHA_MASK_HIDES);
}

/* A mask's term for the score of a key, the last of these indices, among S: -infinity hides it, and so does a mask
 * that is too short to have it. 0 where there is no mask. */
static double mask_adds(const mha_mask *mask, const size_t index[4], size_t S, double where_hidden)
{
    if (mask->kind == MHA_MASK_NONE)
        return 0;
    const size_t width = mask->values.shape[mask->values.rank - 1];
    if ((width != 1 || S == 1) && index[3] >= width)
        return -INFINITY;
    const double value = mha__exact_element(&mask->values, index);
    if (mask->kind == MHA_MASK_ADDITIVE)
        return value;
    return (value != 0) == (mask->kind == MHA_MASK_HIDES) ? where_hidden : 0;
}

/* The entry of the table of biases for a query at position p and a key at position q. */
static double bias_of(const mha__resolved *r, size_t head, int64_t p, int64_t q)
{
    const mha_view *table = &r->weight[MHA_BIAS_TABLE];
    if (mha__semantics_of(r)->added.bias.rule == MHA_BIAS_RULE_NONE)
        return 0;
    return mha_view_get(table,
                        (size_t[]){mha__bias_row(&mha__semantics_of(r)->added.bias, table->shape[0], p, q), head});
}

mha__exact_parts mha__exact_parts_of(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i,
                                     size_t j)
{
    const mha_visible *visible = &mha__semantics_of(r)->visible;
    const mha_pattern *p = &visible->pattern;
    const int64_t key = r->first_key + (int64_t)j;
    mha__exact_parts parts = {0};
    parts.hides[MHA__HIDER_QUERY_PADDING] = mha__exact_pads(r, b, i);
    if (j >= s->S)
        return parts;
    const double fill = visible->has_padding_fill ? visible->padding_fill : -INFINITY;
    parts.bias = bias_of(r, head, s->offset + (int64_t)i, key);
    parts.padding = mask_adds(&visible->key_padding, (const size_t[]){0, 0, b, j}, s->S, fill);
    parts.mask = mask_adds(&visible->mask, (const size_t[]){b, head, i, j}, s->S, -INFINITY);
    parts.hides[MHA__HIDER_BIAS] = parts.bias == -INFINITY;
    parts.hides[MHA__HIDER_PADDING] = parts.padding == -INFINITY;
    parts.hides[MHA__HIDER_MASK] = parts.mask == -INFINITY;
    parts.hides[MHA__HIDER_SEGMENTS] = segments_differ(p, b, i, j);
    parts.hides[MHA__HIDER_LISTS] = p->key_lists.data && !list_names(&p->key_lists, b, head, i, key);
    parts.hides[MHA__HIDER_BLOCKS] = block_hides(p, b, head, i, j);
    return parts;
}

/* Whether the rules of positions and lengths let query i of sequence b see key j. */
static bool position_shows(const mha__resolved *r, const mha__sequence *s, size_t b, size_t i, size_t j)
{
    const mha_visible *v = &mha__semantics_of(r)->visible;
    const int64_t p = s->offset + (int64_t)i, key = r->first_key + (int64_t)j;
    if (v->causal && key > p && key >= v->prefix)
        return false;
    if (v->has_window_left && key < p - v->window_left && key >= v->window_keep)
        return false;
    if (v->chunk > 0 && chunk_of(key, v->chunk) != chunk_of(p, v->chunk))
        return false;
    if (v->has_window_right && key > p + v->window_right)
        return false;
    return !v->kv_lengths || mha__semantics_of(r)->place.key_offset + (int64_t)j < v->kv_lengths[b];
}

/* Whether everything else does, and what is added to that score. */
static bool others_show(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i, size_t j,
                        double *added)
{
    const double *slopes = mha__semantics_of(r)->added.alibi_slopes;
    const mha__exact_parts parts = mha__exact_parts_of(r, s, b, head, i, j);
    for (int h = 0; h < MHA__HIDER_COUNT; h++)
        if (parts.hides[h])
            return false;
    if (slopes)
        *added -= slopes[head] * (double)(s->offset + (int64_t)i - r->first_key - (int64_t)j);
    *added += parts.bias;
    *added += parts.padding;
    *added += parts.mask;
    return true;
}

/* Whether a call has anything else. */
static bool has_others(const mha_semantics *s)
{
    const mha_pattern *p = &s->visible.pattern;
    return s->added.alibi_slopes || s->added.bias.rule != MHA_BIAS_RULE_NONE ||
           s->visible.key_padding.kind != MHA_MASK_NONE || s->visible.mask.kind != MHA_MASK_NONE ||
           p->query_padding.kind != MHA_MASK_NONE || p->q_segments.data || p->blocks.kind != MHA_MASK_NONE ||
           p->key_lists.data;
}

double mha__exact_dropout(const mha__resolved *r, size_t b, size_t head, size_t i, size_t j)
{
    const mha_softmax *s = &mha__semantics_of(r)->softmax;
    const bool dropped =
        s->dropout_keep.data && mha__exact_element(&s->dropout_keep, (const size_t[]){b, head, i, j}) == 0;
    return dropped ? 0 : 1 / (1 - s->dropout_p);
}

void mha__exact_see(const mha__resolved *r, const mha__sequence *s, size_t b, size_t head, size_t i,
                    unsigned char *seen, double *added)
{
    const bool others = has_others(mha__semantics_of(r));
    for (size_t j = 0; j < s->S; j++) {
        added[j] = 0;
        seen[j] = position_shows(r, s, b, i, j) && (!others || others_show(r, s, b, head, i, j, &added[j]));
    }
}
