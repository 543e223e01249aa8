/* A backward in float32, loop by loop, with one mistake if a name is given. It shares nothing with src. */
#include "support/float_backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One head of one batch row. */
typedef struct head {
    const float_backward *f;
    const char *mistake;
    bool known; /* the mistake has been met */
    size_t b, i, g;
    float Q[FB_MOST][64], K[FB_MOST][64];
    float s[FB_MOST][FB_MOST], P[FB_MOST][FB_MOST], dP[FB_MOST][FB_MOST], dS[FB_MOST][FB_MOST], dZ[FB_MOST][FB_MOST];
    bool seen[FB_MOST][FB_MOST], back[FB_MOST][FB_MOST]; /* by the forward, by the backward */
    float lse[FB_MOST], D[FB_MOST], dlse[FB_MOST];
    float all_lse[8][FB_MOST], all_D[8][FB_MOST], first_D[8][FB_MOST]; /* of each head: of this batch row,
                                                                              * of the first */
    float dO[FB_MOST][64];
    float dQ[FB_MOST][64], dK[FB_MOST][64], dV[FB_MOST][64];
} head;

static bool is(head *x, const char *name)
{
    const bool found = strcmp(x->mistake, name) == 0;
    x->known |= found;
    return found;
}

/* Turns a row by the angles of its position, forward or back. */
static void turn(float *x, size_t d, size_t position, float sign)
{
    for (size_t c = 0; c < d / 2; c++) {
        const double a = (double)position * pow(10000, -2.0 * (double)c / (double)d);
        const float one = x[c], two = x[c + d / 2], co = (float)cos(a), si = sign * (float)sin(a);
        x[c] = one * co - two * si;
        x[c + d / 2] = two * co + one * si;
    }
}

/* A row over its root mean square, times weights. */
static void normalise(float *x, size_t d, const float *weights)
{
    float sum = 0;
    for (size_t c = 0; c < d; c++)
        sum += x[c] * x[c];
    const float r = sqrtf(sum / (float)d + 1e-5f);
    for (size_t c = 0; c < d; c++)
        x[c] = x[c] / r * weights[c];
}

/* The gradient of such a row as that of the numbers it was made of. */
static void normalise_back(float *dx, const float *x, size_t d, const float *weights, bool second)
{
    float sum = 0, along = 0;
    for (size_t c = 0; c < d; c++)
        sum += x[c] * x[c], along += dx[c] * weights[c] * x[c];
    const float r = sqrtf(sum / (float)d + 1e-5f);
    for (size_t c = 0; c < d; c++)
        dx[c] = dx[c] * weights[c] / r - (second ? x[c] * along / (r * r * r * (float)d) : 0);
}

static bool sees(const head *x, size_t t, size_t j, int more_right, int more_left, bool causal, bool window,
                 bool length)
{
    const float_backward *f = x->f;
    const long i = (long)t, k = (long)j;
    if (length && f->lengths && (int64_t)j >= f->lengths[x->b])
        return false;
    if (causal && f->causal && k > i + (long)f->offset + more_right)
        return false;
    return !(window && f->window_left >= 0 && k < i - f->window_left - more_left);
}

