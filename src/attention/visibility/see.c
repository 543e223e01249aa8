/* The keys that a query sees by the pattern of its call. */
#include <math.h>
#include <string.h>

#include "attention/visibility/pattern.h"

mha__mask_row mha__mask_row_at(const mha_view *v, const size_t *index, int rank)
{
    ptrdiff_t at = 0;
    const int last = v->rank - 1;
    for (int k = 0; k < last; k++)
        if (v->shape[k] > 1)
            at += (ptrdiff_t)index[rank - v->rank + k] * v->stride[k];
    const ptrdiff_t element = v->dtype == MHA_F64 || v->dtype == MHA_I64 ? 8 : v->dtype == MHA_F32 ? 4 : 1;
    return (mha__mask_row){(const char *)v->data + at * element, v->dtype, v->shape[last] == 1 ? 0 : v->stride[last],
                           v->shape[last]};
}

static int64_t number(const mha__mask_row *x, size_t j)
{
    return ((const int64_t *)(const void *)x->values)[(ptrdiff_t)j * x->step];
}

static bool truth(const mha__mask_row *x, size_t j)
{
    return x->values[(ptrdiff_t)j * x->step] != 0;
}

static bool has_minus_infinity(const mha_view *table)
{
    for (size_t i = 0; table->data && i < table->shape[0]; i++)
        for (size_t h = 0; h < table->shape[1]; h++)
            if (mha_view_get(table, (size_t[]){i, h}) == -INFINITY)
                return true;
    return false;
}

bool mha__hides_keys(const mha__visibility *v, const mha_view *bias_table)
{
    return v->hides || has_minus_infinity(bias_table);
}

bool mha__pattern_pads(const mha_pattern *p, size_t b, size_t i)
{
    if (p->query_padding.kind == MHA_MASK_NONE)
        return false;
    const mha__mask_row padding = mha__mask_row_at(&p->query_padding.values, (const size_t[2]){b, 0}, 2);
    return truth(&padding, i) == (p->query_padding.kind == MHA_MASK_HIDES);
}

/* ---------------------------------------------------------------- segments */

static mha__mask_row segments_of_keys(const mha_pattern *p, size_t b)
{
    return mha__mask_row_at(p->k_segments.data ? &p->k_segments : &p->q_segments, (const size_t[2]){b, 0}, 2);
}

static int64_t segment_of_query(const mha_pattern *p, size_t b, size_t i)
{
    const mha__mask_row queries = mha__mask_row_at(&p->q_segments, (const size_t[2]){b, 0}, 2);
    return number(&queries, i);
}

bool mha__pattern_in_order(const mha_pattern *p, size_t b, size_t S)
{
    if (!p->q_segments.data)
        return true;
    const mha__mask_row keys = segments_of_keys(p, b);
    for (size_t j = 1; j < S; j++)
        if (number(&keys, j) < number(&keys, j - 1))
            return false;
    return true;
}

