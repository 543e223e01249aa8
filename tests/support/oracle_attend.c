/* The oracle's attention: what a query sees, what is added to its scores, its softmax and weighted sum. */
#include <float.h>
#include <math.h>

#include "support/oracle_run.h"
#include "support/window.h"

/* ---------------------------------------------------------------- what a query sees, and what is added */

/* The mask's element for (b, head, i, j); false: it does not reach that key. */
static bool mask_at(const mha_view *m, size_t b, size_t head, size_t i, size_t j, double *value)
{
    const size_t full[4] = {b, head, i, j};
    size_t index[4] = {0};
    for (int k = 0; k < m->rank; k++) {
        size_t want = full[4 - m->rank + k];
        index[k] = m->shape[k] == 1 ? 0 : want;
        if (index[k] >= m->shape[k])
            return false;
    }
    *value = oracle_get(m, index[0], index[1], index[2], index[3]);
    return true;
}

/* The element of a part of a pattern for these indices, from the right. */
static double part_at(const mha_view *v, int rank, size_t b, size_t x, size_t y, size_t z)
{
    const size_t full[4] = {b, x, y, z};
    size_t index[4] = {0};
    for (int k = 0; k < v->rank; k++)
        index[k] = v->shape[k] == 1 ? 0 : full[rank - v->rank + k];
    return oracle_get(v, index[0], index[1], index[2], index[3]);
}

bool oracle_pads(const run *r, size_t b, size_t i)
{
    const mha_mask *m = &r->s->visible.pattern.query_padding;
    return m->kind != MHA_MASK_NONE && (part_at(&m->values, 2, b, i, 0, 0) != 0) == (m->kind == MHA_MASK_HIDES);
}

bool oracle_pattern_hides(const run *r, size_t b, size_t head, size_t i, size_t j)
{
    const mha_pattern *p = &r->s->visible.pattern;
    const mha_view *ids = p->k_segments.data ? &p->k_segments : &p->q_segments, *lists = &p->key_lists;
    bool hides = oracle_pads(r, b, i), named = false;
    hides |= p->q_segments.data && part_at(&p->q_segments, 2, b, i, 0, 0) != part_at(ids, 2, b, j, 0, 0);
    hides |= p->blocks.kind && (part_at(&p->blocks.values, 4, b, head, i / p->block_queries, j / p->block_keys) != 0) ==
                                   (p->blocks.kind == MHA_MASK_HIDES);
    for (size_t l = 0; lists->data && l < lists->shape[lists->rank - 1]; l++)
        named |= part_at(lists, 4, b, head, i, l) == (double)r->s->place.key_offset + (double)(r->first + j);
    return hides || (lists->data && !named);
}

/* Whether real key j of sequence b is visible to query i of a head; *add is what its score gets. */
static bool visible(const run *r, size_t b, size_t head, size_t i, size_t j, number *add)
{
    const mha_semantics *s = r->s;
    double p = offset_of(r, b) + (double)i, at = (double)s->place.key_offset + (double)(r->first + j), m, sum = 0,
           size = 0;
    bool seen = true;
    if (s->visible.causal && at > p && !(at < (double)s->visible.prefix))
        seen = false;
    if (has_left(s) && at < p - (double)s->visible.window_left &&
        !(at < (double)s->visible.window_keep))
        seen = false;
    if (s->visible.chunk > 0 && floor(at / (double)s->visible.chunk) != floor(p / (double)s->visible.chunk))
        seen = false;
    if (has_right(s) && at > p + (double)s->visible.window_right)
        seen = false;
    if (s->visible.kv_lengths && (double)s->place.key_offset + (double)j >= (double)s->visible.kv_lengths[b])
        seen = false;
    if (oracle_pattern_hides(r, b, head, i, j))
        seen = false;
    if (s->visible.mask.kind != MHA_MASK_NONE) {
        if (!mask_at(&s->visible.mask.values, b, head, i, j, &m))
            seen = false;
        else if (s->visible.mask.kind == MHA_MASK_ADDITIVE && m != -(double)INFINITY)
            sum += m, size += fabs(m);
        else if (s->visible.mask.kind == MHA_MASK_ADDITIVE || (m != 0) == (s->visible.mask.kind == MHA_MASK_HIDES))
            seen = false;
    }
    if (s->visible.key_padding.kind != MHA_MASK_NONE) {
        const mha_view *v = &s->visible.key_padding.values;
        m = oracle_get(v, v->shape[0] == 1 ? 0 : b, v->shape[1] == 1 ? 0 : j, 0, 0);
        bool additive = s->visible.key_padding.kind == MHA_MASK_ADDITIVE;
        bool hides = additive ? m == -(double)INFINITY : (m != 0) == (s->visible.key_padding.kind == MHA_MASK_HIDES);
        if (hides && s->visible.has_padding_fill)
            sum += s->visible.padding_fill, size += fabs(s->visible.padding_fill);
        else if (hides)
            seen = false;
        else if (additive)
            sum += m, size += fabs(m);
    }
    if (s->added.alibi_slopes)
        sum -= s->added.alibi_slopes[head] * (p - at), size += fabs(s->added.alibi_slopes[head] * (p - at));
    if (s->added.bias.rule) {
        const mha_view *table = &r->weights[MHA_BIAS_TABLE];
        const double bias = oracle_get(table, oracle_bias_row(&s->added.bias, table->shape[0], p, at), head, 0, 0);
        sum += bias, size += fabs(bias);
    }
    *add = (number){sum, 4 * r->u * size};
    return seen;
}

