/* New rows of q, k and v: projections, biases, heads, order in memory, limits, rounding. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "verify/engine/runner.h"

void mha__reread(const mha__mutation *m, size_t b, size_t T, size_t h, size_t d, double *rows, double *copy)
{
    if (!m)
        return;
    const bool views = m->arg == MHA__VIEW, single = views || m->axis == MHA__C, /* features move one by one */
        in_order = views && (m->written == MHA__BTHC || m->read == MHA__BTHC), alike = single && m->arg < MHA__ORIGIN;
    const size_t n = single ? d : 1, width = single ? 1 : d;
    const mha__extents x = {.n = {1, T, h, n}, .order = MHA__BTHC};
    memcpy(copy, rows, T * h * d * sizeof *rows);
    for (size_t f = 0; alike && f < d; f++) { /* in the same way in every row */
        const size_t from = mha__map_element(m, &x, (mha__element){{b, 0, 0, f}}).at[MHA__C];
        for (size_t at = 0; at < T * h * d; at += d)
            rows[at + f] = from < d ? copy[at + from] : 0;
    }
    for (size_t t = 0, to = 0; !alike && t < T; t++)
        for (size_t g = 0; g < h; g++)
            for (size_t f = 0; f < n; f++, to += width) {
                const mha__element own = {{views ? 0 : b, t, g, f}};
                if (in_order && m->written == MHA__BTHC)
                    rows[to] = copy[mha__join(&x, m->read, own)];
                else if (in_order)
                    rows[mha__join(&x, m->written, own)] = copy[to];
                else {
                    const mha__element at = mha__map_element(m, &x, own);
                    const size_t from = (at.at[MHA__T] * h + at.at[MHA__H]) * n + at.at[MHA__C];
                    memset(rows + to, 0, width * sizeof *rows); /* where there is no such row */
                    if (at.at[MHA__T] < T)
                        memcpy(rows + to, copy + from * width, width * sizeof *rows);
                }
            }
}

/* ---------------------------------------------------------------- projections */

/* Returns the projection (without a layer: the input) that a head of q, k or v reads; *head: its head there. */
static int source_of(const mha__inputs *in, const mha__program *p, int which, size_t *head)
{
    const mha__mutation *order = mha__mutation_at(p, AT_PROJ, OP_TAKE);
    const int packed = mha__arg(p, AT_PROJ, OP_FROM);
    const size_t H = in->h[PROJECTION_Q], H_kv = in->h[PROJECTION_K], n = H / H_kv, first[] = {0, H, H + H_kv};
    size_t at = *head;
    const mha__mutation *late = mha__of_side(p, AT_PROJ, OP_OVER, which);
    if (packed == MHA__PACKED_PAIRS) {
        if (which == PROJECTION_Q)
            return which;
        at += which == PROJECTION_V ? H_kv : 0;
        *head = at / 2;
        return at % 2 ? PROJECTION_V : PROJECTION_K;
    }
    if (!packed && !late)
        return order ? order->step >> 2 * which & 3 : which;
    if (packed == MHA__PACKED_GROUPS || late) { /* index in groups (queries, key, value), read as blocks */
        at = late                    ? mha__modulo((int64_t)(first[which] + at) + late->step, H + 2 * H_kv)
             : which == PROJECTION_Q ? at / n * (n + 2) + at % n
                                     : at * (n + 2) + n + (which == PROJECTION_V);
        const int s = at < H ? PROJECTION_Q : at < H + H_kv ? PROJECTION_K : PROJECTION_V;
        *head = at - first[s];
        return s;
    }
    at += first[which];
    *head = at % (n + 2) < n ? at / (n + 2) * n + at % (n + 2) : at / (n + 2);
    return at % (n + 2) < n ? PROJECTION_Q : at % (n + 2) == n ? PROJECTION_K : PROJECTION_V;
}

