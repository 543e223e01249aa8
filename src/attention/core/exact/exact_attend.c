/* softmax(Q K^T * scale) V of the exact path, in float64 and plain loops: some queries at a time under one head after
 * the other, each with sums of its own. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/cache/stages.h"
#include "attention/call/definition.h"
#include "attention/core/exact/exact_attend.h"
#include "attention/core/exact/exact_visible.h"
#include "attention/core/exact/rounding.h"
#include "attention/core/terms/terms.h"

enum { ROWS = 16, KEYS = 16 }; /* queries, and keys, that are worked on together */

/* Some queries of sequence b, under one head after the other. Extra rows follow the real keys. */
typedef struct block {
    const mha__check *m;
    mha__sequence s;
    size_t b, rows, n;                              /* n: keys */
    size_t at[ROWS];                                /* the queries */
    double *score[ROWS], *added[ROWS], *mean[ROWS]; /* of each key; what is added to its score */
    unsigned char *seen[ROWS];
    double *queries;  /* (d_k, ROWS) of the head */
    double *products; /* (KEYS, ROWS) */
    double *values;   /* (KEYS, d_v) */
    double *row;      /* an extra row of keys */
} block;

/* Key j of key/value head g: a real one where it lies, or bias_k or zeros in `memory`. */
static const double *key_row(const mha__check *m, const mha__sequence *s, size_t g, size_t j, double *memory)
{
    const mha__sizes *p = &m->r->plan;
    const mha_view *bias = &m->r->weight[MHA_BIAS_K];
    if (j < s->S)
        return m->keys + ((s->k_batch * m->S + s->k_from + j) * p->h_kv + g) * p->d_k;
    for (size_t c = 0; c < p->d_k; c++)
        memory[c] = bias->data && j == s->S ? mha_view_get(bias, (size_t[]){g * p->d_k + c}) : 0.0;
    return memory;
}

static void copy_value(const mha__check *m, const mha__sequence *s, size_t g, size_t j, double *to)
{
    const mha__sizes *p = &m->r->plan;
    const mha_view *bias = &m->r->weight[MHA_BIAS_V];
    if (j < s->S)
        memcpy(to, m->values + ((s->k_batch * m->S + s->k_from + j) * p->h_kv + g) * p->d_v, p->d_v * sizeof *to);
    for (size_t c = 0; j >= s->S && c < p->d_v; c++)
        to[c] = bias->data && j == s->S ? mha_view_get(bias, (size_t[]){g * p->d_v + c}) : 0.0;
}

/* The relative terms of query i, whose row is q, and key j, whose row is k: products with rows of tables, which hide
 * nothing. */