static void forward(head *x)
{
    const float_backward *f = x->f;
    for (size_t t = 0; t < f->T; t++)
        memcpy(x->Q[t], f->q + ((x->b * f->T + t) * f->h + x->i) * f->d_k, f->d_k * sizeof(float));
    for (size_t j = 0; j < f->S; j++)
        memcpy(x->K[j], f->k + ((x->b * f->S + j) * f->h_kv + x->g) * f->d_k, f->d_k * sizeof(float));
    for (size_t t = 0; f->norms && t < f->T; t++)
        normalise(x->Q[t], f->d_k, f->norms);
    for (size_t j = 0; f->norms && j < f->S; j++)
        normalise(x->K[j], f->d_k, f->norms + f->d_k);
    for (size_t t = 0; f->rope && t < f->T; t++)
        turn(x->Q[t], f->d_k, t, 1);
    for (size_t j = 0; f->rope && j < f->S; j++)
        turn(x->K[j], f->d_k, j, 1);
    for (size_t t = 0; t < f->T; t++) {
        float most = f->sinks ? f->sinks[x->i] : -INFINITY, sum = 0;
        for (size_t j = 0; j < f->S; j++) {
            float s = 0;
            for (size_t c = 0; c < f->d_k; c++)
                s += x->Q[t][c] * x->K[j][c];
            x->s[t][j] = s *= f->scale;
            s = f->softcap > 0 ? f->softcap * tanhf(s / f->softcap) : s;
            s += f->mask ? f->mask[t * f->S + j] : 0;
            s -= f->slopes ? f->slopes[x->i] * ((float)t - (float)j) : 0;
            x->seen[t][j] = sees(x, t, j, 0, 0, true, true, true) && s > -INFINITY;
            x->P[t][j] = s;
            most = x->seen[t][j] && s > most ? s : most;
        }
        for (size_t j = 0; j < f->S; j++)
            sum += x->seen[t][j] ? expf(x->P[t][j] - most) : 0;
        sum += f->sinks ? expf(f->sinks[x->i] - most) : 0;
        x->lse[t] = most + logf(sum);
        for (size_t j = 0; j < f->S; j++)
            x->P[t][j] = x->seen[t][j] ? expf(x->P[t][j] - most) / sum : 0;
    }
    memcpy(x->all_lse[x->i], x->lse, sizeof x->lse);
}

static float largest(const float *P, size_t n)
{
    float most = 0;
    for (size_t j = 0; j < n; j++)
        most = fmaxf(most, P[j]);
    return most > 0 ? most : 1;
}

/* Without the weights, or their mean. */
static float sum_of_dp(const head *x, size_t t, bool mean)
{
    const float_backward *f = x->f;
    float sum = 0, count = 0;
    for (size_t j = 0; j < f->S; j++)
        for (size_t c = 0; x->seen[t][j] && c < f->d_v; c++)
            sum += x->dO[t][c] * f->v[((x->b * f->S + j) * f->h_kv + x->g) * f->d_v + c], count += c == 0;
    return mean ? sum / count : sum;
}

/* dO of query t, as the kernel reads it, and D = rowsum(dO O). */
static void sums(head *x)
{
    const float_backward *f = x->f;
    const float *dO = f->dO + x->b * f->T * f->h * f->d_v;
    for (size_t t = 0; t < f->T; t++) {
        const size_t row = is(x, "do-of-other-order-time") ? x->i * f->T + t : t * f->h + x->i;
        const size_t turned = (t * f->h + x->i) % f->T * f->h + (t * f->h + x->i) / f->T;
        const float *from = dO + (is(x, "do-of-other-order-heads") ? turned : row) * f->d_v;
        memcpy(x->dO[t], from, f->d_v * sizeof(float));
        x->dlse[t] = f->dlse ? f->dlse[(x->b * f->h + x->i) * f->T + t] : 0;
        x->D[t] = 0;
        for (size_t c = 0; c < f->d_v; c++) {
            float O = 0;
            for (size_t j = 0; j < f->S; j++)
                O += x->P[t][j] * (x->seen[t][j] ? f->v[((x->b * f->S + j) * f->h_kv + x->g) * f->d_v + c] : 0);
            if (is(x, "output-in-bfloat16"))
                O = mha_bf16_to_f32(mha_f32_to_bf16(O));
            if (is(x, "output-in-float16"))
                O = mha_f16_to_f32(mha_f32_to_f16(O));
            x->D[t] += x->dO[t][c] * O;
        }
    }
    float D[FB_MOST];
    memcpy(D, x->D, sizeof D);
    memcpy(x->all_D[x->i], D, sizeof D);
    if (x->b == 0)
        memcpy(x->first_D[x->i], D, sizeof D);
    for (size_t t = 0; t < f->T; t++) {
        x->D[t] *= is(x, "d-missing") ? 0 : is(x, "d-added") ? -1 : is(x, "d-twice") ? 2 : 1;
        x->D[t] *= is(x, "d-scaled") ? f->scale : 1;
        x->D[t] /= is(x, "d-mean") ? (float)f->d_v : 1;
        x->D[t] += is(x, "d-unknown") ? 0.3f * (float)(t % 5) - 0.7f : 0;
        if (is(x, "d-of-next-query"))
            x->D[t] = D[(t + 1) % f->T];
        if (is(x, "d-of-previous-query"))
            x->D[t] = D[(t + f->T - 1) % f->T];
        if (is(x, "d-of-first-batch-row") && x->b > 0)
            x->D[t] = x->first_D[x->i][t];
        if (is(x, "d-unnormalised"))
            x->D[t] /= largest(x->P[t], f->S);
        if (is(x, "d-unweighted") || is(x, "d-mean-of-dp"))
            x->D[t] = sum_of_dp(x, t, is(x, "d-mean-of-dp"));
        if (is(x, "d-of-next-head"))
            x->D[t] = x->all_D[(x->i + 1) % f->h][t];
        if (is(x, "d-of-other-order"))
            x->D[t] = x->all_D[(t * f->h + x->i) / f->T][(t * f->h + x->i) % f->T];
        x->dlse[t] *= is(x, "dlse-dropped") ? 0 : is(x, "dlse-subtracted") ? -1 : 1;
    }
}

