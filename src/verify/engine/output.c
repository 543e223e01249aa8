/* The last steps: weighted values, merging of heads, gate, the output projection, its bias and the residual input. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/exact_visible.h"
#include "base/dot.h"
#include "compute/gemm.h"
#include "verify/engine/runner.h"

/* Adds the n weighted values to o, each feature in their order: sums of eight features stay in registers. */
static void add_terms(const mha__term *terms, size_t n, double *o, size_t features)
{
    size_t f = 0;
    for (; f + 8 <= features; f += 8) {
        mha__two_at *to = (mha__two_at *)(o + f);
        mha__two one = to[0], two = to[1], three = to[2], four = to[3];
        for (const mha__term *t = terms; t < terms + n; t++) {
            const mha__two_at *value = (const mha__two_at *)(t->value + f);
            one += t->weight * value[0], two += t->weight * value[1];
            three += t->weight * value[2], four += t->weight * value[3];
        }
        to[0] = one, to[1] = two, to[2] = three, to[3] = four;
    }
    for (; f < features; f++)
        for (const mha__term *t = terms; t < terms + n; t++)
            o[f] += t->weight * t->value[f];
}

/* The same, with sums that are rounded after each tile of keys, in units of the greatest weight so far. */
static void add_in_tiles(const mha__mutation *m, const mha__term *terms, size_t n, double *o, size_t features)
{
    const size_t size = (size_t)m->step;
    double most = 0;
    for (size_t first = 0; first < n; first += size) {
        const size_t end = first + size < n ? first + size : n;
        double greater = most;
        for (size_t j = first; j < end; j++)
            greater = fmax(greater, terms[j].weight);
        for (size_t f = 0; f < features && greater > 0; f++) {
            double sum = o[f] * (most / greater);
            for (size_t j = first; j < end; j++)
                sum += terms[j].weight > 0 ? terms[j].weight / greater * terms[j].value[f] : 0;
            o[f] = mha__shortened(sum, (int)m->number);
        }
        most = greater;
    }
    for (size_t f = 0; f < features; f++)
        o[f] *= most;
}

static void sum_row(mha__runner *w, const mha__program *p, size_t b, size_t h, size_t i)
{
    const mha_case *c = w->in->c;
    const size_t S = w->in->S, all = S + mha__rows_beyond(c), at = mha__scores_at(w, h, i);
    const size_t head = mha__kv_head(c, p, AT_KV_V, h);
    const bool bias = w->in->weight[MHA_BIAS_K] != NULL,
               propagates = p->s.softmax.hidden_values == MHA_HIDDEN_PROPAGATE && !mha__is_padding(p, b, i);
    const mha__mutation *rounds = isnan(w->lse[h * c->T_q + i]) ? NULL : mha__mutation_at(p, AT_O, OP_BITS);
    const mha_softmax *s = &p->s.softmax;
    double *o = w->heads + (i * c->H + h) * c->d_v;
    size_t n = 0;
    for (size_t f = 0; f < c->d_v; f++)
        o[f] = all == 0 && isnan(w->lse[h * c->T_q + i]) ? NAN : 0; /* no weight has the NaN */
    for (size_t j = 0; j < all; j++) {
        const size_t row = j < S || bias ? j : S + 1;
        const bool drops = s->dropout_keep.data && mha__exact_element(&s->dropout_keep, (size_t[]){b, h, i, j}) == 0;
        w->terms[n].weight = w->scores[at + j] * (drops ? 0 : 1 / (1 - s->dropout_p));
        w->terms[n].value = w->values + (row * c->H_kv + head) * c->d_v;
        n += rounds || w->visible[at + j] || (propagates && j < S) || isnan(w->scores[at + j]);
    }
    if (rounds)
        add_in_tiles(rounds, w->terms, n, o, c->d_v);
    else
        add_terms(w->terms, n, o, c->d_v);
}

/* Replaces each head by the mean of all heads. */
static void average(mha__runner *w)
{
    const mha_case *c = w->in->c;
    for (size_t i = 0; i < c->T_q; i++)
        for (size_t f = 0; f < c->d_v && w->weighed[i]; f++) {
            double sum = 0, *heads = w->heads + i * c->H * c->d_v + f;
            for (size_t h = 0; h < c->H; h++)
                sum += heads[h * c->d_v];
            for (size_t h = 0; h < c->H; h++)
                heads[h * c->d_v] = sum / (double)c->H;
        }
}

bool mha__mixes(const mha__program *p)
{
    const mha__mutation *m = mha__mutation_at(p, AT_M, OP_FROM);
    return m && (m->arg == MHA__PITCH || m->arg == MHA__TURNED ||
                 (m->arg == MHA__VIEW && ((m->written >> 2 & 3) != MHA__T || (m->read >> 2 & 3) != MHA__T)));
}

