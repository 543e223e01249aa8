/* The exact path, which judges the others: the same equation in float64 and plain loops. It shares the validated call
 * with the other paths, and no arithmetic. Each function is one step as mha/attention.h defines it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/exact/exact_latent.h"
#include "attention/exact/exact_rows.h"
#include "attention/exact/exact_visible.h"
#include "attention/exact/rounding.h"
#include "attention/cache/cache.h"
#include "attention/pages/pages.h"
#include "attention/steps/steps.h"
#include "compute/thread_pool.h"

/* Inputs and results in float64, row-major. */
typedef struct judge {
    const mha__resolved *r;
    double *Q, *K, *V;            /* (rows, h, d_k), (rows, h_kv, d_k), (rows, h_kv, d_v) of the inputs */
    double *keys, *values;        /* (B, S, h_kv, d): K and V, or those in the cache */
    double *mixed;                /* (rows, h, d_v): sums of values; `heads`, but in the absorbed form */
    double *gate;                 /* (rows, h*d_v) or (rows, h) */
    double *heads, *output;       /* (rows, h, width of a head), (rows, d_out) */
    double *row;                  /* memory of the workers */
    size_t row_size;              /* doubles for each worker */
    size_t q_rows, k_rows;        /* B * T of the inputs */
    size_t S;                     /* rows of `keys` for each batch index */
} judge;

/* ---------------------------------------------------------------- projections */

enum { ROWS_AT_ONCE = 16 };

typedef struct product {
    const judge *j;
    const mha_view *x;  /* (B, T, in), or without W (B, T, heads, d); or x64 */
    const double *x64;  /* (rows, in) */
    const mha_view *W, *b;
    mha__rounding of_x, of_W, of_b; /* of a precision that is modelled */
    double *y;
    size_t rows, in, out;
} product;

/* A partial sum as the accumulators of the modelled precision hold it. */
static double summed(const mha__resolved *r, double x)
{
    return r->precision.sums == MHA_F32 ? x : mha__round_to(r->precision.sums, x);
}

static double input(const product *p, size_t row, size_t column)
{
    if (p->x64)
        return p->x64[row * p->in + column];
    size_t T = p->x->shape[1], d = p->x->rank == 4 ? p->x->shape[3] : 1;
    const size_t by_head[4] = {row / T, row % T, column / d, column % d}, by_row[3] = {row / T, row % T, column};
    return mha__rounded(&p->of_x, mha_view_get(p->x, p->x->rank == 4 ? by_head : by_row));
}

/* y = x W + b, sixteen rows at a time: each element is one sum over the inputs in their order. */
static void product_rows(void *context, size_t task, int worker)
{
    const product *p = context;
    double *w = p->j->row + (size_t)worker * p->j->row_size;
    size_t from = task * ROWS_AT_ONCE, to = from + ROWS_AT_ONCE < p->rows ? from + ROWS_AT_ONCE : p->rows;
    for (size_t i = from; i < to; i++)
        for (size_t c = 0; c < p->out; c++)
            p->y[i * p->out + c] = p->W->data ? 0.0 : input(p, i, c);
    const size_t terms = p->W->data ? p->in : 0;
    for (size_t k = 0; k < terms; k++) {
        for (size_t c = 0; c < p->out; c++)
            w[c] = mha__rounded(&p->of_W, mha_view_get(p->W, (size_t[]){k, c}));
        for (size_t i = from; i < to; i++) {
            double x = input(p, i, k);
            for (size_t c = 0; c < p->out; c++)
                p->y[i * p->out + c] += x * w[c];
            for (size_t c = 0; p->j->r->precision.sums != MHA_F32 && c < p->out; c++)
                p->y[i * p->out + c] = summed(p->j->r, p->y[i * p->out + c]);
        }
    }
    if (!p->b->data)
        return;
    for (size_t i = from; i < to; i++)
        for (size_t c = 0; c < p->out; c++)
            p->y[i * p->out + c] += mha__rounded(&p->of_b, mha_view_get(p->b, &c));
}

