/* The second half of a dialect: cache, scores, what is hidden and added, softmax, values, merging. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/variant_inputs.h"

mha__dialect mha__dialect_of(const mha_case *c)
{
    const mha_semantics *s = &c->semantics;
    mha__dialect d = {0};
    for (int i = 0; i < 3; i++)
        d.projection.source[i] = i;
    d.rope = (int)s->rope.kind;
    d.rope_dim = (int)(s->rope.dim ? s->rope.dim : c->d_k);
    d.rope_base = s->rope.base > 0 ? s->rope.base : 10000;
    d.scale = s->has_scale ? s->scale : 1 / sqrt((double)c->d_k);
    d.softcap = s->softcap;
    d.causal = s->causal;
    d.window = s->window;
    d.window_left = s->window_left;
    d.window_right = s->window_right;
    d.use_lengths = s->kv_lengths != NULL;
    d.mask_kind = (int)s->mask.kind;
    d.padding_kind = (int)s->key_padding.kind;
    d.use_padding_fill = s->has_padding_fill;
    d.mask_sign = 1;
    d.alibi_sign = s->alibi_slopes ? 1 : 0;
    d.use_cache = d.use_sinks = 1;
    d.plus_one = s->softmax_plus_one;
    d.bias_row = c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL;
    d.zero_row = s->zero_row;
    d.empty_nan = s->empty_rows == MHA_EMPTY_NAN;
    d.propagate = s->hidden_values == MHA_HIDDEN_PROPAGATE;
    return d;
}

bool mha__dialect_is(const mha__dialect *a, const mha__dialect *b)
{
    bool same = memcmp(&a->projection, &b->projection, sizeof a->projection) == 0;
#define COMPARE_KNOB(type, name) same = same && a->name == b->name;
    DIALECT_KNOBS(COMPARE_KNOB)
#undef COMPARE_KNOB
    return same;
}

/* Rows behind the real keys as the case has them; a dialect without them leaves theirs empty. */
static size_t extra_rows(const mha_case *c)
{
    return (c->weights[CASE_RECORDED][MHA_BIAS_K].data != NULL) + (size_t)c->semantics.zero_row;
}

int mha__dialect_shape(const mha__dialect_bench *bench, mha_stage stage, size_t shape[4])
{
    const mha_case *c = bench->c;
    const size_t S = bench->S + extra_rows(c), out = c->kind == CASE_ROPE ? c->H * c->d_k : c->E_out;
    const struct {
        int rank;
        size_t shape[4];
    } shapes[MHA_STAGE_COUNT] = {
        [MHA_STAGE_Q] = {3, {c->B, c->T_q, c->H * c->d_k, 0}},
        [MHA_STAGE_K] = {3, {c->B, c->T_k, c->H_kv * c->d_k, 0}},
        [MHA_STAGE_V] = {3, {c->B, c->T_k, c->H_kv * c->d_v, 0}},
        [MHA_STAGE_Q_ROT] = {3, {c->B, c->T_q, c->H * c->d_k, 0}},
        [MHA_STAGE_K_ROT] = {3, {c->B, c->T_k, c->H_kv * c->d_k, 0}},
        [MHA_STAGE_SCORES] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_CAPPED] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_MASKED] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_WEIGHTS] = {4, {c->B, c->H, c->T_q, S}},
        [MHA_STAGE_WEIGHTS_MEAN] = {3, {c->B, c->T_q, S, 0}},
        [MHA_STAGE_HEADS] = {3, {c->B, c->T_q, c->H * c->d_v, 0}},
        [MHA_STAGE_OUTPUT] = {3, {c->B, c->T_q, out, 0}},
        [MHA_STAGE_PRESENT_KEY] = {4, {c->B, c->H_kv, bench->S, c->d_k}},
        [MHA_STAGE_PRESENT_VALUE] = {4, {c->B, c->H_kv, bench->S, c->d_v}},
        [MHA_STAGE_LSE] = {3, {c->B, c->H, c->T_q, 0}},
    };
    memcpy(shape, shapes[stage].shape, sizeof shapes[stage].shape);
    return shapes[stage].rank;
}

