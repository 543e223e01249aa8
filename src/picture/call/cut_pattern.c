/* A part of a pattern: of one batch row, some heads and some queries. */
#include "base/heads.h"
#include "picture/call/call.h"

void mha__pattern_cut(mha_pattern *p, size_t b, const size_t heads[2], size_t from, size_t count)
{
    mha_view *const by_row[] = {&p->q_segments, &p->k_segments, &p->query_padding.values},
             *const by_head[] = {&p->key_lists, &p->blocks.values};
    if (p->q_segments.data && !p->k_segments.data)
        p->k_segments = p->q_segments;
    for (size_t i = 0; i < 3; i++)
        mha__view_cut(by_row[i], 1, b, 1);
    for (size_t i = 0; i < 2; i++) {
        mha__view_cut(by_head[i], 3, b, 1);
        mha__view_cut(by_head[i], 2, heads[0], heads[1] - heads[0]);
    }
    mha__view_cut(&p->q_segments, 0, from, count);
    mha__view_cut(&p->query_padding.values, 0, from, count);
    mha__view_cut(&p->key_lists, 1, from, count);
    const size_t size = p->block_queries;
    if (size > 0 && count > 0)
        mha__view_cut(&p->blocks.values, 1, from / size, (from + count - 1) / size - from / size + 1);
}
