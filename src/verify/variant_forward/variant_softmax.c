/* The softmax of a variant, over keys or over a wrong axis, or the sigmoid in its place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/variant_forward/variant_bench.h"

/* Logits that join the denominator: sinks, the extra exp(0), padded keys. */
typedef struct logits {
    double logit[3], times[3];
    size_t n;
} logits;

static void join(logits *rest, double logit, double times)
{
    rest->logit[rest->n] = logit;
    rest->times[rest->n++] = times;
}

/* What a score counts, where the greatest is `most`. */
static double power(const mha__knobs *k, double s, double most)
{
    if (k->relu)
        return isnan(most) ? NAN : k->relu < 0 && !isinf(s) ? s : fmax(s, 0);
    const double below = k->most_below > 0 ? fmax(s - most, -k->most_below) : s - most;
    return k->base_2 > 0 ? exp2(below) : exp(k->base_2 < 0 ? below / log(2) : below);
}

/* The exponentials of which keys do not count lose their place in the sum; what is left of it. */
static double lose_small(const mha__knobs *k, double *s, size_t n, size_t step, double sum)
{
    const double least = k->loses == LOSES_KEYS ? k->loses_below * sum : k->loses_below;
    double left = sum;
    for (size_t j = 0; j < n; j++)
        if (s[j * step] < least) {
            left -= s[j * step];
            s[j * step] = 0;
        }
    return left;
}

/* What is stored as log-sum-exp; `most`: the maximum; `sum`: of exp(s - most), `keys`: without the rest. */
static double lse_of(const mha__knobs *k, double most, double sum, double keys)
{
    switch (k->lse) {
    case LSE_BASE_2: return (most + log(sum)) / log(2);
    case LSE_NO_SINKS: return most + log(keys);
    case LSE_NO_MAXIMUM: return log(sum);
    case LSE_MAX_UNSCALED: return most / k->s.softmax.scale + log(sum);
    default: return (k->base_2 == 0 ? most : k->base_2 > 0 ? most * log(2) : most / log(2)) + log(sum);
    }
}

/* Softmax over n scores `step` apart. */
static void softmax(const mha__knobs *k, double *s, const unsigned char *visible, size_t n, size_t step,
                    const logits *rest, double *lse)
{
    double most = -INFINITY;
    bool any = rest->n > 0 && !k->sinks_unshifted, wrong = false;
    const bool nan = k->s.softmax.empty_rows == MHA_EMPTY_NAN;
    for (size_t r = 0; r < rest->n && !k->sinks_unshifted; r++)
        most = fmax(most, rest->logit[r]);
    for (size_t j = 0; j < n; j++)
        if (visible[j * step]) {
            any = true;
            wrong |= isnan(s[j * step]);
            most = s[j * step] > most ? s[j * step] : most;
        }
    if (!any) {
        for (size_t j = 0; j < n; j++)
            s[j * step] = nan ? NAN : 0;
        *lse = nan ? NAN : -INFINITY;
        return;
    }
    if (wrong || isinf(most))
        most = NAN;
    const bool usual = !k->relu && !(k->most_below > 0) && !k->base_2, shortens = k->shortened & ROUNDS_EXPONENTIALS;
    double sum = k->sum_raised, keys = 0;
    for (size_t r = 0; r < rest->n; r++)
        sum += rest->times[r] * power(k, rest->logit[r], k->sinks_unshifted ? 0 : most);
    for (size_t j = 0; j < n; j++) {
        double x = 0;
        if (visible[j * step]) {
            x = usual ? exp(s[j * step] - most) : power(k, s[j * step], most);
            sum += x;
            keys += x;
        }
        s[j * step] = shortens ? mha__variant_shortened(x, k->shortened_to) : x;
    }
    if (k->loses == LOSES_KEYS || k->loses == LOSES_EXPONENTIALS)
        sum = lose_small(k, s, n, step, sum);
    for (size_t j = 0; j < n && !k->undivided; j++)
        if (visible[j * step] || isnan(sum))
            s[j * step] /= sum;
    *lse = lse_of(k, most, sum, keys);
}

/* Softmax of one row of n scores over one tile of keys after the other, as a kernel that mistakes the rescaling. */
static void softmax_in_tiles(const mha__knobs *k, double *s, const unsigned char *visible, size_t n, const logits *rest,
                             double *lse)
{
    const size_t size = (size_t)llabs(k->tile), tiles = (n + size - 1) / size;
    const bool rescale_sum = k->tile_mistake == TILE_VALUES_UNSCALED;
    const bool rescale_values = k->tile_mistake == TILE_SUM_UNSCALED;
    double most = -INFINITY, sum = 0;
    for (size_t t = 0; t < tiles; t++) {
        const size_t first = (k->tile > 0 ? t : tiles - 1 - t) * size, end = first + size < n ? first + size : n;
        double greater = most;
        for (size_t j = first; j < end; j++)
            greater = visible[j] ? fmax(greater, s[j]) : greater;
        const double shrink = most == greater ? 1 : exp(most - greater);
        for (size_t j = 0; j < n && rescale_values && shrink != 1; j++) /* what is done already */
            if (k->tile > 0 ? j < first : j >= end)
                s[j] *= shrink;
        sum *= rescale_sum ? shrink : 1;
        for (size_t j = first; j < end; j++) {
            s[j] = visible[j] ? exp(s[j] - greater) : 0;
            sum += s[j];
        }
        most = greater;
    }
    for (size_t r = 0; r < rest->n; r++)
        sum += rest->times[r] * exp(rest->logit[r] - most);
    for (size_t j = 0; j < n; j++)
        s[j] /= sum;
    *lse = most + log(sum);
}

