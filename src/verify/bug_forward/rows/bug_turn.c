/* What a bug does to rows of q and k once they are projected: splitting into heads, norm, rotation. */
#include <math.h>
#include <string.h>

#include "attention/call/resolved.h"
#include "verify/bug_forward/bug_inputs.h"

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

void mha__rows_split(const mha__bug_inputs *w, int heads, int which, const double *from, double *to)
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
        x[i] = mha__bug_shortened(x[i], k->shortened_to);
}

/* Rows of n numbers, `step` apart, as those of a type up to `to`, into which the largest of them goes (most: given; 0:
 * to be found). */
static void quantise(double *x, size_t rows, size_t step, size_t n, size_t apart, int to, double most)
{
    const double largest = to;
    const bool given = most > 0;
    for (size_t e = 0; e < rows * n && !given; e++)
        most = fmax(most, fabs(x[e / n * step + e % n * apart]));
    for (size_t e = 0; e < rows * n && most > 0; e++) {
        double *number = &x[e / n * step + e % n * apart], scaled = *number * largest / most;
        *number = (to == 448 ? mha__round_to(MHA_F8_E4M3, scaled) : rint(scaled)) * (most / largest);
    }
}

void mha__rows_quantise(const mha__knobs *k, int which, size_t T, size_t h, size_t d, double most, double *x)
{
    const size_t span = (size_t)k->quantised_span, n = span >= SPAN_GROUPS ? span : d;
    const int to = k->quantised_to;
    if (!(k->quantised >> which & 1))
        return;
    for (size_t i = 0; i < T * h * d / n && (span == SPAN_ROW || span >= SPAN_GROUPS); i++)
        quantise(x + i * n, 1, 0, n, 1, to, 0);
    for (size_t i = 0; i < h * d && span == SPAN_FEATURE; i++)
        quantise(x + i, 1, 0, T, h * d, to, 0);
    for (size_t g = 0; g < h && span == SPAN_HEAD; g++)
        quantise(x + g * d, T, h * d, d, 1, to, 0);
    if (span == SPAN_TENSOR)
        quantise(x, 1, 0, T * h * d, 1, to, most);
}

void mha__rows_normalise(const mha__bug_inputs *w, const mha__knobs *k, int which, double *x)
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
                x[at + i] *= mha__bug_rounded(weight[of], k->round_weights) + (k->s.qkv.norm.plus_one ? 1 : 0);
            x[at + i] += bias ? mha__bug_rounded(bias[of], k->round_weights) : 0;
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
static int64_t position_of(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b, size_t t)
{
    const mha_case *c = w->c;
    const bool keys = which != PROJECTION_Q;
    const mha_view *ids = &c->semantics.qkv.rope.q_positions;
    const size_t batch = k->rope_first_batch ? 0 : b;
    int64_t shift = keys ? k->rope_shift_k : k->rope_shift_q;
    if (k->rope_runs >> which & 1)
        shift += (int64_t)(b * w->T[which]);
    if (k->rope_one)
        t = k->rope_one == 1 ? 0 : w->T[which] - 1;
    if (k->rope_restart >> which & 1)
        return (int64_t)t + shift;
    if (ids->data && (!keys || w->one_list)) {
        const size_t row = (ids->shape[0] == 1 ? 0 : batch) * ids->shape[1];
        return ((const int64_t *)ids->data)[row + w->first[which] + t] + shift;
    }
    const int64_t part = keys && k->rope_part_at_0 ? 0 : c->semantics.place.key_offset;
    return (keys ? (int64_t)c->P : mha__case_offset(c, batch)) + part + (int64_t)t + shift;
}

/* The position of an angle in a table that may be too short. */
static int64_t held(const mha__knobs *k, int64_t position)
{
    if (k->rope_wraps > 0)
        return (int64_t)mha__wrapped(position, (size_t)k->rope_wraps);
    return k->rope_holds > 0 && position >= k->rope_holds ? k->rope_holds - 1 : position;
}

/* The frequencies of all pairs. */
static void find_frequencies(const mha__bug_inputs *w, const mha__knobs *k, size_t pairs, double *frequency)
{
    const mha_view *given = &w->c->semantics.qkv.rope.frequencies;
    const double width = k->rope_width ? k->rope_width : (double)k->s.qkv.rope.dim;
    for (size_t i = 0; i < pairs; i++) {
        const bool stated = given->data && !k->rope_formula && i < given->shape[0];
        frequency[i] = stated ? mha_view_get(given, &i) : pow(k->s.qkv.rope.base, -2 * (double)i / width);
    }
}

static void cos_sin(const mha__bug_inputs *w, const mha__knobs *k, int64_t position, size_t b, size_t t, size_t i,
                    double frequency, double *cosine, double *sine)
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

/* How a head's features are rotated: by pairs of a kind, in a direction. */
typedef struct way {
    int kind;
    double sign;
} way;