/* Whether a mistake by blocks shows a key. */
static bool shows_block(head *x, size_t t, size_t j)
{
    static const size_t blocks[] = {16, 32, 64, 128};
    for (size_t n = 0; n < 4; n++) {
        char name[40];
        snprintf(name, sizeof name, "causal-by-blocks-%zu", blocks[n]);
        if (is(x, name) && x->f->causal && j / blocks[n] <= (t + x->f->offset) / blocks[n])
            return true;
    }
    return false;
}

/* P from scores and lse. */
static void weights(head *x)
{
    const float_backward *f = x->f;
    float lse[FB_MOST];
    memcpy(lse, x->lse, sizeof lse);
    for (size_t t = 0; t < f->T; t++) {
        float of_keys = 0;
        for (size_t j = 0; j < f->S; j++)
            of_keys += x->P[t][j];
        lse[t] = is(x, "lse-without-sinks")       ? x->lse[t] + logf(of_keys)
                 : is(x, "lse-in-base-2")         ? x->lse[t] * 1.44269504f
                 : is(x, "lse-taken-for-base-2")  ? x->lse[t] * 0.693147181f
                 : is(x, "lse-missing")           ? 0
                 : is(x, "queries-missing")       ? (t % 4 == 1 ? INFINITY : x->lse[t])
                 : is(x, "lse-unknown")           ? x->lse[t] + 0.1f * (float)(t % 7) - 0.25f
                 : is(x, "lse-of-next-query")     ? x->lse[(t + 1) % f->T]
                 : is(x, "lse-of-previous-query") ? x->lse[(t + f->T - 1) % f->T]
                 : is(x, "lse-is-maximum")        ? x->lse[t] + logf(largest(x->P[t], f->S))
                 : is(x, "lse-without-maximum")   ? -logf(largest(x->P[t], f->S))
                 : is(x, "lse-of-next-head")      ? x->all_lse[(x->i + 1) % f->h][t]
                 : is(x, "lse-of-other-order")
                     ? x->all_lse[(t * f->h + x->i) / f->T][(t * f->h + x->i) % f->T]
                                                  : x->lse[t];
        for (size_t j = 0; j < f->S; j++) {
            float s = x->s[t][j];
            if (f->softcap > 0 && !is(x, "softcap-not-recomputed"))
                s = f->softcap * tanhf(s / f->softcap);
            const size_t masked = is(x, "mask-transposed") && f->T == f->S ? j * f->S + t : t * f->S + j;
            const bool unmasked = is(x, "mask-missing") && !f->dmask; /* one of flags */
            if (!is(x, "added-not-recomputed")) {
                s += f->mask && !unmasked ? f->mask[masked] : 0;
                s -= f->slopes ? f->slopes[x->i] * ((float)t - (float)j) : 0;
            }
            const int right = is(x, "causal-one-more") ? 1 : is(x, "causal-strict") ? -1 : 0,
                      left = is(x, "window-one-more") ? 1 : is(x, "window-one-less") ? -1 : 0;
            x->back[t][j] = f->slopes ? x->seen[t][j]
                                      : sees(x, t, j, right, left, !is(x, "causal-missing"), !is(x, "window-missing"),
                                             !is(x, "lengths-missing")) && s > -INFINITY;
            const long aside = is(x, "causal-bottom-right") ? (long)f->S - (long)f->T : 0;
            if (is(x, "causal-top-left") || is(x, "causal-bottom-right"))
                x->back[t][j] = f->causal ? (long)j <= (long)t + aside : x->back[t][j];
            if (shows_block(x, t, j))
                x->back[t][j] = true;
            x->back[t][j] = x->back[t][j] && x->lse[t] > -INFINITY;
            if (f->mask && !unmasked && f->mask[masked] == -INFINITY)
                x->back[t][j] = false;
            x->P[t][j] = !x->back[t][j] ? 0 : is(x, "weights-in-base-2") ? exp2f(s - lse[t]) : expf(s - lse[t]);
        }
    }
}

