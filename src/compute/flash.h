/* The attention core of the fast path: softmax(scale * q K^T + bias) V for a few query rows against one key/value
 * head, key block by key block, so that no row of scores ever exists as a whole (Milakov and Gimelshein 2018;
 * Dao et al. 2022). Knows pointers, lengths and strides only.
 *
 * How a row is computed depends on its own keys alone: keys are cut into blocks and into segments of
 * MHA_SEGMENT counted from key 0; a segment starts its own running softmax; segments are merged in order. So a row
 * has the same bits whether its segments were computed one after the other (mha__flash_rows) or apart
 * (mha__flash_segment, then mha__flash_merge), and whichever rows were computed beside it. */
#ifndef MHA_COMPUTE_FLASH_H
#define MHA_COMPUTE_FLASH_H

#include "compute/kernels/kernels.h"

/* MHA_FLASH_ROWS: the most rows of one call. Fewer spend more of their time on packing. */
enum { MHA_SEGMENT = 1024, MHA_FLASH_ROWS = 512 };

/* n key rows and value rows of one head, `k_stride` and `v_stride` elements apart: floats, or F16 or BF16 numbers,
 * which give the bits that floats of the same values give. */
typedef struct mha__flash_keys {
    const float *K, *V; /* dtype F32 */
    size_t k_stride, v_stride, n;
    mha_dtype dtype;
    const uint16_t *K16, *V16; /* dtype F16 or BF16 */
} mha__flash_keys;

typedef struct mha__flash {
    size_t d_k, d_v;
    float scale, softcap; /* softcap 0: none */
    mha__flash_keys keys;
    mha__flash_keys extra; /* rows after them that every query sees, without bias; n is small and may be 0 */

    /* What is added to the scores of keys [key, key + n) of a row, -inf hides: n floats, in `room` (of
     * MHA_BLOCK floats) or anywhere else; NULL: nothing for this stretch. The function itself may be NULL. */
    const float *(*bias)(void *context, size_t row, size_t key, size_t n, float *room);
    void *context;

    float empty; /* the output of a row that sees no key, no extra row and has no logit above -inf */
} mha__flash;

/* One query: sees keys [begin, end). `logits`: scores without a value that join the denominator (sinks); -inf is none.
 * */
typedef struct mha__flash_row {
    const float *q; /* d_k floats */
    float *out;     /* d_v floats */
    float *lse;     /* log of the denominator; may be NULL */
    size_t begin, end;
    size_t name; /* handed to `bias` */
    const float *logits;
    size_t n_logits;
} mha__flash_row;

/* Bytes of 64-byte aligned scratch that a call with at most `rows` rows needs. */
size_t mha__flash_scratch(size_t rows, size_t d_k, size_t d_v);

/* Computes rows[0, count): writes out and lse of each. */
void mha__flash_rows(const mha__flash *stream, const mha__flash_row *rows, size_t count, void *scratch);

/* The same in two steps. Segment `number` of the keys (below mha__flash_segments(stream); the last one is the
 * extra rows, when there are any) of every row into partial softmaxes of mha__flash_partial_floats(count, d_v) floats,
 * 64-byte aligned; then those of all segments, one after the other in memory, into out and lse. */
size_t mha__flash_segments(const mha__flash *stream);
size_t mha__flash_partial_floats(size_t count, size_t d_v);
void mha__flash_segment(const mha__flash *stream, const mha__flash_row *rows, size_t count, size_t number,
                        float *memory, void *scratch);
void mha__flash_merge(const mha__flash *stream, const mha__flash_row *rows, size_t count, float *parts);

#endif
