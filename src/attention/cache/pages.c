/* Keys and values in pages: checked, written, and gathered where a path needs them one after the other. */
#include <limits.h>
#include <string.h>

#include "attention/cache/pages.h"
#include "base/base.h"
#include "base/heads.h"
#include "compute/half.h"
#include "compute/kernels/kernels.h"

mha_view mha__pages_memory(const mha_view *pages)
{
    mha_view all = *pages;
    if (all.dtype == MHA_I8)
        all.shape[3] = mha__byte_row(all.shape[3]);
    return all;
}

/* A row of 8 bits has its scale behind it, which a pool without room for it would lack. */
static mha_status check_scales(const char *name, const mha_view *pool, mha_error *error)
{
    const size_t least = mha__byte_row(pool->shape[3]);
    for (int k = 0; k < 3 && pool->dtype == MHA_I8; k++)
        if (pool->shape[k] > 1 && (size_t)(pool->stride[k] < 0 ? -pool->stride[k] : pool->stride[k]) < least)
            return mha__fail(error, MHA_INVALID, name,
                             "expected rows of %zu codes with their scale in %zu bytes, found a stride of %td",
                             pool->shape[3], least, pool->stride[k]);
    return MHA_OK;
}

/* Checks rows of pages: heads, width, type, adjacent numbers, and the scales that follow rows of 8 bits. */
static mha_status check_rows(const char *name, const mha_view *pool, const mha_view *keys, size_t heads, size_t width,
                             bool doubles, mha_error *error)
{
    const size_t shape[4] = {keys->shape[0], keys->shape[1], heads, width};
    if (!pool->data)
        return mha__fail(error, MHA_INVALID, name, "expected data, found none");
    TRY(mha__expect_shape(error, name, pool, 4, shape));
    const bool usual =
        pool->dtype == MHA_F32 || pool->dtype == MHA_F16 || pool->dtype == MHA_BF16 || pool->dtype == MHA_I8;
    if (!usual && !(pool->dtype == MHA_F64 && doubles))
        return mha__fail(error, MHA_INVALID, name, "expected F32, F16, BF16, I8 or, on the exact path, F64, found %s",
                         mha_dtype_name(pool->dtype));
    if (pool->dtype != keys->dtype)
        return mha__fail(error, MHA_INVALID, name, "expected %s as the keys have it, found %s",
                         mha_dtype_name(keys->dtype), mha_dtype_name(pool->dtype));
    if (pool->shape[3] > 1 && pool->stride[3] != 1)
        return mha__fail(error, MHA_INVALID, name, "expected a contiguous last index, found a stride of %td",
                         pool->stride[3]);
    return check_scales(name, pool, error);
}

/* Pages first_column ... of a sequence, as far as they hold keys before `end`, are in the pool. */
static mha_status check_sequence(const mha_pages *p, size_t b, size_t first_column, size_t end, mha_error *error)
{
    for (size_t c = first_column; c < end / p->keys.shape[1] + (end % p->keys.shape[1] != 0); c++) {
        const int32_t page = p->table[b * p->columns + c];
        if (page < 0 || (size_t)page >= p->keys.shape[0])
            return mha__fail(error, MHA_INVALID, "page table",
                             "expected pages below %zu, found %d for page %zu of sequence %zu", p->keys.shape[0],
                             (int)page, c, b);
    }
    return MHA_OK;
}

static mha_status check_pool(const mha__resolved *r, mha_error *error)
{
    const mha_view *pools[2] = {&r->pages.keys, &r->pages.values};
    const bool absorbed = r->latent.absorbed;
    if (absorbed && pools[1]->data)
        return mha__fail(error, MHA_INVALID, "page values", "values are not stored with latents: expected no data");
    for (int v = 0; v < (absorbed ? 1 : 2); v++)
        TRY(check_rows(v ? "page values" : "page keys", pools[v], pools[0], r->plan.h_kv, v ? r->plan.d_v : r->plan.d_k,
                       r->plan.path == MHA_PATH_EXACT, error));
    return MHA_OK;
}

mha_status mha__pages_check(const mha_pages *p, size_t B, mha_error *error)
{
    const size_t size = p->keys.shape[1];
    size_t room;
    if (!p->table || !p->lengths || size == 0)
        return mha__fail(error, MHA_INVALID, "pages", "expected pages of 1 or more rows, a table and lengths");
    if (!mha__mul(B, p->columns, &room))
        return mha__fail(error, MHA_INVALID, "page table",
                         "expected fewer, found %zu columns for %zu sequences, more than a size can count", p->columns,
                         B);
    for (size_t b = 0; b < B; b++) {
        const int64_t n = p->lengths[b];
        if (n < 0 || (mha__mul(p->columns, size, &room) && (uint64_t)n > room))
            return mha__fail(error, MHA_INVALID, "page lengths",
                             "expected at most %zu pages of %zu rows, found length %lld of sequence %zu", p->columns,
                             size, (long long)n, b);
        TRY(check_sequence(p, b, 0, (size_t)n, error));
    }
    return MHA_OK;
}

