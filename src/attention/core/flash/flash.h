/* The attention core of the fast path: softmax(scale * q K^T + bias) V for a few query rows against one key/value
 * head, key block by key block, so that no row of scores ever exists as a whole (Milakov and Gimelshein 2018;
 * Dao et al. 2022).
 *
 * How a row is computed depends on its own keys alone: keys are cut into blocks, and into segments of MHA_SEGMENT
 * counted from key 0; each segment has an online softmax of its own; segments are joined in order. So a row has the
 * same bits whether its segments were computed one after the other (mha__flash_rows) or apart (mha__flash_segment,
 * then mha__partial_join), and with any other rows. */
#ifndef MHA_ATTENTION_CORE_FLASH_FLASH_H
#define MHA_ATTENTION_CORE_FLASH_FLASH_H

#include "compute/kernels/kernels.h"

/* MHA_FLASH_ROWS: the most query rows of one call. With fewer rows, packing the keys takes a larger part of the
 * time. */
enum { MHA_SEGMENT = 1024, MHA_FLASH_ROWS = 512 };

/* n key rows and value rows of one head, `k_stride` and `v_stride` elements apart: floats, or F16 or BF16 numbers, or
 * rows of 8 bits (kernels.h), which give the bits that floats of the same values give. */
typedef struct mha__flash_keys {
    const void *K, *V;
    size_t k_stride, v_stride, n;
    mha_dtype dtype;
    /* NULL, or the rows lie in pages, so many in each: row j is row j % page_rows of page pages[j / page_rows]. K and V
     * are then the first rows of page 0; from page to page are `k_page` and `v_page` elements. */
    const int32_t *pages;
    size_t page_rows;
    ptrdiff_t k_page, v_page;
    bool within; /* the values are the first numbers of the keys */
} mha__flash_keys;

/* The keys [begin, end) that a row may see, none if begin >= end, and whether `bias` may add something to them. */
typedef struct mha__row_keys {
    size_t begin, end;
    bool has_bias;
} mha__row_keys;

typedef struct mha__flash_row mha__flash_row;
typedef struct mha__partial mha__partial; /* online_softmax.h */

typedef struct mha__flash {
    size_t d_k, d_v;
    float scale, softcap; /* softcap 0: none */
    mha__flash_keys keys;
    void *room;            /* of mha__key_pages_room bytes, for keys in pages */
    /* How many keys of the sequence come before these, which other calls compute (mha__flash_segment): a multiple of
     * mha__flash_block. Blocks and segments are cut as if they were here. */
    size_t before;
    mha__flash_keys extra; /* rows that every query sees, without bias; n is small and may be 0 */

    /* Returns n floats that are added to the scores of keys [key, key + n) of query `row` (-inf hides the key), in
     * `room` (MHA_BLOCK floats) or elsewhere; NULL: nothing is added. The function may be NULL. */
    const float *(*bias)(void *context, size_t row, size_t key, size_t n, float *room);
    /* Takes hidden keys off both ends of what each of `count` rows sees, as far as that is quickly told, and sets
     * has_bias to false where `bias` would add 0 to all that are left. Rows without has_bias stay as they are. May be
     * NULL. */
    void (*trim)(void *context, const mha__flash_row *rows, size_t count, mha__row_keys *keys);
    void *context;

    /* To BF16: exp(score - maximum so far) before it meets a value, while the denominator adds unrounded ones; and the
     * output. q and rows of F32 are rounded already, unless they are `raw`. Subnormals count as 0. */
    bool rounds, raw;
    float empty; /* the output of a row that sees no key, no extra row and has no logit above -inf */
} mha__flash;

/* One query, which sees keys [begin, end). `logits` are scores without a value that join the denominator (sinks); -inf
 * adds nothing. */
struct mha__flash_row {
    const float *q; /* d_k floats */
    float *out;     /* d_v floats */
    float *lse;     /* log of the denominator; may be NULL */
    size_t begin, end;
    size_t name; /* the `row` that `bias` gets */
    const float *logits;
    size_t n_logits;
};

/* Bytes of 64-byte aligned scratch that a call with at most `rows` rows needs. */
size_t mha__flash_scratch(size_t rows, size_t d_k, size_t d_v);

/* Computes rows[0, count): writes out and lse of each. */
void mha__flash_rows(const mha__flash *flash, const mha__flash_row *rows, size_t count, void *scratch);

/* The same in steps. mha__flash_segment computes the partial softmaxes of all rows over segment `number`, below
 * mha__flash_segments(flash); mha__partial_join and mha__partial_finish (online_softmax.h) then make the results.
 * Segment 0 is that of key `before`; the extra rows, if any, are the last segment. If the segment has `begun`, `into`
 * already holds the online softmax of its earlier keys. */
size_t mha__flash_segments(const mha__flash *flash);
void mha__flash_segment(const mha__flash *flash, const mha__flash_row *rows, size_t count, size_t number, bool begun,
                        const mha__partial *into, void *scratch);

#endif
