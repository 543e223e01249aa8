/* Refuses calls whose results would overwrite their inputs or each other, as far as strides and extents show it. */
#include "attention/overlap.h"
#include "attention/cache/cache.h"
#include "attention/layer/layer.h"
#include "attention/pages/pages.h"

/* The bytes of a view: the lowest address, and the positive steps in bytes along the axes longer than 1. */
typedef struct region {
    intptr_t low;
    int64_t extent[MHA_MAX_RANK], step[MHA_MAX_RANK];
    int rank;
    int64_t element;
} region;

/* False for a view without bytes, or with more than can be counted, which no memory holds. */
static bool region_of(const mha_view *view, region *g)
{
    size_t element = 0, elements;
    if (!view->data || (elements = mha_view_elements(view)) == 0)
        return false;
    if (mha_dtype_bytes(view->dtype, 1, &element) != MHA_OK) { /* blocks: weights of a layer, which have no gaps */
        if (mha_dtype_bytes(view->dtype, elements, &element) != MHA_OK || element > INT64_MAX)
            return false;
        *g = (region){.low = (intptr_t)view->data, .element = (int64_t)element};
        return true;
    }
    *g = (region){.low = (intptr_t)view->data, .element = (int64_t)element};
    for (int k = 0; k < view->rank; k++) {
        int64_t step, size, across;
        if (view->shape[k] < 2 || view->stride[k] == 0)
            continue;
        if (view->shape[k] > INT64_MAX / 2 || __builtin_mul_overflow(view->stride[k], (int64_t)element, &step) ||
            __builtin_sub_overflow((int64_t)0, step, &size) ||
            __builtin_mul_overflow(step, (int64_t)view->shape[k] - 1, &across))
            return false;
        if (step < 0 && __builtin_add_overflow(g->low, across, &g->low))
            return false;
        g->extent[g->rank] = (int64_t)view->shape[k];
        g->step[g->rank++] = step < 0 ? size : step;
    }
    return true;
}

/* Orders the axes by their steps, the smallest first. */
static void sort_axes(region *g)
{
    for (int k = 1; k < g->rank; k++)
        for (int i = k; i > 0 && g->step[i - 1] > g->step[i]; i--) {
            const int64_t step = g->step[i], extent = g->extent[i];
            g->step[i] = g->step[i - 1], g->extent[i] = g->extent[i - 1];
            g->step[i - 1] = step, g->extent[i - 1] = extent;
        }
}

/* Whether two elements that lie `bytes` apart along other axes meet, as the first `axes` sorted ones may move them, by
 * `reach` at most. `differ`: they are two, whatever these axes say. Looks at *places, and takes the rest for
 * meeting. */
static bool meet(const region *g, int axes, int64_t reach, int64_t bytes, bool differ, int *places)
{
    if (axes == 0)
        return differ && bytes == 0;
    const int64_t step = g->step[axes - 1], most = g->extent[axes - 1] - 1, rest = reach - most * step;
    const int64_t low = (-bytes - rest) / step - 1, high = (-bytes + rest) / step + 1;
    for (int64_t n = low < -most ? -most : low; n <= high && n <= most; n++)
        if (--*places < 0 || meet(g, axes - 1, rest, bytes + n * step, differ || n != 0, places))
            return true;
    return false;
}

/* Makes *places negative where it stops looking. */
static bool meets_itself(const mha_view *view, int *places)
{
    region g;
    int64_t reach = 0;
    bool nested = true;
    if (!region_of(view, &g))
        return false;
    for (int k = 0; k < view->rank; k++)
        if (view->shape[k] > 1 && view->stride[k] == 0)
            return true;
    sort_axes(&g);
    for (int k = 0; k < g.rank; k++) {
        int64_t across;
        nested &= g.step[k] > reach;
        if (__builtin_mul_overflow(g.step[k], g.extent[k] - 1, &across) ||
            __builtin_add_overflow(reach, across, &reach))
            return false;
    }
    return !nested && ((uint64_t)(reach / g.element) < mha_view_elements(view) - 1 ||
                       meet(&g, g.rank, reach, 0, false, places));
}

/* The number of bytes from the first to the last along axes with steps below `limit`; -1 when it does not fit. */
static int64_t span_below(const region *g, int64_t limit)
{
    int64_t span = g->element;
    for (int k = 0; k < g->rank; k++) {
        int64_t across;
        if (g->step[k] < limit && (__builtin_mul_overflow(g->step[k], g->extent[k] - 1, &across) ||
                                   __builtin_add_overflow(span, across, &span)))
            return -1;
    }
    return span;
}

/* Whether all steps of at least `pitch` are multiples of it: the view then repeats itself every `pitch` bytes. */
static bool has_period(const region *g, int64_t pitch)
{
    bool has = true;
    for (int k = 0; k < g->rank; k++)
        has &= g->step[k] < pitch || g->step[k] % pitch == 0;
    return has;
}

/* Whether both views repeat themselves every `pitch` bytes and take up different bytes of each period. */
static bool apart_in_period(const region *a, const region *b, int64_t pitch)
{
    const int64_t span_a = span_below(a, pitch), span_b = span_below(b, pitch);
    if (span_a < 0 || span_b < 0 || span_a > pitch || span_b > pitch || !has_period(a, pitch) || !has_period(b, pitch))
        return false;
    int64_t from_a = (b->low - a->low) % pitch; /* addresses are positive, so that nothing overflows */
    from_a += from_a < 0 ? pitch : 0;
    return from_a >= span_a && pitch - from_a >= span_b;
}

bool mha__may_meet(const mha_view *one, const mha_view *other)
{
    region a, b;
    if (!region_of(other, &b) || !region_of(one, &a)) /* b first: most calls lack most inputs */
        return false;
    const int64_t span_a = span_below(&a, INT64_MAX), span_b = span_below(&b, INT64_MAX);
    if (span_a >= 0 && a.low <= INTPTR_MAX - span_a && a.low + span_a <= b.low)
        return false;
    if (span_b >= 0 && b.low <= INTPTR_MAX - span_b && b.low + span_b <= a.low)
        return false;
    for (int k = 0; k < a.rank; k++)
        if (apart_in_period(&a, &b, a.step[k]))
            return false;
    for (int k = 0; k < b.rank; k++)
        if (apart_in_period(&a, &b, b.step[k]))
            return false;
    return true;
}

mha_status mha__expect_own_places(const char *name, const mha_view *written, mha_error *error)
{
    int places = 1 << 20; /* no layout in use needs more than a few */
    if (!meets_itself(written, &places))
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, name, "expected a place for each element, found strides that %s",
                     places < 0 ? "are too irregular to check" : "give several one");
}

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
        TRY(expect_apart_from(name, written, mha_weight_name((mha_weight)w), &r->weight[w], error));
        TRY(expect_apart_from(name, written, mha_weight_name((mha_weight)w), &packed, error));
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
        const char *name = mha_stage_name(r->keep[i].stage);
        if (!view->data)
            continue;
        TRY(expect_own_memory(r, name, view, error));
        TRY(expect_apart_from(name, view, "output", &r->output, error));
        TRY(expect_apart_from(name, view, "partial", &r->partial, error));
        for (size_t j = 0; j < i; j++)
            TRY(expect_apart_from(name, view, mha_stage_name(r->keep[j].stage), &r->keep[j].view, error));
    }
    return MHA_OK;
}