static void project(const judge *j, const mha_view *x, const double *x64, size_t rows, mha_weight W, mha_weight b,
                    double *y, size_t out)
{
    product p = {
        .j = j, .x = x, .x64 = x64, .W = &j->r->weight[W], .b = &j->r->weight[b], .y = y, .rows = rows, .out = out};
    p.in = p.W->data ? p.W->shape[0] : out;
    p.of_x = mha__rounding_of_view(x ? j->r->precision.inputs : MHA_F32, x);
    p.of_W = mha__rounding_of_view(j->r->precision.weights, p.W);
    p.of_b = mha__rounding_of_view(j->r->precision.weights, p.b);
    mha__parallel_for((rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, j->r->plan.threads, product_rows, &p);
}

/* ---------------------------------------------------------------- attention */

static void keep_row(const mha__resolved *r, mha_stage stage, size_t a, size_t b, size_t c, const double *row, size_t n)
{
    const mha_view *kept = mha__stage_view(r, stage);
    size_t index[4] = {a, b, c, 0};
    if (!kept)
        return;
    for (size_t j = 0; j < n; j++) {
        index[kept->rank - 1] = j;
        mha_view_set(kept, index, row[j]);
    }
}

/* An element of key row j: of a real key, of bias_k, or of the row of zeros. */
static double key_element(const judge *m, const mha__sequence *s, size_t g, size_t j, size_t c)
{
    const mha__sizes *p = &m->r->plan;
    const mha_view *bias = &m->r->weight[MHA_BIAS_K];
    if (j < s->S)
        return m->keys[((s->k_batch * m->S + s->k_from + j) * p->h_kv + g) * p->d_k + c];
    return bias->data && j == s->S ? mha_view_get(bias, (size_t[]){g * p->d_k + c}) : 0.0;
}

static double value_element(const judge *m, const mha__sequence *s, size_t g, size_t j, size_t c)
{
    const mha__sizes *p = &m->r->plan;
    const mha_view *bias = &m->r->weight[MHA_BIAS_V];
    if (j < s->S)
        return m->values[((s->k_batch * m->S + s->k_from + j) * p->h_kv + g) * p->d_v + c];
    return bias->data && j == s->S ? mha_view_get(bias, (size_t[]){g * p->d_v + c}) : 0.0;
}

/* The relative terms of query i, whose row is q, and key j: products with rows of tables, which hide nothing. */
static double relative_terms(const judge *m, const mha__sequence *s, size_t head, size_t i, size_t j, const double *q)
{
    const mha__resolved *r = m->r;
    const mha_relative *relative = &r->semantics.relative;
    const size_t d_k = r->plan.d_k, g = head / (r->plan.h / r->plan.h_kv);
    double sum = 0;
    for (int w = MHA_RELATIVE_K; relative->rule != MHA_RELATIVE_NONE && w <= MHA_RELATIVE_Q; w++) {
        const mha_view *table = &r->weight[w];
        if (!table->data)
            continue;
        const size_t row = mha_relative_row(relative, (mha_weight)w, table->shape[0], s->offset + (int64_t)i,
                                            r->first_key + (int64_t)j),
                     column = table->shape[1] == d_k ? 0 : head * d_k;
        const double given = w == MHA_RELATIVE_Q ? relative->q_scale : relative->k_scale;
        double found = 0;
        for (size_t c = 0; c < d_k; c++)
            found += (w == MHA_RELATIVE_Q ? key_element(m, s, g, j, c) : q[c]) *
                       mha_view_get(table, (size_t[]){row, column + c});
        found *= given != 0 ? given : r->plan.scale;
        sum += isinf(found) ? copysign(DBL_MAX, found) : found;
    }
    return isinf(sum) ? copysign(DBL_MAX, sum) : sum;
}

/* The softmax of a row over the terms so far: sum exp(score) = l e^r and, in `a`, sum exp(score) v = a e^r. A score of
 * -inf with nothing finite before it makes l NaN until something finite comes: 0 / 0 unless it does. */
typedef struct running {
    double r, l, *a;
    size_t d_v;
} running;

/* Returns exp(score - r), a term of the denominator. The reference r follows only scores that exceed it by
 * more than 8: it moves seldom, and what was rescaled more than a few times is below a rounding of the rest. Terms are
 * added one by one, so the sums do not depend on where the keys are cut into calls. */
static double term_of(running *t, double score)
{
    if (score == -INFINITY && t->r == -INFINITY)
        t->l = NAN;
    if (score == -INFINITY)
        return 0;
    if (!(score <= t->r + 8)) { /* NaN, too */
        double factor = exp(t->r - score);
        t->l = t->r == -INFINITY ? 0 : t->l * factor;
        for (size_t c = 0; c < t->d_v; c++)
            t->a[c] *= factor;
        t->r = score;
    }
    return exp(score - t->r);
}

/* The scores of a row, and what joins them, as a modelled precision stores them. */
static void round_scores(const mha__resolved *r, double *score, size_t n)
{
    for (size_t j = 0; r->precision.scores != MHA_F32 && j < n; j++)
        score[j] = mha__round_to(r->precision.scores, score[j]);
}

static running begin_row(const mha__resolved *r, size_t b, size_t head, size_t i, double *a)
{
    running t = {-INFINITY, 0, a, r->plan.d_v};
    const mha_view *from = &r->partial;
    if (from->data)
        t.r = mha_view_get(from, (size_t[]){b, head, i, 0}), t.l = mha_view_get(from, (size_t[]){b, head, i, 1});
    for (size_t c = 0; c < t.d_v; c++)
        a[c] = from->data ? mha_view_get(from, (size_t[]){b, head, i, c + 2}) : 0;
    return t;
}

static void end_row(const mha__resolved *r, size_t b, size_t head, size_t i, const running *t)
{
    const mha_view *to = &r->partial;
    if (!to->data)
        return;
    mha_view_set(to, (size_t[]){b, head, i, 0}, t->r);
    mha_view_set(to, (size_t[]){b, head, i, 1}, t->l);
    for (size_t c = 0; c < t->d_v; c++)
        mha_view_set(to, (size_t[]){b, head, i, c + 2}, t->a[c]);
}

static double largest(const double *score, size_t n, double at_least)
{
    for (size_t j = 0; j < n; j++)
        at_least = fmax(at_least, score[j]);
    return at_least;
}

/* Keeps the weights of a row, and adds them to the mean over the heads. */
static void keep_weights(const mha__resolved *r, size_t b, size_t head, size_t i, const double *weight, size_t n,
                         double *mean)
{
    keep_row(r, MHA_STAGE_WEIGHTS, b, head, i, weight, n);
    for (size_t j = 0; j < n; j++)
        mean[j] = (head == 0 ? 0.0 : mean[j]) + weight[j] / (double)r->plan.h;
}

/* Turns the masked scores of a row into 1 / (1 + exp(-(score + bias))), and sums the values into `a`. */
static void sigmoid_row(const judge *m, const mha__sequence *s, size_t g, double *score, const double *seen,
                        bool propagates, double *a)
{
    const mha__resolved *r = m->r;
    const mha__rounding stored = mha__rounding_of(r->precision.probabilities, 1);
    for (size_t c = 0; c < r->plan.d_v; c++)
        a[c] = 0;
    for (size_t j = 0; j < s->S + r->plan.S_extra; j++) {
        const double z = score[j] + r->semantics.sigmoid_bias, e = exp(-fabs(z));
        score[j] = seen[j] == 0 ? 0 : (z < 0 ? e : 1) / (1 + e);
        for (size_t c = 0; (seen[j] != 0 || propagates) && c < r->plan.d_v; c++)
            a[c] = summed(r, a[c] + mha__rounded(&stored, score[j]) * value_element(m, s, g, j, c));
    }
}

/* Computes one query of one head. `score` and `seen` have an element for every key; extra rows follow the real keys. */
static void attend(const judge *m, const mha__sequence *s, size_t b, size_t head, size_t i, double *score, double *seen,
                   double *mean)
{
    const mha__resolved *r = m->r;
    const mha_semantics *sem = &r->semantics;
    const mha__sizes *p = &r->plan;
    size_t g = head / (p->h / p->h_kv), n = s->S + p->S_extra, row = s->batch * r->query.shape[1] + s->q_from + i;
    const double *q = m->Q + (row * p->h + head) * p->d_k;
    const bool pads = mha__exact_pads(r, b, i); /* sees nothing at all */
    bool show = mha__is_kept(r, MHA_STAGE_SCORES) || mha__is_kept(r, MHA_STAGE_CAPPED);
    const mha_view *sinks = &r->weight[MHA_SINKS];
    double sink = sinks->data && !pads ? mha_view_get(sinks, &head) : -INFINITY;

    for (size_t j = 0; j < n; j++) {
        double added = 0;
        seen[j] = j >= s->S ? !pads : mha__exact_visible(r, s, b, head, i, j, &added);
        score[j] = 0;
        const size_t features = seen[j] != 0 || show ? p->d_k : 0;
        for (size_t c = 0; c < features; c++)
            score[j] = summed(r, score[j] + q[c] * key_element(m, s, g, j, c));
        score[j] *= p->scale;
    }
    round_scores(r, score, n);
    keep_row(r, MHA_STAGE_SCORES, b, head, i, score, n);
    if (sem->softcap > 0)
        for (size_t j = 0; j < n; j++)
            score[j] = sem->softcap * tanh(score[j] / sem->softcap);
    round_scores(r, score, n);
    keep_row(r, MHA_STAGE_CAPPED, b, head, i, score, n);
    for (size_t j = 0; j < n; j++) {
        double added = 0;
        if (j < s->S && seen[j] != 0)
            (void)mha__exact_visible(r, s, b, head, i, j, &added), added += relative_terms(m, s, head, i, j, q);
        score[j] = seen[j] != 0 ? score[j] + added : -INFINITY;
    }
    round_scores(r, score, n);
    keep_row(r, MHA_STAGE_MASKED, b, head, i, score, n);

    if (sem->normaliser == MHA_SIGMOID) {
        sigmoid_row(m, s, g, score, seen, !pads && sem->hidden_values == MHA_HIDDEN_PROPAGATE,
                    m->mixed + (row * p->h + head) * p->d_v);
        keep_weights(r, b, head, i, score, n, mean);
        return;
    }
    /* What is not a key of the sequence comes first, as in the first of several calls. */
    running t = begin_row(r, b, head, i, m->mixed + (row * p->h + head) * p->d_v);
    const double beside[2] = {sink, sem->softmax_plus_one && !pads ? 0 : -INFINITY};
    if (mha__precision_rounds(&r->precision)) /* exponentials are of the distance to the largest score */
        t.r = largest(score, n, largest(beside, 2, -INFINITY));
    for (size_t k = 0; k < 2; k++) {
        if (beside[k] == -INFINITY)
            continue;
        double term = term_of(&t, beside[k]); /* may move the reference */
        t.l = summed(r, t.l + term);
    }
    const mha__rounding stored = mha__rounding_of(r->precision.probabilities, 1);
    for (size_t k = 0; k < n; k++) {
        size_t j = k < p->S_extra ? s->S + k : k - p->S_extra;
        if (seen[j] == 0 && (pads || sem->hidden_values != MHA_HIDDEN_PROPAGATE))
            continue;
        double term = seen[j] != 0 ? term_of(&t, score[j]) : 0;
        t.l = summed(r, t.l + term);
        term = mha__rounded(&stored, term);
        for (size_t c = 0; c < p->d_v; c++)
            t.a[c] = summed(r, t.a[c] + term * value_element(m, s, g, j, c));
    }
    end_row(r, b, head, i, &t);

    const bool nothing = t.r == -INFINITY && t.l == 0, zero = sem->empty_rows == MHA_EMPTY_ZERO;
    double lse = !nothing ? t.r + log(t.l) : zero ? -INFINITY : NAN;
    for (size_t c = 0; c < p->d_v; c++)
        t.a[c] = isnan(lse) ? NAN : nothing ? t.a[c] : t.a[c] / t.l;
    if (mha__is_kept(r, MHA_STAGE_LSE))
        mha_view_set(mha__stage_view(r, MHA_STAGE_LSE), (size_t[]){b, head, i}, lse);
    if (!mha__is_kept(r, MHA_STAGE_WEIGHTS) && !mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN))
        return;
    for (size_t j = 0; j < n; j++)
        score[j] = !nothing ? exp(score[j] - t.r) / t.l : zero ? 0.0 : NAN;
    keep_weights(r, b, head, i, score, n, mean);
}

