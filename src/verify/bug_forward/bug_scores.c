/* The scores of a bug: products, scale, softcap, masks and added terms. */
#include <math.h>

#include "base/dot.h"
#include "verify/bug_forward/bug_bench.h"

static double capped(const mha__knobs *k, double s)
{
    if (!(k->s.softmax.softcap > 0))
        return s;
    double t = tanh(k->cap_no_divisor ? s : s / k->s.softmax.softcap);
    t = k->cap_twice ? tanh(t) : t;
    return k->cap_no_factor ? t : k->s.softmax.softcap * t;
}

/* The score at `stage` of one query and key, from its product q.k; *visible says whether it enters the softmax. */
static double score_of(const mha__knobs *k, double scale, double product, bool real,
                       const mha__key_visibility *visibility, mha_stage stage, unsigned char *visible)
{
    const bool hidden = visibility->hidden == VISIBLE_HIDDEN;
    product += visibility->early;
    double s = k->cap_before_scale ? capped(k, product) * scale : product * scale;
    if (k->absolute)
        s = fabs(s);
    if (k->most_score > 0)
        s = fmax(fmin(s, k->most_score), -k->most_score);
    if (k->shortened & ROUNDS_SCORES)
        s = mha__bug_shortened(s, k->shortened_to);
    *visible = hidden ? 0 : visibility->hidden == VISIBLE_LATE ? KEEPS_NO_WEIGHT : 1;
    if (stage == MHA_STAGE_SCORES)
        return s;
    if (!k->cap_before_scale && !k->cap_after_mask)
        s = capped(k, s);
    if (stage != MHA_STAGE_CAPPED) {
        const bool fill = hidden && k->fill != FILL_EXCLUDE && real;
        if (fill && k->fill == FILL_REPLACE)
            s = k->fill_value;
        else if (fill)
            s = (double)((float)(s + visibility->added) + (float)k->fill_value);
        else
            s = hidden ? -INFINITY : s + visibility->added;
        *visible |= fill;
    }
    if (!k->cap_before_scale && k->cap_after_mask) {
        s = capped(k, s);
        *visible |= hidden && real;
    }
    if (visibility->early == -INFINITY && s == -INFINITY)
        *visible = 0;
    return s;
}

/* What relative terms add to the score of rows q and key. */
static double relative_terms(const mha__bug_inputs *w, const mha__knobs *k, const mha__score_at *at, const double *q,
                             const double *key)
{
    const mha_case *c = w->c;
    const mha_relative *relative = &k->s.added.relative;
    double sum = 0;
    for (int t = MHA_RELATIVE_K; t <= MHA_RELATIVE_Q; t++) {
        const double *table = w->relative[t - MHA_RELATIVE_K];
        const bool of_key = t == MHA_RELATIVE_Q;
        if (!table || k->relative == (of_key ? RELATIVE_NO_Q : RELATIVE_NO_K))
            continue;
        const mha_view *v = &c->weights[CASE_RECORDED][t];
        const size_t row = mha__bug_relative_row(w, k, (mha_weight)t, at), width = v->shape[1];
        if (row >= v->shape[0])
            continue;
        const size_t head = width == c->d_k || k->relative == RELATIVE_HEAD_0 ? 0 : at->h;
        const double given = of_key ? relative->q_scale : relative->k_scale;
        double scale = given != 0 ? given : k->s.softmax.scale;
        if (k->relative_scale != RELATIVE_SCALE_RIGHT)
            scale = k->relative_scale == RELATIVE_SCALE_TWICE ? scale * k->s.softmax.scale
                    : k->relative_scale == RELATIVE_SCALE_ONE ? 1
                                                              : 1 / sqrt((double)c->d_k);
        const double *x = of_key ? key : q, *y = table + row * width + head * c->d_k;
        double product = k->round_weights == ROUND_NOT ? mha__dot(x, y, c->d_k) : 0;
        for (size_t f = 0; f < c->d_k && k->round_weights != ROUND_NOT; f++)
            product += x[f] * mha__bug_rounded(y[f], k->round_weights);
        sum += scale * product;
    }
    return sum;
}

/* The query row under a head among those whose visibilities are kept. */
static size_t said_row(const mha__bug_bench *w, size_t b, size_t h, size_t i)
{
    const size_t heads = w->said.heads;
    return (b * heads + (heads > 1 ? h : 0)) * w->inputs->c->T_q + i;
}

/* Where the visibilities of a query row under a head are. */
static mha__key_visibility *visibility_of(const mha__bug_bench *w, size_t b, size_t h, size_t i)
{
    const size_t S = w->inputs->S;
    return w->said.visibilities ? w->said.visibility + said_row(w, b, h, i) * S : w->visibility + i % MHA_BUG_TILE * S;
}

/* Finds the keys that one query row sees under one head, and the terms added to their scores. */
static void see(mha__bug_bench *w, const mha__knobs *k, size_t b, size_t h, size_t i)
{
    const size_t S = w->inputs->S, row = said_row(w, b, h, i);
    mha__key_visibility *visibility = visibility_of(w, b, h, i);
    if (w->said.visibilities && w->said.seen[row])
        return;
    for (size_t j = 0; j < S; j++)
        visibility[j] = mha__bug_look(w->inputs, k, &(mha__score_at){b, h, i, j});
    if (w->said.visibilities)
        w->said.seen[row] = 1;
}

/* The products of a query row with all keys, where the bug has those of the case; else NULL. `key`: the first key
 * of its head, of keys that are `step` apart. */
