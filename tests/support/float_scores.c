/* A backward in float32: dO and D, P from scores and lse, dP and dS. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "support/float_parts.h"

float float_largest(const float *P, size_t n)
{
    float most = 0;
    for (size_t j = 0; j < n; j++)
        most = fmaxf(most, P[j]);
    return most > 0 ? most : 1;
}

/* Without the weights, or their mean. */
static float sum_of_dp(float_head *x, size_t t, bool mean)
{
    const float_backward *f = x->f;
    float sum = 0, count = 0;
    for (size_t j = 0; j < f->S; j++)
        for (size_t c = 0; x->seen[t][j] && c < f->d_v; c++)
            sum += (float_is(x, "d-of-squares") ? x->P[t][j] * x->P[t][j] : 1) * x->dO[t][c] *
                   f->v[((x->b * f->S + j) * f->h_kv + x->g) * f->d_v + c], count += c == 0;
    return mean ? sum / count : sum;
}

/* Number c of dO of query t, as the kernel reads it. */
static float d_output(float_head *x, size_t t, size_t c)
{
    const float_backward *f = x->f;
    const float *of_head = f->dO + (x->b * f->T * f->h + x->i) * f->d_v;
    if (float_is(x, "do-of-ones"))
        return 1;
    if (float_is(x, "do-of-first-number"))
        return f->dO[0];
    if (float_is(x, "do-of-first-feature"))
        c = 0;
    if (float_is(x, "do-of-other-order-features"))
        return of_head[(t * f->d_v + c) % f->T * f->h * f->d_v + (t * f->d_v + c) / f->T];
    return float_row(x, 'd', "do", NULL, t)[c];
}

/* D of numbers that are none of rowsum(dO O). */
static float other_sum(float_head *x, size_t t, float D)
{
    const float_backward *f = x->f;
    const size_t next = (t + 1) % f->T;
    float of_do = 0, of_O = 0, dO = 0, O = 0, half = 0, fewer = 0, next_do = 0, next_O = 0, first = 0;
    const size_t few = float_is_of_block(x, "d-of-features");
    for (size_t c = 0; c < f->d_v; c++) {
        const float a = x->dO[t][c], o = x->O[t][c];
        of_do += a * a, of_O += o * o, dO += a, O += o;
        first += c < few ? a * o : 0, half += c < f->d_v / 2 ? a * o : 0, fewer += c < f->d_k ? a * o : 0;
        next_do += x->dO[next][c] * o, next_O += a * x->O[next][c];
    }
    return float_is(x, "d-of-do")                     ? of_do
           : float_is(x, "d-of-output")               ? of_O
           : float_is(x, "d-sum-of-do")               ? dO
           : float_is(x, "d-sum-of-output")           ? O
           : float_is(x, "d-of-first-half")           ? half
           : float_is(x, "d-of-fewer-features")       ? fewer
           : float_is(x, "d-of-do-of-next-query")     ? next_do
           : float_is(x, "d-of-output-of-next-query") ? next_O
           : few > 0                                  ? first
                                                      : D;
}