/* Matrix of a projection, or the first columns of W_O; w->W if the program changes it. */
static const double *matrix_of(mha__runner *w, const mha__program *p, int which, size_t columns)
{
    const mha__inputs *in = w->in;
    const bool last = which == PROJECTION_O;
    const size_t rows = in->in[which], out = in->out[which], heads = last ? 1 : in->h[which], d = out / heads;
    const int type = mha__arg(p, AT_W, OP_ROUND);
    if (in->c->kv_rank && (which == PROJECTION_K || which == PROJECTION_V)) {
        mha__latent_matrix(in, p, which == PROJECTION_V, w->W);
        return w->W;
    }
    const mha__mutation *read = last ? mha__mutation_at(p, AT_W_O, OP_FROM) : mha__of_side(p, AT_W, OP_FROM, which);
    const double *table = read ? read->table : NULL, *of_row = table && read->axis == MHA__T ? table : NULL,
                 *of_column = of_row ? NULL : table;
    bool plain = !type && !table && !mha__arg(p, AT_PROJ, OP_FROM) && !mha__has(p, AT_PROJ, OP_OVER);
    for (size_t head = 0; head < heads; head++) {
        size_t from = head;
        const int s = last ? which : source_of(in, p, which, &from);
        const bool turned = mha__has(p, AT_W_Q + s, OP_FROM) && !(last && table);
        plain &= !turned;
        if (plain)
            return in->weight[mha__projection_W(s)];
        const size_t n = columns < d ? columns : d;
        for (size_t i = 0; i < rows; i++)
            for (size_t f = 0; f < n; f++) {
                const bool own = s == which; /* a table has the extents of its own matrix */
                const size_t row = of_row && own ? (size_t)of_row[i] : i, at = from * d + f,
                             column = of_column && own ? (size_t)of_column[at] : at;
                w->W[i * out + head * d + f] = mha__narrowed(
                    in->weight[mha__projection_W(s)][turned ? column * rows + row : row * in->out[s] + column], type);
            }
    }
    return w->W;
}

/* Writes the bias of a projection to w->bias, in the order of its columns; returns false if there is none. */
static bool read_bias(mha__runner *w, const mha__program *p, int which)
{
    const mha__inputs *in = w->in;
    const bool last = which == PROJECTION_O;
    const size_t heads = last ? 1 : in->h[which], d = in->out[which] / heads;
    const double times = which == PROJECTION_Q ? mha__number(p, AT_B_Q, OP_TIMES, 1) : 1;
    const int type = mha__arg(p, AT_W, OP_ROUND);
    const mha__mutation *order = mha__mutation_at(p, AT_BIAS, OP_FROM);
    bool any = false;
    for (size_t head = 0; head < heads; head++) {
        size_t from = head;
        const int s = last ? which : source_of(in, p, which, &from);
        const mha__mutation *lacks = mha__mutation_at(p, AT_B_Q + s, OP_KEEP),
                            *given = mha__mutation_at(p, AT_B_Q + s, OP_TAKE);
        const bool drops = mha__has(p, AT_B_Q + s, OP_ZERO) || (lacks && lacks->step == (long long)from);
        const mha__mutation *other = mha__of_side(p, AT_BIAS, OP_TAKE, which);
        const int of = other ? (int)other->step : order && !last ? (int)(order->step >> 2 * which & 3) : s;
        const double *b = drops ? NULL : given ? given->table : in->weight[mha__projection_b(of)];
        for (size_t f = 0; f < d; f++)
            w->bias[head * d + f] = b ? times * mha__narrowed(b[(from * d + f) % in->out[of]], type) : 0;
        any |= b != NULL;
    }
    return any;
}

void mha__input_row(const mha__program *p, const double *from, size_t n, double *to)
{
    const int type = mha__arg(p, AT_X, OP_ROUND), norm = mha__arg(p, AT_X, OP_FN);
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = mha__narrowed(from[i], type);
        mean += norm == MHA__LAYER_NORM ? to[i] / (double)n : 0;
    }
    for (size_t i = 0; i < n && norm; i++) {
        to[i] -= mean;
        squares += to[i] * to[i];
    }
    const double root = sqrt(squares / (double)n + (norm == MHA__LAYER_NORM ? 1e-5 : 1e-6)); /* default eps */
    for (size_t i = 0; i < n && norm; i++)
        to[i] /= root;
}

/* Input rows or latents of one batch row: *count rows, without query rows that are not needed. */
static const double *inputs_of(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows, size_t *count)
{
    const mha__inputs *in = w->in;
    const mha_case *c = in->c;
    const size_t T = in->T[which], n = in->in[which];
    const bool latent = c->kv_rank && (which || c->q_rank), turned = mha__has(p, AT_X, OP_FROM),
               same = !turned && !mha__has(p, AT_X, OP_ROUND) && !mha__has(p, AT_X, OP_FN);
    const unsigned char *needed = all_rows || which || !w->needed ? NULL : w->needed + b * T;
    const mha__mutation *other = mha__of_side(p, AT_X, OP_TAKE, which);
    const int from = other ? other->arg : which;
    const double *x = in->x[from] + b * in->T[from] * n;
    if (latent) {
        mha__latents_of(w, p, which > 0, b, false, w->written);
        x = w->written;
    }
    *count = T;
    if (!needed && same)
        return x;
    *count = 0;
    for (size_t t = 0; t < T; t++)
        if (!needed || needed[t])
            mha__input_row(p, x + (turned ? T - 1 - t : t) * n, n, w->x + (*count)++ * n);
    return w->x;
}

