/* Refuses calls whose results would overwrite their inputs or each other. */
#include "attention/apart.h"
#include "attention/cache/cache.h"
#include "attention/cache/pages.h"
#include "attention/layer/layer.h"
#include "base/overlap.h"

static mha_status expect_apart_from(const char *name, const mha_view *written, const char *other_name,
                                    const mha_view *other, mha_error *error)
{
    if (!mha__may_meet(written, other))
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, name, "expected memory of its own, found an overlap with %s", other_name);
}

static mha_view array(const void *data, mha_dtype dtype, size_t count)
{
    return mha_view_of(mha__unconst(data), dtype, 1, &count);
}

static mha_status expect_own_memory(const mha__resolved *r, const char *name, const mha_view *written,
                                    mha_error *error)
{
    const mha_semantics *s = &r->semantics;
    TRY(mha__expect_own_places(name, written, error));
    const mha_view offsets = array(s->place.position_offset, MHA_I64, r->plan.B),
                   lengths = array(s->visible.kv_lengths, MHA_I64, r->plan.B),
                   slopes = array(s->added.alibi_slopes, MHA_F64, r->plan.h),
                   cu_q = array(s->place.cu_seqlens_q, MHA_I64, s->place.n_sequences + 1),
                   cu_k = array(s->place.cu_seqlens_k, MHA_I64, s->place.n_sequences + 1),
                   page_keys = mha__pages_memory(&r->pages.keys), page_values = mha__pages_memory(&r->pages.values),
                   table = array(r->pages.table, MHA_I32, r->plan.B * r->pages.columns),
                   page_lengths = array(r->pages.lengths, MHA_I64, r->plan.B);
    const struct {
        const char *name;
        const mha_view *view;
    } inputs[] = {{"query", &r->query},
                  {"key", &r->key},
                  {"value", &r->value},
                  {"the mask", &s->visible.mask.values},
                  {"key_padding", &s->visible.key_padding.values},
                  {"q_segments", &s->visible.pattern.q_segments},
                  {"k_segments", &s->visible.pattern.k_segments},
                  {"query_padding", &s->visible.pattern.query_padding.values},
                  {"key_lists", &s->visible.pattern.key_lists},
                  {"blocks", &s->visible.pattern.blocks.values},
                  {"the rotation tables", &s->qkv.rope.cos_table},
                  {"the rotation tables", &s->qkv.rope.sin_table},
                  {"the rotation's frequencies", &s->qkv.rope.frequencies},
                  {"q_positions", &s->qkv.rope.q_positions},
                  {"k_positions", &s->qkv.rope.k_positions},
                  {"position_offset", &offsets},
                  {"kv_lengths", &lengths},
                  {"alibi_slopes", &slopes},
                  {"cu_seqlens_q", &cu_q},
                  {"cu_seqlens_k", &cu_k},
                  {"the pages", &page_keys},
                  {"the pages", &page_values},
                  {"the page table", &table},
                  {"the page lengths", &page_lengths}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i].view->data)
            TRY(expect_apart_from(name, written, inputs[i].name, inputs[i].view, error));
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const void *panels = r->layer ? mha__layer_packed(r->layer, (mha_weight)w, NULL) : NULL;
        const size_t bytes = panels ? mha_tensor_info_of(mha_layer_weight(r->layer, (mha_weight)w)).packed_bytes : 0;
        const mha_view packed = array(panels, MHA_U8, bytes);
        TRY(expect_apart_from(name, written, mha_weight_at((mha_weight)w)->name, &r->weight[w], error));
        TRY(expect_apart_from(name, written, mha_weight_at((mha_weight)w)->name, &packed, error));
    }
    for (const mha_cache *cache = r->cache; cache; cache = mha__cache_trunk(cache))
        for (int v = 0; v < 2; v++) {
            const mha_view rows = mha__cache_memory(cache, v);
            TRY(expect_apart_from(name, written, "the cache", &rows, error));
        }
    return MHA_OK;
}

mha_status mha__expect_apart(const mha__resolved *r, mha_error *error)
{
    if (r->output.data)
        TRY(expect_own_memory(r, "output", &r->output, error));
    if (r->partial.data) {
        TRY(expect_own_memory(r, "partial", &r->partial, error));
        TRY(expect_apart_from("partial", &r->partial, "output", &r->output, error));
    }
    for (size_t i = 0; i < r->keep_count; i++) {
        const mha_view *view = &r->keep[i].view;
        const char *name = mha_stage_at(r->keep[i].stage)->name;
        if (!view->data)
            continue;
        TRY(expect_own_memory(r, name, view, error));
        TRY(expect_apart_from(name, view, "output", &r->output, error));
        TRY(expect_apart_from(name, view, "partial", &r->partial, error));
        for (size_t j = 0; j < i; j++)
            TRY(expect_apart_from(name, view, mha_stage_at(r->keep[j].stage)->name, &r->keep[j].view, error));
    }
    return MHA_OK;
}