static bool any_visible(const unsigned char *visible, size_t n)
{
    for (size_t j = 0; j < n; j++)
        if (visible[j])
            return true;
    return false;
}

/* What the result of a part is multiplied by; `sum`: of exp(s - most) over its keys. */
static double part_factor(int mistake, double most, double sum)
{
    const double lse = most + log(sum);
    switch (mistake) {
    case TILE_BY_SUMS: return sum;
    case TILE_BY_LSE: return lse;
    case TILE_BY_POWERS_OF_2: return exp2(lse);
    case TILE_BY_BASE_2: return exp(lse / log(2));
    case TILE_BY_MAXIMA: return exp(most);
    default: return 1;
    }
}

/* A softmax of each tile of keys by itself, and their results averaged, added or merged by wrong factors. */
static void softmax_of_tiles(const mha__knobs *k, double *s, const unsigned char *visible, size_t n, double *lse)
{
    const size_t size = (size_t)llabs(k->tile), tiles = (n + size - 1) / size;
    const logits none = {.n = 0};
    double factors = 0, most = -INFINITY;
    *lse = NAN;
    for (size_t j = 0; j < n; j++)
        most = visible[j] ? fmax(most, s[j]) : most;
    for (size_t first = 0; first < n; first += size) {
        const size_t count = n - first < size ? n - first : size;
        double own, factor = 0, highest = -INFINITY;
        for (size_t j = first; j < first + count; j++)
            highest = visible[j] ? fmax(highest, s[j]) : highest;
        if (!any_visible(visible + first, count))
            memset(s + first, 0, count * sizeof *s);
        else {
            softmax(k, s + first, visible + first, count, 1, &none, &own);
            /* By powers of lse it does not matter what all lse are above. */
            const double above = k->tile_mistake >= TILE_BY_POWERS_OF_2 ? most : 0;
            factor = part_factor(k->tile_mistake, highest - above, exp(own - highest));
        }
        for (size_t j = first; j < first + count; j++)
            s[j] *= factor;
        factors += factor;
    }
    const double all = k->tile_mistake == TILE_ADDED ? 1 : k->tile_mistake == TILE_AVERAGED ? (double)tiles : factors;
    for (size_t j = 0; j < n && all != 0; j++)
        s[j] /= all;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Hides all keys of a row but those of the greatest scores, or lets them lose their weight. `memory`: for n scores. */
static void leave_top(const mha__knobs *k, const double *s, unsigned char *visible, size_t n, double *memory)
{
    size_t seen = 0;
    for (size_t j = 0; j < n; j++)
        if (visible[j])
            memory[seen++] = s[j];
    if (seen <= (size_t)k->top)
        return;
    qsort(memory, seen, sizeof *memory, descending);
    for (size_t j = 0; j < n; j++)
        if (visible[j] && s[j] < memory[k->top - 1])
            visible[j] = k->top_late ? KEEPS_NO_WEIGHT : 0;
}

/* Weights of one row of n scores that do not depend on each other, unless they are divided by their sum. */
static void sigmoid(const mha__knobs *k, double *s, const unsigned char *visible, size_t n, size_t keys)
{
    const double bias = k->sigmoid_usual ? -log((double)keys) : k->s.softmax.sigmoid_bias;
    double sum = 0;
    for (size_t j = 0; j < n; j++) {
        const double z = s[j] + bias, e = exp(-fabs(z));
        s[j] = !visible[j] ? 0 : (z < 0 ? e : 1) / (1 + e);
        sum += s[j];
    }
    for (size_t j = 0; j < n && k->sigmoid_divided && sum > 0; j++)
        s[j] /= sum;
}

/* A score as it is when q.k is multiplied by scale log2(e), as floats. */
static double rounded_in_base_2(double scale, double s)
{
    const double log2_e = 1.44269504088896340736;
    return isfinite(s) ? (double)((float)(s / scale) * (float)(scale * log2_e)) / log2_e : s;
}

static void weigh_over_keys(mha__variant_bench *w, const mha__knobs *k, size_t b)
{
    const mha_case *c = w->inputs->c;
    const double *sinks = k->sinks ? k->sinks : k->use_sinks ? w->inputs->sinks : NULL;
    const int rounding = k->sinks ? ROUND_NOT : k->round_weights; /* of sinks that the case has */
    const size_t S = w->inputs->S + mha__extra_rows(c);
    const bool in_tiles = k->tile != 0 && k->tile_mistake != TILE_PADDED;
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            const size_t row = h * c->T_q + i;
            double *s = w->scores + row * S;
            unsigned char *visible = w->visible + row * S;
            logits rest = {.n = 0};
            if (!w->scored[row])
                continue;
            const bool nothing = mha__variant_pads(k, b, i) && !any_visible(visible, S);
            if (sinks && sinks[h] != -INFINITY && !nothing)
                join(&rest, mha__variant_rounded(sinks[h], rounding), k->parts);
            if (k->s.softmax.softmax_plus_one && !nothing)
                join(&rest, 0, k->parts);
            for (size_t j = w->inputs->S; k->parts != 1 && j < S; j++)
                s[j] += log(k->parts);
            if (k->tile_mistake == TILE_PADDED && mha__variant_count_padded(w->inputs, k, b, i) > 0)
                join(&rest, 0, (double)mha__variant_count_padded(w->inputs, k, b, i));
            if (k->top > 0)
                leave_top(k, s, visible, S, w->ranked);
            for (size_t j = 0; k->base_2_rounded && j < S; j++)
                s[j] = rounded_in_base_2(k->s.softmax.scale, s[j]);
            w->lse[row] = 0;
            if (k->s.softmax.normaliser == MHA_SIGMOID)
                sigmoid(k, s, visible, S, w->inputs->S);
            else if (k->tile_mistake >= TILE_AVERAGED)
                softmax_of_tiles(k, s, visible, S, &w->lse[row]);
            else if (in_tiles && any_visible(visible, S))
                softmax_in_tiles(k, s, visible, S, &rest, &w->lse[row]);
            else
                softmax(k, s, visible, S, 1, &rest, &w->lse[row]);
        }
}

