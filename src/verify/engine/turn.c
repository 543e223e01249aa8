/* Norm, rotation and scale by position of rows of q and k; a bug also rotates v. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "mha/positions.h"
#include "verify/engine/runner.h"

/* ---------------------------------------------------------------- norm */

/* Divisor of the norm of n numbers; a layer norm subtracts their mean first. */
static double divisor(const mha__program *p, mha_norm_kind kind, bool outside, double *x, size_t n)
{
    const mha_qkv *s = &p->s.qkv;
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n && kind == MHA_NORM_LAYER; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        x[i] -= mean;
        squares += x[i] * x[i];
    }
    if (kind != MHA_NORM_L2)
        squares /= (double)n;
    return outside ? sqrt(squares) + s->norm_eps : sqrt(squares + s->norm_eps);
}

void mha__norm_rows(const mha__inputs *in, const mha__program *p, int which, double *x)
{
    const mha__mutation *given = mha__mutation_at(p, AT_NORM_WEIGHT, OP_TIMES);
    const double *weight = in->weight[MHA_Q_NORM + (mha__of_side(p, AT_NORM_WEIGHT, OP_TAKE, which) ? !which : which)],
                 *bias = mha__has(p, AT_NORM_BIAS, OP_ZERO) ? NULL : in->weight[MHA_Q_NORM_BIAS + which];
    if (!(weight || p->s.qkv.norm.unweighted) || mha__of_side(p, AT_NORM, OP_ZERO, which))
        return;
    const size_t head = in->d[which], row = in->h[which] * head, own = weight ? in->norm_weights[which] : head;
    const size_t span = weight && in->norm_over_row[which] ? row : head;
    const size_t n = !mha__has(p, AT_NORM, OP_OVER) ? span : span == head ? row : head;
    const bool outside = mha__has(p, AT_NORM, OP_FN), first = mha__has(p, AT_NORM_WEIGHT, OP_FROM),
               weighs = weight && !mha__has(p, AT_NORM_WEIGHT, OP_ZERO);
    const int type = mha__arg(p, AT_W, OP_ROUND);
    const mha__mutation *other = mha__of_side(p, AT_NORM, OP_TAKE, which);
    const mha_norm_kind kind = other ? (mha_norm_kind)other->step : p->s.qkv.norm.kind;
    for (size_t at = 0; at < in->T[which] * row; at += n) {
        const double r = divisor(p, kind, outside, x + at, n);
        for (size_t i = 0; i < n; i++) {
            const size_t of = (at + i) % (first ? head : own);
            x[at + i] /= r;
            x[at + i] *= given ? given->table[(size_t)which * head + of] : 1;
            if (weighs)
                x[at + i] *= mha__narrowed(weight[of], type) + (p->s.qkv.norm.plus_one ? 1 : 0);
            x[at + i] += bias ? mha__narrowed(bias[of], type) : 0;
        }
    }
}

/* ---------------------------------------------------------------- positions */

/* The first row of the segment of query row t. */
static size_t start_of_segment(const mha__program *p, size_t b, size_t t)
{
    const mha_view *v = &p->s.visible.pattern.q_segments;
    size_t at[] = {v->shape[0] == 1 ? 0 : b, t};
    const double own = mha_view_get(v, at);
    while (at[1] > 0 && (at[1]--, mha_view_get(v, at) == own))
        t--;
    return t;
}

/* Position of row t of the queries or of the new keys; `said`: without bugs. */
static int64_t position_of(const mha__inputs *in, const mha__program *p, int which, size_t b, size_t t, bool said)
{
    const mha_case *c = in->c;
    const bool keys = which != PROJECTION_Q;
    const mha_view *ids = &c->semantics.qkv.rope.q_positions;
    const size_t batch = !said && mha__has(p, AT_POS, OP_FROM) ? 0 : b;
    int64_t shift = said ? 0 : (int64_t)mha__number(p, keys ? AT_POS_K : AT_POS_Q, OP_PLUS, 0);
    if (!said && mha__of_side(p, AT_POS, OP_PLUS, which))
        shift += (int64_t)(b * in->T[which]);
    if (!said && mha__of_side(p, AT_POS, OP_ZERO, which))
        return (int64_t)t + shift;
    if (ids->data && (!keys || in->one_list)) {
        const size_t row = (ids->shape[0] == 1 ? 0 : batch) * ids->shape[1];
        return ((const int64_t *)ids->data)[row + in->first[which] + t] + shift;
    }
    if (!said && mha__of_side(p, AT_POS, OP_OVER, which))
        shift -= (int64_t)start_of_segment(p, batch, t);
    const int64_t part = keys && !said && mha__has(p, AT_PLACE, OP_ZERO) ? 0 : c->semantics.place.key_offset;
    return (keys ? (int64_t)c->P : mha__first_query(c, batch)) + part + (int64_t)t + shift;
}

