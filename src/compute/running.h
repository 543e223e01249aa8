/* Running softmaxes of some rows: what a stretch of keys adds up to, before it is divided by the denominator. */
#ifndef MHA_RUNNING_H
#define MHA_RUNNING_H

#include "compute/streaming.h"

/* n rounded up to a multiple of `unit`. */
static inline size_t mha_round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Of one row: the largest visible score, the sum of exp(score - max), whether any key was visible. */
typedef struct mha_running_softmax {
    float max, sum;
    bool visible;
} mha_running_softmax;

/* What was accumulated for some rows: weighted sums, `width` floats apart, and the state of each softmax. */
typedef struct mha_part {
    float *sum;
    mha_running_softmax *state;
    size_t width;
} mha_part;

/* The part of `count` rows that lies in mha_stream_part_floats(count, d_v) floats of `memory`. */
mha_part mha_part_at(float *memory, size_t count, size_t d_v);
/* Nothing seen yet. */
void mha_part_clear(mha_part *p, size_t count);
/* Joins the part `next` to `total`, row by row: both are sums of exp(score - own maximum). */
void mha_part_join(mha_part *total, const mha_part *next, size_t count);
/* Lets the logits join, divides by the denominator, writes out and lse. */
void mha_part_finish(const mha_stream *stream, const mha_stream_row *rows, size_t count, const mha_part *total);

#endif