/* ---------------------------------------------------------------- one query of one head */

static number score(const run *r, const number *q, const number *k)
{
    double scale = r->s->softmax.has_scale ? r->s->softmax.scale : 1 / sqrt((double)r->d_k), sum = 0, size = 0,
           carried = 0;
    for (size_t f = 0; f < r->d_k; f++) {
        sum += q[f].v * k[f].v;
        size += (fabs(q[f].v) + q[f].e) * (fabs(k[f].v) + k[f].e);
        carried += fabs(q[f].v) * k[f].e + q[f].e * fabs(k[f].v) + q[f].e * k[f].e;
    }
    double e = fabs(scale) * (carried + oracle_gamma((double)r->d_k + 6, r->u) * size);
    return limited(r, scale * sum, size * fmax(1, fabs(scale)),
                   e + ((double)r->d_k + 2) * (1 + fabs(scale)) * oracle_subnormal(r->u));
}

static number cap(const run *r, number s)
{
    double c = r->s->softmax.softcap;
    return c > 0 ? (number){c * tanh(s.v / c), s.e + 8 * r->u * fmin(fabs(s.v), c) + (1 + c) * oracle_subnormal(r->u)}
                 : s;
}

/* Softmax of the seen logits; `sink` may be NULL. A query that sees nothing at all follows empty_rows. */
static void soften(const run *r, attended *a, const double *sink, bool pads)
{
    double plus_one = 0, top = -(double)INFINITY;
    const double *more[2] = {pads ? NULL : sink, r->s->softmax.softmax_plus_one && !pads ? &plus_one : NULL};
    bool anything = false, nan = false;
    for (size_t j = 0; j < a->n; j++)
        if (a->seen[j])
            anything = true, nan |= isnan(a->logit[j].v), top = fmax(top, a->logit[j].v);
    for (int k = 0; k < 2; k++)
        if (more[k])
            anything = true, nan |= isnan(*more[k]), top = fmax(top, *more[k]);
    if (!anything) {
        double w = r->s->softmax.empty_rows == MHA_EMPTY_NAN ? (double)NAN : 0;
        for (size_t j = 0; j < a->n; j++)
            a->weight[j] = (number){w, 0};
        a->lse = (number){r->s->softmax.empty_rows == MHA_EMPTY_NAN ? (double)NAN : -(double)INFINITY, 0};
        return;
    }
    if (nan || isinf(top)) {
        for (size_t j = 0; j < a->n; j++)
            a->weight[j] = (number){NAN, 0};
        a->lse = (number){NAN, 0};
        return;
    }
    double sum = 0, off = 0;
    bool lost = false;
    for (int k = 0; k < 2; k++)
        if (more[k])
            sum += exp(*more[k] - top),
                off += exp(*more[k] - top) * expm1(r->u * (3 * fabs(*more[k]) + 2 * fabs(top) + 8));
    for (size_t j = 0; j < a->n; j++) {
        double d = a->logit[j].e + r->u * (2 * (fabs(a->logit[j].v) + fabs(top)) + 8);
        a->weight[j] = a->seen[j] ? (number){exp(a->logit[j].v - top), expm1(d)} : (number){0, 0};
        lost |= a->seen[j] && isinf(a->logit[j].e);
        sum += a->weight[j].v;
        off += a->weight[j].v > 0 ? a->weight[j].v * a->weight[j].e : 0;
    }
    double R = off / sum + oracle_gamma(2 * (double)a->n + 8, r->u);
    for (size_t j = 0; j < a->n; j++)
        if (a->seen[j] || lost) {
            double w = a->weight[j].v / sum, e = R < 1 ? w * ((1 + a->weight[j].e) / (1 - R) - 1) + 2 * r->u * w : 1;
            a->weight[j] = (number){w, lost ? (double)INFINITY : fmin(e, 1) + 2 * oracle_normal(r->u)};
        }
    double lse = top + log(sum);
    a->lse = (number){lse, R < 1 && !lost ? R / (1 - R) + 4 * r->u * (fabs(top) + fabs(lse) + 1) : (double)INFINITY};
}