mha_status mha__pages_resolve(mha__resolved *r, const mha_place *s, mha_error *error)
{
    const mha_pages *p = &r->pages;
    if (!p->keys.data)
        return MHA_OK;
    if (r->cache)
        return mha__fail(error, MHA_UNSUPPORTED, "pages", "expected pages or a cache, found both");
    if (s->cu_seqlens_k)
        return mha__fail(error, MHA_INVALID, "cu_seqlens_k",
                         "expected none with pages, whose page_lengths count the keys");
    if (s->has_key_offset && !s->has_offset && !s->position_offset)
        return mha__fail(error, MHA_INVALID, "key_offset",
                         "expected the position of the queries with pages; set `offset` or `position_offset`");
    TRY(check_pool(r, error));
    TRY(mha__pages_check(p, r->plan.B, error));
    r->plan.S = 0;
    for (size_t b = 0; b < r->plan.B; b++)
        r->plan.S = (size_t)p->lengths[b] > r->plan.S ? (size_t)p->lengths[b] : r->plan.S;
    size_t all;
    if (r->plan.S > INT_MAX || !mha__mul(r->plan.B * r->plan.h_kv, r->plan.S, &all))
        return mha__fail(error, MHA_UNSUPPORTED, "page lengths", "expected at most %d keys, found %zu", INT_MAX,
                         r->plan.S);
    return MHA_OK;
}

void mha__pages_copy(const mha_pages *p, size_t B, const mha_view *pages, size_t width, const mha_view *to)
{
    const size_t size = pages->shape[1];
    for (size_t b = 0; b < B; b++)
        for (size_t at = 0, n, S = (size_t)p->lengths[b]; at < S; at += n) {
            n = S - at < size ? S - at : size;
            const size_t number = (size_t)p->table[b * p->columns + at / size], heads = pages->shape[2];
            for (size_t i = 0; pages->dtype == MHA_I8 && i < n * heads; i++) { /* a scale lies behind its row */
                const mha_view from = mha__one_row(pages, number, i / heads, i % heads, mha__byte_row(width)),
                               into = mha__one_row(to, b, at + i / heads, i % heads, width);
                mha__widen(&into, &from, 1);
            }
            const mha_view page = mha_view_slice(pages, 0, number, 1), from = mha_view_slice(&page, 1, 0, n),
                           row = mha_view_slice(to, 0, b, 1), into = mha_view_slice(&row, 1, at, n);
            if (pages->dtype != MHA_I8)
                (void)mha_view_copy(&into, &from, NULL);
        }
}

void mha__pages_gather(const mha__resolved *r, const mha_view *pages, const mha_view *to)
{
    mha__pages_copy(&r->pages, r->plan.B, pages, r->latent.absorbed ? r->plan.d_k : pages->shape[3], to);
}

mha_status mha_pages_write(const mha_pages *p, size_t sequence, size_t first, const mha_view *keys,
                           const mha_view *values, mha_error *error)
{
    static const mha_view none = {0};
    const mha_view *pools[2] = {&p->keys, &p->values}, *rows[2] = {keys, values ? values : &none};
    const size_t n = keys->shape[0], size = p->keys.shape[1];
    const int count = p->values.data || rows[1]->data ? 2 : 1;
    TRY(mha__expect_unused("pages", p->reserved, sizeof p->reserved, error));
    if (!p->keys.data || !p->table || size == 0)
        return mha__fail(error, MHA_INVALID, "pages", "expected pages of 1 or more rows and a table");
    for (int v = 0; v < count; v++) {
        const char *name = v ? "values" : "keys";
        const size_t shape[3] = {n, p->keys.shape[2], pools[v]->shape[3]};
        TRY(check_rows(v ? "page values" : "page keys", pools[v], pools[0], shape[1], shape[2], true, error));
        TRY(mha__expect_shape(error, name, rows[v], 3, shape));
        if (rows[v]->dtype != MHA_F32 || (shape[2] > 1 && rows[v]->stride[2] != 1))
            return mha__fail(error, MHA_INVALID, name, "expected F32 with a last stride of 1, found %s and %td",
                             mha_dtype_name(rows[v]->dtype), rows[v]->stride[2]);
        if (!rows[v]->data && mha_view_elements(rows[v]) != 0)
            return mha__fail(error, MHA_INVALID, name, "expected data, found none");
    }
    size_t room;
    if (!mha__mul(p->columns, size, &room))
        room = SIZE_MAX;
    if (first > room || n > room - first)
        return mha__fail(error, MHA_INVALID, "pages",
                         "expected room in %zu pages of %zu rows, found %zu rows after %zu", p->columns, size, n,
                         first);
    if (n > 0)
        TRY(check_sequence(p, sequence, first / size, first + n, error));
    for (int v = 0; v < count; v++) /* both are checked before either is written */
        for (size_t i = 0; i < n * pools[v]->shape[2]; i++) {
            const size_t t = i / pools[v]->shape[2], g = i % pools[v]->shape[2], j = first + t, d = pools[v]->shape[3];
            const size_t at[2] = {(size_t)p->table[sequence * p->columns + j / size], j % size};
            const mha_view to =
                mha__one_row(pools[v], at[0], at[1], g, pools[v]->dtype == MHA_I8 ? mha__byte_row(d) : d);
            const mha_view from = mha_view_of((float *)rows[v]->data + (ptrdiff_t)t * rows[v]->stride[0] +
                                                  (ptrdiff_t)g * rows[v]->stride[1],
                                              MHA_F32, 4, (size_t[]){1, 1, 1, d});
            mha__narrow(&to, &from, NULL);
        }
    return MHA_OK;
}