void float_sums(float_head *x)
{
    const float_backward *f = x->f;
    float right[FB_MOST] = {0};
    for (size_t t = 0; t < f->T; t++) {
        const float_place of_dlse = float_read(x, "dlse", NULL, false, x->b, x->i, t);
        x->dlse[t] = f->dlse ? f->dlse[(of_dlse.b * f->h + of_dlse.i) * f->T + of_dlse.t] : 0;
        for (size_t c = 0; c < f->d_v; c++) {
            float O = 0;
            for (size_t j = 0; j < f->S; j++)
                O += x->P[t][j] * (x->seen[t][j] ? f->v[((x->b * f->S + j) * f->h_kv + x->g) * f->d_v + c] : 0);
            if (float_is(x, "output-in-bfloat16"))
                O = mha__bf16_to_f32(mha__f32_to_bf16(O));
            if (float_is(x, "output-in-float16"))
                O = mha__f16_to_f32(mha__f32_to_f16(O));
            x->dO[t][c] = d_output(x, t, c), x->O[t][c] = O;
            right[t] += x->dO[t][c] * O;
        }
    }
    memcpy(x->all_D[x->b][x->i], right, sizeof right);
    for (size_t t = 0; t < f->T; t++) {
        const float_place at = float_read(x, "d", NULL, false, x->b, x->i, t);
        x->D[t] = at.nothing ? 0 : x->all_D[at.b][at.i][at.t];
        x->D[t] = other_sum(x, t, x->D[t]);
        x->D[t] *= float_is(x, "d-missing") ? 0 : float_is(x, "d-added") ? -1 : float_is(x, "d-twice") ? 2 : 1;
        x->D[t] *= float_is(x, "d-scaled") ? f->scale : 1;
        x->D[t] /= float_is(x, "d-mean") ? (float)f->d_v : 1;
        x->D[t] += float_is(x, "d-unknown") ? 0.3f * (float)(t % 5) - 0.7f : 0;
        if (float_is(x, "d-without-sinks") && f->sinks)
            x->D[t] /= 1 - expf(f->sinks[x->i] - x->lse[t]);
        if (float_is(x, "d-unnormalised"))
            x->D[t] /= float_largest(x->P[t], f->S);
        if (float_is(x, "d-unweighted") || float_is(x, "d-mean-of-dp") || float_is(x, "d-of-squares"))
            x->D[t] = sum_of_dp(x, t, float_is(x, "d-mean-of-dp"));
        x->dlse[t] *= float_is(x, "dlse-dropped")       ? 0
                      : float_is(x, "dlse-subtracted")  ? -1
                      : float_is(x, "dlse-twice")       ? 2
                      : float_is(x, "dlse-times-log2e") ? 1.44269504f
                      : float_is(x, "dlse-times-ln2")   ? 0.693147181f
                      : float_is(x, "dlse-scaled")      ? f->scale
                                                        : 1;
    }
}

