/* Refuses calls whose results would overwrite their inputs or each other. */
#include "attention/call/definition.h"
#include "attention/plan.h"
#include "attention/cache/cache.h"
#include "attention/cache/pages.h"
#include "attention/call/settings/settings.h"
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

static mha_status expect_own_memory(const mha__resolved *r, const char *name, const mha_view *written, mha_error *error)
{
    TRY(mha__expect_own_places(name, written, error));
    const mha_view page_keys = mha__pages_memory(&r->pages.keys), page_values = mha__pages_memory(&r->pages.values),
                   table = array(r->pages.table, MHA_I32, r->plan.B * r->pages.columns),
                   lengths = array(r->pages.lengths, MHA_I64, r->plan.B);
    const struct {
        const char *name;
        const mha_view *view;
    } inputs[] = {
        {"query", &r->query},          {"key", &r->key},       {"value", &r->value},      {"page keys", &page_keys},
        {"page values", &page_values}, {"page table", &table}, {"page lengths", &lengths}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        TRY(expect_apart_from(name, written, inputs[i].name, inputs[i].view, error));
    for (size_t i = 0; i < mha__setting_count(); i++) {
        const mha_setting *s = mha_setting_at(i);
        const mha_view given = mha__setting_view(s, mha__semantics_of(r), r->plan.B, r->plan.h);
        TRY(expect_apart_from(name, written, s->name, &given, error));
    }
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const void *panels = r->layer ? mha__layer_packed(r->layer, (mha_weight)w) : NULL;
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
