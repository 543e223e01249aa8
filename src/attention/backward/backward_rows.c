/* The gradients of rows as they are attended to, taken back to the rows that were given: scale by position, rotation,
 * norm, limits and bias, the last one first. What the forward made of a row on the way is made once more. */
#include <math.h>

#include "attention/backward/backward.h"
#include "attention/exact/exact_rows.h"

/* What is done to the rows of one side. */
typedef struct side {
    const mha__backward *b;
    mha__side side;
    size_t heads;
    const mha_view *norm;                 /* its weight */
    const mha_view *d_norm, *d_norm_bias; /* no data: not wanted */
} side;

static size_t of_norm(const side *x, size_t first, size_t c)
{
    return x->b->r->norm[x->side] == MHA_NORM_EACH_HEAD ? first + c : c;
}

static void add_at(const mha_view *d, size_t at, double value)
{
    if (d->data)
        ((double *)d->data)[at] += value;
}

/* y = w (x - m) / r + b, r = sqrt(S + eps), of the features that are normalised together (mha_norm_kind). With
 * z = x - m and g = dy w:
 *   dw += dy z / r    db += dy    dz = g / r - z (sum g z) / (r^3 N),  N = 1 for S a sum, the number for a mean
 *   dx = dz, with m the mean less the mean of dz */
static void norm_back(const side *x, const double *row, double *d)
{
    const mha__resolved *r = x->b->r;
    const mha_norm_rule *rule = &r->semantics.qkv.norm;
    if (r->norm[x->side] == MHA_NORM_NONE)
        return;
    const size_t d_k = r->plan.d_k, n = r->norm[x->side] == MHA_NORM_ROW ? x->heads * d_k : d_k;
    const double N = rule->kind == MHA_NORM_L2 ? 1 : (double)n;
    for (size_t from = 0; from < x->heads * d_k; from += n) {
        double mean = 0, squares = 0, along = 0, d_mean = 0;
        for (size_t c = 0; c < n && rule->kind == MHA_NORM_LAYER; c++)
            mean += row[from + c] / (double)n;
        for (size_t c = 0; c < n; c++)
            squares += (row[from + c] - mean) * (row[from + c] - mean) / N;
        const double divisor = sqrt(squares + r->norm_eps);
        for (size_t c = 0; c < n; c++) {
            const size_t at = of_norm(x, from, c), index[2] = {at / d_k, at % d_k};
            const double z = row[from + c] - mean, dy = d[from + c],
                         w = x->norm->data ? mha_view_get(x->norm, x->norm->rank == 2 ? index : &at) : 1;
            add_at(x->d_norm, at, dy * z / divisor);
            add_at(x->d_norm_bias, at, dy);
            d[from + c] = dy * (w + (x->norm->data && rule->plus_one ? 1 : 0));
            along += d[from + c] * z;
        }
        for (size_t c = 0; c < n; c++) {
            d[from + c] = d[from + c] / divisor - (row[from + c] - mean) * along / (divisor * divisor * divisor * N);
            d_mean += d[from + c] / (double)n;
        }
        for (size_t c = 0; c < n && rule->kind == MHA_NORM_LAYER; c++)
            d[from + c] -= d_mean;
    }
}

/* A number that was limited passes nothing on. */
static void clip_back(const mha__resolved *r, const double *row, double *d, size_t n)
{
    const double most = mha__limit(&r->semantics);
    for (size_t c = 0; most > 0 && c < n; c++)
        if (fabs(row[c]) > most)
            d[c] = 0;
}

/* The numbers of a row as they were given, with the bias of their projection, before they were limited. */
static void read_given(const mha_view *x, const mha_view *bias, size_t batch, size_t t, double *row)
{
    for (size_t c = 0; c < x->shape[2] * x->shape[3]; c++)
        row[c] = mha_view_get(x, (size_t[]){batch, t, c / x->shape[3], c % x->shape[3]}) +
                 (bias->data ? mha_view_get(bias, &c) : 0);
}