static way way_of(const mha__knobs *k, int which)
{
    const int kind = k->s.qkv.rope.kind,
              other = kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT : MHA_ROPE_INTERLEAVED;
    return (way){k->rope_pairing >> which & 1 ? other : kind, k->rope_inverse >> which & 1 ? -1 : 1};
}

/* Rotates one head's features, given the cosine and sine of each angle. */
static void turn(const mha__knobs *k, way by, size_t half, const double *cosine, const double *sine, double *x,
                 double *kept)
{
    const int order = !k->rope_regrouped                ? by.kind
                      : by.kind == MHA_ROPE_INTERLEAVED ? MHA_ROPE_HALF_SPLIT
                                                        : MHA_ROPE_INTERLEAVED;
    const double m = k->s.qkv.rope.attention_factor;
    memcpy(kept, x, 2 * half * sizeof *x);
    if (k->rope_swapped) {
        const double *swap = cosine;
        cosine = sine, sine = swap;
    }
    for (size_t i = 0; i < half; i++) {
        size_t from[2], to[2];
        pair_of(by.kind, half, i, from);
        pair_of(order, half, i, to);
        const size_t a = angle_of(k, half, i, from[0]), b = angle_of(k, half, i, from[1]);
        const double one = kept[from[0]], two = kept[from[1]], sign = by.sign;
        const double first = m * (one * cosine[a] - (k->rope_turn == TURN_ADDS ? -sign : sign) * two * sine[a]);
        const double second =
            m * (two * cosine[b] + sign * (k->rope_turn == TURN_FIRST_OVERWRITTEN ? first : one) * sine[b]);
        const bool again = k->rope_turn == TURN_SECOND_OVERWRITTEN;
        x[to[0]] = again ? m * (one * cosine[a] - sign * second * sine[a]) : first;
        x[to[1]] = second;
    }
}

void mha__rows_rotate(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b, double *x, double *memory)
{
    const size_t dim = k->s.qkv.rope.dim, half = dim / 2, width = w->d[which], T = w->T[which];
    double *cosine = memory, *sine = memory + half, *kept = memory + dim, *frequency = kept + dim;
    const bool few = k->rope_heads > 0 && (size_t)k->rope_heads < w->h[which];
    const size_t heads = few ? (size_t)k->rope_heads : w->h[which];
    const way by = way_of(k, which);
    if (k->s.qkv.rope.kind == MHA_ROPE_NONE || dim > width || (k->rope_not >> which & 1))
        return;
    find_frequencies(w, k, half, frequency);
    for (size_t t = 0; t < T; t++) {
        const size_t at = k->rope_reversed ? T - 1 - t : t;
        const int64_t position = held(k, position_of(w, k, which, b, at));
        for (size_t i = 0; i < half; i++) {
            const size_t of = k->rope_reversed_angles ? half - 1 - i : i;
            cos_sin(w, k, position, b, w->first[which] + at, of, frequency[of], &cosine[i], &sine[i]);
        }
        for (size_t h = 0; h < heads; h++)
            for (int times = 0; times <= (k->rope_twice >> which & 1); times++)
                turn(k, by, half, cosine, sine,
                     x + (t * w->h[which] + h) * width + (k->s.qkv.rope.last ? width - dim : 0), kept);
    }
}

void mha__rows_rotate_past(const mha__bug_inputs *w, const mha__knobs *k, size_t b, double *x, double *memory)
{
    const mha_case *c = w->c;
    const size_t dim = k->s.qkv.rope.dim, half = dim / 2, first = k->s.qkv.rope.last ? c->d_k - dim : 0;
    double *cosine = memory, *sine = memory + half, *kept = memory + dim, *frequency = kept + dim;
    way by = way_of(k, PROJECTION_K);
    by.sign *= k->past_turned;
    find_frequencies(w, k, half, frequency);
    for (size_t j = 0; j < c->P; j++) {
        const int64_t position = c->semantics.place.key_offset + (int64_t)j;
        for (size_t i = 0; i < half; i++)
            cos_sin(w, k, position, b, j, i, frequency[i], &cosine[i], &sine[i]);
        for (size_t h = 0; h < c->H_kv; h++)
            turn(k, by, half, cosine, sine, x + (j * c->H_kv + h) * c->d_k + first, kept);
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

void mha__rows_scale(const mha__bug_inputs *w, const mha__knobs *k, int which, size_t b, double *x)
{
    const size_t row = w->h[which] * w->d[which];
    if (!mha__scales_queries(&k->s) || (which != PROJECTION_Q && !k->scale_keys))
        return;
    mha__knobs right = *k; /* bugs of the rotation are its own */
    right.rope_shift_q = right.rope_shift_k = right.rope_restart = right.rope_part_at_0 = 0;
    right.rope_runs = right.rope_one = right.rope_first_batch = 0;
    for (size_t t = 0; t < w->T[which]; t++) {
        const double factor = scale_at(k, (double)position_of(w, &right, which, b, t));
        for (size_t i = 0; i < row; i++)
            x[t * row + i] *= factor;
    }
}
