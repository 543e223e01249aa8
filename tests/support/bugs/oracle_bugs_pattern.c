/* Calls whose pattern says something else than that of the case. */
#include "mha/tensor.h"
#include "support/bugs/oracle_bugs.h"

static void say_no_pattern(const run *r, mha_semantics *s)
{
    mha_pattern *p = &s->visible.pattern;
    (void)r;
    if (is("query-padding-missing"))
        p->query_padding = (mha_mask){0};
    if (is("segments-missing"))
        p->q_segments = p->k_segments = (mha_view){0};
    if (is("lists-missing"))
        p->key_lists = (mha_view){0};
    if (is("blocks-missing"))
        p->blocks = (mha_mask){0};
}

/* Lists of all queries and heads, each number changed. */
static void say_other_lists(const run *r, mha_semantics *s)
{
    enum { MOST = 1 << 15 };
    static int64_t numbers[MOST];
    const mha_view *v = &s->visible.pattern.key_lists;
    if (!v->data)
        return;
    const size_t full[4] = {r->B, r->h, r->T_q, v->shape[v->rank - 1]};
    size_t at = 0;
    for (size_t b = 0; b < r->B; b++)
        for (size_t row = 0; row < r->h * r->T_q * full[3]; row++, at++) {
            const size_t index[4] = {b, row / full[3] / r->T_q, row / full[3] % r->T_q, row % full[3]};
            size_t own[4] = {0};
            for (int k = 0; k < v->rank; k++)
                own[k] = v->shape[k] == 1 ? 0 : index[4 - v->rank + k];
            double key = oracle_get(v, own[0], own[1], own[2], own[3]), S = (double)keys_of(r, b);
            if (at == MOST)
                abort();
            if (key < 0 && (is("lists-fill-first") || is("lists-fill-last")))
                key = (double)s->place.key_offset + (double)r->first + (is("lists-fill-last") ? S + key : 0);
            key += is("lists-from-1") ? -1 : is("lists-one-further") ? 1 : 0;
            numbers[at] = (int64_t)key;
        }
    s->visible.pattern.key_lists = (mha_view){.data = numbers, .dtype = MHA_I64, .rank = 4};
    ptrdiff_t step = 1;
    for (int k = 3; k >= 0; step *= (ptrdiff_t)full[k--])
        s->visible.pattern.key_lists.shape[k] = full[k], s->visible.pattern.key_lists.stride[k] = step;
}

static void say_other_blocks(const run *r, mha_semantics *s)
{
    mha_pattern *p = &s->visible.pattern;
    mha_view *v = &p->blocks.values;
    if (is("blocks-polarity") && p->blocks.kind)
        p->blocks.kind = p->blocks.kind == MHA_MASK_HIDES ? MHA_MASK_KEEPS : MHA_MASK_HIDES;
    if (!is("blocks-transposed") || !p->blocks.kind || p->block_queries != p->block_keys ||
        r->rows_q != r->rows_k + r->P || ragged(r) || v->shape[2] != v->shape[3])
        return;
    const ptrdiff_t step = v->stride[2];
    v->stride[2] = v->stride[3], v->stride[3] = step;
}

/* Queries that are padding because the keys at their places are. */
static void say_padding(const run *r, mha_semantics *s)
{
    enum { MOST = 1 << 12 };
    static bool beyond[MOST];
    mha_mask *queries = &s->visible.pattern.query_padding;
    const size_t shape[] = {r->B, r->T_q};
    if (r->P > 0 || ragged(r) || r->T_q != r->T_k || queries->kind || r->B * r->T_q > MOST)
        return;
    if (is("padding-of-queries-too") && has_flags(&s->visible.key_padding) && !s->visible.has_padding_fill)
        *queries = s->visible.key_padding;
    for (size_t e = 0; e < r->B * r->T_q && s->visible.kv_lengths; e++)
        beyond[e] = (int64_t)(e % r->T_q) >= s->visible.kv_lengths[e / r->T_q];
    if (is("lengths-of-queries-too") && s->visible.kv_lengths)
        *queries = (mha_mask){MHA_MASK_HIDES, mha_view_of(beyond, MHA_BOOL, 2, shape)};
}

const oracle_bug *bug_of_pattern_at(size_t index)
{
    static const oracle_bug all[] = {
        {.name = "query-padding-missing", .says = say_no_pattern},
        {.name = "segments-missing", .says = say_no_pattern},
        {.name = "lists-missing", .says = say_no_pattern},
        {.name = "blocks-missing", .says = say_no_pattern},
        {.name = "lists-from-1", .says = say_other_lists},
        {.name = "lists-one-further", .says = say_other_lists},
        {.name = "lists-fill-first", .says = say_other_lists},
        {.name = "lists-fill-last", .says = say_other_lists},
        {.name = "blocks-polarity", .says = say_other_blocks},
        {.name = "blocks-transposed", .says = say_other_blocks},
        {.name = "padding-of-queries-too", .says = say_padding},
        {.name = "lengths-of-queries-too", .says = say_padding},
    };
    return index < sizeof all / sizeof *all ? &all[index] : NULL;
}