static void attend_row(void *context, size_t task, int worker)
{
    const judge *m = context;
    const mha__resolved *r = m->r;
    size_t b = task / r->plan.T_q, i = task % r->plan.T_q, n = r->plan.S + r->plan.S_extra;
    mha__sequence s = mha__resolved_sequence(r, b);
    if (i >= s.T_q)
        return;
    double *score = m->row + (size_t)worker * m->row_size, *seen = score + n, *mean = seen + n;
    for (size_t head = 0; head < r->plan.h; head++)
        attend(m, &s, b, head, i, score, seen, mean);
    keep_row(r, MHA_STAGE_WEIGHTS_MEAN, b, i, 0, mean, s.S + r->plan.S_extra);
}

/* ---------------------------------------------------------------- the whole forward */

/* Keeps a stage whose values are (B, T, width). */
static void keep(const mha__resolved *r, mha_stage stage, double *values, const size_t *shape, size_t heads)
{
    const mha_view *to = mha__stage_view(r, stage);
    if (!to)
        return;
    mha_view from = mha_view_of(values, MHA_F64, 3, shape);
    if (to->rank == 4)
        from = mha__split_heads(&from, heads);
    (void)mha_view_copy(to, &from);
}

static void keep_present(const judge *m, mha_stage stage, double *values, size_t d)
{
    const mha__sizes *p = &m->r->plan;
    mha_view from = mha_view_of(values, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, d});
    from = mha__swap_time_and_heads(from);
    if (mha__is_kept(m->r, stage))
        (void)mha_view_copy(mha__stage_view(m->r, stage), &from);
}