/* The visible keys of the backward. `lengths`: room for those of all batch rows. */
static float_visibility visibility_of(float_head *x, size_t t, int64_t *lengths)
{
    const float_backward *f = x->f;
    float_visibility u = float_visibility_right(x);
    const size_t block = float_is_of_block(x, "causal-by-blocks");
    const bool other_flags = float_is(x, "masked-by-next-batch-row") || float_is(x, "masked-by-first-batch-row"),
               by_head = float_is(x, "masked-by-next-head") || float_is(x, "masked-by-first-head");
    u.causal = u.causal && !float_is(x, "causal-missing");
    u.offset += float_is(x, "causal-one-more") ? 1 : float_is(x, "causal-strict") ? -1 : 0;
    u.offset = float_is(x, "causal-top-left") ? 0
               : float_is(x, "causal-bottom-right") ? (long)f->S - (long)f->T : u.offset;
    if (block > 0)
        u.offset = (long)((t + f->offset) / block * block + block - 1) - (long)t;
    const bool both = f->window_left >= 0 && f->window_right >= 0;
    if (both && float_is(x, "window-mirrored"))
        u.left = f->window_right, u.right = f->window_left;
    if (f->window_left >= 0 && float_is(x, "p-of-window-both-sides"))
        u.right = u.left;
    u.left += u.left < 0 ? 0 : float_is(x, "window-one-more") ? 1 : float_is(x, "window-one-less") ? -1 : 0;
    u.right += u.right < 0                             ? 0
               : float_is(x, "window-right-one-more") ? 1
               : float_is(x, "window-right-one-less") ? -1
                                                       : 0;
    const bool none = float_is(x, "window-missing");
    u.left = none || (both && float_is(x, "window-left-missing")) ? -1 : u.left;
    u.right = none || (both && float_is(x, "window-right-missing")) ? -1 : u.right;
    u.flags = u.flags && !float_is(x, "mask-missing");
    u.inverted = float_is(x, "mask-inverted");
    u.turned = float_is(x, "mask-transposed");
    u.padding = float_is(x, "padding-missing") ? NULL : u.padding;
    u.segments = float_is(x, "segments-missing") && !f->ragged ? NULL : u.segments;
    u.more_lengths = float_is(x, "lengths-one-more") ? 1 : float_is(x, "lengths-one-less") ? -1 : 0;
    const int hiders = f->causal + (f->window_left >= 0 || f->window_right >= 0) + (f->lengths != NULL) +
                       (f->segments != NULL) + (f->padding != NULL) + f->flags;
    u.hides = !float_is(x, "hidden-pairs-counted") || hiders < 2; /* of one each has a name of its own */
    for (size_t b = 0; f->lengths && b < f->B; b++)
        lengths[b] = f->lengths[float_is(x, "lengths-of-next-batch-row")    ? (b + 1) % f->B
                                : float_is(x, "lengths-of-first-batch-row") ? 0
                                                                            : b];
    const int64_t up = (int64_t)float_is_of_block(x, "lengths-up-to-blocks"),
                  down = (int64_t)float_is_of_block(x, "lengths-down-to-blocks");
    for (size_t b = 0; f->lengths && b < f->B && up + down > 0; b++)
        lengths[b] = up > 0 ? (f->lengths[b] + up - 1) / up * up : f->lengths[b] / down * down;
    const size_t of_window = float_is_of_block(x, "window-by-blocks");
    if (of_window > 0 && f->window_left >= 0) {
        const long p = (long)(t + f->offset), n = (long)of_window, first = p / n * n - f->window_left;
        u.left = p - (first > 0 ? first / n * n : 0);
    }
    u.lengths = !f->lengths || float_is(x, "lengths-missing") ? NULL : lengths;
    if (f->mask_B > 1 && other_flags)
        u.mask_b = float_is(x, "masked-by-next-batch-row") ? (x->b + 1) % f->B : 0;
    if (f->mask_h > 1 && by_head)
        u.mask_i = float_is(x, "masked-by-next-head") ? (x->i + 1) % f->h : 0;
    if (f->mask_h > 1 && float_is(x, "masked-by-key-head"))
        u.mask_i = x->g;
    u.next_query = float_is(x, "masked-by-next-query") ? 1 : float_is(x, "masked-by-previous-query") ? f->T - 1 : 0;
    u.next_key = float_is(x, "masked-by-next-key") ? 1 : float_is(x, "masked-by-previous-key") ? f->S - 1 : 0;
    u.first_queries = float_is_of_block(x, "masked-by-first-queries");
    u.first_keys = float_is_of_block(x, "masked-by-first-keys");
    u.slope_i = float_is(x, "alibi-of-next-head")    ? (x->i + 1) % f->h
                : float_is(x, "alibi-of-first-head") ? 0
                : float_is(x, "alibi-of-key-head")   ? x->g
                                                     : x->i;
    u.mask_times = float_is(x, "mask-added-twice")      ? 2
                   : float_is(x, "mask-added-scaled")   ? f->scale
                   : float_is(x, "mask-added-unscaled") ? 1 / f->scale
                   : float_is(x, "mask-times-log2e")    ? 1.44269504f
                   : float_is(x, "mask-times-ln2")      ? 0.693147181f
                   : float_is(x, "mask-taken-away")     ? -1
                                                        : 1;
    u.slope_times = float_is(x, "alibi-added-twice")      ? 2
                    : float_is(x, "alibi-added-scaled")   ? f->scale
                    : float_is(x, "alibi-added-unscaled") ? 1 / f->scale
                    : float_is(x, "alibi-times-log2e")    ? 1.44269504f
                    : float_is(x, "alibi-times-ln2")      ? 0.693147181f
                    : float_is(x, "alibi-taken-away")     ? -1
                    : f->mask && float_is(x, "alibi-not-recomputed") ? 0 /* by itself it has another name */
                                                                     : 1;
    return u;
}

/* The lse from which P of query t is made. */
static float lse_of(float_head *x, size_t t)
{
    const float_backward *f = x->f;
    const float_place at = float_read(x, "lse", NULL, false, x->b, x->i, t);
    float of_keys = 0;
    for (size_t j = 0; j < f->S; j++)
        of_keys += x->P[t][j];
    if (f->sinks && strncmp(x->bug, "lse-with-sinks-", 15) == 0) {
        const float sink = f->sinks[x->i];
        const float counts = float_is(x, "lse-with-sinks-of-next-head") ? expf(f->sinks[(x->i + 1) % f->h])
                             : float_is(x, "lse-with-sinks-in-base-2")  ? exp2f(sink)
                             : float_is(x, "lse-with-sinks-scaled")     ? expf(sink * f->scale)
                             : float_is(x, "lse-with-sinks-twice")      ? 2 * expf(sink)
                                                                        : expf(sink);
        return logf(expf(x->lse[t]) - expf(sink) + counts);
    }
    return float_is(x, "lse-without-sinks")      ? x->lse[t] + logf(of_keys)
           : float_is(x, "lse-in-base-2")        ? x->lse[t] * 1.44269504f
           : float_is(x, "lse-taken-for-base-2") ? x->lse[t] * 0.693147181f
           : float_is(x, "lse-missing")          ? 0
           : float_is(x, "queries-missing")      ? (t % 4 == 1 ? INFINITY : x->lse[t])
           : float_is(x, "lse-unknown")          ? x->lse[t] + 0.1f * (float)(t % 7) - 0.25f
           : float_is(x, "lse-is-maximum")       ? x->lse[t] + logf(float_largest(x->P[t], f->S))
           : float_is(x, "lse-without-maximum")  ? -logf(float_largest(x->P[t], f->S))
           : at.nothing                          ? 0
                                                 : x->all_lse[at.b][at.i][at.t];
}