/* Weights of the seen logits that do not depend on each other. */
static void squash(const run *r, attended *a)
{
    const double b = r->s->softmax.sigmoid_bias;
    for (size_t j = 0; j < a->n; j++) {
        const double v = 1 / (1 + exp(-a->logit[j].v - b)),
                     e = a->logit[j].e + 2 * r->u * (fabs(a->logit[j].v) + fabs(b));
        a->weight[j] = (number){0, 0};
        if (a->seen[j])
            a->weight[j] = (number){v, (isinf(e) ? e : fmin(v * expm1(e), 1)) + 8 * r->u * v + 2 * oracle_normal(r->u)};
    }
    a->lse = (number){0, 0};
}

bool oracle_keeps(const mha_softmax *s, size_t b, size_t head, size_t i, size_t j)
{
    return !s->dropout_keep.data || part_at(&s->dropout_keep, 4, b, head, i, j) != 0;
}

static number weigh(const run *r, const attended *a, const number *values, size_t f, bool pads)
{
    const double rest = 1 - r->s->softmax.dropout_p;
    double sum = 0, size = 0, carried = 0;
    if (isnan(a->lse.v)) /* the rule for a query that sees nothing needs no key to be there */
        return (number){NAN, 0};
    for (size_t j = 0; j < a->n; j++) {
        number w = a->weight[j], v = values[j * r->d_v + f];
        if (r->s->softmax.dropout_keep.data)
            w = (number){a->kept[j] ? w.v / rest : 0 * w.v,
                         (w.e + (1 / rest + 4) * r->u * (w.v + w.e) + oracle_subnormal(r->u)) / rest};
        if (!a->seen[j] && (pads || r->s->softmax.hidden_values == MHA_HIDDEN_IGNORE))
            continue;
        sum += w.v * v.v;
        size += (fabs(w.v) + w.e) * (fabs(v.v) + v.e);
        carried += w.e * (fabs(v.v) + v.e) + fabs(w.v) * v.e;
    }
    return limited(r, sum, size,
                   carried + oracle_gamma(2 * (double)a->n + 8, r->u) * size + (double)a->n * oracle_subnormal(r->u));
}