/* Appends the new rows to the cache, and copies all of its rows out of it. */
static void through_cache(judge *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    mha_view k = mha_view_of(m->K, MHA_F64, 4, (size_t[]){p->B, p->T_k, p->h_kv, p->d_k});
    mha_view v = mha_view_of(m->V, MHA_F64, 4, (size_t[]){p->B, p->T_k, p->h_kv, p->d_v});
    const mha_view none = mha_view_slice(&v, 3, 0, 0);
    mha__cache_append(r->cache, &k, r->latent.absorbed ? &none : &v);
    const mha_view keys = mha_view_of(m->keys, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_k}),
                   values = mha_view_of(m->values, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_v});
    mha__cache_copy(r->cache, false, &keys, 1);
    mha__cache_copy(r->cache, !r->latent.absorbed, &values, 1); /* a latent begins with its values */
}

/* Copies all keys and values out of their pages. */
static void from_pages(judge *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    const mha_view keys = mha_view_of(m->keys, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_k}),
                   values = mha_view_of(m->values, MHA_F64, 4, (size_t[]){p->B, p->S, p->h_kv, p->d_v}),
                   first = r->latent.absorbed ? mha_view_slice(&r->pages.keys, 3, 0, p->d_v) : r->pages.values;
    memset(m->keys, 0, mha_view_elements(&keys) * sizeof(double)); /* behind the last key, too */
    memset(m->values, 0, mha_view_elements(&values) * sizeof(double));
    mha__pages_gather(r, &r->pages.keys, &keys);
    mha__pages_gather(r, &first, &values);
}

