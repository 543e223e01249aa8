/* The gradients of rows as they are attended to, taken back to the rows that were projected: scale by position,
 * rotation, norm and limits, the last one first. What the forward made of a row on the way is made once more. */
#include <math.h>

#include "attention/call/definition.h"
#include "attention/core/backward/backward.h"
#include "attention/core/exact/exact_rows.h"

static void add_at(const mha_view *d, size_t at, double value)
{
    if (d->data)
        ((double *)d->data)[at] += value;
}

double mha__norm_weight(const mha__norm *norm, size_t at, size_t n)
{
    const mha_view *weight = norm->weight;
    const size_t index[2] = {at / n, at % n};
    return weight->data ? mha_view_get(weight, weight->rank == 2 ? index : &at) + (norm->plus_one ? 1 : 0) : 1;
}

/* y = w (x - m) / r + b, r = sqrt(S + eps), of the features that are normalised together (mha_norm_kind). With
 * z = x - m and g = dy w:
 *   dw += dy z / r    db += dy    dz = g / r - z (sum g z) / (r^3 N),  N = 1 for S a sum, the number for a mean
 *   dx = dz, with m the mean less the mean of dz */
void mha__norm_back(const mha__norm *norm, size_t first, size_t n, const double *x, double *d)
{
    const double N = norm->kind == MHA_NORM_L2 ? 1 : (double)n;
    if (norm->otherwise) {
        norm->otherwise->back(norm, first, n, x, d);
        return;
    }
    double mean = 0, squares = 0, along = 0, d_mean = 0;
    for (size_t c = 0; c < n && norm->kind == MHA_NORM_LAYER; c++)
        mean += x[c] / (double)n;
    for (size_t c = 0; c < n; c++)
        squares += (x[c] - mean) * (x[c] - mean) / N;
    const double divisor = sqrt(squares + norm->eps);
    for (size_t c = 0; c < n; c++) {
        const double z = x[c] - mean, dy = d[c];
        add_at(norm->d_weight, first + c, dy * z / divisor);
        add_at(norm->d_bias, first + c, dy);
        d[c] = dy * mha__norm_weight(norm, first + c, n);
        along += d[c] * z;
    }
    for (size_t c = 0; c < n; c++) {
        d[c] = d[c] / divisor - (x[c] - mean) * along / (divisor * divisor * divisor * N);
        d_mean += d[c] / (double)n;
    }
    for (size_t c = 0; c < n && norm->kind == MHA_NORM_LAYER; c++)
        d[c] -= d_mean;
}

/* The steps on the rows of one side. */
typedef struct side {
    const mha__backward *b;
    mha__side side;
    size_t heads;
    mha__norm norm;
} side;

/* A number that was limited passes nothing on. */
static void clip_back(const mha__resolved *r, const double *row, double *d, size_t n)
{
    const double most = r->qkv.clip_qkv;
    for (size_t c = 0; most > 0 && c < n; c++)
        if (fabs(row[c]) > most)
            d[c] = 0;
}

static void norm_back(const side *x, const double *row, double *d)
{
    const mha__resolved *r = x->b->r;
    const mha_norm over = r->norm[x->side];
    const size_t d_k = r->plan.d_k, all = x->heads * d_k, n = over == MHA_NORM_ROW ? all : d_k;
    for (size_t from = 0; over != MHA_NORM_NONE && from < all; from += n)
        mha__norm_back(&x->norm, over == MHA_NORM_EACH_HEAD ? from : 0, n, row + from, d + from);
}

/* Row i of a sequence, of all heads; `turned` is memory for it. */
static void row_back(const side *x, const mha__sequence *s, size_t i, double *d, const double *row, double *turned)
{
    const mha__resolved *r = x->b->r;
    const bool keys = x->side == MHA_KEYS;
    const size_t n = x->heads * r->plan.d_k, t = i + (keys ? s->k_from : s->q_from);
    const int64_t position = mha__exact_position(r, x->side, s, i);
    if (mha__is_zero(d, n))
        return;
    for (size_t c = 0; c < n && !keys; c++)
        d[c] *= mha__exact_query_scale(r, position);
    for (size_t c = 0; c < n; c++)
        turned[c] = row[c];
    if (mha__semantics_of(r)->qkv.norm.after_rope) {
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
}

static void side_back(const mha__backward *b, mha__side which)
{
    const mha__resolved *r = b->r;
    const bool keys = which == MHA_KEYS;
    const mha_weight norm = keys ? MHA_K_NORM : MHA_Q_NORM, bias = keys ? MHA_K_NORM_BIAS : MHA_Q_NORM_BIAS;
    const mha_norm_rule *rule = &mha__semantics_of(r)->qkv.norm;
    const side x = {b, which, keys ? r->plan.h_kv : r->plan.h,
                    {rule->kind, rule->plus_one, r->qkv.norm_eps, &r->weight[norm], &b->d[MHA_D_WEIGHTS + norm],
                     &b->d[MHA_D_WEIGHTS + bias], mha__norms_of(b, keys)}};
    const mha_view d = mha__as_matrix(&b->d[keys ? MHA_D_KEY : MHA_D_QUERY]);
    for (size_t sequence = 0; sequence < r->plan.B; sequence++) {
        const mha__sequence s = mha__resolved_sequence(r, sequence);
        const size_t T = keys ? r->key.shape[1] : r->query.shape[1], from = keys ? s.k_from : s.q_from;
        for (size_t i = 0; i < (keys ? s.T_k : s.T_q); i++) {
            const size_t at = s.batch * T + from + i;
            row_back(&x, &s, i, mha__matrix_row(&d, at), mha__matrix_row(&b->rows[which], at), b->row);
        }
    }
}

void mha__backward_rows(const mha__backward *b)
{
    const mha_view d = mha__as_matrix(&b->d[MHA_D_VALUE]);
    side_back(b, MHA_QUERIES);
    side_back(b, MHA_KEYS);
    for (size_t at = 0; at < d.shape[0]; at++)
        clip_back(b->r, mha__matrix_row(&b->rows[2], at), mha__matrix_row(&d, at), d.shape[1]);
}
