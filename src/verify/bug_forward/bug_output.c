/* The last steps of a bug: weighted values, merging of heads, the output projection and what is added to it. */
#include <math.h>
#include <string.h>

#include "base/dot.h"
#include "compute/gemm.h"
#include "verify/bug_forward/bug_bench.h"

/* Adds the n weighted values to o, each feature in their order: sums of eight features stay in registers. */
static void add_terms(const mha__term *terms, size_t n, double *o, size_t features)
{
    size_t f = 0;
    for (; f + 8 <= features; f += 8) {
        mha__two_at *to = (mha__two_at *)(o + f);
        mha__two one = to[0], two = to[1], three = to[2], four = to[3];
        for (const mha__term *t = terms; t < terms + n; t++) {
            const mha__two_at *value = (const mha__two_at *)(t->value + f);
            one += t->weight * value[0];
            two += t->weight * value[1];
            three += t->weight * value[2];
            four += t->weight * value[3];
        }
        to[0] = one, to[1] = two, to[2] = three, to[3] = four;
    }
    for (; f < features; f++) {
        double sum = o[f];
        for (const mha__term *t = terms; t < terms + n; t++)
            sum += t->weight * t->value[f];
        o[f] = sum;
    }
}

static void sum_row(mha__bug_bench *w, const mha__knobs *k, size_t b, size_t h, size_t i)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S, all = S + mha__extra_rows(c), at = mha__bug_scores_at(w, h, i);
    const size_t head = mha__bug_kv_head(c, k, k->group_v, h);
    const bool bias = w->inputs->bias_kv[0] != NULL,
               propagates = k->s.softmax.hidden_values == MHA_HIDDEN_PROPAGATE && !mha__bug_pads(k, b, i);
    double *o = w->heads + (i * c->H + h) * c->d_v;
    const double empty = all == 0 && isnan(w->lse[h * c->T_q + i]) ? NAN : 0; /* no weight is there to say it */
    size_t n = 0;
    for (size_t f = 0; f < c->d_v; f++)
        o[f] = empty;
    for (size_t j = 0; j < all; j++) {
        const size_t row = j < S || bias ? j : S + 1;
        w->terms[n].weight = w->scores[at + j];
        w->terms[n].value = w->values + (row * c->H_kv + head) * c->d_v;
        n += w->visible[at + j] || (propagates && j < S) || isnan(w->scores[at + j]);
    }
    add_terms(w->terms, n, o, c->d_v);
}

/* The mean of all heads in the place of each. */
static void average(mha__bug_bench *w)
{
    const mha_case *c = w->inputs->c;
    for (size_t i = 0; i < c->T_q; i++)
        for (size_t f = 0; f < c->d_v && w->weighed[i]; f++) {
            double sum = 0, *heads = w->heads + i * c->H * c->d_v + f;
            for (size_t h = 0; h < c->H; h++)
                sum += heads[h * c->d_v];
            for (size_t h = 0; h < c->H; h++)
                heads[h * c->d_v] = sum / (double)c->H;
        }
}

/* Puts the n columns of a row where others should be; `memory`: for as many. */
static void reorder(const double *order, size_t n, double *row, double *memory)
{
    memcpy(memory, row, n * sizeof *row);
    for (size_t j = 0; j < n; j++)
        row[j] = memory[(size_t)order[j]];
}

void mha__bug_sum_values(mha__bug_bench *w, const mha__knobs *k, size_t b)
{
    const mha_case *c = w->inputs->c;
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            if (!w->weighed[h * c->T_q + i])
                continue;
            sum_row(w, k, b, h, i);
        }
    if (k->heads_averaged)
        average(w);
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            if (!w->weighed[h * c->T_q + i])
                continue;
            for (size_t f = 0; k->head_times && f < c->d_v; f++)
                w->heads[(i * c->H + h) * c->d_v + f] *= k->head_times[h];
            const double *o = w->heads + (i * c->H + (k->merge_order ? (size_t)k->merge_order[h] : h)) * c->d_v;
            if (k->merge == HEADS_RIGHT)
                memcpy(w->merged + (i * c->H + h) * c->d_v, o, c->d_v * sizeof *o);
            for (size_t f = 0; k->merge != HEADS_RIGHT && f < c->d_v; f++)
                w->merged[mha__head_column(k->merge, c->T_q, c->H, c->d_v, i, h, f)] = o[f];
        }
    for (size_t i = 0; k->column_order && i < c->T_q; i++)
        if (w->weighed[i])
            reorder(k->column_order, c->H * c->d_v, w->merged + i * c->H * c->d_v, w->written);
}

