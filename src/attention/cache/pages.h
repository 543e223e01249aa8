/* Keys and values in pages, and the place of new rows in a cache, as planning and the forward pass use them. */
#ifndef MHA_ATTENTION_CACHE_PAGES_H
#define MHA_ATTENTION_CACHE_PAGES_H

#include "attention/call/resolved.h"

/* Checks the pages of a call and takes over their sizes. Nothing without pages. */
mha_status mha__pages_resolve(mha__resolved *r, const mha_place *s, mha_error *error);
/* Every page that holds a key of the B sequences must be in the pool. */
mha_status mha__pages_check(const mha_pages *p, size_t B, mha_error *error);
/* Copies the keys of B sequences, without those that a call has, as mha__pages_gather; a row of 8 bits is `width` codes
 * wide. */
void mha__pages_copy(const mha_pages *p, size_t B, const mha_view *pages, size_t width, const mha_view *to);
/* `pages` with the scales behind rows of 8 bits. */
mha_view mha__pages_memory(const mha_view *pages);
/* Copies what lies in `pages`, (pages, page_size, h_kv, d), to `to`, (B, S, h_kv, d) of F32 or
 * F64 whose last stride is 1. */
void mha__pages_gather(const mha__resolved *r, const mha_view *pages, const mha_view *to);

/* ---------------------------------------------------------------- resolve.c: the cache of a call */

/* Checks the cache against the sizes of the call, and fills in where the new rows stand. Without a cache all keys are
 * new. Errors: MHA_INVALID, MHA_UNSUPPORTED (its shape, its type, no room). */
mha_status mha__cache_resolve(mha__resolved *r, mha_error *error);

/* Fills in the positions of the new rows, which follow the rows in the cache. MHA_INVALID: the cache has no room. */
mha_status mha__cache_advance(mha__resolved *r, mha_error *error);

#endif
