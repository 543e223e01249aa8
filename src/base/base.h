/* Helpers of all rooms: errors, checked sizes, zeroed memory, names, index steps, text, the clock. */
#ifndef MHA_BASE_BASE_H
#define MHA_BASE_BASE_H

#include <stdarg.h>

#include "base/quantised/short_float.h"
#include "mha/status.h"
#include "mha/tensor.h"

/* ---------------------------------------------------------------- errors */

/* Returns from the calling function with the status of `call` unless it is MHA_OK. For functions that have nothing
 * to release at that point. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        mha_status try_status = (call);                                                                                \
        if (try_status != MHA_OK)                                                                                      \
            return try_status;                                                                                         \
    } while (0)

/* Fills *error (which may be NULL) and returns `status`, so that a call can end with
 * `return mha__fail(error, MHA_INVALID, "kv_heads", "expected a divisor of %zu, found %zu", h, n)`.
 * `name` (NULL: "") is the subject: a field, option or tensor, "FILE", or "FILE: TENSOR". The message does not repeat
 * it. A message longer than its field loses its end; a name loses its beginning, which "..." replaces. */
__attribute__((format(printf, 4, 5))) mha_status mha__fail(mha_error *error, mha_status status, const char *name,
                                                           const char *format, ...);
/* The same of a list of arguments, with the byte offset of a fault in a file. */
__attribute__((format(printf, 5, 0))) mha_status mha__vfail(mha_error *error, mha_status status, const char *name,
                                                            uint64_t offset, const char *format, va_list arguments);
/* MHA_UNSUPPORTED unless the words that a struct reserves for later versions are 0; `name`: the struct. */
mha_status mha__expect_unused(const char *name, const uint64_t *words, size_t bytes, mha_error *error);
/* The same of `count` types of a precision. */
mha_status mha__expect_unused_types(const char *name, const mha_dtype *types, size_t count, mha_error *error);
/* MHA_INVALID "expected shape (2, 3), found (3, 4)" about `name` unless the view has this rank and shape. */
mha_status mha__expect_shape(mha_error *error, const char *name, const mha_view *view, int rank, const size_t *shape);

/* The short name and the meaning of a status; "unknown" for a value outside the list. Static text. */
const char *mha__status_name(mha_status status);
const char *mha__status_meaning(mha_status status);

/* ---------------------------------------------------------------- sizes and indices */

/* a * b, a + b into *r; false when it does not fit. */
static inline bool mha__mul(size_t a, size_t b, size_t *r)
{
    return !__builtin_mul_overflow(a, b, r);
}
static inline bool mha__add(size_t a, size_t b, size_t *r)
{
    return !__builtin_add_overflow(a, b, r);
}

/* Steps `index` to the next element of `shape` in row-major order. After the last one it is all zeros again, and the
 * answer is false. Every extent is at least 1. */
static inline bool mha__index_next(size_t *index, const size_t *shape, int rank)
{
    for (int k = rank - 1; k >= 0; k--) {
        if (++index[k] < shape[k])
            return true;
        index[k] = 0;
    }
    return false;
}

/* F32, F64, F16 or BF16: the types that computations read and results are stored in. */
static inline bool mha__dtype_is_float(mha_dtype dtype)
{
    return dtype == MHA_F32 || dtype == MHA_F64 || dtype == MHA_F16 || dtype == MHA_BF16;
}

bool mha__view_is_contiguous(const mha_view *view);
/* The same memory with axes i and j exchanged. A view without data when i or j is outside the view's rank. */
mha_view mha__view_swap(const mha_view *view, int i, int j);

const char *mha__layout_name(mha_layout layout); /* "BTE"; "?" outside the list */

/* The number of a type that mha_view_set stores, nearest to `value`. */
double mha__round_to(mha_dtype dtype, double value);

/* Casts const away for a view: views of inputs, which are only read, and of results have one type. */
static inline void *mha__unconst(const void *data)
{
    return (void *)(uintptr_t)data;
}

/* ---------------------------------------------------------------- memory */

enum { MHA_ALIGNMENT = 64 };

/* The default allocator: the heap for small blocks, anonymous mappings without reserve for large
 * ones, so that pages nobody writes cost nothing. */
