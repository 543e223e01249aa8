/* Partial softmaxes: the online softmax of query rows over some of the keys, before the division by the denominator. */
#ifndef MHA_ATTENTION_CORE_FLASH_ONLINE_SOFTMAX_H
#define MHA_ATTENTION_CORE_FLASH_ONLINE_SOFTMAX_H

#include "attention/core/flash/flash.h"
#include "compute/kernels/float_mode.h"
#include "compute/sizes.h"

/* One row: the largest visible score, the sum of exp(score - max), whether any key was visible. */
typedef struct mha__softmax_state {
    float max, sum;
    bool visible;
} mha__softmax_state;

/* The partial softmaxes of query rows: weighted sums of values, `width` floats apart, and the state of each softmax. */
struct mha__partial {
    float *sum;
    mha__softmax_state *state;
    size_t width;
};

/* The partial softmaxes of `count` rows that lie in mha__flash_partial_floats(count, d_v) floats of `memory`. */
mha__partial mha__partial_at(float *memory, size_t count, size_t d_v);
size_t mha__flash_partial_floats(size_t count, size_t d_v);
/* Makes them those of no keys. */
void mha__partial_clear(const mha__partial *p, size_t count);
/* Joins `next` to `total`, row by row: both are sums of exp(score - own maximum). */
void mha__partial_join(const mha__flash *flash, const mha__partial *total, const mha__partial *next, size_t count);
/* Adds the logits without a value to the denominator, divides by it, and writes `out` and `lse` of each row. */
void mha__partial_finish(const mha__flash *flash, const mha__flash_row *rows, size_t count, const mha__partial *total);

/* Makes the thread take subnormals for 0 where the call rounds to BF16, as pairs do: a row then has the same bits
 * with any other rows. Returns the mode of the thread, for mha__float_mode_restore. */
static inline mha__float_mode mha__flash_enter(const mha__flash *flash)
{
    const mha__float_mode of_thread = mha__float_mode_get();
    if (flash->rounds)
        mha__float_mode_flush();
    return of_thread;
}

#endif
