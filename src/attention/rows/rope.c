/* Rotary position embedding: pairs of features turned by an angle that grows with the position
 * (Su et al. 2021).  y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin. And queries scaled by their position. */
#include <math.h>

#include "attention/rows/rows.h"
#include "base/heads.h"

/* cos and sin of pair i for row t of batch row b, which is at `position`. */
static void turn(const mha_rope *rope, size_t b, size_t t, int64_t position, size_t i, double *c, double *s)
{
    const mha_view *cos_table = &rope->cos_table, *sin_table = &rope->sin_table;
    if (cos_table->data) {
        bool by_row = cos_table->rank == 3;
        size_t at[3] = {by_row && cos_table->shape[0] > 1 ? b : 0, by_row ? t : (size_t)position, i};
        *c = mha_view_get(cos_table, by_row ? at : at + 1) * rope->attention_factor;
        *s = mha_view_get(sin_table, by_row ? at : at + 1) * rope->attention_factor;
        return;
    }
    const mha_view *given = &rope->frequencies;
    const double exponent = -2.0 * (double)i / (double)rope->dim,
                 angle = (double)position * (given->data ? mha_view_get(given, &i) : pow(rope->base, exponent));
    *c = cos(angle) * rope->attention_factor;
    *s = sin(angle) * rope->attention_factor;
}

static int64_t given_position(const mha_view *positions, size_t b, size_t t)
{
    ptrdiff_t row = positions->shape[0] > 1 ? (ptrdiff_t)b : 0;
    return ((const int64_t *)positions->data)[row * positions->stride[0] + (ptrdiff_t)t * positions->stride[1]];
}

/* Rotates all heads of row t of x, F32, in place, with the same angles. */
static void rotate_row(const void *context, size_t b, size_t t, int64_t position, const mha_view *x)
{
    const mha_rope *rope = context;
    bool interleaved = rope->kind == MHA_ROPE_INTERLEAVED;
    const size_t pairs = rope->dim / 2, from = rope->last ? x->shape[3] - rope->dim : 0;
    for (size_t i = 0; i < pairs; i++) {
        double c64, s64;
        turn(rope, b, t, position, i, &c64, &s64);
        float c = (float)c64, s = (float)s64;
        size_t one = interleaved ? 2 * i : i, two = interleaved ? 2 * i + 1 : i + pairs;
        for (size_t g = 0; g < x->shape[2]; g++) {
            float *row = mha__row(x, b, t, g) + from, x1 = row[one], x2 = row[two];
            row[one] = x1 * c - x2 * s;
            row[two] = x2 * c + x1 * s;
        }
    }
}

/* Calls `each` for every row of a side with its place in the inputs and its position. */
static void for_rows(const mha__resolved *r, mha__side side, const mha_view *x, const void *context,
                     void (*each)(const void *context, size_t b, size_t t, int64_t position, const mha_view *x))
{
    const mha_rope *rope = &r->qkv.rope;
    const mha_view *positions = side == MHA_QUERIES ? &rope->q_positions : &rope->k_positions;
    for (size_t b = 0; b < r->plan.B; b++) {
        mha__sequence s = mha__resolved_sequence(r, b);
        size_t from = side == MHA_QUERIES ? s.q_from : s.k_from, T = side == MHA_QUERIES ? s.T_q : s.T_k;
        int64_t first = side == MHA_QUERIES ? s.offset : r->cached;
        for (size_t t = 0; t < T; t++)
            each(context, s.batch, from + t,
                 positions->data ? given_position(positions, s.batch, from + t) : first + (int64_t)t, x);
    }
}

void mha__rotate_heads(const mha__resolved *r, mha__side side, const mha_view *x)
{
    if (r->qkv.rope.kind != MHA_ROPE_NONE)
        for_rows(r, side, x, &r->qkv.rope, rotate_row);
}

static void scale_row(const void *context, size_t b, size_t t, int64_t position, const mha_view *x)
{
    const mha_query_scale *q = context;
    int64_t number;
    if (__builtin_add_overflow(position, q->first, &number)) /* given positions may be any */
        number = position > 0 ? INT64_MAX : 0;
    const int64_t steps = q->growth != 0 && number > 0 ? number / q->every : 0;
    double times = 1 + q->growth * log1p((double)steps);
    if (q->log_n > 0 && position >= q->log_n)
        times *= log1p((double)position) / log((double)q->log_n);
    const float factor = (float)times;
    for (size_t g = 0; g < x->shape[2]; g++)
        for (size_t c = 0; c < x->shape[3]; c++)
            mha__row(x, b, t, g)[c] *= factor;
}

void mha__scale_queries(const mha__resolved *r, const mha_view *x)
{
    if (mha__scales_queries(&r->qkv))
        for_rows(r, MHA_QUERIES, x, &r->qkv.query_scale, scale_row);
}