/* The scale of "WHAT-missing" and so on. */
static float other_scale(float_head *x, const char *what, float right)
{
    const float_backward *f = x->f;
    const size_t length = strlen(what);
    if (strncmp(x->bug, what, length) != 0 || x->bug[length] != '-')
        return right;
    const float d = (float)f->d_k, padded = (f->d_k & (f->d_k - 1)) > 0 ? (float)(2 << (int)log2f(d)) : d;
    const struct {
        const char *name;
        float scale;
    } scales[] = {{"missing", 1},
                  {"twice", f->scale * f->scale},
                  {"default", 1 / sqrtf(d)},
                  {"of-values", 1 / sqrtf((float)f->d_v)},
                  {"of-padded", 1 / sqrtf(padded)},
                  {"of-model", 1 / sqrtf((float)f->h * d)},
                  {"over-width", 1 / d},
                  {"times-log2e", f->scale * 1.44269504f},
                  {"times-ln2", f->scale * 0.693147181f}};
    for (size_t n = 0; n < sizeof scales / sizeof *scales; n++) {
        bool other = fabsf(scales[n].scale / f->scale - 1) > 1e-4f; /* than one that has another name */
        for (size_t before = 0; before < n; before++)
            other = other && fabsf(scales[n].scale / scales[before].scale - 1) > 1e-4f;
        if (other && strcmp(x->bug + length + 1, scales[n].name) == 0) {
            x->known = true;
            return scales[n].scale;
        }
    }
    return right;
}

float float_scale_of_products(float_head *x, float right)
{
    return other_scale(x, "all-scale", other_scale(x, "scale", right));
}

/* The score that the backward computes, of rows that may be those of another place. */
static float score_of(float_head *x, size_t t, size_t j)
{
    const float_backward *f = x->f;
    if (f->rope && (float_is(x, "rope-rows-not-rotated") || float_is(x, "rope-missing"))) {
        float s = 0;
        for (size_t c = 0; c < f->d_k; c++)
            s += float_unrotated(x, 'q', t)[c] * float_unrotated(x, 'k', j)[c];
        return s * f->scale;
    }
    if (f->rope || f->norms)
        return x->s[t][j];
    const float *Q = float_row(x, 'q', "queries", NULL, t), *K = float_row(x, 'k', "keys-values", NULL, j),
                *own = f->k + ((x->b * f->S + j) * f->h_kv + x->g) * f->d_k;
    if (K == own && !float_is(x, "keys-by-remainder"))
        K = float_row(x, 'k', "keys", NULL, j);
    const size_t few = float_is_of_block(x, "scores-of-features");
    float s = 0;
    for (size_t c = 0; c < (few > 0 && few < f->d_k ? few : f->d_k); c++)
        s += Q[c] * K[c];
    return s * other_scale(x, "scores-scale", other_scale(x, "all-scale", f->scale));
}

static float cap_of(float_head *x)
{
    const float c = x->f->softcap;
    return float_is(x, "softcap-twice")   ? 2 * c
           : float_is(x, "softcap-half")  ? c / 2
           : float_is(x, "softcap-of-50") ? 50
           : float_is(x, "softcap-of-30") ? 30
                                          : c;
}