/* x W of one batch row. */
static void project(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows, double *y)
{
    const mha__inputs *in = w->in;
    const size_t T = in->T[which], width = in->out[which], d = in->d[which];
    if (in->c->kind == CASE_MHA) {
        size_t count;
        const double *x = inputs_of(w, p, which, b, all_rows, &count), *W = matrix_of(w, p, which, width);
        mha__gemm_double(count, width, in->in[which], x, in->in[which], W, width, y, width);
        for (size_t t = T; t-- > 0 && count > 0 && count < T;) /* moves rows to their indices */
            if (w->needed[b * T + t])
                memmove(y + t * width, y + --count * width, width * sizeof *y);
        return;
    }
    const int type = mha__arg(p, AT_X, OP_ROUND);
    const bool turned = mha__has(p, AT_X, OP_FROM);
    for (size_t head = 0; head < in->h[which]; head++) {
        size_t from = head;
        const int s = source_of(in, p, which, &from);
        for (size_t t = 0; t < T; t++) {
            const double *x = in->x[s] + (b * in->T[s] + (turned ? T - 1 - t : t)) * in->out[s] + from * d;
            for (size_t f = 0; f < d; f++)
                y[t * width + head * d + f] = type ? mha__narrowed(x[f], type) : x[f];
        }
    }
}

/* ---------------------------------------------------------------- new rows */

/* Clips rows if the program clips at `place`. Bugs of norms do not move that point. */
static void clip(const mha__inputs *in, const mha__program *p, int which, int place, double *y)
{
    const mha_norm_rule *rule = &in->c->semantics.qkv.norm;
    const double most = p->s.qkv.clip_qkv;
    const int said = mha__arg(p, AT_CLIP, OP_MOVE);
    const bool normed = which < 2 && !rule->after_rope && (in->weight[MHA_Q_NORM + which] || rule->unweighted),
               moves = said == MHA__BEFORE_BIAS || (said && which < 2);
    const int own = moves ? said : normed ? MHA__AFTER_NORM : MHA__BEFORE_NORM;
    const size_t n = in->T[which] * in->out[which];
    if (own != place || !(most > 0) || mha__of_side(p, AT_CLIP, OP_ZERO, which))
        return;
    for (size_t i = 0; i < n; i++)
        if (fabs(y[i]) > most)
            y[i] = copysign(most, y[i]);
}

/* Splits rows (T, h*d) of w->flat into heads; changes w->flat. */
static void split(mha__runner *w, const mha__program *p, int which, double *rows)
{
    const size_t T = w->in->T[which], h = w->in->h[which], d = w->in->d[which];
    mha__reread(mha__of_side(p, AT_Y, OP_FROM, which), 0, T, h, d, w->flat, rows);
    memcpy(rows, w->flat, T * h * d * sizeof *rows);
    mha__reread(mha__mutation_at(p, AT_H, OP_FROM), 0, T, h, d, rows, w->flat);
}

/* Adds the bias if the program adds it at `place`; `memory` has room for all rows. */
static void add_bias(mha__runner *w, const mha__program *p, int which, int place, double *y, double *memory)
{
    const size_t width = w->in->out[which], n = w->in->T[which] * width;
    const int own = which == PROJECTION_V ? 0 : mha__arg(p, AT_BIAS, OP_MOVE);
    if (own != place || !read_bias(w, p, which))
        return;
    for (size_t row = 0; row < n && !place; row += width)
        for (size_t c = 0; c < width; c++)
            y[row + c] += w->bias[c];
    for (size_t row = 0; row < n && place; row += width)
        memcpy(w->flat + row, w->bias, width * sizeof *y);
    if (place)
        split(w, p, which, memory);
    for (size_t i = 0; i < n && place; i++)
        y[i] += memory[i];
}

/* Writes x W + b of one batch row, clipped, to w->flat. */
static void project_with_bias(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows)
{
    bool found;
    double *y = mha__node_of(w, KEPT_PRODUCT, NODE_Y + (mha__node)which, all_rows, b, &found);
    if (!found)
        project(w, p, which, b, all_rows, y);
    memcpy(w->flat, y, w->in->T[which] * w->in->out[which] * sizeof *y);
    clip(w->in, p, which, MHA__BEFORE_BIAS, w->flat);
    add_bias(w, p, which, 0, w->flat, w->rows);
    clip(w->in, p, which, MHA__BEFORE_NORM, w->flat);
}

/* Quantises n numbers of each of `rows` rows, `apart` apart, with one scale: the largest becomes `to`. `most`: the
 * largest number; 0: not known. */
static void quantise(double *x, size_t rows, size_t apart, size_t n, double to, double most)
{
    const bool given = most > 0, wraps = to < 0; /* the largest code becomes the least */
    to = fabs(to);
    for (size_t e = 0; e < rows * n && !given; e++)
        most = fmax(most, fabs(x[e / n * apart + e % n]));
    for (size_t e = 0; e < rows * n && most > 0; e++) {
        double *number = &x[e / n * apart + e % n], scaled = *number * to / most;
        *number = (to == 448                     ? mha__round_to(MHA_F8_E4M3, scaled)
                   : wraps && rint(scaled) >= to ? -to
                                                 : rint(scaled)) *
                  (most / to);
    }
}

