/* A backward in float32: dQ, dK and dV, the gradients of what is added, and rows back to what was given. */
#include <math.h>
#include <string.h>

#include "support/float_parts.h"

/* ---------------------------------------------------------------- products */

/* Whether a pair counts in dQ, or in dK and dV. */
static bool counts(float_head *x, size_t t, size_t j, bool of_q)
{
    const size_t T = x->f->T, S = x->f->S, tail_q = float_is_of_block(x, "tail-queries-missing"),
                 tail_k = float_is_of_block(x, "tail-keys-missing"),
                 late_q = float_is_of_block(x, "dk-dv-of-last-block"),
                 late_k = float_is_of_block(x, "dq-of-last-block");
    return !(tail_q > 0 && !of_q && T > tail_q && t >= T / tail_q * tail_q) &&
           !(tail_k > 0 && of_q && S > tail_k && j >= S / tail_k * tail_k) &&
           !(late_q > 0 && !of_q && t < (T - 1) / late_q * late_q) &&
           !(late_k > 0 && of_q && j < (S - 1) / late_k * late_k);
}

/* By what dQ, dK and dV are multiplied. */
typedef struct factors {
    float q, k, v;
} factors;

static factors factors_of(float_head *x)
{
    const float_backward *f = x->f;
    const float group = (float)f->h_kv / (float)f->h;
    const float scale = float_is(x, "scale-root") ? sqrtf(f->scale) : float_scale_of_products(x, f->scale);
    factors by = {scale, scale, 1};
    by.q *= float_is(x, "scale-missing-dq") ? 1 / f->scale : float_is(x, "scale-twice-dq") ? f->scale : 1;
    by.k *= float_is(x, "scale-missing-dk") ? 1 / f->scale : float_is(x, "scale-twice-dk") ? f->scale : 1;
    const float all = float_is(x, "all-negated") ? -1 : float_is(x, "all-over-batch") ? 1 / (float)f->B : 1;
    by.q *= float_is(x, "dq-twice") ? 2 : float_is(x, "dq-zero") ? 0 : 1;
    by.k *= float_is(x, "dk-dv-twice") ? 2 : float_is(x, "dk-zero") ? 0 : 1;
    by.v *= float_is(x, "dk-dv-twice") ? 2 : float_is(x, "dv-zero") ? 0 : float_is(x, "dv-scaled") ? f->scale : 1;
    by.q *= all * (float_is(x, "dq-negated") ? -1 : float_is(x, "dq-half") ? 0.5f : 1);
    by.k *= all * (float_is(x, "dk-negated") ? -1 : 1);
    by.v *= all * (float_is(x, "dv-negated") ? -1 : 1);
    by.k *= float_is(x, "group-mean") || float_is(x, "group-mean-dk") ? group : 1;
    by.v *= float_is(x, "group-mean") || float_is(x, "group-mean-dv") ? group : 1;
    return by;
}

/* Row j of K in dQ, of Q in dK, of dO in dV. */
static const float *key_row(float_head *x, size_t j)
{
    const float_backward *f = x->f;
    const float *own = f->k + ((x->b * f->S + j) * f->h_kv + x->g) * f->d_k;
    if (float_is(x, "dq-of-values") && f->d_k == f->d_v)
        return f->v + ((x->b * f->S + j) * f->h_kv + x->g) * f->d_v;
    if (f->rope && (float_is(x, "rope-dq-of-unrotated-keys") || float_is(x, "rope-rows-not-rotated") ||
                    float_is(x, "rope-missing")))
        return float_unrotated(x, 'k', j);
    if (f->rope || f->norms) { /* K is not as it is given: only rows of its own sequence and head */
        const float_place at = float_read(x, "dq-keys", "keys", true, x->b, x->g, j);
        return at.b == x->b && at.i == x->g ? x->K[at.t] : x->K[j];
    }
    const float *K = float_row(x, 'k', "dq-keys", "keys", j);
    K = K == own ? float_row(x, 'k', "keys-values", NULL, j) : K;
    K = K == own ? float_row(x, 'k', "keys", NULL, j) : K; /* also "keys-by-remainder" */
    return K == own ? float_row(x, 'k', "heads", NULL, j) : K;
}

