/* Copies the keys and values of a block out of their pages, so that they are computed with as others are: packed, or
 * read where they then lie. What is copied stays in a second-level cache. */
#include <string.h>

#include "attention/core/flash/key_block.h"

/* Bytes of a row of `width` numbers that is copied; those of 8 bits have their scale behind them. */
static size_t row_bytes(mha_dtype dtype, size_t width)
{
    return dtype == MHA_I8 ? mha__byte_row(width) : width * (dtype == MHA_F32 ? sizeof(float) : sizeof(uint16_t));
}

static size_t element_bytes(mha_dtype dtype)
{
    return dtype == MHA_I8 ? 1 : row_bytes(dtype, 1);
}

/* Of a block of rows, of whichever type. */
static size_t block_bytes(size_t width)
{
    const size_t floats = width * sizeof(float), bytes = mha__byte_row(width);
    return MHA_BLOCK * (floats > bytes ? floats : bytes);
}

size_t mha__key_pages_room(size_t d_k, size_t d_v)
{
    return block_bytes(d_k) + block_bytes(d_v);
}

/* Copies rows [begin, end), one after the other. `rows` is row 0 of page 0. Returns the address of row 0 among the
 * copies; it is not read. */
static uintptr_t copy_rows(const mha__flash_keys *k, const void *rows, size_t width, size_t stride, ptrdiff_t page,
                           size_t begin, size_t end, char *to)
{
    const size_t element = element_bytes(k->dtype), bytes = row_bytes(k->dtype, width);
    const uintptr_t row_0 = (uintptr_t)to - begin * bytes;
    for (size_t j = begin, n; j < end; j += n) {
        const size_t first = j % k->page_rows, left = k->page_rows - first;
        const ptrdiff_t at = k->pages[j / k->page_rows] * page + (ptrdiff_t)(first * stride);
        const char *from = (const char *)rows + at * (ptrdiff_t)element;
        n = end - j < left ? end - j : left;
        for (size_t i = 0; i < n; i++, to += bytes)
            memcpy(to, from + (ptrdiff_t)(i * stride) * (ptrdiff_t)element, bytes);
    }
    return row_0;
}

mha__flash_keys mha__key_pages_block(const mha__flash *flash, size_t begin, size_t end)
{
    const mha__flash_keys *k = &flash->keys;
    const size_t d_k = flash->d_k, d_v = flash->d_v, element = element_bytes(k->dtype);
    char *room = flash->room;
    mha__flash_keys made = {.n = end, .dtype = k->dtype};
    const uintptr_t K_0 = copy_rows(k, k->K, d_k, k->k_stride, k->k_page, begin, end, room);
    room += block_bytes(d_k);
    const uintptr_t V_0 = k->within ? K_0 : copy_rows(k, k->V, d_v, k->v_stride, k->v_page, begin, end, room);
    made.k_stride = row_bytes(k->dtype, d_k) / element;
    made.v_stride = k->within ? made.k_stride : row_bytes(k->dtype, d_v) / element;
    made.K = (const void *)K_0, made.V = (const void *)V_0;
    return made;
}