/* Where row j of keys or values is read: of a mistake "...16" that of the block of 16 before, if there is one. */
static size_t stale(head *x, size_t j, const char *mistake)
{
    static const size_t blocks[] = {16, 32, 64, 128};
    for (size_t n = 0; n < 4; n++) {
        char name[40];
        snprintf(name, sizeof name, "%s%zu", mistake, blocks[n]);
        if (is(x, name) && j >= blocks[n])
            return j - blocks[n];
    }
    return j;
}

static void scores(head *x)
{
    const float_backward *f = x->f;
    for (size_t t = 0; t < f->T; t++)
        for (size_t j = 0; j < f->S; j++) {
            float dP = 0;
            const size_t read = stale(x, j, "stale-values-");
            const bool all = is(x, "heads-by-remainder") && !f->rope && !f->norms;
            const size_t g = is(x, "values-by-remainder") || all ? x->i % f->h_kv : x->g;
            for (size_t c = 0; x->back[t][j] && c < f->d_v; c++)
                dP += x->dO[t][c] * f->v[((x->b * f->S + read) * f->h_kv + g) * f->d_v + c];
            const float moved = dP - x->D[t] + x->dlse[t];
            x->dZ[t][j] = !x->back[t][j] ? 0 : is(x, "weights-missing-in-ds") ? moved : x->P[t][j] * moved;
            if (is(x, "softmax-diagonal"))
                x->dZ[t][j] = x->P[t][j] * (1 - x->P[t][j]) * dP;
            if (is(x, "d-outside-weights") && x->back[t][j])
                x->dZ[t][j] = x->P[t][j] * (dP + x->dlse[t]) - x->D[t];
            const float tanh_s = f->softcap > 0 ? tanhf(x->s[t][j] / f->softcap) : 0;
            float slope = 1 - tanh_s * tanh_s;
            if (is(x, "softcap-slope-missing"))
                slope = 1;
            if (is(x, "softcap-slope-of-capped"))
                slope = 1 - tanhf(tanh_s) * tanhf(tanh_s);
            if (is(x, "softcap-slope-unsquared"))
                slope = 1 - tanh_s;
            const float cap = f->softcap > 0 ? f->softcap : 1;
            slope *= is(x, "softcap-slope-times-cap") ? cap : is(x, "softcap-slope-over-cap") ? 1 / cap : 1;
            if (is(x, "softcap-slope-undivided") && f->softcap > 0)
                slope = 1 - tanhf(x->s[t][j]) * tanhf(x->s[t][j]);
            const float capped = cap * tanh_s;
            slope = is(x, "softcap-slope-plus")                ? 1 + tanh_s * tanh_s
                    : is(x, "softcap-slope-of-capped-squared") ? 1 - capped * capped
                    : is(x, "softcap-slope-twice")             ? slope * slope
                    : is(x, "softcap-slope-root")              ? sqrtf(slope)
                                                               : slope;
            x->dS[t][j] = x->dZ[t][j] * slope;
        }
}