/* The first key of [from, to), whose segments never decrease, with a segment of at least `least`; `to`: none. */
static size_t first_at_least(const mha__mask_row *keys, int64_t least, size_t from, size_t to)
{
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (number(keys, middle) < least)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool trim_segments(const mha_pattern *p, bool in_order, size_t b, size_t i, size_t *from, size_t *to)
{
    const mha__mask_row keys = segments_of_keys(p, b);
    const int64_t own = segment_of_query(p, b, i);
    if (in_order) {
        *from = first_at_least(&keys, own, *from, *to);
        *to = own == INT64_MAX ? *to : first_at_least(&keys, own + 1, *from, *to);
        return false;
    }
    while (*from < *to && number(&keys, *from) != own)
        ++*from;
    while (*from < *to && number(&keys, *to - 1) != own)
        --*to;
    for (size_t j = *from; j < *to; j++)
        if (number(&keys, j) != own)
            return true;
    return false;
}

/* ---------------------------------------------------------------- lists of keys */

static mha__mask_row list_of(const mha_pattern *p, size_t b, size_t head, size_t i)
{
    return mha__mask_row_at(&p->key_lists, (const size_t[4]){b, head, i, 0}, 4);
}

/* The number of the key that an entry names, counted from `from`; `n` or more: it names none of the n keys there. */
static size_t named(int64_t first_key, const mha__mask_row *list, size_t entry, size_t from, size_t n)
{
    int64_t key;
    if (__builtin_sub_overflow(number(list, entry), first_key + (int64_t)from, &key) || key < 0)
        return n;
    return (size_t)key;
}

static bool trim_list(const mha_pattern *p, int64_t first_key, size_t b, size_t head, size_t i, size_t *from,
                      size_t *to)
{
    const mha__mask_row list = list_of(p, b, head, i);
    const size_t begin = *from, n = *to - *from;
    size_t least = n, end = 0;
    for (size_t l = 0; l < list.n; l++) {
        const size_t key = named(first_key, &list, l, begin, n);
        if (key >= n)
            continue;
        least = key < least ? key : least;
        end = key >= end ? key + 1 : end;
    }
    *from = begin + (least < end ? least : 0), *to = begin + end;
    return *from + 1 < *to;
}

static bool hide_unlisted(const mha_pattern *p, int64_t first_key, size_t b, size_t head, size_t i, size_t from,
                          size_t to, float *terms)
{
    enum { AT_ONCE = 1024 };
    const mha__mask_row list = list_of(p, b, head, i);
    bool any = false;
    for (size_t n; from < to; from += n, terms += n) {
        bool listed[AT_ONCE] = {false};
        n = to - from < AT_ONCE ? to - from : AT_ONCE;
        for (size_t l = 0; l < list.n; l++) {
            const size_t key = named(first_key, &list, l, from, n);
            if (key < n)
                listed[key] = true;
        }
        for (size_t j = 0; j < n; j++) {
            terms[j] = listed[j] ? terms[j] : -INFINITY;
            any |= !listed[j];
        }
    }
    return any;
}

/* ---------------------------------------------------------------- blocks */

static mha__mask_row blocks_of_query(const mha_pattern *p, size_t b, size_t head, size_t i)
{
    return mha__mask_row_at(&p->blocks.values, (const size_t[4]){b, head, i / p->block_queries, 0}, 4);
}

static bool hides_block(const mha_pattern *p, const mha__mask_row *blocks, size_t block)
{
    return truth(blocks, block) == (p->blocks.kind == MHA_MASK_HIDES);
}

static bool trim_blocks(const mha_pattern *p, size_t b, size_t head, size_t i, size_t *from, size_t *to)
{
    const mha__mask_row blocks = blocks_of_query(p, b, head, i);
    const size_t size = p->block_keys;
    while (*from < *to && hides_block(p, &blocks, *from / size))
        *from = *to - *from / size * size <= size ? *to : (*from / size + 1) * size;
    while (*from < *to && hides_block(p, &blocks, (*to - 1) / size))
        *to = (*to - 1) / size * size;
    for (size_t block = *from / size; *from < *to && block <= (*to - 1) / size; block++)
        if (hides_block(p, &blocks, block))
            return true;
    return false;
}

static bool hide_blocks(const mha_pattern *p, size_t b, size_t head, size_t i, size_t from, size_t to, float *terms)
{
    const mha__mask_row blocks = blocks_of_query(p, b, head, i);
    bool any = false;
    for (size_t j = from, end; j < to; j = end) {
        const size_t block = j / p->block_keys, rest = p->block_keys - j % p->block_keys;
        end = to - j < rest ? to : j + rest;
        if (!hides_block(p, &blocks, block))
            continue;
        any = true;
        for (size_t k = j; k < end; k++)
            terms[k - from] = -INFINITY;
    }
    return any;
}

/* ---------------------------------------------------------------- the whole */

bool mha__pattern_trim(const mha_pattern *p, int64_t first_key, bool in_order, size_t b, size_t head, size_t i,
                       size_t *from, size_t *to)
{
    bool hides = false;
    if (p->q_segments.data && *from < *to)
        hides |= trim_segments(p, in_order, b, i, from, to);
    if (p->blocks.kind != MHA_MASK_NONE && *from < *to)
        hides |= trim_blocks(p, b, head, i, from, to);
    if (p->key_lists.data && *from < *to)
        hides |= trim_list(p, first_key, b, head, i, from, to);
    return hides && *from < *to;
}

bool mha__pattern_hide(const mha_pattern *p, int64_t first_key, size_t b, size_t head, size_t i, size_t from, size_t to,
                       float *terms)
{
    bool any = false;
    if (p->q_segments.data) {
        const mha__mask_row keys = segments_of_keys(p, b);
        const int64_t own = segment_of_query(p, b, i);
        for (size_t j = from; j < to; j++) {
            const bool other = number(&keys, j) != own;
            terms[j - from] = other ? -INFINITY : terms[j - from];
            any |= other;
        }
    }
    if (p->blocks.kind != MHA_MASK_NONE)
        any |= hide_blocks(p, b, head, i, from, to, terms);
    if (p->key_lists.data)
        any |= hide_unlisted(p, first_key, b, head, i, from, to, terms);
    return any;
}