static double relative_terms(const mha__resolved *r, const mha__sequence *s, size_t head, size_t i, size_t j,
                             const double *q, const double *k)
{
    const mha_relative *relative = &mha__semantics_of(r)->added.relative;
    const size_t d_k = r->plan.d_k;
    double sum = 0;
    for (int w = MHA_RELATIVE_K; relative->rule != MHA_RELATIVE_NONE && w <= MHA_RELATIVE_Q; w++) {
        const mha_view *table = &r->weight[w];
        if (!table->data)
            continue;
        const size_t row = mha__relative_row(relative, (mha_weight)w, table->shape[0], s->offset + (int64_t)i,
                                            r->first_key + (int64_t)j),
                     column = table->shape[1] == d_k ? 0 : head * d_k;
        const double given = w == MHA_RELATIVE_Q ? relative->q_scale : relative->k_scale;
        double found = 0;
        for (size_t c = 0; c < d_k; c++)
            found += (w == MHA_RELATIVE_Q ? k[c] : q[c]) * mha_view_get(table, (size_t[]){row, column + c});
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

/* Whether a score moves the reference r. It follows only scores that exceed it by more than 8: it moves seldom, and
 * what was rescaled more than a few times is below a rounding of the rest. Terms are added one by one, so the sums do
 * not depend on where the keys are cut into calls. */
static bool moves(const running *t, double score)
{
    return score != -INFINITY && !(score <= t->r + 8); /* NaN, too */
}

/* Returns exp(score - r), a term of the denominator, with the reference moved where that is due. */
static double term_of(running *t, double score)
{
    if (score == -INFINITY && t->r == -INFINITY)
        t->l = NAN;
    if (score == -INFINITY)
        return 0;
    if (moves(t, score)) {
        double factor = exp(t->r - score);
        t->l = t->r == -INFINITY ? 0 : t->l * factor;
        for (size_t c = 0; c < t->d_v; c++)
            t->a[c] *= factor;
        t->r = score;
    }
    return exp(score - t->r);
}

/* A score, or a number from which one is computed, as a modelled precision stores it. */
static double round_score(const mha__resolved *r, double x)
{
    return r->precision.scores == MHA_F32 ? x : mha__round_to(r->precision.scores, x);
}

static void round_scores(const mha__resolved *r, double *score, size_t n)
{
    for (size_t j = 0; r->precision.scores != MHA_F32 && j < n; j++)
        score[j] = round_score(r, score[j]);
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
    mha__stage_row(r, MHA_STAGE_WEIGHTS, b, head, i, MHA_F64, weight, n);
    for (size_t j = 0; mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN) && j < n; j++)
        mean[j] = (head == 0 ? 0.0 : mean[j]) + weight[j] / (double)r->plan.h;
}

/* ---------------------------------------------------------------- scores */

/* Whether the scores of hidden keys are wanted, too. */
static bool shows_hidden(const mha__resolved *r)
{
    return mha__is_kept(r, MHA_STAGE_SCORES) || mha__is_kept(r, MHA_STAGE_CAPPED);
}

/* The row of query i of the block among those of the inputs. */
static size_t row_of(const block *k, size_t i)
{
    return k->s.batch * k->m->r->query.shape[1] + k->s.q_from + k->at[i];
}

static const double *query_row(const block *k, size_t head, size_t i)
{
    const mha__resolved *r = k->m->r;
    return k->m->Q + (row_of(k, i) * r->plan.h + head) * r->plan.d_k;
}

/* Whether any query of the block needs key j. */
static bool is_needed(const block *k, size_t j, bool all)
{
    for (size_t i = 0; i < k->rows && !all; i++)
        all = k->seen[i][j];
    return all;
}

/* scale q k of the queries of the block and keys [from, to), not more than KEYS, which lie one after the other. */
static void multiply(const block *k, size_t g, size_t from, size_t to)
{
    const mha__resolved *r = k->m->r;
    const mha__sizes *p = &r->plan;
    const size_t count = to - from, width = k->rows < ROWS / 2 ? ROWS / 2 : ROWS;
    for (size_t e = 0; e < count * ROWS; e++)
        k->products[e] = 0;
    mha__exact_sums(r, count, width, p->d_k, key_row(k->m, &k->s, g, from, k->row), p->h_kv * p->d_k, k->queries, ROWS,
                    k->products, ROWS);
    for (size_t j = from; j < to; j++)
        for (size_t i = 0; i < k->rows; i++)
            k->score[i][j] = round_score(r, k->products[(j - from) * ROWS + i]) * p->scale;
}

/* Scores of the queries under a head, 0 where nobody needs them. */
static void score_keys(const block *k, size_t head, size_t g)
{
    const mha__resolved *r = k->m->r;
    const size_t d_k = r->plan.d_k;
    const bool all = shows_hidden(r);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t c = 0; c < d_k; c++)
            k->queries[c * ROWS + i] = i < k->rows ? query_row(k, head, i)[c] : 0;
    for (size_t from = 0, to; from < k->n; from = to) {
        for (to = from; to < k->n && to < from + KEYS && is_needed(k, to, all) && (to < k->s.S || to == from); to++)
            ;
        if (to > from) {
            multiply(k, g, from, to);
            continue;
        }
        for (size_t i = 0; i < k->rows; i++)
            k->score[i][from] = 0;
        to = from + 1;
    }
}