/* Whether the block of a key counts twice in dQ. */
static bool is_twice(head *x, size_t j)
{
    static const size_t blocks[] = {16, 32, 64, 128};
    bool twice = false;
    for (size_t n = 0; n < sizeof blocks / sizeof *blocks; n++) {
        char name[32];
        snprintf(name, sizeof name, "blocks-miscounted-%zu", blocks[n]);
        twice |= is(x, name) && j < blocks[n] && blocks[n] < x->f->S;
    }
    return twice;
}

/* Whether a pair counts in dQ, or in dK and dV. */
static bool counts(head *x, size_t t, size_t j, bool of_q)
{
    static const size_t blocks[] = {16, 32, 64, 128};
    static const char *const queries[] = {"tail-queries-missing-16", "tail-queries-missing-32",
                                          "tail-queries-missing-64", "tail-queries-missing-128"},
                            *const keys[] = {"tail-keys-missing-16", "tail-keys-missing-32", "tail-keys-missing-64",
                                             "tail-keys-missing-128"},
                            *const early[] = {"dk-dv-of-last-block-16", "dk-dv-of-last-block-32",
                                              "dk-dv-of-last-block-64", "dk-dv-of-last-block-128"},
                            *const lost[] = {"dq-of-last-block-16", "dq-of-last-block-32", "dq-of-last-block-64",
                                             "dq-of-last-block-128"};
    for (size_t n = 0; n < 4; n++) {
        if (is(x, queries[n]) && !of_q && x->f->T > blocks[n] && t >= x->f->T / blocks[n] * blocks[n])
            return false;
        if (is(x, keys[n]) && of_q && x->f->S > blocks[n] && j >= x->f->S / blocks[n] * blocks[n])
            return false;
        if (is(x, early[n]) && !of_q && t < (x->f->T - 1) / blocks[n] * blocks[n])
            return false;
        if (is(x, lost[n]) && of_q && j < (x->f->S - 1) / blocks[n] * blocks[n])
            return false;
    }
    return true;
}

static void products(head *x)
{
    const float_backward *f = x->f;
    float q_scale = f->scale, k_scale = f->scale, v_scale = 1;
    q_scale *= is(x, "scale-missing") || is(x, "scale-missing-dq") ? 1 / f->scale : 1;
    k_scale *= is(x, "scale-missing") || is(x, "scale-missing-dk") ? 1 / f->scale : 1;
    q_scale *= is(x, "scale-twice") || is(x, "scale-twice-dq") ? f->scale : 1;
    k_scale *= is(x, "scale-twice") || is(x, "scale-twice-dk") ? f->scale : 1;
    if (is(x, "scale-default"))
        q_scale = k_scale = 1 / sqrtf((float)f->d_k);
    if (is(x, "scale-of-values"))
        q_scale = k_scale = 1 / sqrtf((float)f->d_v);
    if (is(x, "scale-times-log2e"))
        q_scale *= 1.44269504f, k_scale *= 1.44269504f;
    if (is(x, "scale-times-ln2"))
        q_scale *= 0.693147181f, k_scale *= 0.693147181f;
    if (is(x, "scale-root"))
        q_scale = k_scale = sqrtf(f->scale);
    v_scale *= is(x, "dv-scaled") ? f->scale : 1;
    q_scale *= is(x, "dq-twice") ? 2 : is(x, "dq-zero") ? 0 : 1;
    k_scale *= is(x, "dk-dv-twice") ? 2 : is(x, "dk-zero") ? 0 : 1;
    v_scale *= is(x, "dk-dv-twice") ? 2 : is(x, "dv-zero") ? 0 : 1;
    const float all = is(x, "all-negated") ? -1 : is(x, "all-over-batch") ? 1 / (float)f->B : 1;
    q_scale *= all * (is(x, "dq-negated") ? -1 : is(x, "dq-half") ? 0.5f : 1);
    k_scale *= all * (is(x, "dk-negated") ? -1 : 1);
    v_scale *= all * (is(x, "dv-negated") ? -1 : 1);
    if (is(x, "group-mean"))
        k_scale *= (float)f->h_kv / (float)f->h, v_scale *= (float)f->h_kv / (float)f->h;
    k_scale *= is(x, "group-mean-dk") ? (float)f->h_kv / (float)f->h : 1;
    v_scale *= is(x, "group-mean-dv") ? (float)f->h_kv / (float)f->h : 1;
    memset(x->dQ, 0, sizeof x->dQ), memset(x->dK, 0, sizeof x->dK), memset(x->dV, 0, sizeof x->dV);
    const bool square = f->T == f->S && f->h == f->h_kv, k_turned = is(x, "dk-untransposed") && square,
               v_turned = is(x, "dv-untransposed") && square;
    for (size_t t = 0; t < f->T; t++) {
        float most = 1;
        if (is(x, "dv-unnormalised"))
            most = largest(x->P[t], f->S);
        for (size_t j = 0; j < f->S; j++) {
            const bool in_q = counts(x, t, j, true), in_kv = counts(x, t, j, false);
            const size_t read = stale(x, j, "stale-keys-");
            const bool plain = !f->rope && !f->norms; /* f->k is as it is attended to */
            const float *k = plain && (is(x, "keys-by-remainder") || is(x, "heads-by-remainder"))
                                 ? f->k + ((x->b * f->S + j) * f->h_kv + x->i % f->h_kv) * f->d_k : x->K[read];
            const float times = is_twice(x, j) ? 2 : 1;
            for (size_t c = 0; c < f->d_k && in_q; c++)
                x->dQ[t][c] += times * q_scale * x->dS[t][j] * k[c];
            for (size_t c = 0; c < f->d_k && in_kv; c++)
                if (k_turned)
                    x->dK[t][c] += k_scale * x->dS[t][j] * x->Q[j][c];
                else
                    x->dK[j][c] += k_scale * x->dS[t][j] * x->Q[t][c];
            for (size_t c = 0; c < f->d_v && in_kv; c++)
                if (v_turned)
                    x->dV[t][c] += v_scale * x->P[t][j] * x->dO[j][c];
                else
                    x->dV[j][c] += v_scale * x->P[t][j] / most * x->dO[t][c];
        }
    }
}