/* ---------------------------------------------------------------- rotation */

/* Cosines and sines of the rows of one side, and the order in which they turn features. */
typedef struct spin {
    size_t half;
    double *cosine, *sine, *frequency, *kept;
    mha_view tables[2]; /* no data: angles follow from frequencies */
    bool by_row, reversed, mixed, swapped, regrouped, twice;
    int kind, way; /* MHA__TURN_ADDS, ... */
    size_t apart;  /* features of a pair; 0: by the order */
    double sign, factor, divisor;
    int bits, angle_bits, frequency_bits;
} spin;

/* Computes tables (T, pairs) from positions on several axes, as a bug reads them; false: there are none. */
static bool tables_of_axes(const mha__runner *w, const mha__program *p, int which, size_t b, double *memory, spin *s)
{
    const mha__inputs *in = w->in;
    const mha_rope_origin *o = &in->c->origin;
    const mha_rope *r = &in->c->semantics.qkv.rope;
    const int way = mha__arg(p, AT_SECTIONS, OP_FROM);
    if (!way || o->axes.axes == 0 || !p->s.qkv.rope.cos_table.data)
        return false;
    mha_rope_axes a = o->axes;
    const size_t axes = a.axes, T = in->T[which], pairs = (r->dim ? r->dim : in->c->d_k) / 2;
    for (size_t i = 0; i < axes && way == MHA__AXES_REVERSED; i++)
        a.sections[i] = o->axes.sections[axes - 1 - i];
    if (way == MHA__AXES_DEALT)
        a.kind = a.kind == MHA_ROPE_AXES_BLOCKS ? MHA_ROPE_AXES_INTERLEAVED : MHA_ROPE_AXES_BLOCKS;
    if (way == MHA__AXES_RESTART)
        a.kind = a.kind == MHA_ROPE_AXES_BLOCKS ? MHA_ROPE_AXES_REPEATED : MHA_ROPE_AXES_BLOCKS;
    size_t most = 0;
    for (size_t i = 0; i < axes; i++)
        most = a.sections[i] > most ? a.sections[i] : most;
    const size_t n = a.kind == MHA_ROPE_AXES_REPEATED ? most : pairs;
    double f[MHA_ROPE_MAX_PAIRS];
    for (size_t j = 0; j < n; j++)
        f[j] = o->frequencies.data && j < o->frequencies.shape[0]
                   ? mha_view_get(&o->frequencies, &j)
                   : pow(r->base > 0 ? r->base : 10000, -(double)j / (double)n);
    int64_t *value = (int64_t *)(void *)memory;
    for (size_t e = 0; e < axes * T; e++) {
        const size_t t = in->first[which] + e % T, own = e / T, last = axes - 1 - own;
        const size_t axis = way == MHA__AXES_FIRST                             ? 0
                            : way == MHA__AXES_SWAPPED && axes > 1 && last < 2 ? axes - 2 + last
                                                                               : own;
        const size_t by_batch[] = {axis, o->positions.shape[1] == 1 ? 0 : b, t}, for_all[] = {axis, t};
        value[e] = way == MHA__AXES_TEXT
                       ? (int64_t)(in->c->P + t)
                       : (int64_t)mha_view_get(&o->positions, o->positions.rank == 3 ? by_batch : for_all);
    }
    const mha_view positions = mha_view_of(value, MHA_I64, 2, (size_t[]){axes, T});
    for (int i = 0; i < 2; i++)
        s->tables[i] = mha_view_of(memory + axes * T + (size_t)i * T * pairs, MHA_F64, 2, (size_t[]){T, pairs});
    return mha_rope_axes_tables(&a, f, &positions, &s->tables[0], &s->tables[1], NULL) == MHA_OK;
}

