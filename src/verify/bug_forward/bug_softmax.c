/* The softmax of a bug, over keys or over a wrong axis, or the sigmoid in its place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/bug_forward/bug_bench.h"

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
        return isnan(most) ? NAN : k->relu < 0 && !isinf(s) ? s : k->relu == 2 ? fmax(s, 0) * fmax(s, 0) : fmax(s, 0);
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
    if (k->unshifted && !isnan(most))
        most = 0;
    const bool usual = !k->relu && !(k->most_below > 0) && !k->base_2, shortens = k->shortened & ROUNDS_EXPONENTIALS;
    double sum = k->sum_raised, keys = 0, squares = 0;
    for (size_t r = 0; r < rest->n; r++)
        sum += rest->times[r] * power(k, rest->logit[r], k->sinks_unshifted ? 0 : most);
    for (size_t j = 0; j < n; j++) {
        double x = 0;
        if (visible[j * step]) {
            x = usual ? exp(s[j * step] - most) : power(k, s[j * step], most);
            sum += x;
            keys += x;
            squares += x * x;
        }
        s[j * step] = shortens ? mha__bug_shortened(x, k->shortened_to) : x;
    }
    if (k->loses == LOSES_KEYS || k->loses == LOSES_EXPONENTIALS)
        sum = lose_small(k, s, n, step, sum);
    const double by = k->by_root ? sqrt(squares) : k->divided_twice ? sum * sum : sum;
    for (size_t j = 0; j < n && !k->undivided; j++)
        if (visible[j * step] || isnan(sum))
            s[j * step] /= by;
    *lse = lse_of(k, most, sum, keys);
}

/* The factor of a sum when its maximum grows; `right`: exp(by), `late`: that of the tile before. */
static double shrunk(const mha__knobs *k, double right, double by, double late)
{
    switch (k->tile_bug) {
    case TILE_RESCALED_IN_BASE_2: return isnan(by) ? 1 : exp2(by);
    case TILE_RESCALED_INVERSELY: return right > 0 ? 1 / right : 0;
    case TILE_RESCALED_LATE: return late;
    default: return right;
    }
}

/* Softmax of one row of n scores over one tile of keys after the other, as a kernel that bugs the rescaling. */
static void softmax_in_tiles(const mha__knobs *k, double *s, const unsigned char *visible, size_t n, const logits *rest,
                             double *lse)
{
    const size_t size = (size_t)llabs(k->tile), tiles = (n + size - 1) / size;
    const bool both = k->tile_bug >= TILE_RESCALED_IN_BASE_2;
    const bool rescale_sum = both || k->tile_bug == TILE_VALUES_UNSCALED;
    const bool rescale_values = both || k->tile_bug == TILE_SUM_UNSCALED;
    double most = -INFINITY, sum = 0, late = 1;
    for (size_t t = 0; t < tiles; t++) {
        const size_t first = (k->tile > 0 ? t : tiles - 1 - t) * size, end = first + size < n ? first + size : n;
        double greater = most;
        for (size_t j = first; j < end; j++)
            greater = visible[j] ? fmax(greater, s[j]) : greater;
        const double own = most == greater ? 1 : exp(most - greater), shrink = shrunk(k, own, most - greater, late);
        late = isinf(most) ? 0 : own;
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
static double part_factor(int bug, double most, double sum)
{
    const double lse = most + log(sum);
    switch (bug) {
    case TILE_UNDIVIDED: return exp(lse);
    case TILE_BY_INVERSE: return exp(-lse);
    case TILE_BY_SUMS: return sum;
    case TILE_BY_LSE: return lse;
    case TILE_BY_POWERS_OF_2: return exp2(lse);
    case TILE_BY_BASE_2: return exp(lse / log(2));
    case TILE_BY_MAXIMA: return exp(most);
    default: return 1;
    }
}

static double lse_of_part(const double *s, const unsigned char *visible, size_t n)
{
    double most = -INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++)
        most = visible[j] ? fmax(most, s[j]) : most;
    for (size_t j = 0; j < n; j++)
        sum += visible[j] ? exp(s[j] - most) : 0;
    return sum > 0 ? most + log(sum) : -INFINITY;
}

/* A softmax of each tile of keys by itself, and their results averaged, added or merged by wrong factors. */
static void softmax_of_tiles(const mha__knobs *k, double *s, const unsigned char *visible, size_t n, double *lse)
{
    const size_t size = (size_t)llabs(k->tile), tiles = (n + size - 1) / size;
    const logits none = {.n = 0};
    double factors = 0, most = -INFINITY;
    const bool by_sum = k->tile_bug == TILE_UNDIVIDED;
    *lse = NAN;
    for (size_t j = 0; j < n; j++)
        most = visible[j] ? fmax(most, s[j]) : most;
    for (size_t first = 0; first < n && by_sum; first += size) /* above the greatest lse */
        most = fmax(most, lse_of_part(s + first, visible + first, n - first < size ? n - first : size));
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
            const bool shifts = by_sum || k->tile_bug == TILE_BY_INVERSE || k->tile_bug >= TILE_BY_POWERS_OF_2;
            const double above = shifts ? most : 0;
            factor = part_factor(k->tile_bug, highest - above, exp(own - highest));
        }
        for (size_t j = first; j < first + count; j++)
            s[j] *= factor;
        factors += factor;
    }
    const bool adds = by_sum || k->tile_bug == TILE_ADDED;
    const double all = adds ? 1 : k->tile_bug == TILE_AVERAGED ? (double)tiles : factors;
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
    size_t seen = 0;
    for (size_t j = 0; j < n; j++)
        seen += visible[j] != 0;
    const double count = (double)(k->sigmoid_usual == 2 ? seen : keys);
    const double bias = k->sigmoid_usual ? -log(count) : k->s.softmax.sigmoid_bias;
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