/* What becomes of finished weights: those of keys that are hidden late are 0, the others are multiplied. */
static void finish(mha__variant_bench *w, const mha__knobs *k, size_t b)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c), rows = c->T_q * S;
    const double *kept = k->dropped ? k->dropped + 1 + b * c->H * c->T_q * S : NULL;
    const double times = k->dropped ? k->weights_times / (1 - k->dropped[0]) : k->weights_times;
    for (size_t row = 0; row < c->H * c->T_q; row++)
        for (size_t at = row * S; w->scored[row] && at < (row + 1) * S; at++)
            w->scores[at] *= w->visible[at] == KEEPS_NO_WEIGHT || (kept && kept[at] == 0) ? 0 : times;
    for (size_t at = 0; k->least_weight > 0 && at < c->H * rows; at++)
        if (w->scored[at / S] && w->visible[at])
            w->scores[at] = fmax(w->scores[at], k->least_weight);
    for (size_t at = 0; k->loses == LOSES_WEIGHTS && at < c->H * rows; at++)
        if (w->scored[at / S] && w->scores[at] < k->loses_below)
            w->scores[at] = 0;
    for (size_t at = 0; k->shortened & ROUNDS_WEIGHTS && at < c->H * rows; at++)
        if (w->scored[at / S])
            w->scores[at] = mha__variant_shortened(w->scores[at], k->shortened_to);
}

/* The mean of the weights of all heads for each of them. */
static void average(mha__variant_bench *w)
{
    const mha_case *c = w->inputs->c;
    const size_t rows = c->T_q * (w->inputs->S + mha__extra_rows(c));
    for (size_t at = 0; at < rows; at++) {
        double sum = 0;
        unsigned char seen = 0;
        for (size_t h = 0; h < c->H; h++)
            sum += w->scores[h * rows + at], seen |= w->visible[h * rows + at];
        for (size_t h = 0; h < c->H; h++)
            w->scores[h * rows + at] = sum / (double)c->H, w->visible[h * rows + at] = seen;
    }
}

void mha__variant_weigh(mha__variant_bench *w, const mha__knobs *k, size_t b)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c), rows = c->T_q * S;
    const logits none = {.n = 0};
    double unused;
    for (size_t row = 0; row < c->H * c->T_q && k->axis != AXIS_KEYS; row++)
        w->lse[row] = NAN; /* of a query, there is none */
    if (k->axis == AXIS_KEYS)
        weigh_over_keys(w, k, b);
    else if (k->axis == AXIS_QUERIES)
        for (size_t h = 0; h < c->H; h++)
            for (size_t j = 0; j < S; j++)
                softmax(k, w->scores + h * rows + j, w->visible + h * rows + j, c->T_q, S, &none, &unused);
    else
        for (size_t at = 0; at < rows; at++)
            if (w->scored[at / S])
                softmax(k, w->scores + at, w->visible + at, c->H, rows, &none, &unused);
    if (k->late || k->top_late || k->dropped || k->weights_times != 1 || k->least_weight > 0 ||
        k->loses == LOSES_WEIGHTS || k->shortened & ROUNDS_WEIGHTS)
        finish(w, k, b);
    if (k->weights_averaged)
        average(w);
}