/* P over the sums that they have in parts of the keys, or over all queries. */
static void normalise_otherwise(float_head *x)
{
    const float_backward *f = x->f;
    const size_t block = float_is_of_block(x, "lse-of-blocks");
    for (size_t t = 0; t < f->T && block > 0 && f->S > block; t++)
        for (size_t from = 0; from < f->S; from += block) {
            float sum = 0;
            for (size_t j = from; j < f->S && j < from + block; j++)
                sum += x->P[t][j];
            for (size_t j = from; j < f->S && j < from + block; j++)
                x->P[t][j] /= sum > 0 ? sum : 1;
        }
    for (size_t j = 0; j < f->S && float_is(x, "weights-over-queries"); j++) {
        float sum = 0;
        for (size_t t = 0; t < f->T; t++)
            sum += x->P[t][j];
        for (size_t t = 0; t < f->T; t++)
            x->P[t][j] /= sum > 0 ? sum : 1;
    }
}

void float_weights(float_head *x)
{
    const float_backward *f = x->f;
    int64_t lengths[FB_BATCH];
    float lse[FB_MOST];
    for (size_t t = 0; t < f->T; t++)
        lse[t] = lse_of(x, t);
    for (size_t t = 0; t < f->T; t++) {
        const float_visibility u = visibility_of(x, t, lengths);
        const bool uncapped = float_is(x, "softcap-not-recomputed") || float_is(x, "softcap-missing"),
                   zeros = float_is(x, "hidden-scores-zero"), bare = float_is(x, "added-not-recomputed"),
                   uniform = float_is(x, "empty-rows-uniform"), ones = float_is(x, "empty-rows-of-ones");
        for (size_t j = 0; j < f->S; j++) {
            const float c = cap_of(x), over = float_is(x, "softcap-without-factor") ? f->softcap : 1;
            float s = score_of(x, t, j);
            s = f->softcap > 0 && !uncapped ? c * tanhf(s / c) / over : s;
            s += bare || !float_sees(x, &u, t, j) ? 0 : float_added(x, &u, t, j);
            x->back[t][j] = (float_sees(x, &u, t, j) || zeros) && x->lse[t] > -INFINITY;
            s = zeros && !x->seen[t][j] ? 0 : s;
            x->P[t][j] = !x->back[t][j] ? 0 : float_is(x, "weights-in-base-2") ? exp2f(s - lse[t]) : expf(s - lse[t]);
            if (x->lse[t] == -INFINITY && (uniform || ones))
                x->back[t][j] = true, x->P[t][j] = ones ? 1 : 1 / (float)f->S, x->D[t] = 0;
        }
    }
    const size_t block = float_is_of_block(x, "lse-unknown-of-blocks");
    for (size_t e = 0; e < f->T * f->S && block > 0 && block < f->S; e++)
        x->P[e / f->S][e % f->S] *= e % f->S / block > 0 ? 0.8f + 0.1f * (float)(e / f->S % 3) : 1;
    normalise_otherwise(x);
}

/* The derivative of the softcap at a score, and what is taken for it. */
static float slope_of(float_head *x, float s)
{
    const float_backward *f = x->f;
    if (!(f->softcap > 0))
        return 1;
    const float c = cap_of(x), y = tanhf(s / c), right = 1 - y * y, capped = tanhf(y), twice = tanhf(s * f->scale / c),
                raw = tanhf(s / f->scale / c), undivided = tanhf(s);
    return float_is(x, "softcap-slope-missing") || float_is(x, "softcap-missing") ? 1
           : float_is(x, "softcap-slope-of-capped")                               ? 1 - capped * capped
           : float_is(x, "softcap-slope-unsquared")                               ? 1 - y
           : float_is(x, "softcap-slope-times-cap")                               ? right * c
           : float_is(x, "softcap-slope-over-cap")                                ? right / c
           : float_is(x, "softcap-slope-undivided")                               ? 1 - undivided * undivided
           : float_is(x, "softcap-slope-plus")                                    ? 1 + y * y
           : float_is(x, "softcap-slope-of-uncapped")                             ? 1 - s / c * (s / c)
           : float_is(x, "softcap-slope-of-capped-squared")                       ? 1 - c * y * c * y
           : float_is(x, "softcap-slope-twice")                                   ? right * right
           : float_is(x, "softcap-slope-root")                                    ? sqrtf(right)
           : float_is(x, "softcap-slope-of-unscaled")                             ? 1 - raw * raw
           : float_is(x, "softcap-slope-of-scaled-twice")                         ? 1 - twice * twice
           : float_is(x, "softcap-slope-inverse")                                 ? 1 / right
                                                                                  : right;
}

