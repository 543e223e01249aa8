/* What every room stands on: filling an error, checked sizes, zeroed memory. */
#ifndef MHA_BASE_BASE_H
#define MHA_BASE_BASE_H

#include <stdarg.h>

#include "mha/status.h"
#include "mha/tensor.h"

/* Fills *error (which may be NULL) and returns `status`, so that a call can end with
 * `return mha__fail(error, MHA_INVALID, "kv_heads", "expected a divisor of %zu, found %zu", h, n)`.
 * `name` (NULL: "") is what the message is about. Messages longer than the field are cut. */
__attribute__((format(printf, 4, 5))) mha_status mha__fail(mha_error *error, mha_status status, const char *name,
                                                         const char *format, ...);
/* The same, with the byte offset of what is wrong in a file. */
__attribute__((format(printf, 5, 6))) mha_status mha__fail_at(mha_error *error, mha_status status, const char *name,
                                                             uint64_t offset, const char *format, ...);

/* a * b, a + b into *r; false when it does not fit. */
static inline bool mha__mul(size_t a, size_t b, size_t *r) { return !__builtin_mul_overflow(a, b, r); }
static inline bool mha__add(size_t a, size_t b, size_t *r) { return !__builtin_add_overflow(a, b, r); }

enum { MHA_ALIGNMENT = 64 };

/* The default allocator: the heap for small blocks, anonymous mappings without reserve for large
 * ones, so that pages nobody writes cost nothing. */
mha_allocator mha__allocator_default(void);
/* *allocator, or the default for NULL. */
mha_allocator mha__allocator_or_default(const mha_allocator *allocator);
/* `bytes` zeroed bytes, 64-byte aligned; NULL when there is no memory or bytes is 0. */
void *mha__allocate(const mha_allocator *allocator, size_t bytes);
void mha__release(const mha_allocator *allocator, void *block, size_t bytes); /* NULL is allowed */
/* An array of `count` items of `item_bytes` each, with room for one more: `items` itself while *room is larger than
 * count, else a copy with twice the room, which takes the place of `items` (NULL and 0: no array yet). What lies behind
 * the items is zero. NULL when there is no memory: `items` then stays as it is. */
void *mha__array_grow(const mha_allocator *allocator, void *items, size_t count, size_t *room, size_t item_bytes);

/* Bytes that can be written now without pushing anything out, by the kernel's estimate and the control group's
 * limit; SIZE_MAX where nobody says. Large blocks of the default allocator are reserved without asking, so who
 * fills one asks first: a system that has promised too much ends programs. */
size_t mha__memory_at_hand(void);

/* Of the first `length` bytes of a text in UTF-8 those of whole characters: without the beginning of a last one that
 * goes on behind them. All text that is shortened is cut there. */
size_t mha__text_whole(const char *text, size_t length);
/* snprintf, cut between two characters when it does not fit. */
__attribute__((format(printf, 3, 4))) void mha__text_print(char *text, size_t size, const char *format, ...);
__attribute__((format(printf, 3, 0))) void mha__text_vprint(char *text, size_t size, const char *format, va_list arguments);
/* Both arguments of "%.*s": at most `most` bytes of `text`. */
#define MHA_AT_MOST(most, text) mha__text_precision(text, most), text
int mha__text_precision(const char *text, size_t most);

/* "(2, 128, 768)" into a buffer, for messages; cut when it does not fit. "rank 9" for what is none of a view's ranks.
 * Returns `text`. */
char *mha__shape_text(char *text, size_t size, const size_t *shape, int rank);

#endif
