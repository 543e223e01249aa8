/* Online softmaxes: joins partial ones, and divides by the denominator at the end. */
#include <math.h>
#include <string.h>

#include "attention/core/flash/online_softmax.h"

static const mha__softmax_state start = {-INFINITY, 0.0f, false};

mha__partial mha__partial_at(float *memory, size_t count, size_t d_v)
{
    size_t width = mha__round_up(d_v, 16);
    return (mha__partial){memory, (mha__softmax_state *)(void *)(memory + count * width), width};
}

size_t mha__flash_partial_floats(size_t count, size_t d_v)
{
    size_t states = mha__round_up(count * sizeof(mha__softmax_state), 64) / sizeof(float);
    return count * mha__round_up(d_v, 16) + states;
}

void mha__partial_clear(const mha__partial *p, size_t count)
{
    memset(p->sum, 0, count * p->width * sizeof *p->sum);
    for (size_t i = 0; i < count; i++)
        p->state[i] = start;
}

static float exp_difference(const mha__kernels *kernels, float x, float max)
{
    float difference = x - max;
    kernels->exp(&difference, &difference, 1);
    return difference;
}

void mha__partial_join(const mha__flash *flash, const mha__partial *total, const mha__partial *next, size_t count)
{
    const mha__kernels *kernels = mha__kernels_get();
    const mha__float_mode before = mha__flash_enter(flash);
    for (size_t i = 0; i < count; i++) {
        mha__softmax_state *a = &total->state[i];
        const mha__softmax_state *b = &next->state[i];
        float *sum = total->sum + i * total->width;
        const float *other = next->sum + i * next->width;
        if (!a->visible) { /* the bits of `next`, which a sum with zeros would not have where it is -0 */
            memcpy(sum, other, total->width * sizeof *sum);
            *a = *b;
            continue;
        }
        if (b->max == -INFINITY) { /* no visible key, or no score above -inf */
            a->sum += b->sum;
            if (b->visible)
                kernels->blend(sum, other, total->width, 1.0f, 1.0f);
        } else {
            float max = a->max > b->max ? a->max : b->max;
            float f = exp_difference(kernels, a->max, max), g = exp_difference(kernels, b->max, max);
            kernels->blend(sum, other, total->width, f, g);
            a->max = max;
            a->sum = a->sum * f + b->sum * g;
        }
        a->visible |= b->visible;
    }
    mha__float_mode_restore(before);
}

void mha__partial_finish(const mha__flash *flash, const mha__flash_row *rows, size_t count, const mha__partial *total)
{
    const mha__kernels *kernels = mha__kernels_get();
    const mha__float_mode before = mha__flash_enter(flash);
    for (size_t i = 0; i < count; i++) {
        const mha__flash_row *row = &rows[i];
        mha__softmax_state state = total->state[i];
        float *sum = total->sum + i * total->width, factor = 1.0f; /* scales the sum when a logit is the new maximum */
        bool empty = !state.visible;
        for (size_t l = 0; l < row->n_logits; l++) {
            float x = row->logits[l], max = x > state.max ? x : state.max;
            if (x == -INFINITY)
                continue;
            empty = false;
            float f = exp_difference(kernels, state.max, max);
            factor *= f;
            state.sum = state.sum * f + exp_difference(kernels, x, max);
            state.max = max;
        }
        if (empty) {
            for (size_t e = 0; e < flash->d_v; e++)
                row->out[e] = flash->empty;
            if (row->lse)
                *row->lse = isnan(flash->empty) ? NAN : -INFINITY;
            continue;
        }
        if (state.max == -INFINITY)
            state.sum = NAN; /* every visible score is -inf, and there is no logit: 0 / 0 */
        if (factor != 1.0f)
            kernels->scale(sum, sum, flash->d_v, factor);
        kernels->divide(row->out, sum, flash->d_v, state.sum);
        if (flash->rounds)
            kernels->round_to_bf16(flash->d_v, row->out, row->out);
        if (row->lse)
            *row->lse = state.max + logf(state.sum);
    }
    mha__float_mode_restore(before);
}