/* ---------------------------------------------------------------- keys and values of one batch row */

static void gather_keys(mha__dialect_bench *w, size_t b)
{
    const mha_case *c = w->c;
    for (int part = 0; part < 2; part++) {
        size_t d = part ? c->d_v : c->d_k, row = c->H_kv * d;
        double *to = part ? w->values : w->keys;
        for (size_t h = 0; h < c->H_kv && c->P > 0; h++)
            for (size_t j = 0; j < c->P; j++)
                memcpy(to + j * row + h * d, w->past[part] + ((b * c->H_kv + h) * c->P + j) * d, d * sizeof *to);
        memcpy(to + c->P * row, w->split[1 + part], c->T_k * row * sizeof *to);
        double *extra = to + w->S * row;
        memset(extra, 0, 2 * row * sizeof *to);
        if (w->bias_kv[part])
            memcpy(extra, w->bias_kv[part], row * sizeof *to);
    }
}

/* ---------------------------------------------------------------- what is hidden, what is added */

/* One score on its way. */
typedef struct place {
    size_t b, h, i, j;
} place;

/* The mask's value at a place, or `missing` where it does not reach. */
static double mask_value(const mha_view *v, const place *at, size_t S, double missing)
{
    const size_t whole[] = {at->b, at->h, at->i, at->j};
    size_t index[4] = {0};
    for (int k = 0; k < v->rank; k++) {
        size_t wanted = whole[4 - v->rank + k];
        index[k] = v->shape[k] == 1 ? 0 : wanted;
    }
    size_t reach = v->shape[v->rank - 1];
    if (reach > 1 && reach < S && at->j >= reach)
        return missing;
    return mha_view_get(v, index);
}

static bool rules_hide(const mha__dialect_bench *w, const mha__dialect *d, const place *at)
{
    const mha_case *c = w->c;
    int64_t offset = mha__dialect_offset(c, at->b), i = (int64_t)at->i, j = (int64_t)at->j;
    int64_t causal_offset = d->causal_align == 1 ? 0 : d->causal_align == 2 ? (int64_t)w->S - (int64_t)c->T_q : offset;
    if (d->causal && j > i + causal_offset + d->causal_shift)
        return true;
    if (d->window && d->window_left >= 0 && j < i + offset - d->window_left)
        return true;
    if (d->window && d->window_right >= 0 && j > i + offset + d->window_right)
        return true;
    if (d->use_lengths && j >= c->semantics.kv_lengths[at->b] + d->lengths_shift)
        return true;
    return !d->use_cache && at->j < c->P;
}

/* Whether a real key is hidden, and what is added to its score. */
static bool is_hidden(const mha__dialect_bench *w, const mha__dialect *d, const place *at, double *added)
{
    const mha_semantics *s = &w->c->semantics;
    bool hidden = rules_hide(w, d, at);
    *added = 0;
    if (d->mask_kind == MHA_MASK_ADDITIVE) {
        double m = d->mask_sign * mask_value(&s->mask.values, at, w->S, -INFINITY * d->mask_sign);
        hidden |= m == -INFINITY;
        *added += m == -INFINITY ? 0 : m;
    } else if (d->mask_kind != MHA_MASK_NONE) {
        double hides = d->mask_kind == MHA_MASK_HIDES;
        hidden |= (mask_value(&s->mask.values, at, w->S, hides) != 0) == (d->mask_kind == MHA_MASK_HIDES);
    }
    const mha_view *padding = &s->key_padding.values;
    if (d->padding_kind != MHA_MASK_NONE) {
        double p = mha_view_get(padding, (const size_t[]){padding->shape[0] == 1 ? 0 : at->b, at->j});
        if (d->padding_kind == MHA_MASK_ADDITIVE) {
            hidden |= p == -INFINITY;
            *added += p == -INFINITY ? 0 : p;
        } else if ((p != 0) == (d->padding_kind == MHA_MASK_HIDES)) {
            if (d->use_padding_fill)
                *added += s->padding_fill;
            else
                hidden = true;
        }
    }
    if (d->alibi_sign != 0) {
        int64_t offset = d->alibi_from_0 ? 0 : mha__dialect_offset(w->c, at->b);
        *added -= d->alibi_sign * s->alibi_slopes[at->h] * (double)(offset + (int64_t)at->i - (int64_t)at->j);
    }
    return hidden;
}

