/* What a bug makes of the pattern of a case: segments, query padding, lists of keys, blocks. */
#include <math.h>

#include "verify/bug_forward/bug_bench.h"

double mha__bug_element(const mha_view *v, const size_t index[4])
{
    size_t at[4] = {0};
    for (int k = 0; k < v->rank; k++)
        at[k] = v->shape[k] == 1 ? 0 : index[4 - v->rank + k];
    return mha_view_get(v, at);
}

bool mha__bug_pads(const mha__knobs *k, size_t b, size_t i)
{
    const mha_mask *padding = &k->s.visible.pattern.query_padding, *keys = &k->s.visible.key_padding;
    const size_t at[] = {0, 0, b, i};
    if (k->padding_of_queries == 2)
        return (int64_t)i >= k->s.visible.kv_lengths[b];
    if (k->padding_of_queries && (mha__bug_element(&keys->values, at) != 0) == (keys->kind == MHA_MASK_HIDES))
        return true;
    return padding->kind && (mha__bug_element(&padding->values, at) != 0) == (padding->kind == MHA_MASK_HIDES);
}

/* The row whose segment row t of n has. */
static size_t segment_row(const mha__knobs *k, size_t t, size_t n)
{
    const int64_t at = (int64_t)t - k->segments_shift;
    return at < 0 ? 0 : (size_t)at < n ? (size_t)at : n - 1;
}

static bool segment_hides(const mha_pattern *p, const mha__knobs *k, const mha__score_at *at)
{
    const mha_view *keys = p->k_segments.data ? &p->k_segments : &p->q_segments;
    const size_t b = k->segments_first ? 0 : at->b;
    const size_t i = segment_row(k, at->i, p->q_segments.shape[p->q_segments.rank - 1]),
                 j = segment_row(k, at->j, keys->shape[keys->rank - 1]);
    const double query = mha__bug_element(&p->q_segments, (const size_t[]){0, 0, b, i}),
                 key = mha__bug_element(keys, (const size_t[]){0, 0, b, j});
    return k->segments_earlier ? key > query : (key != query) != (k->segments_inverted != 0);
}

/* How often the list of a query names a key. */
static size_t times_named(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *at)
{
    const mha_view *lists = &k->s.visible.pattern.key_lists;
    const double first = k->part_at_0 ? 0 : (double)w->c->semantics.place.key_offset;
    size_t times = 0;
    for (size_t l = 0; l < lists->shape[lists->rank - 1]; l++) {
        double key = mha__bug_element(lists, (const size_t[]){at->b, at->h, at->i, l});
        if (key < 0 && k->lists_fill != FILL_NAMES_NONE)
            key = k->lists_fill == FILL_NAMES_FIRST ? 0 : (double)w->S + key;
        else
            key -= first;
        times += key + (double)k->lists_shift == (double)at->j;
    }
    return times;
}

static bool block_hides(const mha_pattern *p, const mha__score_at *at)
{
    const size_t block[4] = {at->b, at->h, at->i / p->block_queries, at->j / p->block_keys};
    return (mha__bug_element(&p->blocks.values, block) != 0) == (p->blocks.kind == MHA_MASK_HIDES);
}

bool mha__bug_pattern_hides(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *at, double *added)
{
    const mha_pattern *p = &k->s.visible.pattern;
    bool hides = p->q_segments.data && segment_hides(p, k, at);
    hides |= p->blocks.kind != MHA_MASK_NONE && block_hides(p, at);
    if (!p->key_lists.data)
        return hides;
    const size_t times = times_named(w, k, at);
    if (k->lists_each_time && times > 1)
        *added += log((double)times);
    return hides || times == 0;
}

static bool is_by_head(const mha_view *v)
{
    return v->rank > 2 && v->shape[v->rank - 3] > 1;
}

bool mha__bug_pattern_by_head(const mha__knobs *k)
{
    const mha_pattern *p = &k->s.visible.pattern;
    return (p->key_lists.data && is_by_head(&p->key_lists)) ||
           (p->blocks.kind != MHA_MASK_NONE && is_by_head(&p->blocks.values));
}