static size_t lay_out(const mha__resolved *r, char *base, judge *m)
{
    const mha__sizes *p = &r->plan;
    mha__workspace arena = {base, 0};
    *m = (judge){.r = r, .q_rows = r->query.shape[0] * r->query.shape[1], .k_rows = r->key.shape[0] * r->key.shape[1]};
    m->Q = mha__workspace_take(&arena, m->q_rows, p->h * p->d_k * sizeof(double));
    m->K = m->keys = mha__workspace_take(&arena, m->k_rows, p->h_kv * p->d_k * sizeof(double));
    m->V = m->values = mha__workspace_take(&arena, m->k_rows, p->h_kv * p->d_v * sizeof(double));
    const bool apart = r->cache || r->pages.keys.data; /* from the new rows */
    m->S = apart ? p->S : r->key.shape[1];
    if (apart) {
        m->keys = mha__workspace_take(&arena, p->B * p->S, p->h_kv * p->d_k * sizeof(double));
        m->values = mha__workspace_take(&arena, p->B * p->S, p->h_kv * p->d_v * sizeof(double));
    }
    m->heads = m->mixed = mha__workspace_take(&arena, m->q_rows, p->h * mha__head_width(r) * sizeof(double));
    if (r->latent.absorbed)
        m->mixed = mha__workspace_take(&arena, m->q_rows, p->h * p->d_v * sizeof(double));
    m->output = mha__workspace_take(&arena, m->q_rows, p->d_out * sizeof(double));
    const size_t gates = r->weight[MHA_W_G].data ? r->weight[MHA_W_G].shape[1] : 0;
    m->gate = mha__workspace_take(&arena, m->q_rows, gates * sizeof(double));
    size_t widths[] = {3 * (p->S + p->S_extra), p->h * p->d_k, p->h_kv * p->d_k, p->h_kv * p->d_v, p->d_out, gates,
                       r->latent.kv_rank ? mha__exact_latent_size(r) : 0};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        m->row_size = widths[i] > m->row_size ? widths[i] : m->row_size;
    m->row = mha__workspace_take(&arena, m->row_size * sizeof(double), (size_t)p->threads);
    return arena.used;
}