/* Softcap, and what is added: the masked scores of a query, whose row is q. */
static void mask(const block *k, size_t head, size_t g, size_t row)
{
    const mha__resolved *r = k->m->r;
    const double softcap = mha__semantics_of(r)->softmax.softcap, *q = query_row(k, head, row);
    const size_t i = k->at[row], n = k->n;
    const unsigned char *seen = k->seen[row];
    const bool all = shows_hidden(r), relative = mha__semantics_of(r)->added.relative.rule != MHA_RELATIVE_NONE;
    double *score = k->score[row];
    round_scores(r, score, n);
    mha__stage_row(r, MHA_STAGE_SCORES, k->b, head, i, MHA_F64, score, n);
    for (size_t j = 0; softcap > 0 && j < n; j++)
        if (seen[j] || all)
            score[j] = softcap * round_score(r, tanh(round_score(r, score[j] / softcap)));
    round_scores(r, score, n);
    mha__stage_row(r, MHA_STAGE_CAPPED, k->b, head, i, MHA_F64, score, n);
    for (size_t j = 0; j < n; j++) {
        double added = k->added[row][j];
        if (relative && j < k->s.S && seen[j])
            added += relative_terms(r, &k->s, head, i, j, q, key_row(k->m, &k->s, g, j, k->row));
        score[j] = seen[j] ? score[j] + added : -INFINITY;
    }
    round_scores(r, score, n);
    mha__stage_row(r, MHA_STAGE_MASKED, k->b, head, i, MHA_F64, score, n);
}

/* ---------------------------------------------------------------- sums of values */

/* Adds the values of `count` keys, times their terms, to a. */
static void add_values(const mha__resolved *r, const double *term, size_t count, const double *values, double *a)
{
    const size_t d_v = r->plan.d_v;
    mha__exact_sums(r, 1, d_v, count, term, count, values, d_v, a, d_v);
}

/* Turns masked scores into 1 / (1 + exp(-(score + bias))), and adds the values. `kept`: the factors of a dropout. */
static void sigmoid_keys(const mha__resolved *r, size_t count, double *score, const unsigned char *seen,
                         bool propagates, const double *kept, const double *values, double *a)
{
    const mha__rounding stored = mha__rounding_of(r->precision.probabilities, 1);
    for (size_t j = 0; j < count; j++) {
        const double z = score[j] + mha__semantics_of(r)->softmax.sigmoid_bias, e = exp(-fabs(z));
        score[j] = !seen[j] ? 0 : (z < 0 ? e : 1) / (1 + e);
        const double term = mha__rounded(&stored, score[j]) * kept[j];
        if (seen[j] || propagates)
            add_values(r, &term, 1, values + j * r->plan.d_v, a);
    }
}

/* Joins keys to the softmax of a row. Values whose terms have one reference are added together. */
static void join_keys(const mha__resolved *r, running *t, size_t count, const double *score, const unsigned char *seen,
                      bool propagates, const double *kept, const double *values)
{
    const mha__rounding stored = mha__rounding_of(r->precision.probabilities, 1);
    double term[KEYS];
    size_t first = 0; /* of those that are not added yet */
    for (size_t j = 0; j < count; j++) {
        const bool joins = seen[j] || propagates;
        if (!joins || (seen[j] && moves(t, score[j]))) {
            add_values(r, term + first, j - first, values + first * t->d_v, t->a);
            first = joins ? j : j + 1;
        }
        if (!joins)
            continue;
        const double e = seen[j] ? term_of(t, score[j]) : 0;
        t->l = mha__exact_summed(r, t->l + e);
        term[j] = mha__rounded(&stored, e) * kept[j];
    }
    add_values(r, term + first, count - first, values + first * t->d_v, t->a);
}

/* The softmax of a row before its first key: what is not a key of the sequence comes first, as in the first of several
 * calls. */
