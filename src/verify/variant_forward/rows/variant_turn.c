/* What a variant does to rows of q and k once they are projected: splitting into heads, norm, rotation. */
#include <math.h>
#include <string.h>

#include "attention/resolved.h"
#include "verify/variant_forward/variant_inputs.h"

size_t mha__head_column(int heads, size_t T, size_t h, size_t d, size_t t, size_t head, size_t f)
{
    const size_t in_head = f * T + t; /* where features come first */
    switch (heads) {
    case HEADS_INTERLEAVED: return t * h * d + f * h + head;
    case HEADS_REVERSED: return t * h * d + (h - 1 - head) * d + f;
    case HEADS_UNTRANSPOSED: return head * T * d + t * d + f;
    case HEADS_FEATURES_FIRST: return head * T * d + in_head;
    case HEADS_TRANSPOSED: return (t * h + head) % T * h * d + (t * h + head) / T * d + f;
    case HEADS_TURNED: return in_head / d * h * d + head * d + in_head % d;
    default: return t * h * d + head * d + f;
    }
}

void mha__rows_split(const mha__variant_inputs *w, int heads, int which, const double *from, double *to)
{
    const size_t T = w->T[which], h = w->h[which], d = w->d[which];
    if (heads == HEADS_RIGHT) {
        memcpy(to, from, T * h * d * sizeof *to);
        return;
    }
    for (size_t t = 0; t < T; t++)
        for (size_t head = 0; head < h; head++)
            for (size_t f = 0; f < d; f++)
                *to++ = from[mha__head_column(heads, T, h, d, t, head, f)];
}

/* ---------------------------------------------------------------- norm */

/* What n neighbours are divided by, after their mean was subtracted for a layer norm. */
static double divisor(const mha__knobs *k, double *x, size_t n)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n && k->s.qkv.norm.kind == MHA_NORM_LAYER; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        x[i] -= mean;
        squares += x[i] * x[i];
    }
    if (k->s.qkv.norm.kind != MHA_NORM_L2)
        squares /= (double)n;
    return k->norm_eps_outside ? sqrt(squares) + k->s.qkv.norm_eps : sqrt(squares + k->s.qkv.norm_eps);
}

void mha__rows_shorten(const mha__knobs *k, int which, size_t n, double *x)
{
    for (size_t i = 0; k->shortened >> which & 1 && i < n; i++)
        x[i] = mha__variant_shortened(x[i], k->shortened_to);
}

/* The n numbers that are `step` apart in 8 bits, with the largest of them 127. */
static void quantise(double *x, size_t n, size_t step)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i * step]));
    for (size_t i = 0; i < n && most > 0; i++)
        x[i * step] = rint(x[i * step] * 127 / most) * (most / 127);
}

void mha__rows_quantise(const mha__knobs *k, int which, size_t T, size_t h, size_t d, double *x)
{
    const bool by_row = k->int8_span == SPAN_ROW;
    if (!(k->int8 >> which & 1))
        return;
    for (size_t i = 0; i < T * h && by_row; i++)
        quantise(x + i * d, d, 1);
    for (size_t i = 0; i < h * d && k->int8_span == SPAN_FEATURE; i++)
        quantise(x + i, T, h * d);
    for (size_t g = 0; g < h && k->int8_span == SPAN_HEAD; g++) {
        double most = 0;
        for (size_t i = 0; i < T * d; i++)
            most = fmax(most, fabs(x[(i / d * h + g) * d + i % d]));
        for (size_t i = 0; i < T * d && most > 0; i++) {
            double *number = &x[(i / d * h + g) * d + i % d];
            *number = rint(*number * 127 / most) * (most / 127);
        }
    }
}

