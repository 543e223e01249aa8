/* The error bound of gradients, from rows as they are attended to back to the rows that were projected, or given:
 *
 *   scale by position   d f, with f good to 8u: E becomes f E + 10u f |d|
 *   rotation            d_1 = m (d_1 cos a + d_2 sin a): with cos and sin good to 2u, three products and a sum, and an
 *                       angle that is off by A (src/verify/tolerance/error_bound.c), E_1 becomes
 *                       m (|cos a| E_1 + |sin a| E_2) + (gamma(6) + 4u + A) m (|d_1| + |d_2| + E_1 + E_2)
 *   norm                bound_norm.c, of the numbers that it normalised: those that were projected, off by E, or,
 *                       after the rotation, those that it made, whose errors are followed through it
 *   limits              a number beyond its limit has 0; one nearer to it than it may be off, 4u (|x| + c) + E, has
 *                       either. E is the forward's error of a projected element; after a norm that of bound_norm.c
 */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_rows.h"
#include "verify/backward/bound.h"

/* A row of numbers, such as gradients, and of their errors. */
typedef struct row {
    double *d, *E;
    size_t heads, n;
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
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    if (rope->cos_table.data || position == 0)
        return 0;
    const double a = fabs(mha__exact_angle(r, position, pair));
    return fmin(0x1p-53 * (fabs(log(fmax(a / fabs((double)position), 1e-300))) + 5) * a, 2);
}