static running begin_softmax(const block *k, size_t head, size_t row, bool pads, double *a)
{
    const mha__resolved *r = k->m->r;
    const mha_view *sinks = &r->weight[MHA_SINKS];
    const double beside[2] = {sinks->data && !pads ? mha_view_get(sinks, &head) : -INFINITY,
                              mha__semantics_of(r)->softmax.softmax_plus_one && !pads ? 0 : -INFINITY};
    running t = begin_row(r, k->b, head, k->at[row], a);
    if (mha__precision_rounds(&r->precision)) /* exponentials are of the distance to the largest score */
        t.r = largest(k->score[row], k->n, largest(beside, 2, -INFINITY));
    for (size_t i = 0; i < 2; i++) {
        if (beside[i] == -INFINITY)
            continue;
        const double term = term_of(&t, beside[i]); /* may move the reference */
        t.l = mha__exact_summed(r, t.l + term);
    }
    return t;
}

/* The sums of values of a row from its softmax, and what else is kept of it. */
static void end_softmax(const block *k, size_t head, size_t row, const running *t)
{
    const mha__resolved *r = k->m->r;
    const size_t i = k->at[row];
    double *score = k->score[row];
    end_row(r, k->b, head, i, t);
    const bool nothing = t->r == -INFINITY && t->l == 0,
               zero = mha__semantics_of(r)->softmax.empty_rows == MHA_EMPTY_ZERO;
    const double lse = !nothing ? t->r + log(t->l) : zero ? -INFINITY : NAN;
    for (size_t c = 0; c < t->d_v; c++)
        t->a[c] = isnan(lse) ? NAN : nothing ? t->a[c] : t->a[c] / t->l;
    mha__stage_row(r, MHA_STAGE_LSE, k->b, head, i, MHA_F64, &lse, 1);
    if (!mha__is_kept(r, MHA_STAGE_WEIGHTS) && !mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN))
        return;
    for (size_t j = 0; j < k->n; j++)
        score[j] = !nothing ? exp(score[j] - t->r) / t->l : zero ? 0.0 : NAN;
    keep_weights(r, k->b, head, i, score, k->n, k->mean[row]);
}

/* Keys [from, to) of all queries, not more than KEYS. */
static void weigh(const block *k, size_t head, size_t from, size_t to, const bool *pads, running *t)
{
    const mha__resolved *r = k->m->r;
    const mha_softmax *softmax = &mha__semantics_of(r)->softmax;
    const size_t g = head / (r->plan.h / r->plan.h_kv);
    double kept[KEYS];
    for (size_t j = from; j < to; j++)
        if (is_needed(k, j, softmax->hidden_values == MHA_HIDDEN_PROPAGATE))
            copy_value(k->m, &k->s, g, j, k->values + (j - from) * r->plan.d_v);
    for (size_t i = 0; i < k->rows; i++) {
        const bool propagates = !pads[i] && softmax->hidden_values == MHA_HIDDEN_PROPAGATE;
        for (size_t j = from; j < to; j++)
            kept[j - from] = softmax->dropout_keep.data ? mha__exact_dropout(r, k->b, head, k->at[i], j) : 1;
        if (softmax->normaliser == MHA_SIGMOID)
            sigmoid_keys(r, to - from, k->score[i] + from, k->seen[i] + from, propagates, kept, k->values, t[i].a);
        else
            join_keys(r, &t[i], to - from, k->score[i] + from, k->seen[i] + from, propagates, kept, k->values);
    }
}

/* ---------------------------------------------------------------- some queries of a sequence */