static void weigh_over_keys(mha__bug_bench *w, const mha__knobs *k, size_t b)
{
    const mha_case *c = w->inputs->c;
    const double *sinks = k->sinks ? k->sinks : k->use_sinks ? w->inputs->sinks : NULL;
    const int rounding = k->sinks ? ROUND_NOT : k->round_weights; /* of sinks that the case has */
    const size_t S = w->inputs->S + mha__extra_rows(c);
    const bool pads = k->tile_bug == TILE_PADDED || k->tile_bug == TILE_PADDED_SEEN;
    const bool in_tiles = k->tile != 0 && !pads;
    for (size_t h = 0; h < c->H; h++)
        for (size_t i = 0; i < c->T_q; i++) {
            const size_t row = h * c->T_q + i;
            logits rest = {.n = 0};
            if (!w->scored[row])
                continue;
            double *s = w->scores + w->stored[row] * S;
            unsigned char *visible = w->visible + w->stored[row] * S;
            const bool nothing = mha__bug_pads(k, b, i) && !any_visible(visible, S);
            if (sinks && sinks[h] != -INFINITY && !nothing)
                join(&rest, mha__bug_rounded(sinks[h], rounding), k->parts);
            if (k->s.softmax.softmax_plus_one && !nothing)
                join(&rest, 0, k->parts);
            for (size_t j = w->inputs->S; k->parts != 1 && j < S; j++)
                s[j] += log(k->parts);
            const size_t zeros = pads               ? mha__bug_count_padded(w->inputs, k, b, i)
                                 : k->lengths_zeros ? mha__bug_count_zeros(w->inputs, k, b, i)
                                                    : 0;
            if (zeros > 0)
                join(&rest, 0, (double)zeros);
            if (k->top > 0)
                leave_top(k, s, visible, S, w->ranked);
            for (size_t j = 0; k->base_2_rounded && j < S; j++)
                s[j] = rounded_in_base_2(k->s.softmax.scale, s[j]);
            w->lse[row] = 0;
            if (k->s.softmax.normaliser == MHA_SIGMOID)
                sigmoid(k, s, visible, S, w->inputs->S);
            else if (k->tile_bug >= TILE_AVERAGED)
                softmax_of_tiles(k, s, visible, S, &w->lse[row]);
            else if (in_tiles && any_visible(visible, S))
                softmax_in_tiles(k, s, visible, S, &rest, &w->lse[row]);
            else
                softmax(k, s, visible, S, 1, &rest, &w->lse[row]);
        }
}