static const float *query_row(float_head *x, size_t t)
{
    const float_backward *f = x->f;
    const float *own = f->q + ((x->b * f->T + t) * f->h + x->i) * f->d_k;
    if (float_is(x, "dk-of-do") && f->d_k == f->d_v)
        return x->dO[t];
    if (f->rope && (float_is(x, "rope-dk-of-unrotated-queries") || float_is(x, "rope-rows-not-rotated") ||
                    float_is(x, "rope-missing")))
        return float_unrotated(x, 'q', t);
    if (f->rope || f->norms) {
        const float_place at = float_read(x, "dk-queries", "queries", false, x->b, x->i, t);
        return at.b == x->b && at.i == x->i ? x->Q[at.t] : x->Q[t];
    }
    const float *Q = float_row(x, 'q', "dk-queries", "queries", t);
    return Q == own ? float_row(x, 'q', "queries", NULL, t) : Q;
}

static const float *d_output_row(float_head *x, size_t t)
{
    const float_backward *f = x->f;
    const bool reads = strncmp(x->bug, "dv-do-", 6) == 0 || strncmp(x->bug, "stale-do-", 9) == 0 ||
                       strncmp(x->bug, "first-do-", 9) == 0;
    if (float_is(x, "dv-of-queries") && f->d_k == f->d_v)
        return x->Q[t];
    if (strncmp(x->bug, "dp-dv-do-", 9) == 0)
        return float_row(x, 'd', "dp-dv-do", NULL, t);
    return reads ? float_row(x, 'd', "dv-do", "do", t) : x->dO[t];
}

/* Adds one pair to dQ, dK and dV. */
static void add_pair(float_head *x, const factors *by, size_t t, size_t j)
{
    const float_backward *f = x->f;
    const bool square = f->T == f->S && f->h == f->h_kv && !f->ragged, in_q = counts(x, t, j, true),
               in_kv = counts(x, t, j, false), k_turned = float_is(x, "dk-untransposed") && square,
               v_turned = float_is(x, "dv-untransposed") && square;
    const size_t twice = float_is_of_block(x, "blocks-miscounted");
    const float once = float_is(x, "pairs-miscounted") ? ((7 * t + j) % 3 == 1 ? 0 : 1.25f)
                       : float_is(x, "rows-miscounted") && t % 5 == 1 ? 0
                                                                      : 1,
                by_head = float_is(x, "heads-miscounted") && x->i % (f->h / f->h_kv) == 1 ? 2 : once,
                of_block = twice > 0 && t < twice && twice < f->T ? 2 : by_head;
    const float P = x->P[t][j], most = float_is(x, "dv-unnormalised") ? float_largest(x->P[t], f->S) : 1,
                times = twice > 0 && j < twice && twice < f->S ? 2 : 1, *K = key_row(x, j),
                *Q = query_row(x, k_turned ? j : t), *dO = d_output_row(x, v_turned ? j : t);
    const float dS = x->dS[t][j],
                of_q = float_is(x, "dq-of-weights") ? P : dS,
                of_k = float_is(x, "dk-of-weights") ? P : dS,
                of_v = float_is(x, "dv-of-squares") ? P * P : float_is(x, "dv-of-d-scores") ? dS : P / most;
    float *dK = x->dK[k_turned ? t : j], *dV = x->dV[v_turned ? t : j];
    for (size_t c = 0; c < f->d_k && in_q; c++)
        x->dQ[t][c] += times * by->q * of_q * K[c];
    for (size_t c = 0; c < f->d_k && in_kv; c++)
        dK[c] += of_block * by->k * of_k * Q[c];
    for (size_t c = 0; c < f->d_v && in_kv; c++)
        dV[c] += of_block * by->v * of_v * dO[c];
}

