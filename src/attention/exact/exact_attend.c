/* softmax(Q K^T * scale) V of the exact path: one query under one head after the other, in float64 and plain loops. */
#include <float.h>
#include <math.h>

#include "attention/exact/exact_attend.h"
#include "attention/exact/exact_rows.h"
#include "attention/exact/exact_visible.h"
#include "attention/exact/rounding.h"
#include "attention/steps/steps.h"

double mha__exact_summed(const mha__resolved *r, double x)
{
    return r->precision.sums == MHA_F32 ? x : mha__round_to(r->precision.sums, x);
}

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
static double key_element(const mha__judge *m, const mha__sequence *s, size_t g, size_t j, size_t c)
{
    const mha__sizes *p = &m->r->plan;
    const mha_view *bias = &m->r->weight[MHA_BIAS_K];
    if (j < s->S)
        return m->keys[((s->k_batch * m->S + s->k_from + j) * p->h_kv + g) * p->d_k + c];
    return bias->data && j == s->S ? mha_view_get(bias, (size_t[]){g * p->d_k + c}) : 0.0;
}

static double value_element(const mha__judge *m, const mha__sequence *s, size_t g, size_t j, size_t c)
{
    const mha__sizes *p = &m->r->plan;
    const mha_view *bias = &m->r->weight[MHA_BIAS_V];
    if (j < s->S)
        return m->values[((s->k_batch * m->S + s->k_from + j) * p->h_kv + g) * p->d_v + c];
    return bias->data && j == s->S ? mha_view_get(bias, (size_t[]){g * p->d_v + c}) : 0.0;
}

/* The relative terms of query i, whose row is q, and key j: products with rows of tables, which hide nothing. */
static double relative_terms(const mha__judge *m, const mha__sequence *s, size_t head, size_t i, size_t j,
                             const double *q)
{
    const mha__resolved *r = m->r;
    const mha_relative *relative = &r->semantics.added.relative;
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
static void sigmoid_row(const mha__judge *m, const mha__sequence *s, size_t g, double *score, const double *seen,
                        bool propagates, double *a)
{
    const mha__resolved *r = m->r;
    const mha__rounding stored = mha__rounding_of(r->precision.probabilities, 1);
    for (size_t c = 0; c < r->plan.d_v; c++)
        a[c] = 0;
    for (size_t j = 0; j < s->S + r->plan.S_extra; j++) {
        const double z = score[j] + r->semantics.softmax.sigmoid_bias, e = exp(-fabs(z));
        score[j] = seen[j] == 0 ? 0 : (z < 0 ? e : 1) / (1 + e);
        for (size_t c = 0; (seen[j] != 0 || propagates) && c < r->plan.d_v; c++)
            a[c] = mha__exact_summed(r, a[c] + mha__rounded(&stored, score[j]) * value_element(m, s, g, j, c));
    }
}

/* Computes one query of one head. `score` and `seen` have an element for every key; extra rows follow the real keys. */
static void attend(const mha__judge *m, const mha__sequence *s, size_t b, size_t head, size_t i, double *score,
                   double *seen, double *mean)
{
    const mha__resolved *r = m->r;
    const mha_softmax *softmax = &r->semantics.softmax;
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
            score[j] = mha__exact_summed(r, score[j] + q[c] * key_element(m, s, g, j, c));
        score[j] *= p->scale;
    }
    round_scores(r, score, n);
    keep_row(r, MHA_STAGE_SCORES, b, head, i, score, n);
    if (softmax->softcap > 0)
        for (size_t j = 0; j < n; j++)
            score[j] = softmax->softcap * tanh(score[j] / softmax->softcap);
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

    if (softmax->normaliser == MHA_SIGMOID) {
        sigmoid_row(m, s, g, score, seen, !pads && softmax->hidden_values == MHA_HIDDEN_PROPAGATE,
                    m->mixed + (row * p->h + head) * p->d_v);
        keep_weights(r, b, head, i, score, n, mean);
        return;
    }
    /* What is not a key of the sequence comes first, as in the first of several calls. */
    running t = begin_row(r, b, head, i, m->mixed + (row * p->h + head) * p->d_v);
    const double beside[2] = {sink, softmax->softmax_plus_one && !pads ? 0 : -INFINITY};
    if (mha__precision_rounds(&r->precision)) /* exponentials are of the distance to the largest score */
        t.r = largest(score, n, largest(beside, 2, -INFINITY));
    for (size_t k = 0; k < 2; k++) {
        if (beside[k] == -INFINITY)
            continue;
        double term = term_of(&t, beside[k]); /* may move the reference */
        t.l = mha__exact_summed(r, t.l + term);
    }
    const mha__rounding stored = mha__rounding_of(r->precision.probabilities, 1);
    for (size_t k = 0; k < n; k++) {
        size_t j = k < p->S_extra ? s->S + k : k - p->S_extra;
        if (seen[j] == 0 && (pads || softmax->hidden_values != MHA_HIDDEN_PROPAGATE))
            continue;
        double term = seen[j] != 0 ? term_of(&t, score[j]) : 0;
        t.l = mha__exact_summed(r, t.l + term);
        term = mha__rounded(&stored, term);
        for (size_t c = 0; c < p->d_v; c++)
            t.a[c] = mha__exact_summed(r, t.a[c] + term * value_element(m, s, g, j, c));
    }
    end_row(r, b, head, i, &t);

    const bool nothing = t.r == -INFINITY && t.l == 0, zero = softmax->empty_rows == MHA_EMPTY_ZERO;
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

void mha__exact_attend_row(void *context, size_t task, int worker)
{
    const mha__judge *m = context;
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
