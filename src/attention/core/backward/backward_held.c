/* Keys and values that lie in a cache or in pages, and their gradients: row by row those of the call where it has them,
 * else those of what held them. Sequences that share a page add up in it. */
#include "attention/cache/pages.h"
#include "attention/core/backward/backward.h"
#include "base/heads.h"

static const mha_gradient of_call[2] = {MHA_D_KEY, MHA_D_VALUE}, of_cache[2] = {MHA_D_PAST_KEY, MHA_D_PAST_VALUE},
                          of_pages[2] = {MHA_D_PAGE_KEYS, MHA_D_PAGE_VALUES};

/* Rows of zeros, (B, S, h_kv, d). */
static mha_view held_rows(mha__backward *b, int v)
{
    const mha__sizes *p = &b->r->plan;
    return mha__arena_view(&b->memory, MHA_F64, 4, (const size_t[]){p->B, p->S, p->h_kv, v ? p->d_v : p->d_k});
}

bool mha__backward_keep_keys(mha__backward *b)
{
    static const mha_stage rows[2] = {MHA_STAGE_K_ROT, MHA_STAGE_V},
                           present[2] = {MHA_STAGE_PRESENT_KEY, MHA_STAGE_PRESENT_VALUE};
    const mha__resolved *r = b->r;
    for (int v = 0; v < 2; v++) {
        b->keys[v] = b->stages[rows[v]];
        if (!mha__holds_keys(r))
            continue;
        b->keys[v] = held_rows(b, v);
        if (!b->keys[v].data)
            return false;
        if (r->cache)
            b->keep[b->call.keep_count++] =
                (mha_keep){.stage = present[v], .view = mha__swap_time_and_heads(b->keys[v])};
        else
            mha__pages_gather(r, v ? &r->pages.values : &r->pages.keys, &b->keys[v]);
    }
    return true;
}

bool mha__backward_begin_keys(mha__backward *b)
{
    for (int v = 0; v < 2; v++) {
        b->d_keys[v] = mha__holds_keys(b->r) ? held_rows(b, v) : b->d[of_call[v]];
        if (!b->d_keys[v].data)
            return false;
    }
    return true;
}

void mha__backward_clear_keys(const mha__backward *b)
{
    for (int v = 0; v < 2 && mha__holds_keys(b->r); v++)
        mha__matrix_clear(&b->d_keys[v]);
}

/* Adds row j of sequence s, of all heads, to rows of h_kv heads that lie `stride` apart. */
static void add_row(const mha_view *rows, size_t s, size_t j, double *to, ptrdiff_t stride)
{
    const size_t heads = rows->shape[2], d = rows->shape[3];
    const double *from = (const double *)rows->data + (s * rows->shape[1] + j) * heads * d;
    for (size_t g = 0; g < heads; g++)
        for (size_t c = 0; c < d; c++)
            to[(ptrdiff_t)g * stride + (ptrdiff_t)c] += from[g * d + c];
}

/* The first rows are those that stay of the cache, behind those that were evicted; the call's own follow. */
static void deal_to_cache(const mha__backward *b, int v)
{
    const mha__resolved *r = b->r;
    const mha_view *rows = &b->d_keys[v], *past = &b->d[of_cache[v]], *own = &b->d[of_call[v]];
    const size_t heads = rows->shape[2], d = rows->shape[3];
    for (size_t s = 0; s < rows->shape[0]; s++)
        for (size_t j = 0; j < rows->shape[1]; j++) {
            const bool is_past = j < r->kept;
            const mha_view *to = is_past ? past : own;
            if (!to->data)
                continue;
            const size_t at = is_past ? s * heads * past->shape[2] + r->held - r->kept + j
                                      : (s * own->shape[1] + j - r->kept) * heads;
            add_row(rows, s, j, (double *)to->data + at * d, (ptrdiff_t)(is_past ? past->shape[2] * d : d));
        }
}

static void deal_to_pages(const mha__backward *b, int v)
{
    const mha_pages *p = &b->r->pages;
    const mha_view *rows = &b->d_keys[v], *to = &b->d[of_pages[v]];
    const size_t size = p->keys.shape[1], width = rows->shape[2] * rows->shape[3];
    for (size_t s = 0; to->data && s < rows->shape[0]; s++)
        for (size_t j = 0; j < (size_t)p->lengths[s]; j++) {
            const size_t page = (size_t)p->table[s * p->columns + j / size];
            add_row(rows, s, j, (double *)to->data + (page * size + j % size) * width, (ptrdiff_t)rows->shape[3]);
        }
}

void mha__backward_deal_keys(const mha__backward *b)
{
    for (int v = 0; v < 2; v++)
        if (b->r->cache)
            deal_to_cache(b, v);
        else if (b->r->pages.keys.data)
            deal_to_pages(b, v);
}