/* What becomes of the finished weights of a row: those of keys that are hidden late are 0, the others are multiplied,
 * and so on. `kept`: NULL, or 0 for each that is dropped. */
static void finish_row(const mha__knobs *k, double *weights, const unsigned char *visible, const double *kept, size_t S)
{
    const double times = k->dropped ? k->weights_times / (1 - k->dropped[0]) : k->weights_times;
    for (size_t j = 0; j < S; j++)
        weights[j] *= visible[j] == KEEPS_NO_WEIGHT || (kept && kept[j] == 0) ? 0 : times;
    for (size_t j = 0; k->weights_power > 0 && j < S; j++)
        weights[j] = pow(weights[j], k->weights_power);
    for (size_t j = 0; k->least_weight > 0 && j < S; j++)
        if (visible[j])
            weights[j] = fmax(weights[j], k->least_weight);
    for (size_t j = 0; k->loses == LOSES_WEIGHTS && j < S; j++)
        if (weights[j] < k->loses_below)
            weights[j] = 0;
    for (size_t j = 0; k->shortened & ROUNDS_WEIGHTS && j < S; j++)
        weights[j] = mha__bug_shortened(weights[j], k->shortened_to);
}

static void finish(mha__bug_bench *w, const mha__knobs *k, size_t b)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c), rows = c->H * c->T_q;
    const double *kept = k->dropped ? k->dropped + 1 + b * rows * S : NULL;
    for (size_t row = 0; row < rows; row++)
        if (w->scored[row])
            finish_row(k, w->scores + w->stored[row] * S, w->visible + w->stored[row] * S, kept ? kept + row * S : NULL,
                       S);
}

/* A softmax of the weights. */
static void soften_again(mha__bug_bench *w, const mha__knobs *k)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c);
    const logits none = {.n = 0};
    double unused;
    for (size_t row = 0; row < c->H * c->T_q; row++)
        if (w->scored[row])
            softmax(k, w->scores + w->stored[row] * S, w->visible + w->stored[row] * S, S, 1, &none, &unused);
}

/* The mean of the weights of all heads for each of them, or those of the first one. */
static void average(mha__bug_bench *w, const mha__knobs *k, size_t rows)
{
    const mha_case *c = w->inputs->c;
    for (size_t at = 0; at < rows; at++) {
        double sum = 0;
        unsigned char seen = 0;
        for (size_t h = 0; h < c->H; h++)
            sum += w->scores[h * rows + at], seen |= w->visible[h * rows + at];
        const bool first = k->weights_averaged == 2;
        const double weight = first ? w->scores[at] : sum / (double)c->H;
        seen = first ? w->visible[at] : seen;
        for (size_t h = 0; h < c->H; h++)
            w->scores[h * rows + at] = weight, w->visible[h * rows + at] = seen;
    }
}

/* How many query rows are scored under the first head. */
static size_t count_scored(const mha__bug_bench *w)
{
    size_t count = 0;
    for (size_t i = 0; i < w->inputs->c->T_q; i++)
        count += w->scored[i];
    return count;
}

void mha__bug_weigh(mha__bug_bench *w, const mha__knobs *k, size_t b)
{
    const mha_case *c = w->inputs->c;
    const size_t S = w->inputs->S + mha__extra_rows(c);
    const size_t rows = count_scored(w) * S; /* of each head, where a softmax or a mean goes over heads or queries */
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
            softmax(k, w->scores + at, w->visible + at, c->H, rows, &none, &unused);
    if (k->softened_twice)
        soften_again(w, k);
    if (k->weights_power > 0 || k->late || k->top_late || k->dropped || k->weights_times != 1 || k->least_weight > 0 ||
        k->loses == LOSES_WEIGHTS || k->shortened & ROUNDS_WEIGHTS)
        finish(w, k, b);
    if (k->weights_averaged)
        average(w, k, rows);
}