void mha__rows_normalise(const mha__variant_inputs *w, const mha__knobs *k, int which, double *x)
{
    const double *weight = w->norm[which], *bias = k->norm_no_bias ? NULL : w->norm_bias[which];
    if (!(weight || k->s.qkv.norm.unweighted) || (k->no_norm >> which & 1))
        return;
    const size_t head = w->d[which], row = w->h[which] * head, own = weight ? w->norm_weights[which] : head;
    const size_t span = weight && w->norm_over_row[which] ? row : head;
    const size_t n = !k->norm_other_span ? span : span == head ? row : head;
    for (size_t at = 0; at < w->T[which] * row; at += n) {
        const double r = divisor(k, x + at, n);
        for (size_t i = 0; i < n; i++) {
            const size_t of = k->norm_first_head ? (at + i) % head : (at + i) % own;
            x[at + i] /= r;
            if (weight && !k->norm_no_weight)
                x[at + i] *= mha__variant_rounded(weight[of], k->round_weights) + (k->s.qkv.norm.plus_one ? 1 : 0);
            x[at + i] += bias ? mha__variant_rounded(bias[of], k->round_weights) : 0;
        }
    }
}

/* ---------------------------------------------------------------- rotation */

int64_t mha__case_offset(const mha_case *c, size_t b)
{
    return (c->semantics.place.position_offset ? c->semantics.place.position_offset[b] : (int64_t)c->P) -
           c->semantics.place.key_offset;
}

/* The position of row t of the queries or of the new keys. */
static int64_t position_of(const mha__variant_inputs *w, const mha__knobs *k, int which, size_t b, size_t t)
{
    const mha_case *c = w->c;
    const bool keys = which != PROJECTION_Q;
    const mha_view *ids = &c->semantics.qkv.rope.q_positions;
    int64_t shift = keys ? k->rope_shift_k : k->rope_shift_q;
    if (k->rope_restart)
        return (int64_t)t + shift;
    if (ids->data && (!keys || w->one_list))
        return ((const int64_t *)ids->data)[(ids->shape[0] == 1 ? 0 : b) * ids->shape[1] + w->first[which] + t] + shift;
    const int64_t part = keys && k->rope_part_at_0 ? 0 : c->semantics.place.key_offset;
    return (keys ? (int64_t)c->P : mha__case_offset(c, b)) + part + (int64_t)t + shift;
}

static void cos_sin(const mha__variant_inputs *w, const mha__knobs *k, int64_t position, size_t b, size_t t,
                    size_t i, double *cosine, double *sine)
{
    const mha_case *c = w->c;
    const mha_view *own = w->axes[k->rope_axes];
    const mha_view *tc = own->data ? &own[0] : &c->semantics.qkv.rope.cos_table,
                   *ts = own->data ? &own[1] : &c->semantics.qkv.rope.sin_table;
    bool per_row = tc->rank == 3;
    if (tc->data && !k->rope_formula && i < tc->shape[tc->rank - 1]) {
        const size_t by_row[] = {tc->shape[0] == 1 ? 0 : b, t, i}, by_position[] = {(size_t)position, i};
        if (per_row || (position >= 0 && (size_t)position < tc->shape[0])) {
            *cosine = mha_view_get(tc, per_row ? by_row : by_position);
            *sine = mha_view_get(ts, per_row ? by_row : by_position);
            return;
        }
    }
    const mha_view *given = &c->semantics.qkv.rope.frequencies;
    const bool stated = given->data && !k->rope_formula && i < given->shape[0];
    const double width = k->rope_width ? k->rope_width : (double)k->s.qkv.rope.dim;
    const double frequency = stated ? mha_view_get(given, &i) : pow(k->s.qkv.rope.base, -2 * (double)i / width);
    double angle = (double)position * frequency / k->rope_divisor;
    *cosine = cos(angle);
    *sine = sin(angle);
}

/* The two features of pair i. */
static void pair_of(int kind, size_t half, size_t i, size_t pair[2])
{
    pair[0] = kind == MHA_ROPE_INTERLEAVED ? 2 * i : i;
    pair[1] = kind == MHA_ROPE_INTERLEAVED ? 2 * i + 1 : i + half;
}