/* Adds a pair that is hidden by what is no addend, in one product. */
static void add_hidden(float_head *x, const factors *by, size_t t, size_t j)
{
    const float_backward *f = x->f;
    float_visibility all = float_visibility_right(x);
    const bool in_dv = float_is(x, "hidden-pairs-in-dv"), in_ds = float_is(x, "hidden-pairs-in-ds"),
               as_0 = float_is(x, "hidden-zeros-in-ds");
    all.hides = false;
    if (!(in_dv || in_ds || as_0) || x->seen[t][j] || !float_sees(x, &all, t, j) || x->lse[t] == -INFINITY)
        return;
    const float s = x->s[t][j], y = f->softcap > 0 ? tanhf(s / f->softcap) : 0,
                capped = f->softcap > 0 ? f->softcap * y : s,
                P = expf((as_0 ? 0 : capped + float_added(x, &all, t, j)) - x->lse[t]);
    const float *V = f->v + ((x->b * f->S + j) * f->h_kv + x->g) * f->d_v;
    float dP = 0;
    for (size_t c = 0; c < f->d_v; c++)
        dP += x->dO[t][c] * V[c];
    const float dS = P * (1 - y * y) * (dP - x->D[t] + x->dlse[t]);
    for (size_t c = 0; c < f->d_v && in_dv; c++)
        x->dV[j][c] += P * x->dO[t][c];
    for (size_t c = 0; c < f->d_k && !in_dv; c++)
        x->dQ[t][c] += by->q * dS * x->K[j][c], x->dK[j][c] += by->k * dS * x->Q[t][c];
}

void float_products(float_head *x)
{
    const factors by = factors_of(x);
    memset(x->dQ, 0, sizeof x->dQ), memset(x->dK, 0, sizeof x->dK), memset(x->dV, 0, sizeof x->dV);
    for (size_t t = 0; t < x->f->T; t++)
        for (size_t j = 0; j < x->f->S; j++)
            add_pair(x, &by, t, j), add_hidden(x, &by, t, j);
}

/* ---------------------------------------------------------------- what is added */

static bool counts_in_added(float_head *x, size_t t)
{
    const float_backward *f = x->f;
    return !(float_is(x, "added-of-first-batch-row") && x->b > 0) &&
           !(float_is(x, "added-of-first-head") && x->i > 0) &&
           !(float_is(x, "added-of-last-head") && x->i + 1 < f->h) &&
           !(float_is(x, "added-of-first-head-of-first-batch-row") && x->b + x->i > 0) &&
           !(float_is(x, "added-of-last-row") && t + 1 < f->T);
}

static float of_sink(float_head *x, size_t t)
{
    const float_backward *f = x->f;
    const float sink = f->sinks[x->i], P = expf(sink - x->lse[t]), X = x->dlse[t] - x->D[t];
    const size_t block = float_is_of_block(x, "sinks-of-last-block"),
                 first = float_is_of_block(x, "sinks-of-first-block");
    if ((float_is(x, "sinks-of-first-batch-row") && x->b > 0) || (float_is(x, "sinks-of-last-row") && t + 1 < f->T) ||
        (block > 0 && t < (f->T - 1) / block * block) || (first > 0 && t >= first))
        return 0;
    return float_is(x, "sinks-zero")             ? 0
           : float_is(x, "sinks-negated")        ? -P * X
           : float_is(x, "sinks-without-d")      ? P
           : float_is(x, "sinks-without-weight") ? X
           : float_is(x, "sinks-unnormalised")   ? expf(sink) * X
           : float_is(x, "sinks-of-other-lse")   ? P / (1 - P) * X
           : float_is(x, "sinks-of-1-less-d")    ? P * (1 - x->D[t])
           : float_is(x, "sinks-of-next-head")   ? expf(f->sinks[(x->i + 1) % f->h] - x->lse[t]) * X
           : float_is(x, "sinks-of-scaled")      ? expf(sink * f->scale - x->lse[t]) * X
           : float_is(x, "sinks-in-base-2")      ? expf(sink * 0.693147181f - x->lse[t]) * X
           : float_is(x, "sinks-squared")        ? P * P * X
           : float_is(x, "sinks-diagonal")       ? P * (1 - P) * X
           : float_is(x, "sinks-without-dlse")   ? -P * x->D[t]
                                                 : P * X;
}

