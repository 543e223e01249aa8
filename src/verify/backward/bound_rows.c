/* The error bound of gradients, from rows as they are attended to back to the rows that were given:
 *
 *   scale by position   d f, with f good to 8u: E becomes f E + 10u f |d|
 *   rotation            d_1 = m (d_1 cos a + d_2 sin a): with cos and sin good to 2u, three products and a sum, and an
 *                       angle that is off by A (src/verify/tolerance/error_bound.c), E_1 becomes
 *                       m (|cos a| E_1 + |sin a| E_2) + (gamma(6) + 4u + A) m (|d_1| + |d_2| + E_1 + E_2)
 *   limits              a number beyond its limit has 0; one nearer to it than it may be off, 4u (|x| + c), has either
 *   bias                a sum of d over all rows of the batch
 */
#include <math.h>

#include "attention/exact/exact_rows.h"
#include "verify/backward/bound.h"

/* A row of gradients and of their errors, and its numbers as they were given. */
typedef struct row {
    double *d, *E;
    size_t heads, n;
    const mha_view *given, *bias;
} row;

static void scale(const mha__gradient_errors *e, row *x, double times)
{
    for (size_t c = 0; c < x->n && times != 1; c++) {
        x->d[c] *= times;
        x->E[c] = times * x->E[c] + 10 * e->unit * fabs(x->d[c]);
    }
}

/* A: by how much the turn of a pair may be off. */
static double turn_error(const mha__resolved *r, int64_t position, size_t pair)
{
    const mha_rope *rope = &r->semantics.qkv.rope;
    if (rope->cos_table.data || position == 0)
        return 0;
    const double a = fabs(mha__exact_angle(r, position, pair));
    return fmin(0x1p-53 * (fabs(log(fmax(a / fabs((double)position), 1e-300))) + 5) * a, 2);
}

static void rotate(const mha__gradient_errors *e, const mha__backward *b, mha__side side, row *x, size_t batch,
                   size_t t, int64_t position)
{
    const mha__resolved *r = b->r;
    const mha_rope *rope = &r->semantics.qkv.rope;
    const size_t d_k = r->plan.d_k, half = r->rope_dim / 2, from = rope->last ? d_k - r->rope_dim : 0;
    if (rope->kind == MHA_ROPE_NONE || b->turns[side] == MHA__NOT_TURNED)
        return;
    for (size_t i = 0; i < half; i++) {
        const mha__cos_sin turn = mha__exact_turn(r, batch, t, position, i);
        const double m = fabs(r->rope_times), c = fabs(turn.c), s = fabs(turn.s),
                     off = mha__gradient_gamma(6, e->sums) + 4 * e->unit + turn_error(r, position, i);
        for (size_t head = 0; head < x->heads; head++) {
            const bool side_by_side = rope->kind == MHA_ROPE_INTERLEAVED;
            const size_t one = head * d_k + from + (side_by_side ? 2 * i : i),
                         two = head * d_k + from + (side_by_side ? 2 * i + 1 : half + i);
            const double E_1 = x->E[one], E_2 = x->E[two],
                         size = off * m * (fabs(x->d[one]) + fabs(x->d[two]) + E_1 + E_2) + 4 * e->tiny;
            x->E[one] = m * (c * E_1 + s * E_2) + size;
            x->E[two] = m * (c * E_2 + s * E_1) + size;
        }
    }
    mha__exact_rotate(r, x->d, x->heads, batch, t, position, b->turns[side] == MHA__TURNED_BACK);
}

static void limit_row(const mha__gradient_errors *e, const mha__resolved *r, row *x, size_t batch, size_t t)
{
    const double most = mha__limit(&r->semantics);
    const size_t d = x->given->shape[3];
    for (size_t c = 0; most > 0 && c < x->n; c++) {
        const double number = mha_view_get(x->given, (size_t[]){batch, t, c / d, c % d}) +
                              (x->bias->data ? mha_view_get(x->bias, &c) : 0),
                     off = 4 * e->unit * (fabs(number) + most);
        if (fabs(fabs(number) - most) <= off)
            x->E[c] += fabs(x->d[c]);
        else if (fabs(number) > most)
            x->E[c] = x->d[c] = 0;
    }
}

static void add_bias(const mha__gradient_errors *e, const mha__resolved *r, const row *x, mha_weight bias)
{
    const mha_view *to = &e->sizes.d[MHA_D_WEIGHTS + bias];
    const double sum = mha__gradient_gamma((double)(r->plan.B * (r->plan.T_q + r->plan.T_k) + 2), e->sums);
    for (size_t c = 0; to->data && c < x->n; c++)
        ((double *)to->data)[c] += x->E[c] + sum * (fabs(x->d[c]) + x->E[c]);
}

/* Row i of a sequence, of all heads of its side. */
static void row_back(const mha__gradient_errors *e, const mha__backward *b, mha__side side, const mha__sequence *s,
                     size_t i, double *d)
{
    const mha__resolved *r = b->r;
    const bool keys = side == MHA_KEYS;
    const mha_view *given = keys ? &r->key : &r->query;
    const mha_weight bias = keys ? MHA_B_K : MHA_B_Q;
    const size_t heads = keys ? r->plan.h_kv : r->plan.h, n = heads * r->plan.d_k,
                 t = i + (keys ? s->k_from : s->q_from), at = (s->batch * given->shape[1] + t) * n;
    const int64_t position = mha__exact_position(r, side, s, i);
    const mha_gradient which = keys ? MHA_D_KEY : MHA_D_QUERY;
    row x = {.d = d, .E = (double *)e->sizes.d[which].data + at, .heads = heads, .n = n, .given = given,
             .bias = &r->weight[bias]};
    for (size_t c = 0; c < n; c++)
        d[c] = ((const double *)b->d[which].data)[at + c];
    if (!keys)
        scale(e, &x, mha__exact_query_scale(r, position));
    rotate(e, b, side, &x, s->batch, t, position);
    limit_row(e, r, &x, s->batch, t);
    add_bias(e, r, &x, bias);
}

void mha__bound_rows(mha__gradient_errors *e, const mha__backward *b)
{
    const mha__resolved *r = b->r;
    double *d = b->row;
    for (size_t sequence = 0; sequence < r->plan.B; sequence++) {
        const mha__sequence s = mha__resolved_sequence(r, sequence);
        for (size_t i = 0; i < s.T_q; i++)
            row_back(e, b, MHA_QUERIES, &s, i, d);
        for (size_t j = 0; j < s.T_k; j++)
            row_back(e, b, MHA_KEYS, &s, j, d);
    }
    const size_t n = r->plan.h_kv * r->plan.d_v, T = r->value.shape[1];
    for (size_t at = 0; at < r->value.shape[0] * T; at++) {
        row x = {.d = d, .E = (double *)e->sizes.d[MHA_D_VALUE].data + at * n, .heads = r->plan.h_kv, .n = n,
                 .given = &r->value, .bias = &r->weight[MHA_B_V]};
        for (size_t c = 0; c < n; c++)
            d[c] = ((const double *)b->d[MHA_D_VALUE].data)[at * n + c];
        limit_row(e, r, &x, at / T, at % T);
        add_bias(e, r, &x, MHA_B_V);
    }
}