void mha__bug_gate(mha__bug_bench *w, const mha__knobs *k, size_t b)
{
    const mha__bug_inputs *in = w->inputs;
    const size_t T = in->c->T_q, width = in->c->H * in->c->d_v;
    if (!in->gate || k->gate == GATE_NOT)
        return;
    const bool changed =
        k->round_inputs != ROUND_NOT || k->round_weights != ROUND_NOT || k->input_norm != INPUT_NORM_NOT;
    for (size_t t = 0; t < T; t++) {
        const size_t row = b * T + (k->inputs_reversed ? T - 1 - t : t), n = in->in[PROJECTION_Q];
        if (changed)
            mha__bug_input_row(k, in->x[PROJECTION_Q] + row * n, n, w->maker.x);
        for (size_t f = 0; f < width; f++) {
            const size_t column = f / (width / in->gates);
            const double z = changed ? mha__bug_gate_of(in->c, w->maker.x, column, k->round_weights)
                                     : in->gate[row * in->gates + column];
            const double sigmoid = k->gate == GATE_PLAIN ? 1 : 1 / (1 + exp(-z));
            w->merged[t * width + f] *= k->gate == GATE_SIGMOID ? sigmoid : z * sigmoid;
        }
    }
}

bool mha__bug_mixes(const mha__knobs *k)
{
    return k->merge >= HEADS_UNTRANSPOSED;
}

/* Whether row t of a batch row is wanted. */
static bool is_kept(const unsigned char *kept, size_t t)
{
    return !kept || kept[t];
}

/* Moves the wanted rows of `merged` together, with b_O where it is added before W_O; how many there are. */
static size_t gather_merged(mha__bug_bench *w, const unsigned char *kept, const double *bias)
{
    const size_t in = w->inputs->in[PROJECTION_O], T = w->inputs->c->T_q;
    size_t count = 0;
    for (size_t t = 0; t < T; t++) {
        if (!is_kept(kept, t))
            continue;
        double *row = w->merged + count++ * in;
        memmove(row, w->merged + t * in, in * sizeof *row);
        for (size_t j = 0; bias && j < in; j++)
            row[j] += bias[j];
    }
    return count;
}

void mha__bug_project(mha__bug_bench *w, const mha__knobs *k, size_t b, const unsigned char *kept, double *y)
{
    const size_t in = w->inputs->in[PROJECTION_O], out = w->inputs->out[PROJECTION_O], T = w->inputs->c->T_q;
    const size_t columns = w->columns > 0 && w->columns < out ? w->columns : out;
    const double *bias, *W = mha__output_matrix(&w->maker, k, columns, &bias);
    const double *query = w->inputs->x[PROJECTION_Q] + b * T * w->inputs->in[PROJECTION_Q];
    for (size_t t = 0; !W && t < T; t++) {
        if (is_kept(kept, t))
            memcpy(y + t * in, w->merged + t * in, in * sizeof *y);
        for (size_t e = t * in; (k->output_times != 1 || k->residual) && e < (t + 1) * in; e++)
            y[e] = k->output_times * w->merged[e] + (k->residual ? query[e] : 0);
    }
    if (!W)
        return;
    size_t count = gather_merged(w, kept, k->bias_o_before ? bias : NULL);
    if (k->output_unprojected)
        memcpy(y, w->merged, count * in * sizeof *y);
    else
        mha__gemm_double(count, columns, in, w->merged, in, W, out, y, out);
    for (size_t t = T; t-- > 0 && count > 0;) {
        if (!is_kept(kept, t))
            continue;
        memmove(y + t * out, y + --count * out, out * sizeof *y);
        for (size_t j = 0; bias && !k->bias_o_before && j < out; j++)
            y[t * out + j] += k->bias_o_times * bias[j];
        for (size_t j = 0; (k->output_times != 1 || k->residual) && j < out; j++)
            y[t * out + j] = k->output_times * y[t * out + j] + (k->residual ? query[t * out + j] : 0);
    }
}