void float_added_gradients(float_head *x)
{
    const float_backward *f = x->f;
    const float m = float_is(x, "mask-zero")     ? 0
                    : float_is(x, "mask-scaled") ? f->scale
                    : float_is(x, "mask-mean")   ? (float)(f->mask_B * f->mask_h) / (float)(f->B * f->h)
                                                 : 1;
    const size_t of_mask = ((f->mask_B > 1 ? x->b : 0) * f->mask_h + (f->mask_h > 1 ? x->i : 0)) * f->T * f->S;
    const bool far = float_is(x, "alibi-slopes-of-distance"), negated = float_is(x, "alibi-slopes-negated"),
               everywhere = float_is(x, "empty-rows-nan-everywhere");
    if (f->dmask && f->mask_B * f->mask_h == 1 &&
        (float_is(x, "mask-overwritten") || (float_is(x, "mask-of-last-batch-row") && x->i == 0)))
        memset(f->dmask, 0, f->T * f->S * sizeof(float));
    if (f->dsinks && float_is(x, "sinks-overwritten"))
        f->dsinks[x->i] = 0;
    if (f->dslopes && float_is(x, "alibi-slopes-overwritten"))
        f->dslopes[x->i] = 0;
    for (size_t t = 0; t < f->T; t++) {
        bool empty = true;
        for (size_t j = 0; j < f->S; j++) {
            const float distance = (float)t + (float)f->offset - (float)j, P = x->P[t][j], dP = x->dP[t][j],
                        dZ = !x->back[t][j]                      ? 0
                             : float_is(x, "added-without-d")    ? P * dP
                             : float_is(x, "added-weighed-twice") ? P * x->dZ[t][j]
                             : float_is(x, "added-without-weights") ? dP - x->D[t] + x->dlse[t]
                             : float_is(x, "added-of-d-weights") ? dP
                             : float_is(x, "added-of-weights")   ? P
                                                                 : x->dZ[t][j];
            empty = empty && !x->seen[t][j];
            if (!counts_in_added(x, t))
                continue;
            if (f->dmask)
                f->dmask[of_mask + t * f->S + j] += m * dZ;
            if (f->dslopes)
                f->dslopes[x->i] += (negated ? 1.0f : -1.0f) * (far ? fabsf(distance) : distance) * dZ;
        }
        if (f->dsinks)
            f->dsinks[x->i] += of_sink(x, t);
        for (size_t c = 0; empty && (float_is(x, "empty-rows-nan") || everywhere) && c < f->d_k; c++)
            x->dQ[t][c] = NAN;
        for (size_t e = 0; empty && everywhere && e < f->S * FB_WIDTH; e++)
            x->dK[e / FB_WIDTH][e % FB_WIDTH] = x->dV[e / FB_WIDTH][e % FB_WIDTH] = NAN;
    }
}

/* ---------------------------------------------------------------- rows */

/* How a row is turned: by a position, with a base, of so many features, of halves or of neighbours; the sines of the
 * first and of the second number of a pair, 1 where they are right. */
typedef struct turning {
    double position, base;
    size_t features;
    bool neighbours;
    float first, second;
} turning;

static void turn(float *x, const turning *by)
{
    const size_t d = by->features;
    for (size_t c = 0; c < d / 2; c++) {
        const double a = by->position * pow(by->base, -2.0 * (double)c / (double)d);
        const size_t i = by->neighbours ? 2 * c : c, j = by->neighbours ? 2 * c + 1 : c + d / 2;
        const float one = x[i], two = x[j], co = (float)cos(a), si = (float)sin(a);
        x[i] = one * co - by->first * two * si;
        x[j] = two * co + by->second * one * si;
    }
}