static double capped(const mha__dialect *d, double s)
{
    if (!(d->softcap > 0))
        return s;
    double t = tanh(s / d->softcap);
    return d->cap_no_factor ? t : d->softcap * t;
}

/* Whether a query row is left out: none where rows depend on each other. */
static bool is_left_out(const mha__dialect_bench *w, const mha__dialect *d, size_t i)
{
    return w->skipped[i] && d->axis != AXIS_QUERIES && d->merge != HEADS_UNTRANSPOSED;
}

unsigned char *mha__dialect_skipped(mha__dialect_bench *bench)
{
    return bench->skipped;
}

/* Fills w->scores up to `stage` and w->visible, for one batch row. */
static void score(mha__dialect_bench *w, const mha__dialect *d, size_t b, mha_stage stage)
{
    const mha_case *c = w->c;
    size_t extra = extra_rows(c), S = w->S + extra, group = c->H / c->H_kv, bias = w->bias_kv[0] != NULL;
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++)
            for (size_t j = 0; j < S && !is_left_out(w, d, i); j++) {
                size_t at = (h * c->T_q + i) * S + j, head = d->tiled ? h % c->H_kv : h / group;
                size_t row = j < w->S || bias ? j : w->S + 1; /* the zero row lies behind the bias row's place */
                const double *q = w->split[0] + (i * c->H + h) * c->d_k;
                const double *k = w->keys + (row * c->H_kv + head) * c->d_k;
                double sum = 0, added = 0;
                for (size_t f = 0; f < c->d_k; f++)
                    sum += q[f] * k[f];
                double s = d->cap_before_scale ? capped(d, sum) * d->scale : sum * d->scale;
                bool hidden = false;
                if (j < w->S)
                    hidden = is_hidden(w, d, &(place){b, h, i, j}, &added);
                else
                    hidden = row == w->S + 1 ? !d->zero_row : !d->bias_row;
                w->visible[at] = !hidden;
                bool cap_here = !d->cap_before_scale;
                if (stage == MHA_STAGE_SCORES) {
                    w->scores[at] = s;
                    continue;
                }
                if (cap_here && !d->cap_after_mask)
                    s = capped(d, s);
                if (stage != MHA_STAGE_CAPPED) {
                    bool fill = hidden && d->fill != FILL_EXCLUDE && j < w->S;
                    if (fill && d->fill == FILL_REPLACE)
                        s = d->fill_value;
                    else if (fill)
                        s = (double)((float)(s + added) + (float)d->fill_value);
                    else
                        s = hidden ? -INFINITY : s + added;
                    w->visible[at] |= fill;
                }
                if (cap_here && d->cap_after_mask) {
                    s = capped(d, s);
                    w->visible[at] |= hidden && j < w->S;
                }
                w->scores[at] = s;
            }
}

/* ---------------------------------------------------------------- softmax */