/* Rotates back, and adds to the gradients of all heads. */
static void gather(head *x)
{
    const float_backward *f = x->f;
    const bool none = is(x, "rope-not-turned-back"), second = !is(x, "norm-second-term-missing");
    const float sign = is(x, "rope-turned-forward") ? 1 : -1, q_sign = is(x, "rope-dq-turned-forward") ? 1 : sign,
                k_sign = is(x, "rope-dk-turned-forward") ? 1 : sign;
    const size_t group = f->h / f->h_kv, g = is(x, "group-by-remainder") ? x->i % f->h_kv : x->g;
    for (size_t t = 0; t < f->T; t++) {
        if (f->rope && !none && !is(x, "rope-dq-not-turned-back"))
            turn(x->dQ[t], f->d_k, t, q_sign);
        if (f->norms)
            normalise_back(x->dQ[t], f->q + ((x->b * f->T + t) * f->h + x->i) * f->d_k, f->d_k, f->norms, second);
        memcpy(f->dq + ((x->b * f->T + t) * f->h + x->i) * f->d_k, x->dQ[t], f->d_k * sizeof(float));
    }
    for (size_t j = 0; j < f->S; j++) {
        float *dk = f->dk + ((x->b * f->S + j) * f->h_kv + g) * f->d_k,
              *dv = f->dv + ((x->b * f->S + j) * f->h_kv + g) * f->d_v;
        if (f->rope && !none && !is(x, "rope-dk-not-turned-back"))
            turn(x->dK[j], f->d_k, j, k_sign);
        if (f->norms)
            normalise_back(x->dK[j], f->k + ((x->b * f->S + j) * f->h_kv + g) * f->d_k, f->d_k, f->norms + f->d_k,
                           second);
        const bool last = x->i % group == group - 1, first = x->i % group == 0;
        const bool drops_k = (is(x, "group-last") && !last) || (is(x, "group-first") && !first) ||
                             (is(x, "group-last-dk") && !last),
                   drops_v = (is(x, "group-last") && !last) || (is(x, "group-first") && !first) ||
                             (is(x, "group-last-dv") && !last);
        for (size_t c = 0; c < f->d_k && !drops_k; c++)
            dk[c] += x->dK[j][c];
        for (size_t c = 0; c < f->d_v && !drops_v; c++)
            dv[c] += x->dV[j][c];
    }
}