/* Whether the bug is "rope-NAME", or "rope-dq-NAME" of one side. */
static bool turns(float_head *x, char side, const char *name)
{
    char bug[60] = "rope-";
    strcat(bug, name);
    const bool both = float_is(x, bug);
    strcpy(bug, side == 'q' ? "rope-dq-" : "rope-dk-");
    strcat(bug, name);
    return float_is(x, bug) || both;
}

/* Turns a gradient of row `row` at position p back. */
static void turn_back(float_head *x, char side, float *d, size_t row, size_t p)
{
    static const size_t blocks[] = {16, 32, 64, 128};
    static const char *const names[] = {"by-blocks-16", "by-blocks-32", "by-blocks-64", "by-blocks-128"};
    const float_backward *f = x->f;
    double angle = -(double)p;
    angle = turns(x, side, "turned-forward")    ? (double)p
            : turns(x, side, "not-turned-back") || float_is(x, "rope-missing") ? 0
            : turns(x, side, "one-more")        ? angle - 1
            : turns(x, side, "one-less")        ? angle + 1
            : turns(x, side, "twice")           ? 2 * angle
            : turns(x, side, "from-0")          ? -(double)row
            : turns(x, side, "with-offset")     ? angle - (double)f->offset
                                                : angle;
    for (size_t n = 0; n < 4; n++)
        if ((f->T > f->S ? f->T : f->S) > blocks[n] && turns(x, side, names[n]))
            angle = -(double)(row % blocks[n]);
    const float sines = turns(x, side, "without-sines") ? 0 : 1;
    turn(d, &(turning){angle, float_is(x, "rope-other-base") && !f->norms ? 5000 : 10000,
                       turns(x, side, "all-features") ? f->d_k : f->rope_dim ? f->rope_dim : f->d_k,
                       turns(x, side, "other-pairs"), sines, turns(x, side, "half-forward") ? -1 : sines});
}

/* Whether the bug is "norm-NAME", or "norm-NAME-q" of one side. */
static bool in_norm(float_head *x, char side, const char *name)
{
    char bug[60] = "norm-";
    strcat(bug, name);
    const bool both = float_is(x, bug);
    strcat(bug, side == 'q' ? "-q" : "-k");
    return float_is(x, bug) || both;
}

/* The gradient of a row that was normalised as that of the numbers it was made of. */
static void normalise_back(float_head *x, char side, float *d, const float *row, const float *w, float *dw, bool counts)
{
    const size_t n = x->f->d_k;
    const bool sum = x->f->norm_of_sum;
    const float N = (float)n;
    float squares = 0, along = 0, mean = 0;
    for (size_t c = 0; c < n; c++)
        squares += row[c] * row[c];
    const float eps = in_norm(x, side, "without-eps") ? 0 : x->f->norm_eps, r = sqrtf(squares / (sum ? 1 : N) + eps),
                one = in_norm(x, side, "plus-one") ? 1 : 0;
    const bool bare = in_norm(x, side, "unweighted"), bare_1 = in_norm(x, side, "unweighted-first-term"),
               bare_2 = in_norm(x, side, "unweighted-second-term"), bare_0 = in_norm(x, side, "ignored"),
               skips = in_norm(x, side, "skipped") || bare_0;
    for (size_t c = 0; c < n; c++) {
        const float by = in_norm(x, side, "weight-of-x") ? row[c] : in_norm(x, side, "weight-of-dy") ? 1
                         : row[c] / r * (in_norm(x, side, "weight-weighted") ? w[c] : 1);
        dw[c] += counts ? d[c] * by : 0;
        along += d[c] * (bare || bare_2 ? 1 : w[c] + one) * row[c] / r;
        d[c] *= bare || bare_0 || bare_1 ? 1 : w[c] + one;
        mean += d[c] / N;
    }
    along /= (sum ? in_norm(x, side, "mean-for-sum") : !in_norm(x, side, "sum-for-mean")) ? N : 1;
    along *= in_norm(x, side, "second-term-added") ? -1 : in_norm(x, side, "second-term-missing") || skips ? 0 : 1;
    along *= in_norm(x, side, "second-term-divided") ? 1 / r : in_norm(x, side, "second-term-undivided") ? r : 1;
    mean *= in_norm(x, side, "centred") ? 1 : 0;
    for (size_t c = 0; c < n; c++) {
        const float second = row[c] / r * along * (in_norm(x, side, "second-term-weighted") ? w[c] : 1);
        d[c] = (d[c] - mean - second) / r;
        d[c] *= skips || in_norm(x, side, "undivided") ? r : in_norm(x, side, "divided-twice") ? 1 / r : 1;
        d[c] *= in_norm(x, side, "weighted-twice") ? w[c] : 1;
    }
}

