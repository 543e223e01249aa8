/* Copies the keys and values of a block out of their pages, so that they are computed with as others are: packed, or
 * read where they then lie. What is copied stays in a second-level cache. */
#include <string.h>

#include "compute/key_pages.h"

size_t mha__key_pages_room(size_t d_k, size_t d_v)
{
    return MHA_BLOCK * (d_k + d_v) * sizeof(float);
}

/* Rows [begin, end) of `width` elements, one after the other. */
static void copy_rows(const mha__flash_keys *k, const void *rows, size_t width, size_t stride, size_t page,
                      size_t begin, size_t end, char *to)
{
    const size_t element = k->dtype == MHA_F32 ? sizeof(float) : sizeof(uint16_t), bytes = width * element;
    for (size_t j = begin, n; j < end; j += n) {
        const size_t first = j % k->page_rows, left = k->page_rows - first;
        const char *from = (const char *)rows +
                           ((size_t)k->pages[j / k->page_rows] * page + first * stride) * element;
        n = end - j < left ? end - j : left;
        for (size_t i = 0; i < n; i++, from += stride * element, to += bytes)
            memcpy(to, from, bytes);
    }
}

/* The address of row 0 where row `begin` is at `at`; it is not read. */
static uintptr_t row_0(const char *at, size_t begin, size_t width, mha_dtype dtype)
{
    return (uintptr_t)at - begin * width * (dtype == MHA_F32 ? sizeof(float) : sizeof(uint16_t));
}

mha__flash_keys mha__key_pages_block(const mha__flash *flash, size_t begin, size_t end)
{
    const mha__flash_keys *k = &flash->keys;
    const size_t d_k = flash->d_k, d_v = flash->d_v;
    char *K = flash->room, *V = K + MHA_BLOCK * d_k * sizeof(float);
    const bool floats = k->dtype == MHA_F32;
    copy_rows(k, floats ? (const void *)k->K : k->K_narrow, d_k, k->k_stride, k->k_page, begin, end, K);
    copy_rows(k, floats ? (const void *)k->V : k->V_narrow, d_v, k->v_stride, k->v_page, begin, end, V);
    const uintptr_t K_0 = row_0(K, begin, d_k, k->dtype), V_0 = row_0(V, begin, d_v, k->dtype);
    mha__flash_keys made = {.k_stride = d_k, .v_stride = d_v, .n = end, .dtype = k->dtype};
    if (floats)
        made.K = (const float *)K_0, made.V = (const float *)V_0;
    else
        made.K_narrow = (const void *)K_0, made.V_narrow = (const void *)V_0;
    return made;
}
