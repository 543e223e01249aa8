/* The key/value cache: projected, rotated keys and values of earlier calls. */
#ifndef MHA_CACHE_H
#define MHA_CACHE_H

#include "mha/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Projected, rotated keys and values of earlier calls, (B, h_kv, capacity, d). A forward with a cache
 * appends its new rows, then attends to all rows. One forward at a time may use a cache. */
typedef struct mha_cache mha_cache;

/* A static cache, for cross attention: a call without queries, query (B, 0, d_q), projects the keys and values of an
 * encoder into the cache once; later calls have keys without rows, key (B, 0, d_kin), and attend to what is there, with
 * the bits of calls that give all keys. What counts positions then needs `offset` or `position_offset`, because a cache
 * lets queries begin after its rows. */

typedef struct mha_cache_spec {
    size_t batch, kv_heads, d_k, d_v; /* d_v 0: no values, for latents (mha_call.absorbed) */
    size_t capacity; /* rows; a call whose new rows have no room, even after eviction, is MHA_INVALID */
    size_t window;   /* > 0: where there is no room for new rows, all but the last `window` rows are first evicted;
                        capacity must be at least window */
    mha_dtype dtype; /* F32; F16 or BF16, to which appended rows are rounded to nearest even (in F16 magnitudes from
                        65520 become infinite); I8, see below; F64, for the exact path only. No other number is rounded
                        to it */
    uint64_t reserved[4]; /* 0; see mha.h */
} mha_cache_spec;

/* A cache of 8 bits (I8) holds a row x of a key/value head as one signed byte for each number and one float32 scale,
 *     s = max |x_i| / 127     q_i = x_i / s, rounded to the nearest integer (halves to even)     x_i is then s q_i
 * in float32 arithmetic, when the row is appended or loaded. A latent and its rotated part are one row. The distance
 * |x_i - s q_i| is at most s / 2 and a rounding: 1/254 of the row's largest number. A row of zeros has scale 0; a row
 * with a NaN or an infinity becomes NaN as a whole. Every path computes with the float32 numbers s q_i, rounded once,
 * and gives the bits that it gives for a float cache of them. A row of d numbers takes d + 4 bytes, rounded up to 4. */

/* An empty cache. `allocator` NULL: the default; otherwise its functions are copied and its context must outlive the
 * cache, which the caller destroys. Errors: MHA_INVALID (a type, capacity or size, see above), MHA_NO_MEMORY. */
MHA_API mha_status mha_cache_create(const mha_cache_spec *spec, const mha_allocator *allocator, mha_cache **cache,
                                    mha_error *error);
MHA_API void mha_cache_destroy(mha_cache *cache);        /* NULL is allowed */
MHA_API size_t mha_cache_length(const mha_cache *cache); /* rows in the cache */
MHA_API size_t mha_cache_capacity(const mha_cache *cache); /* rows it has room for */
MHA_API size_t mha_cache_first(const mha_cache *cache);  /* position of row 0: the number of rows evicted */
MHA_API size_t mha_cache_bytes(const mha_cache *cache);  /* allocated for its keys and values */
MHA_API void mha_cache_clear(mha_cache *cache);          /* forgets all rows; position 0 comes next */
/* Forgets the newest rows until `length` rows are left; nothing happens when there are no more than that. */
MHA_API void mha_cache_truncate(mha_cache *cache, size_t length);
/* The rows in the cache, (B, h_kv, length - mha_cache_shared, d). Valid until the next append, load, reorder, clear or
 * destroy.
 * With 8 bits the elements are the codes q; the scale of a row is in the last 4 of the stride[2] bytes from its
 * beginning on. */
MHA_API mha_view mha_cache_keys(const mha_cache *cache);
MHA_API mha_view mha_cache_values(const mha_cache *cache);
/* Copies the keys (or the values) in the cache, as numbers, to `to` (B, h_kv, length, d) of F32, F64, F16 or BF16.
 * Errors: MHA_INVALID (shape, type, no data, a trunk that has lost rows). */
MHA_API mha_status mha_cache_read(const mha_cache *cache, bool values, const mha_view *to, mha_error *error);
/* Replaces the content by copies of the given rows, (B, h_kv, P, d_k) and (B, h_kv, P, d_v), of any plain floating
 * dtype; the first one gets position 0. Errors, which leave the cache as it was: MHA_INVALID (shapes, both in the
 * message; more rows than the capacity; no data), MHA_UNSUPPORTED (another dtype). */
MHA_API mha_status mha_cache_load(mha_cache *cache, const mha_view *keys, const mha_view *values, mha_error *error);

/* ---------------------------------------------------------------- many sequences that begin alike
 *
 * A cache that continues another one, its trunk: of `batch` sequences, which begin with the rows of the trunk and go on
 * with their own. The trunk's B sequences are continued by batch / B neighbouring ones each: the hypotheses of a beam
 * search, many users of one prompt, drafts of one text. On the fast path a key of the trunk is read once for all
 * queries of the sequences that share it; every path gives the bits that caches with copies of those rows give.
 *
 *   mha_cache *prompt, *beams;                       // prompt: made by mha_cache_create, batch 1
 *   ... one call with `prompt` fills it ...
 *   mha_cache_continue(prompt, 8, 256, NULL, &beams, &error);
 *   ... calls with `beams`: query (8, 1, d_q), which see the prompt and up to 256 rows of their own ...
 *   mha_cache_reorder(beams, (size_t[]){0, 0, 0, 2, 2, 5, 6, 6}, &error);
 *   mha_cache_destroy(beams), mha_cache_destroy(prompt);
 *
 * `rows`: how many follow the trunk's. Type, heads and sizes are those of the trunk; the new cache has no window, and
 * evicts nothing. Its lengths, positions, capacity and mha_cache_first count the trunk's rows as its own; the rows
 * after the last whole block of 64 to 512 keys (by d_k + d_v) are copied. The caller destroys it; `allocator` may be
 * NULL, as for mha_cache_create. The trunk must outlive it. Calls with the new cache never write to the trunk; other
 * calls may still append to that, and any number of caches may continue it, or each other. Errors: MHA_INVALID (`batch`
 * is no multiple of B; too many rows), MHA_NO_MEMORY. Once a trunk has lost rows (evicted, truncated, cleared, loaded,
 * reordered), calls with a cache that continues it, and reading or continuing that, are MHA_INVALID; nobody may take
 * rows from a trunk while such a call runs. */
MHA_API mha_status mha_cache_continue(const mha_cache *trunk, size_t batch, size_t rows, const mha_allocator *allocator,
                                      mha_cache **cache, mha_error *error);
/* How many rows of a sequence are those of trunks, in their memory; 0 without a trunk. mha_cache_keys, mha_cache_values
 * and mha_cache_bytes count the rows after them, mha_cache_read of all. mha_cache_clear and mha_cache_truncate leave
 * at least the rows that the trunk had; mha_cache_load is MHA_UNSUPPORTED. */
MHA_API size_t mha_cache_shared(const mha_cache *cache);
/* Makes sequence i what sequence from[i] was, for all i at once: in any order without a trunk; with one, both must
 * continue the same sequence of it without a copy. `from`: one number for each sequence. Errors, which
 * leave the cache as it was: MHA_INVALID (a number), MHA_NO_MEMORY (it needs room for the rows that are not shared, of
 * one key/value head of all sequences). */
MHA_API mha_status mha_cache_reorder(mha_cache *cache, const size_t *from, mha_error *error);

#ifdef __cplusplus
}
#endif
#endif