void mha__round_rows(const mha__program *p, int which, size_t T, size_t h, size_t d, double most, double *x)
{
    const mha__mutation *bits = mha__of_side(p, AT_A, OP_BITS, which), *m = mha__of_side(p, AT_A, OP_QUANT, which);
    for (size_t i = 0; bits && i < T * h * d; i++)
        x[i] = mha__shortened(x[i], (int)bits->number);
    const size_t span = m ? (size_t)m->step : 0, rows = span == MHA__SPAN_ROW || span >= MHA__SPAN_GROUPS ? 1 : T,
                 n = span >= MHA__SPAN_GROUPS    ? span
                     : span == MHA__SPAN_FEATURE ? 1
                     : span == MHA__SPAN_TENSOR  ? h * d
                                                 : d;
    for (size_t i = 0; m && rows > 0 && i < T * h * d / n / rows; i++)
        quantise(x + i * n, rows, h * d, n, m->number, most);
}

/* Computes new rows of one batch row, before rounding. */
static void make_rows(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows, double *rows)
{
    const mha__inputs *in = w->in;
    const size_t T = in->T[which], h = in->h[which], d = in->d[which], n = T * h * d;
    const mha__mutation *moved = mha__of_side(p, AT_ROW, OP_FROM, which),
                        *raised = mha__of_side(p, AT_ROW, OP_PLUS, which);
    const mha__extents batch = {.n = {in->c->B, 1, 1, 1}};
    const bool of_batch = moved && moved->axis == MHA__B, turns = which < 2 || mha__has(p, AT_TURN_V, OP_DO);
    const size_t from = of_batch ? mha__map_element(moved, &batch, (mha__element){{b}}).at[MHA__B] : b;
    if (from < in->c->B)
        project_with_bias(w, p, which, from, all_rows);
    else /* a change reads beyond the last batch row */
        memset(w->flat, 0, n * sizeof *w->flat);
    split(w, p, which, rows);
    mha__reread(of_batch ? NULL : moved, b, T, h, d, rows, w->flat);
    for (size_t i = 0; raised && i < n; i++)
        rows[i] += raised->number;
    if (which < 2 && !p->s.qkv.norm.after_rope)
        mha__norm_rows(in, p, which, rows);
    clip(in, p, which, MHA__AFTER_NORM, rows);
    add_bias(w, p, which, MHA__AFTER_NORM, rows, w->rows);
    if (turns)
        mha__rotate_rows(w, p, which, b, rows);
    clip(in, p, which, MHA__AFTER_ROPE, rows);
    add_bias(w, p, which, MHA__AFTER_ROPE, rows, w->rows);
    if (which < 2 && p->s.qkv.norm.after_rope)
        mha__norm_rows(in, p, which, rows);
    if (which < 2)
        mha__scale_rows(in, p, which, b, rows);
}

void mha__new_rows(mha__runner *w, const mha__program *p, int which, size_t b, bool all_rows, double *rows)
{
    const mha__mutation *m = mha__of_side(p, AT_A, OP_QUANT, which);
    double most = 0;
    for (size_t of = 0; m && m->step == MHA__SPAN_TENSOR && of < w->in->c->B; of++) { /* one scale for all batch rows */
        make_rows(w, p, which, of, true, rows);
        for (size_t i = 0; i < w->in->T[which] * w->in->out[which]; i++)
            most = fmax(most, fabs(rows[i]));
    }
    make_rows(w, p, which, b, all_rows, rows);
    mha__round_rows(p, which, w->in->T[which], w->in->h[which], w->in->d[which], most, rows);
}

const double *mha__rows_before(mha__runner *w, const mha__program *p, int which, size_t b)
{
    const size_t T = w->in->T[which], h = w->in->h[which], d = w->in->d[which];
    project_with_bias(w, p, which, b, true);
    mha__reread(mha__of_side(p, AT_Y, OP_FROM, which), 0, T, h, d, w->flat, w->rows);
    return w->flat;
}

const double *mha__rows_turned(mha__runner *w, const mha__program *p, int which, size_t b)
{
    mha__new_rows(w, p, which, b, true, w->written);
    return w->written;
}

const double *mha__last_matrix(mha__runner *w, const mha__program *p, size_t columns, const double **bias)
{
    *bias = w->in->weight[MHA_W_O] && read_bias(w, p, PROJECTION_O) ? w->bias : NULL;
    return w->in->weight[MHA_W_O] ? matrix_of(w, p, PROJECTION_O, columns) : NULL;
}