static void rotate(const mha__gradient_errors *e, const mha__resolved *r, mha__turning turning, row *x, size_t batch,
                   size_t t, int64_t position)
{
    const mha_rope *rope = &mha__semantics_of(r)->qkv.rope;
    const size_t d_k = r->plan.d_k, half = r->qkv.rope.dim / 2, from = rope->last ? d_k - r->qkv.rope.dim : 0;
    if (rope->kind == MHA_ROPE_NONE || turning == MHA__NOT_TURNED)
        return;
    for (size_t i = 0; i < half; i++) {
        const mha__cos_sin turn = mha__exact_turn(r, batch, t, position, i);
        const double m = fabs(r->qkv.rope.attention_factor), c = fabs(turn.c), s = fabs(turn.s),
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
    mha__exact_rotate(r, x->d, x->heads, batch, t, position, turning == MHA__TURNED_BACK);
}

void mha__bound_rotate(const mha__gradient_errors *e, const mha__resolved *r, size_t heads, double *d, double *E,
                       size_t batch, size_t t, int64_t position)
{
    row x = {d, E, heads, heads * r->plan.d_k};
    rotate(e, r, MHA__TURNED_FORWARD, &x, batch, t, position);
}

/* The limits of numbers that are off by `off`. */
static void limit_row(const mha__gradient_errors *e, const mha__resolved *r, row *x, const double *number,
                      const double *off)
{
    const double most = r->qkv.clip_qkv;
    for (size_t c = 0; most > 0 && c < x->n; c++) {
        if (fabs(fabs(number[c]) - most) <= 4 * e->unit * (fabs(number[c]) + most) + off[c])
            x->E[c] += fabs(x->d[c]);
        else if (fabs(number[c]) > most)
            x->E[c] = x->d[c] = 0;
    }
}

static void fill(double *to, size_t n, double value)
{
    for (size_t c = 0; c < n; c++)
        to[c] = value;
}

/* The steps on the rows of one side. */
typedef struct side {
    const mha__gradient_errors *e;
    const mha__backward *b;
    mha__side side;
    size_t heads;
    double rows; /* of which gradients of a norm's weight are sums */
    mha__norm norm;
} side;

static side side_of(const mha__gradient_errors *e, const mha__backward *b, mha__side which)
{
    const mha__resolved *r = b->r;
    const bool keys = which == MHA_KEYS;
    const mha_weight norm = keys ? MHA_K_NORM : MHA_Q_NORM, bias = keys ? MHA_K_NORM_BIAS : MHA_Q_NORM_BIAS;
    const mha_norm_rule *rule = &mha__semantics_of(r)->qkv.norm;
    return (side){e, b, which, keys ? r->plan.h_kv : r->plan.h,
                  (double)(r->plan.B * (r->plan.T_q + r->plan.T_k) * r->plan.h),
                  {rule->kind, rule->plus_one, r->qkv.norm_eps, &r->weight[norm], &e->sizes.d[MHA_D_WEIGHTS + norm],
                   &e->sizes.d[MHA_D_WEIGHTS + bias], mha__norms_of(b, keys)}};
}

/* The numbers that are normalised together, and the element of the weight for the first of them. */
static size_t normed_together(const side *x)
{
    const mha__resolved *r = x->b->r;
    return r->norm[x->side] == MHA_NORM_ROW ? x->heads * r->plan.d_k : r->plan.d_k;
}

static size_t weight_at(const side *x, size_t from)
{
    return x->b->r->norm[x->side] == MHA_NORM_EACH_HEAD ? from : 0;
}

/* Gradients of rows after a norm of numbers that are off by `off`. */
static void norm_back(const side *x, const double *numbers, const double *off, row *d)
{
    const size_t n = normed_together(x);
    for (size_t from = 0; x->b->r->norm[x->side] != MHA_NORM_NONE && from < d->n; from += n)
        mha__bound_norm(x->e, &x->norm, weight_at(x, from), n, x->rows, numbers + from, off + from, d->d + from,
                        d->E + from);
}

/* Row i of a sequence, of all heads of its side. */
static void row_back(const side *x, const mha__sequence *s, size_t i)
{
    const mha__gradient_errors *e = x->e;
    const mha__resolved *r = x->b->r;
    const bool keys = x->side == MHA_KEYS;
    const mha_gradient which = keys ? MHA_D_KEY : MHA_D_QUERY;
    const size_t n = x->heads * r->plan.d_k, t = i + (keys ? s->k_from : s->q_from),
                 at = s->batch * (keys ? r->key.shape[1] : r->query.shape[1]) + t;
    const int64_t position = mha__exact_position(r, x->side, s, i);
    const double *given = mha__matrix_row(&x->b->rows[x->side], at);
    row d = {x->b->row, (double *)e->sizes.d[which].data + at * n, x->heads, n},
        numbers = {e->room[0], e->room[1], x->heads, n};
    memcpy(d.d, (const double *)x->b->d[which].data + at * n, n * sizeof *d.d);
    if (mha__is_zero(d.d, n) && mha__is_zero(d.E, n))
        return;
    if (!keys)
        scale(e, &d, mha__exact_query_scale(r, position));
    memcpy(numbers.d, given, n * sizeof *given);
    fill(numbers.E, n, e->projected[x->side]);
    if (mha__semantics_of(r)->qkv.norm.after_rope) {
        mha__exact_clip(r, numbers.d, n);
        rotate(e, r, MHA__TURNED_FORWARD, &numbers, s->batch, t, position);
        norm_back(x, numbers.d, numbers.E, &d);
    }
    rotate(e, r, x->b->turns[x->side], &d, s->batch, t, position);
    fill(numbers.E, n, e->projected[x->side]);
    if (mha__normalises_first(r, x->side)) {
        const size_t together = normed_together(x);
        memcpy(numbers.d, given, n * sizeof *given);
        mha__exact_normalise(r, x->side, numbers.d, x->heads);
        for (size_t from = 0; from < n; from += together)
            mha__bound_normed(e, &x->norm, weight_at(x, from), together, given + from, numbers.E + from,
                              numbers.d + from, e->room[2] + from);
        limit_row(e, r, &d, numbers.d, e->room[2]);
        norm_back(x, given, numbers.E, &d);
    } else {
        limit_row(e, r, &d, given, numbers.E);
    }
}

void mha__bound_rows(mha__gradient_errors *e, const mha__backward *b)
{
    const mha__resolved *r = b->r;
    const side queries = side_of(e, b, MHA_QUERIES), keys = side_of(e, b, MHA_KEYS);
    for (size_t sequence = 0; sequence < r->plan.B; sequence++) {
        const mha__sequence s = mha__resolved_sequence(r, sequence);
        for (size_t i = 0; i < s.T_q; i++)
            row_back(&queries, &s, i);
        for (size_t j = 0; j < s.T_k; j++)
            row_back(&keys, &s, j);
    }
    const size_t n = r->plan.h_kv * r->plan.d_v;
    fill(e->room[1], n, e->projected[2]);
    for (size_t at = 0; at < b->rows[2].shape[0]; at++) {
        row x = {b->row, (double *)e->sizes.d[MHA_D_VALUE].data + at * n, r->plan.h_kv, n};
        memcpy(x.d, (const double *)b->d[MHA_D_VALUE].data + at * n, n * sizeof *x.d);
        limit_row(e, r, &x, mha__matrix_row(&b->rows[2], at), e->room[1]);
    }
}