/* Rotation of one side. w->turn has room for its angles, then for tables of axes. */
static spin spin_of(const mha__runner *w, const mha__program *p, int which, size_t b, bool axes)
{
    const mha_rope *r = &p->s.qkv.rope;
    const size_t half = r->dim / 2;
    const mha__mutation *apart = mha__mutation_at(p, AT_PAIR, OP_OVER), *ramp = mha__mutation_at(p, AT_ANGLE, OP_KEEP);
    spin s = {.half = half,
              .cosine = w->turn,
              .sine = w->turn + half,
              .kept = w->turn + 2 * half,
              .frequency = w->turn + 4 * half,
              .tables = {r->cos_table, r->sin_table},
              .reversed = mha__has(p, AT_ANGLE, OP_FROM),
              .mixed = mha__has(p, AT_ANGLE, OP_MOVE),
              .swapped = mha__has(p, AT_SIN, OP_TAKE),
              .regrouped = mha__has(p, AT_PAIR, OP_MOVE),
              .twice = mha__of_side(p, AT_TURN, OP_TIMES, which),
              .kind = mha__of_side(p, AT_PAIR, OP_FN, which) ? mha__other_pairing(r->kind) : r->kind,
              .way = mha__arg(p, AT_TURN, OP_FN),
              .apart = apart ? (size_t)apart->step / 2 : 0,
              .sign = mha__of_side(p, AT_SIN, OP_TIMES, which) ? -1 : 1,
              .factor = r->attention_factor,
              .divisor = mha__number(p, AT_POS, OP_TIMES, 1),
              .bits = (int)mha__number(p, AT_SIN, OP_BITS, 0),
              .angle_bits = (int)mha__number(p, AT_ANGLE, OP_BITS, 0),
              .frequency_bits = (int)mha__number(p, AT_ANGLE, OP_ROUND, 0)};
    const double width = mha__number(p, AT_ANGLE, OP_OVER, (double)r->dim);
    for (size_t i = 0; i < half; i++)
        s.frequency[i] = r->frequencies.data && i < r->frequencies.shape[0] ? mha_view_get(&r->frequencies, &i)
                                                                            : pow(r->base, -2 * (double)i / width);
    const double slow = half > 0 ? s.frequency[half - 1] * pow(r->base, 2 * (double)(half - 1) / width) : 1;
    for (size_t i = 0; ramp && i < half; i++) {
        const double plain = pow(r->base, -2 * (double)i / width), ratio = s.frequency[i] / plain, little = 1e-9;
        if (fabs(ratio - 1) > little && fabs(ratio / slow - 1) > little)
            s.frequency[i] = plain * (ramp->number > 0 ? 1 : slow);
    }
    s.by_row = r->cos_table.rank == 3;
    if (axes && tables_of_axes(w, p, which, b, w->turn + 5 * half + 8, &s))
        s.by_row = false;
    return s;
}

/* Computes the cosines and sines of a position; tables by row have those of row t of batch row b. */
static void find_angles(spin *s, int64_t position, size_t b, size_t t)
{
    const mha_view *cosines = &s->tables[0];
    for (size_t i = 0; i < s->half; i++) {
        const size_t of = s->reversed ? s->half - 1 - i : i, by_row[] = {cosines->shape[0] == 1 ? 0 : b, t, of},
                     by_position[] = {(size_t)position, of};
        const bool stated = cosines->data && of < cosines->shape[cosines->rank - 1] &&
                            (s->by_row || (position >= 0 && (size_t)position < cosines->shape[0]));
        const size_t *at = s->by_row ? by_row : by_position;
        const double frequency = mha__shortened(s->frequency[of], s->frequency_bits),
                     angle = mha__shortened((double)position * frequency / s->divisor, s->angle_bits);
        s->cosine[i] = mha__shortened(stated ? mha_view_get(cosines, at) : cos(angle), s->bits);
        s->sine[i] = mha__shortened(stated ? mha_view_get(&s->tables[1], at) : sin(angle), s->bits);
    }
}

/* Feature `which` of pair i. */
static size_t feature_of(int kind, size_t half, size_t i, int which)
{
    return kind == MHA_ROPE_INTERLEAVED ? 2 * i + (size_t)which : i + (which ? half : 0);
}

/* Rotates one head's features. */
static void turn(const spin *s, const mha__program *p, double *x)
{
    const int order = s->regrouped ? (int)mha__other_pairing((mha_rope_kind)s->kind) : s->kind;
    const double *cosine = s->swapped ? s->sine : s->cosine, *sine = s->swapped ? s->cosine : s->sine, m = s->factor;
    const bool pairs = p->s.qkv.rope.kind == MHA_ROPE_INTERLEAVED;
    memcpy(s->kept, x, 2 * s->half * sizeof *x);
    for (size_t i = 0; i < s->half && s->apart > 0; i++) { /* zeros follow the last */
        const bool whole = i + s->apart < 2 * s->half;
        const double two = whole ? s->kept[i + s->apart] : 0;
        x[i] = m * (s->kept[i] * cosine[i] - s->sign * two * sine[i]);
        if (whole)
            x[i + s->apart] = m * (two * cosine[i] + s->sign * s->kept[i] * sine[i]);
    }
    if (s->apart > 0)
        return;
    for (size_t i = 0; i < s->half; i++) {
        const size_t from[] = {feature_of(s->kind, s->half, i, 0), feature_of(s->kind, s->half, i, 1)};
        const size_t a = !s->mixed ? i
                         : pairs   ? from[0] % s->half
                                   : from[0] / 2,
                     b = !s->mixed ? i
                         : pairs   ? from[1] % s->half
                                   : from[1] / 2;
        const double one = s->kept[from[0]], two = s->kept[from[1]];
        const double first = m * (one * cosine[a] - (s->way == MHA__TURN_ADDS ? -s->sign : s->sign) * two * sine[a]);
        const double second =
            m * (two * cosine[b] + s->sign * (s->way == MHA__FIRST_OVERWRITTEN ? first : one) * sine[b]);
        x[feature_of(order, s->half, i, 0)] =
            s->way == MHA__SECOND_OVERWRITTEN ? m * (one * cosine[a] - s->sign * second * sine[a]) : first;
        x[feature_of(order, s->half, i, 1)] = second;
    }
}