/* Whether a row counts in the gradient of the weight of its norm. */
static bool counts_in_weight(float_head *x, char side, size_t head, size_t heads, size_t row, size_t rows)
{
    return !(in_norm(x, side, "weight-of-last-head") && head + 1 < heads) &&
           !(in_norm(x, side, "weight-of-first-head") && head > 0) &&
           !(in_norm(x, side, "weight-of-first-batch-row") && x->b > 0) &&
           !(in_norm(x, side, "weight-of-last-batch-row") && x->b + 1 < x->f->B) &&
           !(in_norm(x, side, "weight-of-last-row") && row + 1 < rows) &&
           !(in_norm(x, side, "weight-of-first-row") && row > 0);
}

/* Where row j of dK (or dV) of this head is added. */
static float *row_of(float_head *x, bool of_v, size_t j)
{
    const float_backward *f = x->f;
    const size_t group = f->h / f->h_kv, d = of_v ? f->d_v : f->d_k;
    const bool dealt = float_is(x, "group-by-remainder");
    const size_t g = dealt ? x->i % f->h_kv : x->g,
                 row = float_is(x, "group-of-other-order") ? (x->i % group * f->S + j) / group : j;
    return (of_v ? f->dv : f->dk) + ((x->b * f->S + row) * f->h_kv + g) * d;
}

void float_gather(float_head *x)
{
    const float_backward *f = x->f;
    const size_t group = f->h / f->h_kv;
    const bool last = x->i % group == group - 1, first = x->i % group == 0,
               drops = (float_is(x, "group-last") && !last) || (float_is(x, "group-first") && !first),
               drops_k = drops || (float_is(x, "group-last-dk") && !last),
               drops_v = drops || (float_is(x, "group-last-dv") && !last);
    for (size_t t = 0; t < f->T; t++) {
        if (f->rope)
            turn_back(x, 'q', x->dQ[t], t, t + f->offset);
        if (f->norms)
            normalise_back(x, 'q', x->dQ[t], f->q + ((x->b * f->T + t) * f->h + x->i) * f->d_k, f->norms, f->dnorms,
                           counts_in_weight(x, 'q', x->i, f->h, t, f->T));
        memcpy(f->dq + ((x->b * f->T + t) * f->h + x->i) * f->d_k, x->dQ[t], f->d_k * sizeof(float));
    }
    for (size_t j = 0; j < f->S; j++) {
        float *dk = row_of(x, false, j), *dv = row_of(x, true, j);
        if (f->rope)
            turn_back(x, 'k', x->dK[j], j, j);
        if (f->rope && float_is(x, "rope-dv-turned-back") && f->d_k == f->d_v)
            turn(x->dV[j], &(turning){-(double)j, 10000, f->rope_dim ? f->rope_dim : f->d_v, false, 1, 1});
        if (f->norms)
            normalise_back(x, 'k', x->dK[j], f->k + ((x->b * f->S + j) * f->h_kv + x->g) * f->d_k, f->norms + f->d_k,
                           f->dnorms + f->d_k, counts_in_weight(x, 'k', x->g, f->h_kv, j, f->S));
        for (size_t c = 0; c < f->d_k && !drops_k; c++)
            dk[c] += x->dK[j][c];
        for (size_t c = 0; c < f->d_v && !drops_v; c++)
            dv[c] += x->dV[j][c];
    }
}