/* Q, K and V of the new rows, rotated, as the modelled precision stores them. */
static void inputs(judge *m)
{
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    const size_t q_shape[3] = {r->query.shape[0], r->query.shape[1], p->h * p->d_k};
    const size_t k_shape[3] = {r->key.shape[0], r->key.shape[1], p->h_kv * p->d_k};
    const size_t v_shape[3] = {r->key.shape[0], r->key.shape[1], p->h_kv * p->d_v};

    if (r->latent.kv_rank) {
        mha__exact_latent(r, &(mha__exact_memory){m->row, m->row_size}, m->Q, m->K, m->V);
    } else {
        project(m, &r->query, NULL, m->q_rows, MHA_W_Q, MHA_B_Q, m->Q, q_shape[2]);
        project(m, &r->key, NULL, m->k_rows, MHA_W_K, MHA_B_K, m->K, k_shape[2]);
        project(m, &r->value, NULL, m->k_rows, MHA_W_V, MHA_B_V, m->V, v_shape[2]);
    }
    if (!mha__normalises_first(r, MHA_QUERIES)) /* otherwise they are clipped behind their norm */
        mha__exact_clip(r, m->Q, m->q_rows * q_shape[2]);
    if (!mha__normalises_first(r, MHA_KEYS))
        mha__exact_clip(r, m->K, m->k_rows * k_shape[2]);
    mha__exact_clip(r, m->V, m->k_rows * v_shape[2]);
    keep(r, MHA_STAGE_Q, m->Q, q_shape, p->h);
    keep(r, MHA_STAGE_K, m->K, k_shape, p->h_kv);
    keep(r, MHA_STAGE_V, m->V, v_shape, p->h_kv);

    mha__exact_rows(r, MHA_QUERIES, m->Q, p->h);
    mha__exact_rows(r, MHA_KEYS, m->K, p->h_kv);
    mha__round_all(r->precision.rows, m->Q, m->q_rows * p->h * p->d_k);
    mha__round_all(r->precision.rows, m->K, m->k_rows * p->h_kv * p->d_k);
    mha__round_all(r->precision.rows, m->V, m->k_rows * p->h_kv * p->d_v);
    keep(r, MHA_STAGE_Q_ROT, m->Q, q_shape, p->h);
    keep(r, MHA_STAGE_K_ROT, m->K, k_shape, p->h_kv);
}