static void attend(const block *k, size_t head)
{
    const mha__check *m = k->m;
    const mha__resolved *r = m->r;
    const mha__sizes *p = &r->plan;
    const bool sigmoid = mha__semantics_of(r)->softmax.normaliser == MHA_SIGMOID;
    const size_t S = k->s.S, g = head / (p->h / p->h_kv);
    running t[ROWS];
    bool pads[ROWS]; /* sees nothing at all */
    for (size_t i = 0; i < k->rows; i++) {
        pads[i] = mha__exact_pads(r, k->b, k->at[i]);
        mha__exact_see(r, &k->s, k->b, head, k->at[i], k->seen[i], k->added[i]);
        for (size_t j = S; j < k->n; j++)
            k->seen[i][j] = !pads[i], k->added[i][j] = 0;
    }
    score_keys(k, head, g);
    for (size_t i = 0; i < k->rows; i++) {
        double *a = m->mixed + (row_of(k, i) * p->h + head) * p->d_v;
        mask(k, head, g, i);
        t[i] = (running){.a = a, .d_v = p->d_v};
        for (size_t c = 0; c < p->d_v && sigmoid; c++)
            a[c] = 0;
        if (!sigmoid)
            t[i] = begin_softmax(k, head, i, pads[i], a);
    }
    for (size_t j = S; !sigmoid && j < k->n; j++) /* extra rows come first in a softmax, last in a sigmoid */
        weigh(k, head, j, j + 1, pads, t);
    for (size_t j = 0, n = sigmoid ? k->n : S; j < n; j += KEYS)
        weigh(k, head, j, j + KEYS < n ? j + KEYS : n, pads, t);
    for (size_t i = 0; i < k->rows; i++)
        if (sigmoid)
            keep_weights(r, k->b, head, k->at[i], k->score[i], k->n, k->mean[i]);
        else
            end_softmax(k, head, i, &t[i]);
}

/* Bytes of `memory` that a block takes. */
static size_t lay_out(const mha__resolved *r, double *memory, block *k)
{
    const size_t n = r->plan.S + r->plan.S_extra, d_k = r->plan.d_k, d_v = r->plan.d_v;
    mha__workspace arena = {(char *)memory, 0};
    for (size_t i = 0; i < ROWS; i++) {
        k->score[i] = mha__workspace_take(&arena, n, sizeof(double));
        k->added[i] = mha__workspace_take(&arena, n, sizeof(double));
        k->mean[i] = mha__workspace_take(&arena, mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN) ? n : 0, sizeof(double));
        k->seen[i] = mha__workspace_take(&arena, n, 1);
    }
    k->queries = mha__workspace_take(&arena, d_k, ROWS * sizeof(double));
    k->products = mha__workspace_take(&arena, KEYS, ROWS * sizeof(double));
    k->values = mha__workspace_take(&arena, d_v, KEYS * sizeof(double));
    k->row = mha__workspace_take(&arena, d_k, sizeof(double));
    return arena.used;
}

size_t mha__exact_attend_size(const mha__resolved *r)
{
    block k;
    return lay_out(r, NULL, &k);
}

/* Blocks of each sequence. */
static size_t blocks_of(const mha__resolved *r)
{
    return (r->plan.T_q + ROWS - 1) / ROWS;
}

size_t mha__exact_attend_tasks(const mha__resolved *r)
{
    return r->plan.B * blocks_of(r);
}

void mha__exact_attend_rows(void *context, size_t task, int worker)
{
    const mha__check *m = context;
    const mha__resolved *r = m->r;
    block k = {.m = m, .b = task / blocks_of(r)};
    k.s = mha__resolved_sequence(r, k.b);
    size_t skipped = task % blocks_of(r) * ROWS;
    for (size_t i = 0; i < k.s.T_q && k.rows < ROWS; i++) {
        if (r->rows && !r->rows[k.s.q_from + i])
            continue;
        if (skipped > 0)
            skipped--;
        else
            k.at[k.rows++] = i;
    }
    if (k.rows == 0)
        return;
    (void)lay_out(r, m->row + (size_t)worker * m->row_size, &k);
    k.n = k.s.S + r->plan.S_extra;
    for (size_t head = 0; head < r->plan.h; head++)
        attend(&k, head);
    for (size_t i = 0; mha__is_kept(r, MHA_STAGE_WEIGHTS_MEAN) && i < k.rows; i++)
        mha__stage_row(r, MHA_STAGE_WEIGHTS_MEAN, k.b, k.at[i], 0, MHA_F64, k.mean[i], k.n);
}
