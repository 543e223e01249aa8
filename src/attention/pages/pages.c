/* Keys and values in pages: checked, and gathered where a path needs them one after the other. */
#include <limits.h>

#include "attention/pages/pages.h"

static mha_status check_pool(const mha__resolved *r, mha_path path, mha_error *error)
{
    const mha_view *pools[2] = {&r->pages.keys, &r->pages.values};
    const bool absorbed = r->latent.absorbed;
    if (absorbed && pools[1]->data)
        return mha__fail(error, MHA_INVALID, "page values", "values are not stored beside latents: expected no data");
    for (int v = 0; v < (absorbed ? 1 : 2); v++) {
        const char *name = v ? "page values" : "page keys";
        const mha_view *pool = pools[v];
        if (!pool->data)
            return mha__fail(error, MHA_INVALID, name, "no data");
        const size_t shape[4] = {pools[0]->shape[0], pools[0]->shape[1], r->plan.h_kv, v ? r->plan.d_v : r->plan.d_k};
        TRY(mha__expect_shape(error, name, pool, 4, shape));
        const bool floats = pool->dtype == MHA_F32 || pool->dtype == MHA_F16 || pool->dtype == MHA_BF16;
        if (!floats && !(pool->dtype == MHA_F64 && path == MHA_PATH_EXACT))
            return mha__fail(error, MHA_INVALID, name, "expected F32, F16, BF16 or, on the exact path, F64, found %s",
                             mha_dtype_name(pool->dtype));
        if (pool->dtype != pools[0]->dtype)
            return mha__fail(error, MHA_INVALID, name, "expected %s as the keys have it, found %s",
                             mha_dtype_name(pools[0]->dtype), mha_dtype_name(pool->dtype));
        if (pool->shape[3] > 1 && pool->stride[3] != 1)
            return mha__fail(error, MHA_INVALID, name, "the last index must be contiguous, found a stride of %td",
                             pool->stride[3]);
    }
    return MHA_OK;
}

/* Every page that holds a key must be in the pool. */
static mha_status check_table(const mha__resolved *r, mha_error *error)
{
    const mha_pages *p = &r->pages;
    const size_t size = p->keys.shape[1], pages = p->keys.shape[0];
    if (!p->table || !p->lengths || size == 0)
        return mha__fail(error, MHA_INVALID, "pages", "expected pages of 1 or more rows, a table and lengths");
    for (size_t b = 0; b < r->plan.B; b++) {
        const int64_t n = p->lengths[b];
        size_t room;
        if (n < 0 || (mha__mul(p->columns, size, &room) && (uint64_t)n > room))
            return mha__fail(error, MHA_INVALID, "page lengths",
                             "length %lld of sequence %zu is not between 0 and %zu pages of %zu rows", (long long)n, b,
                             p->columns, size);
        for (size_t c = 0; c * size < (size_t)n; c++) {
            const int32_t page = p->table[b * p->columns + c];
            if (page < 0 || (size_t)page >= pages)
                return mha__fail(error, MHA_INVALID, "page table",
                                 "page %zu of sequence %zu is %d, and there are pages 0 to %zu", c, b, (int)page,
                                 pages - 1);
        }
    }
    return MHA_OK;
}

mha_status mha__pages_resolve(mha__resolved *r, mha_path path, mha_error *error)
{
    const mha_pages *p = &r->pages;
    const mha_semantics *s = &r->semantics;
    if (!p->keys.data)
        return MHA_OK;
    if (r->cache)
        return mha__fail(error, MHA_UNSUPPORTED, "pages", "keys lie in pages or in a cache: the call has both");
    if (s->cu_seqlens_k)
        return mha__fail(error, MHA_INVALID, "cu_seqlens_k", "the pages say how many keys a sequence has");
    if (s->has_key_offset && !s->has_offset && !s->position_offset)
        return mha__fail(error, MHA_INVALID, "key_offset",
                         "with pages the position of the queries must be given: set `offset` or `position_offset`");
    TRY(check_pool(r, path, error));
    TRY(check_table(r, error));
    r->plan.S = 0;
    for (size_t b = 0; b < r->plan.B; b++)
        r->plan.S = (size_t)p->lengths[b] > r->plan.S ? (size_t)p->lengths[b] : r->plan.S;
    size_t all;
    if (r->plan.S > INT_MAX || !mha__mul(r->plan.B * r->plan.h_kv, r->plan.S, &all))
        return mha__fail(error, MHA_UNSUPPORTED, "page lengths", "expected at most %d keys, found %zu", INT_MAX,
                         r->plan.S);
    return MHA_OK;
}

void mha__pages_gather(const mha__resolved *r, const mha_view *pages, const mha_view *to)
{
    const mha_pages *p = &r->pages;
    const size_t size = pages->shape[1];
    for (size_t b = 0; b < r->plan.B; b++)
        for (size_t at = 0, n, S = (size_t)p->lengths[b]; at < S; at += n) {
            n = S - at < size ? S - at : size;
            const mha_view page = mha_view_slice(pages, 0, (size_t)p->table[b * p->columns + at / size], 1),
                           from = mha_view_slice(&page, 1, 0, n), row = mha_view_slice(to, 0, b, 1),
                           into = mha_view_slice(&row, 1, at, n);
            (void)mha_view_copy(&into, &from);
        }
}
