/* Scores: products, relative terms, scale, softcap, masks and added terms. */
#include <math.h>

#include "base/dot.h"
#include "verify/engine/runner.h"

enum { TILE = MHA__TILE_ROWS };

/* Mutations of scores, read once for all rows. */
typedef struct scoring {
    const mha__program *p;
    double scale, cap, most;
    int cap_place, cap_way, fill, bits, limits, product; /* product: the type of q.k */
    double fill_value;
    bool absolute, relative;
    size_t turned;           /* tiles of so many queries and keys are transposed */
    size_t features, behind; /* of q and k in products; how many of them if some come after the head, else 0 */
    mha_stage stage;
    const mha__mutation *tile; /* keys with another scale */
} scoring;

static double capped(const scoring *x, double s)
{
    if (!(x->cap > 0))
        return s;
    double t = tanh(x->cap_way == MHA__CAP_NO_DIVISOR ? s : s / x->cap);
    t = x->cap_way == MHA__CAP_TWICE ? tanh(t) : t;
    return x->cap_way == MHA__CAP_NO_FACTOR ? t : x->cap * t;
}

/* Score of one query and key from their product q.k; *visible: 0 if the key does not enter the softmax. */
static double score_of(const scoring *x, double product, bool real, const mha__sight *sight, unsigned char *visible)
{
    const bool hidden = sight->hidden == MHA__KEY_HIDDEN, caps = x->cap_place != MHA__BEFORE_SCALE;
    product = mha__narrowed(product, x->product) + sight->early;
    double s = caps ? product * x->scale : capped(x, product) * x->scale;
    s = x->absolute ? fabs(s) : s;
    s = x->most > 0 && x->limits != MHA__FROM_BELOW ? fmin(s, x->most) : s;
    s = x->most > 0 && x->limits != MHA__FROM_ABOVE ? fmax(s, -x->most) : s;
    s = x->bits ? mha__shortened(s, x->bits) : s;
    *visible = hidden ? 0 : sight->hidden == MHA__KEY_HIDDEN_LATE ? MHA__KEEPS_NO_WEIGHT : 1;
    if (x->stage == MHA_STAGE_SCORES)
        return s;
    if (caps && x->cap_place != MHA__AFTER_MASK)
        s = capped(x, s);
    if (x->stage != MHA_STAGE_CAPPED) {
        const bool fills = hidden && x->fill && real;
        if (fills && x->fill == MHA__FILL_REPLACE)
            s = x->fill_value;
        else if (fills)
            s = (double)((float)(s + sight->added) + (float)x->fill_value);
        else
            s = hidden ? -INFINITY : s + sight->added;
        *visible |= fills;
    }
    if (x->cap_place == MHA__AFTER_MASK) {
        s = capped(x, s);
        *visible |= hidden && real;
    }
    if (sight->early == -INFINITY && s == -INFINITY)
        *visible = 0;
    return s;
}

/* The sum of the relative terms of rows q and key. */
static double relative_terms(const mha__inputs *in, const mha__program *p, const size_t at[4], const double *q,
                             const double *key)
{
    const mha_case *c = in->c;
    const mha_relative *relative = &p->s.added.relative;
    const int how = mha__arg(p, AT_RELATIVE, OP_FROM), scaled = mha__arg(p, AT_RELATIVE, OP_TIMES),
              type = mha__arg(p, AT_W, OP_ROUND);
    double sum = 0;
    for (int t = MHA_RELATIVE_K; t <= MHA_RELATIVE_Q; t++) {
        const double *table = in->weight[t];
        const bool of_key = t == MHA_RELATIVE_Q;
        if (!table || how == (of_key ? MHA__NO_Q : MHA__NO_K))
            continue;
        const mha_view *v = &c->weights[CASE_RECORDED][t];
        const size_t row = mha__relative_at(in, p, (mha_weight)t, at[0], at[2], at[3]), width = v->shape[1];
        if (row >= v->shape[0])
            continue;
        const size_t head = width == c->d_k || how == MHA__HEAD_0 ? 0 : at[1];
        const double given = of_key ? relative->q_scale : relative->k_scale,
                     scale = given != 0 ? given : p->s.softmax.scale,
                     times[] = {scale, scale * p->s.softmax.scale, 1, 1 / sqrt((double)c->d_k)};
        const double *x = of_key ? key : q, *y = table + row * width + head * c->d_k;
        double product = type ? 0 : mha__dot(x, y, c->d_k);
        for (size_t f = 0; f < c->d_k && type; f++)
            product += x[f] * mha__narrowed(y[f], type);
        sum += times[scaled] * product;
    }
    return sum;
}

/* The product of the features after a head of q and after one of a key, up to `features` and the end of memory. */
static double product_behind(const mha__runner *w, size_t features, size_t i, size_t h, size_t j, size_t g)
{
    const mha_case *c = w->in->c;
    const size_t d = c->d_k, query = (i * c->H + h) * d, key = (j * c->H_kv + g) * d;
    double sum = 0;
    for (size_t f = d; f < features && query + f < c->T_q * c->H * d && key + f < w->in->S * c->H_kv * d; f++)
        sum += w->q[query + f] * w->keys[key + f];
    return sum;
}

