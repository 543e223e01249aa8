/* Byte order, and strided views in chunks, for reading and writing. */
#ifndef MHA_FORMATS_FILES_CHUNKS_H
#define MHA_FORMATS_FILES_CHUNKS_H

#include "base/base.h"

static inline uint64_t mha__little_endian(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* Bytes of one element; 0 for a type with several elements in a block. */
static inline size_t mha__element_bytes(mha_dtype dtype)
{
    size_t bytes = 0;
    return mha_dtype_bytes(dtype, 1, &bytes, NULL) == MHA_OK ? bytes : 0;
}

/* Reverses the bytes of each of `count` elements; real and imaginary part of a complex element each by itself. */
void mha__swap_bytes(void *data, mha_dtype dtype, size_t count);

static inline bool mha__host_is_big_endian(void)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

/* Calls `visit` with consecutive row-major pieces of `view` (a plain dtype), each of at most `limit`
 * elements (at least 1), until one returns another status than MHA_OK. */
typedef mha_status (*mha__piece_visit)(void *context, const mha_view *piece);
mha_status mha__view_pieces(const mha_view *view, size_t limit, mha__piece_visit visit, void *context);

#endif