mha_allocator mha__allocator_default(void);
/* *allocator, or the default for NULL. */
mha_allocator mha__allocator_or_default(const mha_allocator *allocator);
/* An allocator for models that are only counted: large blocks are addresses in regions of 64 GiB each, which cost one
 * call of the system together, where the default allocator makes one for each block. They may be written, too. Their
 * addresses are free again when all blocks are released. Zeroed before its first use; one thread at a time. */
enum { MHA_REGIONS = 128 };
typedef struct mha__regions {
    char *region[MHA_REGIONS];
    size_t count, left, live; /* regions; bytes left of the last one; blocks in all of them */
} mha__regions;
mha_allocator mha__regions_allocator(mha__regions *regions);
/* `bytes` zeroed bytes, 64-byte aligned; NULL when there is no memory or bytes is 0. */
void *mha__allocate(const mha_allocator *allocator, size_t bytes);
/* The same, not zeroed. */
void *mha__allocate_unset(const mha_allocator *allocator, size_t bytes);
/* Whether large blocks of an allocator are pages of zeros that take no memory before they are written. */
bool mha__allocates_untouched(const mha_allocator *allocator);
/* Returns the whole pages inside a part of such a block to the system; other bytes stay as they are. */
void mha__untouch(void *part, size_t bytes);
void mha__release(const mha_allocator *allocator, void *block, size_t bytes); /* NULL is allowed */

/* ---------------------------------------------------------------- names and text */

/* The names of an enum as an array: the index of the one that equals `text`, or -1; and the name at an index, "?"
 * outside the array. */
int mha__name_find(const char *const *names, size_t count, const char *text);
const char *mha__name_at(const char *const *names, size_t count, size_t index);

/* FNV-1a of 64 bits, folded so that the low bits depend on all of it. */
uint64_t mha__text_hash(const char *text);

/* The largest n <= length for which text[0, n) does not end inside a UTF-8 character. All text that is shortened is
 * cut there. */
size_t mha__text_whole(const char *text, size_t length);
/* snprintf, cut between two characters when it does not fit. */
__attribute__((format(printf, 3, 4))) void mha__text_print(char *text, size_t size, const char *format, ...);
__attribute__((format(printf, 3, 0))) void mha__text_vprint(char *text, size_t size, const char *format,
                                                            va_list arguments);
/* Copies a text into a field of `size` bytes. A text that does not fit loses its beginning, which "..." replaces. */
void mha__text_end(char *field, size_t size, const char *text);
/* Both arguments of "%.*s" for at most the first `most` bytes of `text`, cut between two characters. */
#define MHA_CUT_ARGS(most, text) mha__text_precision(text, most), text
int mha__text_precision(const char *text, size_t most);

/* The number of bytes of the UTF-8 character that a text begins with; 0 if it is none. */
size_t mha__text_character(const char *at);

/* Replaces by '?' what would break a line, control a terminal or reorder what it shows: ASCII's control characters,
 * U+0080 to U+009F, Unicode's line separators and changes of direction, and bytes that are no UTF-8. Returns `text`. */
char *mha__text_harmless(char *text);

/* Writes a shape for messages, "(2, 128, 768)", cut when it does not fit; "rank 9" for a rank that no view has.
 * Returns `text`. */
char *mha__shape_text(char *text, size_t size, const size_t *shape, int rank);

/* ---------------------------------------------------------------- the clock */

/* Time since an arbitrary moment, never going back. */
double mha__clock_seconds(void);
double mha__clock_ms(void);

/* Philox4x32-10: four 32-bit words from a 128-bit counter and a 64-bit key. */
void mha__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* The i-th number of `stream` under `seed`, uniform in [0, 1), a multiple of 2^-24; the i-th 64-bit word. */
float mha__random_unit(uint64_t seed, uint64_t stream, uint64_t i);
uint64_t mha__random_bits(uint64_t seed, uint64_t stream, uint64_t i);
/* mha_random_fill with element first + e of the stream in place of element e. */
void mha__random_fill_from(const mha_view *view, uint64_t seed, uint64_t stream, uint64_t first, float low, float high);

#endif