static void added(head *x)
{
    const float_backward *f = x->f;
    const float m = is(x, "mask-zero") ? 0 : is(x, "mask-scaled") ? f->scale
                    : is(x, "mask-mean") ? 1 / (float)(f->B * f->h) : 1;
    const float a = is(x, "alibi-slopes-negated") ? 1 : -1,
                s = is(x, "sinks-zero") ? 0 : is(x, "sinks-negated") ? -1 : 1;
    if (f->dmask && (is(x, "mask-overwritten") || (is(x, "mask-of-last-batch-row") && x->i == 0)))
        memset(f->dmask, 0, f->T * f->S * sizeof(float));
    if (f->dsinks && is(x, "sinks-overwritten"))
        f->dsinks[x->i] = 0;
    if (f->dslopes && is(x, "alibi-slopes-overwritten"))
        f->dslopes[x->i] = 0;
    for (size_t t = 0; t < f->T; t++) {
        for (size_t j = 0; j < f->S; j++) {
            if ((is(x, "added-of-first-batch-row") && x->b > 0) || (is(x, "added-of-first-head") && x->i > 0) ||
                (is(x, "added-of-last-head") && x->i + 1 < f->h))
                continue;
            if (f->dmask)
                f->dmask[t * f->S + j] += m * x->dZ[t][j];
            if (f->dslopes)
                f->dslopes[x->i] += a * ((float)t - (float)j) * x->dZ[t][j];
        }
        if (f->dsinks)
            f->dsinks[x->i] += s * expf(f->sinks[x->i] - x->lse[t]) * (x->dlse[t] - x->D[t]);
        bool empty = true;
        for (size_t j = 0; j < f->S; j++)
            empty = empty && !x->seen[t][j];
        const bool everywhere = is(x, "empty-rows-nan-everywhere");
        for (size_t c = 0; empty && (is(x, "empty-rows-nan") || everywhere) && c < f->d_k; c++)
            x->dQ[t][c] = NAN;
        for (size_t e = 0; empty && everywhere && e < f->S * 64; e++)
            x->dK[e / 64][e % 64] = x->dV[e / 64][e % 64] = NAN;
    }
}

static void exchange(float *x, float *y, size_t n)
{
    for (size_t e = 0; e < n; e++) {
        const float kept = x[e];
        x[e] = y[e], y[e] = kept;
    }
}

bool float_backward_run(const float_backward *f, const char *mistake)
{
    head *x = calloc(1, sizeof *x);
    if (!x)
        abort();
    x->f = f, x->mistake = mistake, x->known = *mistake == '\0';
    memset(f->dk, 0, f->B * f->S * f->h_kv * f->d_k * sizeof(float));
    memset(f->dv, 0, f->B * f->S * f->h_kv * f->d_v * sizeof(float));
    if (f->dmask)
        memset(f->dmask, 0, f->T * f->S * sizeof(float));
    if (f->dslopes)
        memset(f->dslopes, 0, f->h * sizeof(float));
    if (f->dsinks)
        memset(f->dsinks, 0, f->h * sizeof(float));
    for (x->b = 0; x->b < f->B; x->b++) {
        for (x->i = 0; x->i < f->h; x->i++) { /* for who reads what another head has */
            x->g = x->i / (f->h / f->h_kv);
            forward(x);
            sums(x);
        }
        for (x->i = 0; x->i < f->h; x->i++) {
            x->g = x->i / (f->h / f->h_kv);
            forward(x);
            sums(x);
            weights(x);
            scores(x);
            products(x);
            added(x);
            gather(x);
        }
    }
    const size_t n = f->B * f->T * f->h * f->d_k;
    if (is(x, "dq-dk-exchanged") && f->T == f->S && f->h == f->h_kv)
        exchange(f->dq, f->dk, n);
    if (is(x, "dk-dv-exchanged") && f->d_k == f->d_v)
        exchange(f->dk, f->dv, f->B * f->S * f->h_kv * f->d_k);
    const bool known = x->known;
    free(x);
    return known;
}