void mha__rotate_rows(mha__runner *w, const mha__program *p, int which, size_t b, double *x)
{
    const mha__inputs *in = w->in;
    const size_t dim = p->s.qkv.rope.dim, width = in->d[which], T = in->T[which], h = in->h[which];
    const mha__mutation *some = mha__mutation_at(p, AT_TURN, OP_KEEP), *row = mha__mutation_at(p, AT_POS_ROW, OP_FROM),
                        *held = mha__mutation_at(p, AT_POSITION, OP_FROM);
    const size_t heads = some && (size_t)some->number < h ? (size_t)some->number : h;
    const int bits = (int)mha__number(p, AT_POSITION, OP_BITS, 0);
    if (p->s.qkv.rope.kind == MHA_ROPE_NONE || dim > width || mha__of_side(p, AT_TURN, OP_ZERO, which))
        return;
    spin s = spin_of(w, p, which, b, true);
    const bool axes = s.tables[0].data != p->s.qkv.rope.cos_table.data;
    const mha__extents all = {.n = {1, T, 1, 1}};
    for (size_t t = 0; t < T; t++) {
        const size_t at = row ? mha__map_element(row, &all, (mha__element){{0, t, 0, 0}}).at[MHA__T] : t,
                     by_row = row && row->arg != MHA__REVERSED ? t : at; /* one position still reads all tables */
        int64_t position = (int64_t)mha__shortened((double)position_of(in, p, which, b, at, false), bits);
        if (held && (!held->sides || held->sides >> which & 1))
            position = held->arg == MHA__FIRST_BLOCK     ? (int64_t)mha__modulo(position, (size_t)held->step)
                       : position >= (int64_t)held->step ? (int64_t)held->step - 1
                                                         : position;
        find_angles(&s, axes ? (int64_t)by_row : position, b, in->first[which] + by_row);
        for (size_t g = 0; g < heads; g++)
            for (int times = 0; times < (s.twice ? 2 : 1); times++)
                turn(&s, p, x + (t * h + g) * width + (p->s.qkv.rope.last ? width - dim : 0));
    }
}

void mha__rotate_past(mha__runner *w, const mha__program *p, size_t b, double direction, double *x)
{
    const mha_case *c = w->in->c;
    const size_t first = p->s.qkv.rope.last ? c->d_k - p->s.qkv.rope.dim : 0;
    spin s = spin_of(w, p, PROJECTION_K, b, false);
    s.sign *= direction;
    for (size_t j = 0; j < c->P; j++) {
        find_angles(&s, c->semantics.place.key_offset + (int64_t)j, b, j);
        for (size_t h = 0; h < c->H_kv; h++)
            turn(&s, p, x + (j * c->H_kv + h) * c->d_k + first);
    }
}

/* ---------------------------------------------------------------- scale by position */

void mha__scale_rows(const mha__inputs *in, const mha__program *p, int which, size_t b, double *x)
{
    const mha_query_scale *q = &p->s.qkv.query_scale;
    const size_t row = in->h[which] * in->d[which];
    const double N = (double)q->log_n;
    if (!mha__scales_queries(&p->s.qkv) || (which != PROJECTION_Q && !mha__has(p, AT_QSCALE, OP_DO)))
        return;
    for (size_t t = 0; t < in->T[which]; t++) {
        const double position = (double)position_of(in, p, which, b, t, true),
                     n = mha__has(p, AT_LOG_N, OP_OVER) ? (double)in->S
                                                        : position + mha__number(p, AT_LOG_N, OP_PLUS, 1);
        double factor = 1;
        if (q->growth != 0) {
            const double number = fmax(0, position + (double)q->first) / (double)q->every;
            factor += q->growth * log(1 + (mha__has(p, AT_QSCALE, OP_FN) ? number : floor(number)));
        }
        if (N > 0 && (n > N || mha__has(p, AT_LOG_N, OP_FN)))
            factor *= log(fmax(1, n)) / log(N);
        for (size_t i = 0; i < row; i++)
            x[t * row + i] *= factor;
    }
}
