/* Running softmaxes of some rows: what a stretch of keys adds up to, before it is divided by the denominator. */
#ifndef MHA_COMPUTE_ONLINE_SOFTMAX_H
#define MHA_COMPUTE_ONLINE_SOFTMAX_H

#include "compute/flash.h"

/* n rounded up to a multiple of `unit`. */
static inline size_t mha__round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Of one row: the largest visible score, the sum of exp(score - max), whether any key was visible. */
typedef struct mha__running_softmax {
    float max, sum;
    bool visible;
} mha__running_softmax;

/* What was accumulated for some rows: weighted sums, `width` floats apart, and the state of each softmax. */
typedef struct mha__part {
    float *sum;
    mha__running_softmax *state;
    size_t width;
} mha__part;

/* The part of `count` rows that lies in mha__stream_part_floats(count, d_v) floats of `memory`. */
mha__part mha__part_at(float *memory, size_t count, size_t d_v);
/* Nothing seen yet. */
void mha__part_clear(mha__part *p, size_t count);
/* Joins the part `next` to `total`, row by row: both are sums of exp(score - own maximum). */
void mha__part_join(mha__part *total, const mha__part *next, size_t count);
/* Lets the logits join, divides by the denominator, writes out and lse. */
void mha__part_finish(const mha__stream *stream, const mha__stream_row *rows, size_t count, const mha__part *total);

#endif
