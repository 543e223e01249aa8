/* Keys and values that lie in pages, anywhere in a pool of them: as vLLM and FlashAttention keep them (block_table). */
#ifndef MHA_PAGES_H
#define MHA_PAGES_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The keys and values of a call, in the caller's memory: projected, normalised and rotated, as a cache has them.
 *
 *   key j of sequence b is row j % page_size of page table[b * columns + j / page_size], for j < lengths[b]
 *
 * Sequences may share pages (a common prefix). Of the table only the entries are read whose pages hold a key of their
 * sequence; the others may be any, as may be the rows of a last page after the last key. The call has no key and no
 * value of its own, no cache and no cu_seqlens_k; S is the longest length, and stages of shorter sequences have zeros
 * after their last key, as in a ragged batch. Where neither offset nor position_offset is given, the queries are the
 * last tokens of their sequence: query i has position lengths[b] - T_q + i, with the T_q of the sequence in a ragged
 * batch. There are no stages present_key and present_value. Every path gives the bits that a cache of these rows gives.
 * Table and lengths must keep the values that were checked until the last forward of a plan, which reads outside of the
 * pool with others; rows may change.
 * MHA_INVALID: types, shapes, strides, lengths, a page outside the pool, cu_seqlens_k, key_offset without an offset,
 * values with `absorbed`; MHA_UNSUPPORTED: a cache as well, more than 2^31 - 1 keys. */
typedef struct mha_pages {
    mha_view keys;   /* (pages, page_size, h_kv, d_k), F32, F16, BF16, I8 (see below), on the exact path also F64; no
                        data: no pages. Any strides; the last one is 1 */
    mha_view values; /* (pages, page_size, h_kv, d_v), of the same type; no data with mha_call.absorbed */
    const int32_t *table;   /* (B, columns): pages, counted from 0 */
    size_t columns;         /* the most pages of a sequence */
    const int64_t *lengths; /* (B): keys of each sequence, 0 ... columns * page_size */
    uint64_t reserved[4];   /* 0; see mha.h */
} mha_pages;

/* A row of 8 bits is that of a cache of 8 bits (mha/cache.h): from its first byte on d codes, up to the next multiple
 * of 4 what is not read, then the float32 scale. Pages without gaps so have strides of multiples of
 * 4 * ceil(d / 4) + 4, although the last extent of the view is d. */

/* Writes n new rows, keys (n, h_kv, d_k) and values (n, h_kv, d_v), F32 with last stride 1, into the pages of a
 * sequence (which of those in the table is not checked), as its keys first ... first + n - 1, rounded as a cache of
 * that type rounds them. `values` may be NULL where pages have no values. Table entries of other pages are not read,
 * `lengths` neither read nor changed: the caller counts. Whoever shares a page with a sequence that writes must copy it
 * first; the new rows may lie anywhere but in these pages. Errors, with nothing written: MHA_INVALID (types, shapes, no
 * room in the columns, a page outside the pool). */
MHA_API mha_status mha_pages_write(const mha_pages *pages, size_t sequence, size_t first, const mha_view *keys,
                                   const mha_view *values, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