/* The relative terms of a pair of rows. */
static number relative(const run *r, size_t b, size_t head, size_t i, size_t j, const number *q, const number *k)
{
    const mha_relative *rule = &r->s->added.relative;
    const double p = offset_of(r, b) + (double)i, at = (double)r->s->place.key_offset + (double)(r->first + j);
    number all = {0, 0};
    for (int w = MHA_RELATIVE_K; rule->rule && w <= MHA_RELATIVE_Q; w++) {
        const mha_view *t = &r->weights[w];
        if (!t->data)
            continue;
        const number *x = w == MHA_RELATIVE_Q ? k : q;
        const size_t row = oracle_relative_row(rule, w, t->shape[0], p, at),
                     from = t->shape[1] == r->d_k ? 0 : head * r->d_k;
        const double own = w == MHA_RELATIVE_Q ? rule->q_scale : rule->k_scale,
                     scale = own != 0 ? own : r->s->softmax.has_scale ? r->s->softmax.scale : 1 / sqrt((double)r->d_k);
        double sum = 0, size = 0, carried = 0;
        for (size_t f = 0; f < r->d_k; f++) {
            const double y = oracle_get(t, row, from + f, 0, 0);
            sum += x[f].v * y, size += (fabs(x[f].v) + x[f].e) * fabs(y), carried += x[f].e * fabs(y);
        }
        /* a table of F64 is rounded first; then the products, the scale, the sum of the terms */
        all.v += isinf(scale * sum) ? copysign(DBL_MAX, scale * sum) : scale * sum; /* a term hides nothing */
        all.e += fabs(scale) * (carried + oracle_gamma((double)r->d_k + 10, r->u) * size) +
                 ((double)r->d_k + 4) * (1 + fabs(scale)) * oracle_subnormal(r->u);
    }
    all.v = isinf(all.v) ? copysign(DBL_MAX, all.v) : all.v;
    return all;
}

void oracle_attend(run *r, size_t b, size_t head, size_t i, attended *a, number *heads)
{
    size_t g = head / (r->h / r->h_kv), real = r->P + new_keys_of(r, b), all = r->S + r->extra;
    size_t at = ((b * r->h + head) * r->T_q + i) * all;
    const number *q = r->q_rot + query_row(r, b, i) * r->h * r->d_k + head * r->d_k;
    const number *k = r->keys + (b * r->h_kv + g) * all * r->d_k, *v = r->values + (b * r->h_kv + g) * all * r->d_v;
    a->n = real + r->extra;
    for (size_t j = 0; j < a->n; j++) {
        number s = score(r, q, k + j * r->d_k), c = cap(r, s), add = {0, 0};
        a->seen[j] = j >= real ? !oracle_pads(r, b, i) : visible(r, b, head, i, j, &add);
        const number more = j < real ? relative(r, b, head, i, j, q, k + j * r->d_k) : (number){0, 0};
        add.v += more.v, add.e += more.e + 4 * r->u * (fabs(add.v) + fabs(more.v));
        double logit = c.v + add.v;
        a->logit[j] = a->seen[j] ? limited(r, logit, fabs(c.v) + fabs(add.v), c.e + add.e + 4 * r->u * fabs(c.v))
                                 : (number){-(double)INFINITY, 0};
        put(&r->out->stage[MHA_STAGE_SCORES], at + j, s);
        put(&r->out->stage[MHA_STAGE_CAPPED], at + j, c);
        put(&r->out->stage[MHA_STAGE_MASKED], at + j, a->logit[j]);
    }
    double sink = r->sinks.data ? oracle_get(&r->sinks, head, 0, 0, 0) : 0;
    const bool none = !r->sinks.data || (isinf(sink) && sink < 0); /* -inf: a head without one */
    if (r->s->softmax.normaliser == MHA_SIGMOID)
        squash(r, a);
    else
        soften(r, a, none ? NULL : &sink, oracle_pads(r, b, i));
    oracle_stage *mean = &r->out->stage[MHA_STAGE_WEIGHTS_MEAN];
    for (size_t j = 0; j < a->n; j++) {
        put(&r->out->stage[MHA_STAGE_WEIGHTS], at + j, a->weight[j]);
        size_t m = (b * r->T_q + i) * all + j;
        mean->value[m] += a->weight[j].v / (double)r->h;
        const number w = a->weight[j]; /* the sum rounds a weight of up to v + e */
        mean->slack[m] += (w.e + oracle_gamma((double)r->h + 2, r->u) * (w.v + w.e)) / (double)r->h;
    }
    put(&r->out->stage[MHA_STAGE_LSE], (b * r->h + head) * r->T_q + i, a->lse);
    for (size_t j = 0; j < a->n; j++)
        a->kept[j] = oracle_keeps(&r->s->softmax, b, head, i, j);
    for (size_t f = 0; f < r->d_v; f++)
        heads[query_row(r, b, i) * r->h * r->d_v + head * r->d_v + f] = weigh(r, a, v, f, oracle_pads(r, b, i));
}