/* Computes the scores of one query row under one head. */
static void score_row(mha__runner *w, scoring x, size_t b, size_t h, size_t i, const mha__sight *sights)
{
    const mha__inputs *in = w->in;
    const mha_case *c = in->c;
    const size_t S = in->S, all = S + mha__rows_beyond(c), at = mha__scores_at(w, h, i), step = c->H_kv * c->d_k;
    const mha__mutation *scales = mha__mutation_at(x.p, AT_S, OP_TAKE);
    const bool bias = in->weight[MHA_BIAS_K] != NULL, pads = mha__is_padding(x.p, b, i);
    const double *q = w->q + (i * c->H + h) * c->d_k, *keys = w->keys + mha__kv_head(c, x.p, AT_KV_K, h) * c->d_k;
    /* Most programs replace a hidden key's score: its product need not be computed. */
    const bool of_hidden = x.stage == MHA_STAGE_SCORES || x.stage == MHA_STAGE_CAPPED || x.fill == MHA__FILL_ADD ||
                           x.cap_place == MHA__AFTER_MASK;
    const bool usual = !of_hidden && !x.fill && !(x.cap > 0) && !(x.most > 0) && !x.absolute && !x.bits && !x.product &&
                       !x.relative && !x.behind && !x.turned;
    x.scale = scales ? scales->table[h] : x.scale;
    for (size_t j = 0; j < all; j++) {
        const bool real = j < S;
        const size_t row = real || bias ? j : S + 1; /* the zero row is stored at S + 1 */
        mha__sight sight = {.hidden = MHA__KEY_SEEN};
        if (real)
            sight = sights[j];
        else if (pads || (row == S + 1 ? !x.p->s.softmax.zero_row : mha__has(x.p, AT_EXTRA, OP_ZERO)))
            sight.hidden = MHA__KEY_HIDDEN;
        if (sight.hidden == MHA__KEY_HIDDEN && !of_hidden && !x.fill) {
            w->scores[at + j] = -INFINITY;
            w->visible[at + j] = 0;
            continue;
        }
        const double *key = keys + row * step;
        double product = sight.hidden == MHA__KEY_HIDDEN && !of_hidden ? 0 : mha__dot(q, key, x.features);
        if (x.turned && real && i - i % x.turned + x.turned <= c->T_q && j - j % x.turned + x.turned <= S)
            product = mha__dot(w->q + ((i - i % x.turned + j % x.turned) * c->H + h) * c->d_k,
                               keys + (j - j % x.turned + i % x.turned) * step, x.features);
        product += real && x.behind ? product_behind(w, x.behind, i, h, j, mha__kv_head(c, x.p, AT_KV_K, h)) : 0;
        if (real && x.relative && (sight.hidden != MHA__KEY_HIDDEN || x.fill == MHA__FILL_ADD))
            sight.added += relative_terms(in, x.p, (size_t[]){b, h, i, j}, q, key);
        w->scores[at + j] = score_of(&x, product, real, &sight, &w->visible[at + j]);
    }
    for (size_t j = x.tile ? (size_t)MHA__SPAN_FIRST(x.tile) : S; j < S && usual; j++) /* a tile of keys */
        if ((int64_t)j < MHA__SPAN_FIRST(x.tile) + MHA__SPAN_COUNT(x.tile) && w->visible[at + j])
            w->scores[at + j] += (w->scores[at + j] - sights[j].added) * (pow(x.scale, x.tile->number) - 1);
}

void mha__score_rows(mha__runner *w, const mha__program *p, size_t b, mha_stage stage)
{
    const mha_case *c = w->in->c;
    const size_t T = c->T_q, S = w->in->S;
    const mha__mutation *fill = mha__mutation_at(p, AT_Z, OP_FILL);
    const bool narrow = mha__arg(p, AT_S, OP_BITS) == MHA__BEFORE_SCALE;
    const double features = mha__number(p, AT_S, OP_KEEP, (double)c->d_k);
    const scoring x = {.p = p,
                       .scale = p->s.softmax.scale,
                       .cap = p->s.softmax.softcap,
                       .most = mha__number(p, AT_S, OP_LIMIT, 0),
                       .limits = mha__arg(p, AT_S, OP_LIMIT),
                       .cap_place = mha__arg(p, AT_CAP, OP_MOVE),
                       .cap_way = mha__arg(p, AT_CAP, OP_FN),
                       .fill = fill ? fill->arg : 0,
                       .fill_value = fill ? fill->number : 0,
                       .bits = narrow ? 0 : (int)mha__number(p, AT_S, OP_BITS, 0),
                       .product = narrow ? MHA__TO_F16 : 0,
                       .absolute = mha__has(p, AT_S, OP_FN),
                       .relative = p->s.added.relative.rule != MHA_RELATIVE_NONE,
                       .features = (size_t)fmin(features, (double)c->d_k),
                       .behind = features > (double)c->d_k ? (size_t)features : 0,
                       .stage = stage,
                       .turned = (size_t)mha__step(p, AT_S, OP_FROM, 0),
                       .tile = mha__mutation_at(p, AT_S, OP_FILL)};
    const bool alike = mha__heads_see_alike(p);
    for (size_t from = 0; from < T; from += TILE) {
        const size_t end = from + TILE < T ? from + TILE : T;
        for (size_t i = from; i < end && alike; i++) {
            size_t h = 0;
            while (h < c->H && !w->scored[h * T + i])
                h++;
            if (h < c->H)
                mha__see(w->in, p, b, 0, i, w->sight + (i - from) * S);
        }
        for (size_t h = 0; h < c->H; h++)
            for (size_t i = from; i < end; i++) { /* by head, so that its keys stay in the CPU cache */
                mha__sight *sight = w->sight + (alike ? i - from : 0) * S;
                if (!w->scored[h * T + i])
                    continue;
                if (!alike)
                    mha__see(w->in, p, b, h, i, sight);
                score_row(w, x, b, h, i, sight);
            }
    }
}