void mha__sum_values(mha__runner *w, const mha__program *p, size_t b)
{
    const mha_case *c = w->in->c;
    const size_t H = c->H, T = c->T_q, d = c->d_v;
    const mha__mutation *m = mha__mutation_at(p, AT_M, OP_FROM), *times = mha__mutation_at(p, AT_O, OP_TIMES),
                        *columns = mha__mutation_at(p, AT_COLUMN, OP_FROM);
    for (size_t h = 0; h < H; h++)
        for (size_t i = 0; i < T; i++)
            if (w->weighed[h * T + i])
                sum_row(w, p, b, h, i);
    if (mha__has(p, AT_O, OP_OVER))
        average(w);
    for (size_t e = 0; times && e < T * H * d; e++)
        w->heads[e] *= times->table[e / d % H];
    memcpy(w->merged, w->heads, T * H * d * sizeof *w->merged);
    mha__reread(m, b, T, H, d, w->merged, w->written);
    mha__reread(columns, b, T, 1, H * d, w->merged, w->written);
}

/* x_q W_G + b_G of all rows of a batch row. */
static const double *gates_of(mha__runner *w, const mha__program *p, size_t b)
{
    const mha__inputs *in = w->in;
    const size_t T = in->T[PROJECTION_Q], n = in->c->E_q, gates = in->gates;
    const int type = mha__arg(p, AT_W, OP_ROUND);
    double *z = w->written;
    for (size_t t = 0; t < T; t++)
        mha__input_row(p, in->x[PROJECTION_Q] + (b * T + (mha__has(p, AT_X, OP_FROM) ? T - 1 - t : t)) * n, n,
                       w->x + t * n);
    for (size_t e = 0; type && e < n * gates; e++)
        w->W[e] = mha__narrowed(in->weight[MHA_W_G][e], type);
    mha__gemm_double(T, gates, n, w->x, n, type ? w->W : in->weight[MHA_W_G], gates, z, gates);
    for (size_t e = 0; in->weight[MHA_B_G] && e < T * gates; e++)
        z[e] += mha__narrowed(in->weight[MHA_B_G][e % gates], type);
    mha__reread(mha__mutation_at(p, AT_GATE, OP_FROM), b, T, in->c->H, gates / in->c->H, z, w->blocks);
    return z;
}

void mha__gate_rows(mha__runner *w, const mha__program *p, size_t b)
{
    const mha__inputs *in = w->in;
    const size_t width = in->c->H * in->c->d_v;
    const int way = mha__arg(p, AT_GATE, OP_FN);
    if (!in->gates || way == MHA__GATE_NOT)
        return;
    const double *gates = gates_of(w, p, b);
    for (size_t e = 0; e < in->c->T_q * width; e++) {
        const double z = gates[e / width * in->gates + e % width / (width / in->gates)],
                     sigmoid = way == MHA__GATE_PLAIN ? 1 : 1 / (1 + exp(-z));
        w->merged[e] *= way ? z * sigmoid : sigmoid;
    }
}

void mha__project_output(mha__runner *w, const mha__program *p, size_t b, const unsigned char *kept, double *y)
{
    const size_t in = w->in->in[PROJECTION_O], out = w->in->out[PROJECTION_O], T = w->in->c->T_q;
    const size_t columns = w->columns > 0 && w->columns < out ? w->columns : out;
    const double *bias, *W = mha__last_matrix(w, p, columns, &bias), *query = w->in->x[PROJECTION_Q] + b * T * out;
    const bool before = mha__has(p, AT_B_O, OP_MOVE), adds = mha__has(p, AT_OUT, OP_PLUS);
    const double times = mha__number(p, AT_OUT, OP_TIMES, 1), bias_times = mha__number(p, AT_B_O, OP_TIMES, 1);
    size_t count = 0;
    for (size_t t = 0; t < T; t++) { /* moves wanted rows together */
        if (kept && !kept[t])
            continue;
        double *row = w->merged + count++ * in;
        memmove(row, w->merged + t * in, in * sizeof *row);
        for (size_t j = 0; before && bias && j < in; j++)
            row[j] += bias[j];
    }
    if (!W || mha__has(p, AT_OUT, OP_DO))
        memcpy(y, w->merged, count * in * sizeof *y);
    else
        mha__gemm_double(count, columns, in, w->merged, in, W, out, y, out);
    for (size_t t = T; t-- > 0 && count > 0;) {
        if (kept && !kept[t])
            continue;
        memmove(y + t * out, y + --count * out, out * sizeof *y);
        for (size_t j = t * out; j < (t + 1) * out; j++) {
            y[j] += W && bias && !before ? bias_times * bias[j % out] : 0;
            y[j] = times * y[j] + (adds ? query[j] : 0);
        }
    }
}