static const double *products_of(mha__bug_bench *w, const mha__knobs *k, size_t b, size_t h, size_t i, const double *q,
                                 const double *key, size_t step)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S, row = (b * c->H + h) * c->T_q + i;
    if (!w->said.products || k->scored_features != 0)
        return NULL;
    double *products = w->said.product + row * S;
    for (size_t j = 0; j < S && !w->said.multiplied[row]; j++)
        products[j] = mha__dot(q, key + j * step, c->d_k);
    w->said.multiplied[row] = 1;
    return products;
}

/* How many features of q and k are multiplied. */
static size_t scored(const mha_case *c, const mha__knobs *k)
{
    return k->scored_features == 0 ? c->d_k : k->scored_features > 0 ? (size_t)k->scored_features : 0;
}

/* What score_of makes of the scores of a row with n keys, `step` apart, where nothing but the scale and what is added
 * changes them. `products`: those with the keys, or NULL. */
static void score_usual(const mha__bug_bench *w, const double *products, const double *q, const double *key,
                        size_t step, size_t width, double scale, const mha__key_visibility *visibilities, size_t at)
{
    double *scores = w->scores + at;
    unsigned char *visible = w->visible + at;
    for (size_t j = 0; j < w->inputs->S; j++, key += step) {
        const mha__key_visibility *visibility = &visibilities[j];
        if (visibility->hidden == VISIBLE_HIDDEN) {
            scores[j] = -INFINITY;
            visible[j] = 0;
            continue;
        }
        const double product = products ? products[j] : mha__dot(q, key, width);
        const double score = (product + visibility->early) * scale + visibility->added;
        const bool hidden = visibility->early == -INFINITY && score == -INFINITY;
        scores[j] = score;
        visible[j] = hidden ? 0 : visibility->hidden == VISIBLE_LATE ? KEEPS_NO_WEIGHT : 1;
    }
}

/* Computes the scores of one query row under one head; `see` must have been called for them. */
static void score_row(mha__bug_bench *w, const mha__knobs *k, size_t b, size_t h, size_t i, mha_stage stage)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S, all = S + mha__extra_rows(c), at = mha__bug_scores_at(w, h, i);
    const size_t head = mha__bug_kv_head(c, k, k->group_k, h);
    const bool bias = w->inputs->bias_kv[0] != NULL, pads = mha__bug_pads(k, b, i);
    const double *q = w->q + (i * c->H + h) * c->d_k, scale = k->scales ? k->scales[h] : k->s.softmax.scale;
    const mha__key_visibility *visibilities = visibility_of(w, b, h, i);
    /* Most bugs replace a hidden key's score: its product need not be computed. */
    const bool score_hidden =
        stage == MHA_STAGE_SCORES || stage == MHA_STAGE_CAPPED || k->fill == FILL_ADD || k->cap_after_mask;
    const bool usual = !score_hidden && k->fill == FILL_EXCLUDE && !(k->s.softmax.softcap > 0) &&
                       !(k->most_score > 0) && !k->absolute && !(k->shortened & ROUNDS_SCORES) &&
                       k->s.added.relative.rule == MHA_RELATIVE_NONE;
    const double *keys = w->keys + head * c->d_k, *products = products_of(w, k, b, h, i, q, keys, c->H_kv * c->d_k);
    if (usual)
        score_usual(w, products, q, keys, c->H_kv * c->d_k, scored(c, k), scale, visibilities, at);
    for (size_t j = usual ? S : 0; j < all; j++) {
        const bool real = j < S;
        const size_t row = real || bias ? j : S + 1; /* the zero row is stored at S + 1 */
        mha__key_visibility visibility = {.hidden = VISIBLE_SEEN};
        if (real)
            visibility = visibilities[j];
        else if (pads || (row == S + 1 ? !k->s.softmax.zero_row : !k->bias_row))
            visibility.hidden = VISIBLE_HIDDEN;
        if (visibility.hidden == VISIBLE_HIDDEN && !score_hidden && k->fill == FILL_EXCLUDE) {
            w->scores[at + j] = -INFINITY;
            w->visible[at + j] = 0;
            continue;
        }
        const double *key = w->keys + (row * c->H_kv + head) * c->d_k;
        const double product = visibility.hidden == VISIBLE_HIDDEN && !score_hidden ? 0
                               : real && products                                   ? products[j]
                                                                                    : mha__dot(q, key, scored(c, k));
        if (real && k->s.added.relative.rule != MHA_RELATIVE_NONE && visibility.hidden != VISIBLE_HIDDEN)
            visibility.added += relative_terms(w->inputs, k, &(mha__score_at){b, h, i, j}, q, key);
        w->scores[at + j] = score_of(k, scale, product, real, &visibility, stage, &w->visible[at + j]);
    }
}

/* The scores of query rows [from, to). By head, because its keys then stay in the cache. */
static void score_tile(mha__bug_bench *w, const mha__knobs *k, size_t b, size_t from, size_t to, mha_stage stage)
{
    const mha_case *c = w->inputs->c;
    const bool alike = mha__bug_heads_see_alike(k);
    for (size_t i = from; i < to; i++) {
        bool wanted = false;
        for (size_t h = 0; h < c->H; h++)
            wanted |= w->scored[h * c->T_q + i];
        if (wanted && alike)
            see(w, k, b, 0, i);
    }
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = from; i < to; i++) {
            if (!w->scored[h * c->T_q + i])
                continue;
            if (!alike)
                see(w, k, b, h, i);
            score_row(w, k, b, h, i, stage);
        }
}

/* Fills w->scores up to `stage` and w->visible of one batch row. */
void mha__bug_score(mha__bug_bench *w, const mha__knobs *k, size_t b, mha_stage stage)
{
    const size_t T = w->inputs->c->T_q;
    for (size_t from = 0; from < T; from += MHA_BUG_TILE)
        score_tile(w, k, b, from, from + MHA_BUG_TILE < T ? from + MHA_BUG_TILE : T, stage);
}
