/* How the scale reaches the scores of the flash core: multiplied into the queries as far as that neither overflows nor
 * makes more than BF16 of BF16 numbers, and into the scores for the rest. */
#include <math.h>

#include "attention/core/flash/key_block.h"

/* BF16 numbers stay what they are when they are multiplied by a power of 2: the rest of the scale waits for the scores.
 */
static void divide_scale(mha__flash_work *w)
{
    int power;
    const float scale = w->flash->scale, size = 2 * frexpf(scale, &power);
    const bool whole = !w->flash->rounds || !isfinite(scale);
    w->scale = whole ? scale : ldexpf(1.0f, power - 1);
    w->after = whole ? 1.0f : size;
}

/* The power of 2 by which scale * q must be divided to stay below 2^128, where float ends; 0 unless |scale| > 1. */
static uint8_t excess(const float *q, size_t n, float scale)
{
    float most = 0.0f;
    int power_of_scale, power_of_q;
    for (size_t i = 0; i < n; i++) {
        const float size = fabsf(q[i]);
        most = size > most && size < INFINITY ? size : most;
    }
    (void)frexpf(scale, &power_of_scale);
    (void)frexpf(most, &power_of_q);
    const int power = power_of_scale + power_of_q;
    return (uint8_t)(power > 128 ? power - 128 : 0);
}

static void hold_back(mha__flash_work *w)
{
    w->holds_back = false;
    if (fabsf(w->scale) <= 1.0f)
        return;
    for (size_t i = 0; i < w->count; i++) {
        w->held_back[i] = excess(w->rows[i].q, w->flash->d_k, w->scale);
        w->holds_back |= w->held_back[i] > 0;
    }
}

/* Multiplies in steps of at most 2^64, because the whole power may exceed the range of float. */
static void give_back(const mha__flash_work *w, const mha__flash_tile *t, size_t n, float *scores)
{
    for (size_t i = 0; i < t->m; i++)
        for (int power = w->held_back[t->first + i], step; power > 0; power -= step) {
            step = power < 64 ? power : 64;
            w->kernels->scale(scores + i * MHA_STAGED, scores + i * MHA_STAGED, n, ldexpf(1.0f, step));
        }
}

void mha__scale_prepare(mha__flash_work *w)
{
    divide_scale(w);
    hold_back(w);
}

float mha__scale_of_query(const mha__flash_work *w, size_t i)
{
    return w->holds_back ? ldexpf(w->scale, -(int)w->held_back[i]) : w->scale;
}

void mha__scale_scores(const mha__flash_work *w, const mha__flash_tile *t, size_t n, float *scores)
{
    if (w->holds_back)
        give_back(w, t, n, scores);
    for (size_t i = 0; w->after != 1.0f && i < t->m; i++)
        w->kernels->scale(scores + i * MHA_STAGED, scores + i * MHA_STAGED, n, w->after);
}