/* Softmax over n scores `step` apart; `rest` more logits join the denominator. */
static void softmax(const mha__dialect *d, double *s, const unsigned char *visible, size_t n, size_t step,
                    const double *rest, size_t n_rest, double *lse)
{
    double most = -INFINITY;
    bool any = n_rest > 0, wrong = false;
    for (size_t k = 0; k < n_rest; k++)
        most = fmax(most, rest[k]);
    for (size_t j = 0; j < n; j++)
        if (visible[j * step]) {
            any = true;
            wrong |= isnan(s[j * step]);
            most = fmax(most, s[j * step]);
        }
    if (!any) {
        for (size_t j = 0; j < n; j++)
            s[j * step] = d->empty_nan ? NAN : 0;
        *lse = d->empty_nan ? NAN : -INFINITY;
        return;
    }
    if (wrong || isinf(most))
        most = NAN;
    double sum = 0;
    for (size_t k = 0; k < n_rest; k++)
        sum += exp(rest[k] - most);
    for (size_t j = 0; j < n; j++) {
        double *x = &s[j * step];
        *x = visible[j * step] ? exp(*x - most) : 0;
        sum += *x;
    }
    for (size_t j = 0; j < n; j++)
        if (visible[j * step] || isnan(sum))
            s[j * step] /= sum;
    *lse = most + log(sum);
}

static void weigh(mha__dialect_bench *w, const mha__dialect *d)
{
    const mha_case *c = w->c;
    size_t S = w->S + extra_rows(c), rows = c->T_q * S;
    double unused;
    for (size_t h = 0; h < c->H && d->axis == AXIS_KEYS; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            if (is_left_out(w, d, i))
                continue;
            double rest[2];
            size_t n = 0;
            if (w->sinks && d->use_sinks && w->sinks[h] != -INFINITY)
                rest[n++] = w->sinks[h];
            if (d->plus_one)
                rest[n++] = 0;
            size_t at = h * rows + i * S;
            softmax(d, w->scores + at, w->visible + at, S, 1, rest, n, &w->lse[h * c->T_q + i]);
        }
    for (size_t h = 0; h < c->H && d->axis == AXIS_QUERIES; h++)
        for (size_t j = 0; j < S; j++)
            softmax(d, w->scores + h * rows + j, w->visible + h * rows + j, c->T_q, S, NULL, 0, &unused);
    for (size_t at = 0; at < rows && d->axis == AXIS_HEADS; at++)
        softmax(d, w->scores + at, w->visible + at, c->H, rows, NULL, 0, &unused);
}

/* ---------------------------------------------------------------- values, merging, output */

static void sum_values(mha__dialect_bench *w, const mha__dialect *d)
{
    const mha_case *c = w->c;
    size_t S = w->S + extra_rows(c), group = c->H / c->H_kv, bias = w->bias_kv[0] != NULL;
    memset(w->heads, 0, c->T_q * c->H * c->d_v * sizeof *w->heads);
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++)
            for (size_t j = 0; j < S && !is_left_out(w, d, i); j++) {
                size_t at = (h * c->T_q + i) * S + j, head = d->tiled ? h % c->H_kv : h / group;
                size_t row = j < w->S || bias ? j : w->S + 1;
                double weight = w->scores[at], *o = w->heads + (i * c->H + h) * c->d_v;
                const double *v = w->values + (row * c->H_kv + head) * c->d_v;
                bool taken = w->visible[at] || (d->propagate && j < w->S) || isnan(weight);
                for (size_t f = 0; f < c->d_v && taken; f++)
                    o[f] += weight * v[f];
            }
    for (size_t i = 0; i < c->T_q; i++)
        for (size_t h = 0; h < c->H; h++)
            for (size_t f = 0; f < c->d_v; f++)
                w->merged[mha__dialect_column(d->merge, c->T_q, c->H, c->d_v, i, h, f)] =
                    w->heads[(i * c->H + h) * c->d_v + f];
}

