/* Whether views share memory, and elements of one view a place, as far as strides and extents show it. */
#include "base/overlap.h"

/* The bytes of a view: the lowest address, and the positive steps in bytes along the axes longer than 1, the smallest
 * first. */
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
    if (mha_dtype_bytes(view->dtype, 1, &element, NULL) != MHA_OK) { /* blocks: weights of a layer, without gaps */
        if (mha_dtype_bytes(view->dtype, elements, &element, NULL) != MHA_OK || element > INT64_MAX)
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
        int i = g->rank++;
        for (step = step < 0 ? size : step; i > 0 && g->step[i - 1] > step; i--)
            g->step[i] = g->step[i - 1], g->extent[i] = g->extent[i - 1];
        g->step[i] = step, g->extent[i] = (int64_t)view->shape[k];
    }
    return true;
}

/* Whether two elements that lie `bytes` apart along other axes meet, as the first `axes` of these may move them, by
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
    bool apart = false;
    for (int k = 0; k < a.rank + b.rank && !apart; k++)
        apart = apart_in_period(&a, &b, k < a.rank ? a.step[k] : b.step[k - a.rank]);
    return !apart;
}

mha_status mha__expect_own_places(const char *name, const mha_view *written, mha_error *error)
{
    int places = 1 << 20; /* no layout in use needs more than a few */
    if (!meets_itself(written, &places))
        return MHA_OK;
    return mha__fail(error, MHA_INVALID, name, "expected a place for each element, found strides that %s",
                     places < 0 ? "are too irregular to check" : "give several one");
}