static void add_bias(const mha_view *d_bias, const double *d, size_t n)
{
    for (size_t c = 0; c < n; c++)
        add_at(d_bias, c, d[c]);
}

/* Whether nothing comes to a row: then nothing leaves it, whatever its numbers are. */
static bool is_zero(const double *d, size_t n)
{
    bool zero = true;
    for (size_t c = 0; c < n && zero; c++)
        zero = d[c] == 0;
    return zero;
}

/* Row i of a sequence, of all heads; `row` and `turned` are memory for it. */
static void row_back(const side *x, const mha__sequence *s, size_t i, double *d, double *row, double *turned)
{
    const mha__resolved *r = x->b->r;
    const bool keys = x->side == MHA_KEYS;
    const size_t n = x->heads * r->plan.d_k, t = i + (keys ? s->k_from : s->q_from);
    const int64_t position = mha__exact_position(r, x->side, s, i);
    const mha_view *given = keys ? &r->key : &r->query, *bias = &r->weight[keys ? MHA_B_K : MHA_B_Q];
    if (is_zero(d, n))
        return;
    read_given(given, bias, s->batch, t, row);
    for (size_t c = 0; c < n && !keys; c++)
        d[c] *= mha__exact_query_scale(r, position);
    for (size_t c = 0; c < n; c++)
        turned[c] = row[c];
    if (r->semantics.qkv.norm.after_rope) {
        mha__exact_clip(r, turned, n);
        mha__exact_rotate(r, turned, x->heads, s->batch, t, position, false);
        norm_back(x, turned, d);
    }
    if (x->b->turns[x->side] != MHA__NOT_TURNED)
        mha__exact_rotate(r, d, x->heads, s->batch, t, position, x->b->turns[x->side] == MHA__TURNED_BACK);
    if (mha__normalises_first(r, x->side)) {
        mha__exact_normalise(r, x->side, turned, x->heads);
        clip_back(r, turned, d, n);
        norm_back(x, row, d);
    } else {
        clip_back(r, row, d, n);
    }
    add_bias(&x->b->d[MHA_D_WEIGHTS + (keys ? MHA_B_K : MHA_B_Q)], d, n);
}

static void side_back(const mha__backward *b, mha__side which, double *row, double *turned)
{
    const mha__resolved *r = b->r;
    const bool keys = which == MHA_KEYS;
    const mha_weight norm = keys ? MHA_K_NORM : MHA_Q_NORM, bias = keys ? MHA_K_NORM_BIAS : MHA_Q_NORM_BIAS;
    const side x = {b, which, keys ? r->plan.h_kv : r->plan.h, &r->weight[norm],
                    &b->d[MHA_D_WEIGHTS + norm], &b->d[MHA_D_WEIGHTS + bias]};
    double *d = b->d[keys ? MHA_D_KEY : MHA_D_QUERY].data;
    for (size_t sequence = 0; sequence < r->plan.B; sequence++) {
        const mha__sequence s = mha__resolved_sequence(r, sequence);
        const size_t T = keys ? r->key.shape[1] : r->query.shape[1], from = keys ? s.k_from : s.q_from;
        for (size_t i = 0; i < (keys ? s.T_k : s.T_q); i++)
            row_back(&x, &s, i, d + (s.batch * T + from + i) * x.heads * r->plan.d_k, row, turned);
    }
}

void mha__backward_rows(const mha__backward *b)
{
    const mha__resolved *r = b->r;
    double *row = b->row, *turned = row + b->row_size;
    side_back(b, MHA_QUERIES, row, turned);
    side_back(b, MHA_KEYS, row, turned);
    const size_t n = r->plan.h_kv * r->plan.d_v, T = r->value.shape[1];
    for (size_t at = 0; at < r->value.shape[0] * T; at++) {
        double *d = (double *)b->d[MHA_D_VALUE].data + at * n;
        read_given(&r->value, &r->weight[MHA_B_V], at / T, at % T, row);
        clip_back(r, row, d, n);
        add_bias(&b->d[MHA_D_WEIGHTS + MHA_B_V], d, n);
    }
}
