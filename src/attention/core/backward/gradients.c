/* Names and shapes of the gradients of a call. */
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/backward/backward.h"

static const char *const names[MHA_D_WEIGHTS] = {
    [MHA_D_QUERY] = "query",       [MHA_D_KEY] = "key",
    [MHA_D_VALUE] = "value",       [MHA_D_MASK] = "mask",
    [MHA_D_KEY_PADDING] = "key_padding", [MHA_D_ALIBI_SLOPES] = "alibi_slopes",
    [MHA_D_PAST_KEY] = "past_key", [MHA_D_PAST_VALUE] = "past_value",
    [MHA_D_PAGE_KEYS] = "page_keys", [MHA_D_PAGE_VALUES] = "page_values"};

const char *mha_gradient_name(mha_gradient gradient)
{
    if ((unsigned)gradient < MHA_D_WEIGHTS)
        return names[gradient];
    return (unsigned)gradient < MHA_GRADIENT_COUNT ? mha_weight_at((mha_weight)(gradient - MHA_D_WEIGHTS))->name : "?";
}

/* A weight that the call reads, or that its layer has; no data: neither. */
static mha_view weight(const mha__resolved *r, mha_weight w)
{
    const mha_tensor *of_layer = r->layer ? mha_layer_weight(r->layer, w) : NULL;
    return of_layer ? mha_tensor_view(of_layer) : r->weight[w];
}

/* The rows in the cache before the call, without their data. */
static mha_view cached(const mha__resolved *r, bool values)
{
    static const mha_view none = {0};
    const mha__sizes *p = &r->plan;
    const size_t shape[4] = {p->B, p->h_kv, r->held, values ? p->d_v : p->d_k};
    return r->cache ? mha_view_of(NULL, MHA_F64, 4, shape) : none;
}

/* The tensor of the gradient, as the call has it; without data where it has none. */
static mha_view subject(const mha__resolved *r, mha_gradient gradient)
{
    static const mha_view none = {0};
    const mha_visible *visible = &mha__semantics_of(r)->visible;
    switch (gradient) {
    case MHA_D_QUERY: return r->query;
    case MHA_D_KEY: return r->key_follows || r->pages.keys.data ? none : r->key;
    case MHA_D_VALUE: return r->value_follows || r->pages.keys.data ? none : r->value;
    case MHA_D_MASK: return visible->mask.kind == MHA_MASK_ADDITIVE ? visible->mask.values : none;
    case MHA_D_KEY_PADDING: return visible->key_padding.kind == MHA_MASK_ADDITIVE ? visible->key_padding.values : none;
    case MHA_D_PAST_KEY:
    case MHA_D_PAST_VALUE: return cached(r, gradient == MHA_D_PAST_VALUE);
    case MHA_D_PAGE_KEYS: return r->pages.keys;
    case MHA_D_PAGE_VALUES: return r->pages.values;
    default: return gradient >= MHA_D_WEIGHTS ? weight(r, (mha_weight)(gradient - MHA_D_WEIGHTS)) : none;
    }
}

int mha_gradient_shape(const mha_plan *plan, mha_gradient gradient, size_t shape[4])
{
    const mha__resolved *r = mha__plan_resolved(plan);
    if ((unsigned)gradient >= MHA_GRADIENT_COUNT)
        return 0;
    if (gradient == MHA_D_ALIBI_SLOPES && mha__semantics_of(r)->added.alibi_slopes) {
        shape[0] = r->plan.h;
        return 1;
    }
    const mha_view of = subject(r, gradient);
    for (int k = 0; k < of.rank; k++)
        shape[k] = of.shape[k];
    return of.rank;
}