static void project_out(const mha__dialect_bench *w, const mha__dialect *d, double *y)
{
    const dialect_projection *p = &d->projection;
    const double *W = w->W[p->round_weights][DIALECT_O];
    const double *b = p->no_bias[DIALECT_O] ? NULL : w->b[p->round_weights][DIALECT_O];
    size_t in = w->in[DIALECT_O], out = w->out[DIALECT_O];
    if (!W) {
        memcpy(y, w->merged, w->c->T_q * in * sizeof *y);
        return;
    }
    if (p->transposed[DIALECT_O]) {
        for (size_t i = 0; i < in; i++)
            for (size_t j = 0; j < out; j++)
                w->W_effective[i * out + j] = W[j * in + i];
        W = w->W_effective;
    }
    size_t kept = 0; /* rows close up, so that they can be multiplied together */
    for (size_t t = 0; t < w->c->T_q; t++)
        if (!is_left_out(w, d, t))
            memmove(w->merged + kept++ * in, w->merged + t * in, in * sizeof *y);
    mha__dialect_multiply(w->merged, kept, in, W, b, out, y);
    for (size_t t = w->c->T_q; t-- > 0 && kept > 0;)
        if (!is_left_out(w, d, t))
            memmove(y + t * out, y + --kept * out, out * sizeof *y);
}

/* ---------------------------------------------------------------- one stage */

static void heads_first(const double *x, size_t T, size_t h, size_t d, double *y)
{
    for (size_t head = 0; head < h; head++)
        for (size_t t = 0; t < T; t++, y += d)
            memcpy(y, x + (t * h + head) * d, d * sizeof *y);
}

static void run_row(mha__dialect_bench *w, const mha__dialect *d, mha_stage stage, size_t b, double *y, size_t n)
{
    const mha_case *c = w->c;
    const double *rows[3];
    mha__dialect_rows(w, d, b, rows);
    if (c->kind == CASE_ROPE) {
        memcpy(y, w->split[0], n * sizeof *y);
        return;
    }
    switch (stage) {
    case MHA_STAGE_Q:
    case MHA_STAGE_K:
    case MHA_STAGE_V: memcpy(y, rows[stage - MHA_STAGE_Q], n * sizeof *y); return;
    case MHA_STAGE_Q_ROT:
    case MHA_STAGE_K_ROT: memcpy(y, w->split[stage - MHA_STAGE_Q_ROT], n * sizeof *y); return;
    default: break;
    }
    gather_keys(w, b);
    if (stage == MHA_STAGE_PRESENT_KEY || stage == MHA_STAGE_PRESENT_VALUE) {
        bool values = stage == MHA_STAGE_PRESENT_VALUE;
        heads_first(values ? w->values : w->keys, w->S, c->H_kv, values ? c->d_v : c->d_k, y);
        return;
    }
    score(w, d, b, stage);
    if (stage == MHA_STAGE_SCORES || stage == MHA_STAGE_CAPPED || stage == MHA_STAGE_MASKED) {
        memcpy(y, w->scores, n * sizeof *y);
        return;
    }
    weigh(w, d);
    if (stage == MHA_STAGE_WEIGHTS)
        memcpy(y, w->scores, n * sizeof *y);
    else if (stage == MHA_STAGE_LSE)
        memcpy(y, w->lse, n * sizeof *y);
    else if (stage == MHA_STAGE_WEIGHTS_MEAN)
        for (size_t e = 0; e < n; e++) {
            y[e] = 0;
            for (size_t h = 0; h < c->H; h++)
                y[e] += w->scores[h * n + e] / (double)c->H;
        }
    else {
        sum_values(w, d);
        if (stage == MHA_STAGE_HEADS)
            memcpy(y, w->merged, n * sizeof *y);
        else
            project_out(w, d, y);
    }
}

void mha__dialect_run(mha__dialect_bench *bench, const mha__dialect *dialect, mha_stage stage, size_t from, size_t count,
                     double *result)
{
    size_t shape[4], n = 1;
    int rank = mha__dialect_shape(bench, stage, shape);
    for (int k = 1; k < rank; k++)
        n *= shape[k];
    for (size_t b = from; b < from + count; b++, result += n)
        run_row(bench, dialect, stage, b, result, n);
}
