/* Norm, rotation and scale by position of the exact path, in float64 and plain loops: the definitions of
 * mha/attention.h, row by row. */
#include <math.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_rows.h"

/* Element c of the n features that are normalised together, the first of which is number `first` of the row. */
static double weight_of(const mha__resolved *r, mha__side side, const mha_view *w, size_t first, size_t c)
{
    const size_t by_head[2] = {first / r->plan.d_k, c};
    return mha_view_get(w, r->norm[side] == MHA_NORM_EACH_HEAD ? by_head : &c);
}

void mha__exact_normalise(const mha__resolved *r, mha__side side, double *x, size_t heads)
{
    const mha_view *w = &r->weight[side == MHA_QUERIES ? MHA_Q_NORM : MHA_K_NORM];
    const mha_view *bias = &r->weight[side == MHA_QUERIES ? MHA_Q_NORM_BIAS : MHA_K_NORM_BIAS];
    const mha_norm_rule *rule = &mha__semantics_of(r)->qkv.norm;
    if (r->norm[side] == MHA_NORM_NONE)
        return;
    size_t d = r->plan.d_k, group = r->norm[side] == MHA_NORM_ROW ? heads * d : d;
    for (size_t from = 0; from < heads * d; from += group) {
        double mean = 0, squares = 0;
        for (size_t c = 0; c < group && rule->kind == MHA_NORM_LAYER; c++)
            mean += x[from + c] / (double)group;
        for (size_t c = 0; c < group; c++)
            squares += (x[from + c] - mean) * (x[from + c] - mean) / (rule->kind == MHA_NORM_L2 ? 1 : (double)group);
        for (size_t c = 0; c < group; c++) {
            const double weight = w->data ? weight_of(r, side, w, from, c) + (rule->plus_one ? 1 : 0) : 1;
            x[from + c] = (x[from + c] - mean) / sqrt(squares + r->qkv.norm_eps) * weight +
                          (bias->data ? weight_of(r, side, bias, from, c) : 0);
        }
    }
}

void mha__exact_clip(const mha__resolved *r, double *x, size_t count)
{
    const double most = mha__semantics_of(r)->qkv.clip_qkv;
    for (size_t i = 0; most > 0 && i < count; i++)
        if (fabs(x[i]) > most)
            x[i] = copysign(most, x[i]);
}

int64_t mha__exact_position(const mha__resolved *r, mha__side side, const mha__sequence *s, size_t i)
{
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    const mha_view *given = side == MHA_QUERIES ? &rope->q_positions : &rope->k_positions;
    const size_t t = i + (side == MHA_QUERIES ? s->q_from : s->k_from);
    if (side == MHA_KEYS && !given->data && r->query.shape[1] == r->key.shape[1] &&
        !mha__semantics_of(r)->place.has_key_offset)
        given = &rope->q_positions;
    if (!given->data)
        return (side == MHA_QUERIES ? s->offset : r->cached) + (int64_t)i;
    return ((const int64_t *)given->data)[(given->shape[0] == 1 ? 0 : (ptrdiff_t)s->batch * given->stride[0]) +
                                          (ptrdiff_t)t * given->stride[1]];
}

double mha__exact_angle(const mha__resolved *r, int64_t position, size_t pair)
{
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    return rope->frequencies.data
               ? (double)position * mha_view_get(&rope->frequencies, &pair)
               : (double)position / pow(r->qkv.rope.base, 2.0 * (double)pair / (double)r->qkv.rope.dim);
}

mha__cos_sin mha__exact_turn(const mha__resolved *r, size_t b, size_t t, int64_t position, size_t pair)
{
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    const size_t by_position[2] = {(size_t)position, pair},
                 by_row[3] = {rope->cos_table.shape[0] == 1 ? 0 : b, t, pair};
    const size_t *at = rope->cos_table.rank == 2 ? by_position : by_row;
    if (rope->cos_table.data)
        return (mha__cos_sin){mha_view_get(&rope->cos_table, at), mha_view_get(&rope->sin_table, at)};
    const double angle = mha__exact_angle(r, position, pair);
    return (mha__cos_sin){cos(angle), sin(angle)};
}

void mha__exact_rotate(const mha__resolved *r, double *x, size_t heads, size_t b, size_t t, int64_t position, bool back)
{
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    if (rope->kind == MHA_ROPE_NONE)
        return;
    size_t d = r->plan.d_k, half = r->qkv.rope.dim / 2, from = rope->last ? d - r->qkv.rope.dim : 0;
    for (size_t i = 0; i < half; i++) {
        const mha__cos_sin turn = mha__exact_turn(r, b, t, position, i);
        const double sine = back ? -turn.s : turn.s;
        size_t one = from + (rope->kind == MHA_ROPE_INTERLEAVED ? 2 * i : i);
        size_t two = from + (rope->kind == MHA_ROPE_INTERLEAVED ? 2 * i + 1 : half + i);
        for (size_t g = 0; g < heads; g++) {
            double x1 = x[g * d + one], x2 = x[g * d + two];
            x[g * d + one] = r->qkv.rope.attention_factor * (x1 * turn.c - x2 * sine);
            x[g * d + two] = r->qkv.rope.attention_factor * (x2 * turn.c + x1 * sine);
        }
    }
}

double mha__exact_query_scale(const mha__resolved *r, int64_t position)
{
    const mha_query_scale *q = &mha__semantics_of(r)->qkv.query_scale;
    const double n = (double)position + 1, N = (double)q->log_n;
    const double beyond = N > 0 && n > N ? log(n) / log(N) : 1;
    if (q->growth == 0)
        return beyond;
    int64_t number;
    if (__builtin_add_overflow(position, q->first, &number)) /* given positions may be any */
        number = position < 0 ? 0 : INT64_MAX;
    const int64_t steps = number < 0 ? 0 : number / q->every;
    const double count = 1 + (double)steps;
    return (1 + q->growth * log(count)) * beyond;
}

static void scale(const mha__resolved *r, double *x, size_t heads, int64_t position)
{
    const double factor = mha__exact_query_scale(r, position);
    for (size_t c = 0; c < heads * r->plan.d_k && factor != 1; c++)
        x[c] *= factor;
}

void mha__exact_rows(const mha__resolved *r, mha__side side, double *x, size_t heads)
{
    const size_t T = side == MHA_QUERIES ? r->query.shape[1] : r->key.shape[1];
    for (size_t b = 0; b < r->plan.B; b++) {
        const mha__sequence s = mha__resolved_sequence(r, b);
        const size_t n = side == MHA_QUERIES ? s.T_q : s.T_k, from = side == MHA_QUERIES ? s.q_from : s.k_from;
        for (size_t i = 0; i < n; i++) {
            double *row = x + (s.batch * T + from + i) * heads * r->plan.d_k;
            const int64_t position = mha__exact_position(r, side, &s, i);
            if (mha__normalises_first(r, side)) {
                mha__exact_normalise(r, side, row, heads);
                mha__exact_clip(r, row, heads * r->plan.d_k);
            }
            mha__exact_rotate(r, row, heads, s.batch, from + i, position, false);
            if (mha__semantics_of(r)->qkv.norm.after_rope)
                mha__exact_normalise(r, side, row, heads);
            if (side == MHA_QUERIES)
                scale(r, row, heads, position);
        }
    }
}
