/* Keys and values in pages, as a case records them: its cached rows, lengths and positions. */
#include <limits.h>

#include "base/base.h"
#include "verify/attempt/unpaged.h"
#include "verify/case/record.h"

/* Neither is allowed with keys in pages; the first two have no other rows. */
static mha_status expect_no_other_keys(const mha_case *c, mha_error *error)
{
    static const case_tensor others[] = {CASE_KEY, CASE_VALUE, CASE_PAST_KEY, CASE_PAST_VALUE};
    const mha_place *s = &c->semantics.place;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (c->tensors[others[i]].data)
            return mha__fail(error, MHA_INVALID, mha__case_tensor_name(others[i]),
                             "expected none with pages, which hold all keys of whole sequences");
    const char *part = c->kind == CASE_ROPE                  ? "kind"
                       : s->cu_seqlens_q || s->cu_seqlens_k ? "cu_seqlens_q"
                       : s->has_key_offset                  ? "key_offset"
                                                            : NULL;
    if (part)
        return mha__fail(error, MHA_INVALID, part,
                         "expected none with pages, which hold all keys of whole sequences");
    return MHA_OK;
}

/* No rows of an input, heads of `width` features or rows of `E`. */
static mha_view no_rows(mha_case *c, size_t B, size_t heads, size_t width, size_t E)
{
    switch (c->layout) {
    case MHA_TE: return mha__arena_view(&c->pool, MHA_F32, 2, (size_t[]){0, E});
    case MHA_TBE: return mha__arena_view(&c->pool, MHA_F32, 3, (size_t[]){0, B, E});
    case MHA_BHTD: return mha__arena_view(&c->pool, MHA_F32, 4, (size_t[]){B, heads, 0, width});
    case MHA_BTHD: return mha__arena_view(&c->pool, MHA_F32, 4, (size_t[]){B, 0, heads, width});
    default: return mha__arena_view(&c->pool, MHA_F32, 3, (size_t[]){B, 0, E});
    }
}

/* The width of the input that a weight projects, or of heads side by side without weights. */
static size_t input_width(const mha_case *c, mha_weight weight, mha_weight latent, size_t heads)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    return c->kind != CASE_MHA ? heads : w[weight].data ? w[weight].shape[0] : w[latent].data ? w[latent].shape[0] : 0;
}

mha_status mha__case_unpage(mha_case *c, mha_error *error)
{
    const case_tensor words[] = {CASE_PAGE_KEYS, CASE_PAGE_TABLE, CASE_PAGE_LENGTHS};
    const mha_view *keys = &c->tensors[CASE_PAGE_KEYS], *values = &c->tensors[CASE_PAGE_VALUES],
                   *table = &c->tensors[CASE_PAGE_TABLE], *lengths = &c->tensors[CASE_PAGE_LENGTHS],
                   *query = &c->tensors[CASE_QUERY];
    if (!keys->data && !values->data && !table->data && !lengths->data)
        return MHA_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!c->tensors[words[i]].data)
            return mha__fail(error, MHA_INVALID, mha__case_tensor_name(words[i]),
                             "expected page_keys, page_values, page_table and page_lengths together, found none");
    TRY(expect_no_other_keys(c, error));
    const size_t B = table->shape[0];
    TRY(mha__expect_shape(error, "page_lengths", lengths, 1, &B));
    if (values->data)
        TRY(mha__expect_shape(error, "page_values", values, 4,
                              (size_t[]){keys->shape[0], keys->shape[1], keys->shape[2], values->shape[3]}));
    int32_t *pages = mha__arena_take(&c->pool, mha_view_elements(table) * sizeof *pages + 1);
    if (!pages)
        return mha__fail(error, MHA_NO_MEMORY, "page_table", "no memory");
    for (size_t i = 0; i < mha_view_elements(table); i++) { /* what is no int32 is no page */
        const int64_t page = ((const int64_t *)table->data)[i];
        pages[i] = page < 0 || page > INT32_MAX ? -1 : (int32_t)page;
    }
    static const int time[] = {[MHA_BTE] = 1, [MHA_TBE] = 0, [MHA_TE] = 0, [MHA_BHTD] = 2, [MHA_BTHD] = 1};
    const mha_pages p = {.keys = *keys, .values = *values, .table = pages, .columns = table->shape[1],
                         .lengths = lengths->data};
    mha__unpaged u;
    c->pages = p;
    TRY(mha__unpage(&p, B, query->shape[time[c->layout]], &c->pool, &u, error));
    c->tensors[CASE_PAST_KEY] = u.keys, c->tensors[CASE_PAST_VALUE] = u.values;
    if (!c->semantics.visible.kv_lengths)
        c->semantics.visible.kv_lengths = u.lengths;
    if (!c->semantics.place.position_offset && !c->semantics.place.has_offset)
        c->semantics.place.position_offset = u.offsets;
    const size_t h = keys->shape[2], d_k = keys->shape[3], d_v = values->data ? values->shape[3] : 0;
    mha_view *key = &c->tensors[CASE_KEY], *value = &c->tensors[CASE_VALUE];
    *key = *value = no_rows(c, B, h, d_k, input_width(c, MHA_W_K, MHA_W_KVA, h * d_k));
    if (!c->weights[CASE_RECORDED][MHA_W_KVA].data)
        *value = no_rows(c, B, h, d_v, input_width(c, MHA_W_V, MHA_W_V, h * d_v));
    return key->data && value->data ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, "page_keys", "no memory");
}