/* dP of query t and key j. */
static float d_weight(float_head *x, size_t t, size_t j)
{
    const float_backward *f = x->f;
    const bool turned = float_is(x, "dp-transposed") && f->T == f->S && !f->ragged,
               fewer = float_is(x, "dp-of-fewer-features"), all = float_is(x, "heads-by-remainder");
    const size_t row = turned ? j : t, met = turned ? t : j, g = all && !f->rope && !f->norms ? x->i % f->h_kv : x->g;
    const float *V = float_row(x, 'v', "values", "values", met), *dO = x->dO[row],
                *own = f->v + ((x->b * f->S + met) * f->h_kv + x->g) * f->d_v;
    if (V == own && !f->rope && !f->norms)
        V = float_row(x, 'v', "keys-values", NULL, met);
    if (V == own)
        V = f->v + ((x->b * f->S + met) * f->h_kv + g) * f->d_v;
    if (strncmp(x->bug, "dp-do-", 6) == 0 || strstr(x->bug, "-dp-do-"))
        dO = float_row(x, 'd', "dp-do", "dp-do", row);
    if (strncmp(x->bug, "dp-dv-do-", 9) == 0)
        dO = float_row(x, 'd', "dp-dv-do", NULL, row);
    if (float_is(x, "dp-of-keys") && f->d_k == f->d_v)
        V = x->K[met];
    float sum = 0;
    const size_t few = float_is_of_block(x, "dp-of-features"),
                 width = few > 0 && few < f->d_v ? few : fewer && f->d_k < f->d_v ? f->d_k : f->d_v;
    for (size_t c = 0; c < width; c++)
        sum += dO[c] * V[c];
    return sum;
}

/* D of each key, or of blocks of keys, in place of that of the query. */
static void sum_otherwise(float_head *x)
{
    const float_backward *f = x->f;
    const size_t block = float_is_of_block(x, "d-of-blocks");
    const bool by_key = float_is(x, "d-over-queries");
    for (size_t t = 0; t < f->T && ((block > 0 && f->S > block) || by_key); t++)
        for (size_t j = 0; j < f->S; j++) {
            float D = 0;
            for (size_t k = 0; k < (by_key ? f->T : f->S); k++)
                if (by_key)
                    D += x->P[k][j] * x->dP[k][j];
                else if (k / block == j / block)
                    D += x->P[t][k] * x->dP[t][k];
            x->dZ[t][j] = x->P[t][j] * (x->dP[t][j] - D + x->dlse[t]);
        }
}

void float_scores(float_head *x)
{
    const float_backward *f = x->f;
    for (size_t t = 0; t < f->T; t++)
        for (size_t j = 0; j < f->S; j++) {
            const float times = float_is(x, "dp-unknown") ? 1.25f : 1, P = x->P[t][j],
                        dP = times * (x->back[t][j] ? d_weight(x, t, j) : 0), moved = dP - x->D[t] + x->dlse[t];
            x->dP[t][j] = dP;
            x->dZ[t][j] = !x->back[t][j]                          ? 0
                          : float_is(x, "weights-missing-in-ds")  ? moved
                          : float_is(x, "softmax-diagonal")       ? P * (1 - P) * dP
                          : float_is(x, "d-outside-weights")      ? P * (dP + x->dlse[t]) - x->D[t]
                          : float_is(x, "dlse-outside-weights")   ? P * (dP - x->D[t]) + x->dlse[t]
                          : float_is(x, "ds-unnormalised")        ? P * moved / float_largest(x->P[t], f->S)
                                                                  : P * moved;
        }
    sum_otherwise(x);
    for (size_t t = 0; t < f->T; t++)
        for (size_t j = 0; j < f->S; j++)
            if (x->back[t][j] && f->softcap > 0 && float_is(x, "softcap-slope-before-d"))
                x->dS[t][j] = x->dZ[t][j] = x->P[t][j] * (x->dP[t][j] * slope_of(x, score_of(x, t, j)) - x->D[t]);
            else
                x->dS[t][j] = x->dZ[t][j] * slope_of(x, score_of(x, t, j));
}