/* The angle that turns a feature of pair i. */
static size_t angle_of(const mha__knobs *k, size_t half, size_t i, size_t feature)
{
    return !k->rope_mixed ? i : k->s.qkv.rope.kind == MHA_ROPE_INTERLEAVED ? feature % half : feature / 2;
}

/* Rotates one head's features, given the cosine and sine of each angle. */
static void turn(const mha__knobs *k, size_t half, const double *cosine, const double *sine, double *x,
                 double *kept)
{
    const int order = !k->rope_regrouped                ? k->s.qkv.rope.kind
                      : k->s.qkv.rope.kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT
                                                        : MHA_ROPE_INTERLEAVED;
    memcpy(kept, x, 2 * half * sizeof *x);
    if (k->rope_swapped) {
        const double *swap = cosine;
        cosine = sine, sine = swap;
    }
    for (size_t i = 0; i < half; i++) {
        size_t from[2], to[2];
        pair_of(k->s.qkv.rope.kind, half, i, from);
        pair_of(order, half, i, to);
        const size_t a = angle_of(k, half, i, from[0]), b = angle_of(k, half, i, from[1]);
        const double one = kept[from[0]], two = kept[from[1]], sign = k->rope_inverse ? -1 : 1;
        x[to[0]] = k->s.qkv.rope.attention_factor * (one * cosine[a] - sign * two * sine[a]);
        x[to[1]] = k->s.qkv.rope.attention_factor * (two * cosine[b] + sign * one * sine[b]);
    }
}

void mha__rows_rotate(const mha__variant_inputs *w, const mha__knobs *k, int which, size_t b, double *x,
                      double *memory)
{
    const size_t dim = k->s.qkv.rope.dim, half = dim / 2, width = w->d[which], T = w->T[which];
    double *cosine = memory, *sine = memory + half, *kept = memory + dim;
    if (k->s.qkv.rope.kind == MHA_ROPE_NONE || dim > width || (k->rope_not >> which & 1))
        return;
    for (size_t t = 0; t < T; t++) {
        const size_t at = k->rope_reversed ? T - 1 - t : t;
        const int64_t position = position_of(w, k, which, b, at);
        for (size_t i = 0; i < half; i++)
            cos_sin(w, k, position, b, w->first[which] + at, i, &cosine[i], &sine[i]);
        for (size_t h = 0; h < w->h[which]; h++)
            turn(k, half, cosine, sine, x + (t * w->h[which] + h) * width + (k->s.qkv.rope.last ? width - dim : 0),
                 kept);
    }
}

/* ---------------------------------------------------------------- scale by position */

/* The factor of a query at a position. */
static double scale_at(const mha__knobs *k, double position)
{
    const mha_query_scale *q = &k->s.qkv.query_scale;
    const double N = (double)q->log_n, n = position + (k->log_n_from_0 ? 0 : 1);
    double factor = 1;
    if (q->growth != 0) {
        const double number = fmax(0, position + (double)q->first) / (double)q->every;
        const double count = 1 + (k->scale_smooth ? number : floor(number));
        factor += q->growth * log(count);
    }
    if (N > 0 && (n > N || k->log_n_always))
        factor *= log(fmax(1, n)) / log(N);
    return factor;
}

void mha__rows_scale(const mha__variant_inputs *w, const mha__knobs *k, int which, size_t b, double *x)
{
    const size_t row = w->h[which] * w->d[which];
    if (!mha__scales_queries(&k->s) || (which != PROJECTION_Q && !k->scale_keys))
        return;
    mha__knobs right = *k; /* mistakes of the rotation are its own */
    right.rope_shift_q = right.rope_shift_k = right.rope_restart = right.rope_part_at_0 = 0;
    for (size_t t = 0; t < w->T[which]; t++) {
        const double factor = scale_at(k, (double)position_of(w, &right, which, b, t));
        for (size_t i = 0; i < row; i++)
            x[t * row + i] *= factor;
    }
}