/* heads * sigmoid(x_q W_G + b_G), by feature or by head. */
static void gate(judge *m)
{
    const mha__resolved *r = m->r;
    const mha_view *W = &r->weight[MHA_W_G];
    if (!W->data)
        return;
    const size_t all = r->plan.h * mha__head_width(r), n = W->shape[1];
    project(m, &r->query, NULL, m->q_rows, MHA_W_G, MHA_B_G, m->gate, n);
    mha__round_all(r->precision.rows, m->gate, m->q_rows * n);
    for (size_t row = 0; row < m->q_rows; row++)
        for (size_t c = 0; c < all; c++)
            m->heads[row * all + c] *= 1 / (1 + exp(-m->gate[row * n + c / (all / n)]));
    mha__round_all(r->precision.output, m->heads, m->q_rows * all);
    keep(r, MHA_STAGE_GATED, m->heads, (const size_t[]){r->query.shape[0], r->query.shape[1], all}, r->plan.h);
}

static void output(judge *m)
{
    const mha__resolved *r = m->r;
    gate(m);
    const size_t out_shape[3] = {r->query.shape[0], r->query.shape[1], r->plan.d_out};
    project(m, NULL, m->heads, m->q_rows, MHA_W_O, MHA_B_O, m->output, r->plan.d_out);
    mha__round_all(r->precision.output, m->output, m->q_rows * r->plan.d_out);
    keep(r, MHA_STAGE_OUTPUT, m->output, out_shape, r->plan.h);
}

size_t mha__exact(const mha__resolved *r, char *workspace)
{
    judge m;
    size_t bytes = lay_out(r, workspace, &m);
    if (!workspace)
        return bytes;
    const mha__sizes *p = &r->plan;
    const size_t heads_shape[3] = {r->query.shape[0], r->query.shape[1], p->h * mha__head_width(r)};

    inputs(&m);
    if (r->pages.keys.data)
        from_pages(&m);
    else if (r->cache)
        through_cache(&m);
    if (r->cache || r->pages.keys.data) {
        mha__round_all(r->precision.rows, m.keys, p->B * p->S * p->h_kv * p->d_k);
        mha__round_all(r->precision.rows, m.values, p->B * p->S * p->h_kv * p->d_v);
    }
    keep_present(&m, MHA_STAGE_PRESENT_KEY, m.keys, p->d_k);
    keep_present(&m, MHA_STAGE_PRESENT_VALUE, m.values, p->d_v);

    mha__stages_clear_ragged(r);
    mha__parallel_for(p->B * p->T_q, p->threads, attend_row, &m);
    mha__round_all(r->precision.output, m.mixed, m.q_rows * p->h * p->d_v);
    if (r->latent.absorbed)
        mha__exact_latent_leave(r, m.mixed, m.heads);
    keep(r, MHA_STAGE_HEADS, m.heads, heads_shape, p->h);

    output(&m);
    return bytes;
}

void mha__exact_end(const mha__resolved *r, char *workspace, const mha_view *heads)
{
    judge m;
    (void)lay_out(r, workspace, &m);
    if (!heads) {
        inputs(&m);
        return;
    }
    const mha_view to = mha_view_of(m.heads, MHA_F64, heads->rank, heads->shape);
    (void)mha_view_copy(&to, heads);
    output(&m);
}
