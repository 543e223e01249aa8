/* Weights: softmax over keys, over a wrong axis or in tiles; or sigmoid. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/engine/runner.h"

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

/* Mutations of a softmax, read once. */
typedef struct softening {
    const mha__program *p;
    int relu, divides, loses, bits, sum_bits, degree;
    double base, below, least, levels;  /* base: > 0 powers of 2, < 0 of e^(1/ln 2) */
    bool unshifted, narrow, apart, nan; /* narrow: float32; apart: other logits are not shifted */
    bool pads;                          /* zeros pad tiles */
    long long half;                     /* the sum lacks the second half of tiles of so many keys; 0: of none */
    const mha__mutation *tile;
} softening;

static softening softening_of(const mha__program *p)
{
    const mha__mutation *tile = mha__mutation_at(p, AT_TILE, OP_FN);
    return (softening){.p = p,
                       .tile = tile,
                       .pads = tile && (tile->arg == MHA__TILE_PADDED || tile->arg == MHA__TILE_PADDED_SEEN),
                       .half = mha__step(p, AT_E, OP_ZERO, 0),
                       .relu = mha__arg(p, AT_E, OP_FN),
                       .divides = mha__arg(p, AT_P, OP_FN),
                       .loses = mha__arg(p, AT_P, OP_ZERO),
                       .bits = (int)mha__number(p, AT_E, OP_BITS, 0),
                       .sum_bits = (int)mha__number(p, AT_E, OP_ROUND, 0),
                       .degree = (int)mha__number(p, AT_E, OP_POWER, 0),
                       .levels = mha__number(p, AT_E, OP_QUANT, 0),
                       .base = mha__number(p, AT_E, OP_TIMES, 0),
                       .below = mha__number(p, AT_E, OP_LIMIT, 0),
                       .least = mha__number(p, AT_P, OP_ZERO, 0),
                       .unshifted = mha__has(p, AT_E, OP_DO),
                       .narrow = mha__arg(p, AT_E, OP_DO) == MHA__IN_F32,
                       .apart = mha__has(p, AT_SINK, OP_FN),
                       .nan = p->s.softmax.empty_rows == MHA_EMPTY_NAN};
}

/* exp(x) as 2^n times a polynomial of what is left of x log2(e): 1 + f, one of degree 2, or FlashAttention's of 3. */
static double power_by_polynomial(double x, int degree)
{
    const double y = x * MHA__LOG2_E, n = floor(y), f = y - n;
    const double p = degree == 1   ? 1 + f
                     : degree == 2 ? 1 + f * (0.6565 + f * 0.3435)
                                   : 1 + f * (0.69514614 + f * (0.22756439 + f * 0.07711909));
    return isfinite(y) ? ldexp(p, (int)fmax(n, -2000)) : exp(x);
}

/* The term of a score in the sum of a softmax whose greatest score is `most`. */
static double power(const softening *k, double s, double most)
{
    if (k->relu) {
        const double x = fmax(s, 0);
        return isnan(most) ? NAN : k->relu == MHA__IDENTITY && !isinf(s) ? s : k->relu == MHA__RELU_SQUARED ? x * x : x;
    }
    const double below = k->below > 0 ? fmax(s - most, -k->below) : s - most;
    if (k->degree)
        return power_by_polynomial(below, k->degree);
    return k->base > 0 ? exp2(below) : exp(k->base < 0 ? below / log(2) : below);
}

/* Log-sum-exp as a program stores it; `most`: the maximum; `sum`: of exp(s - most); `keys`: the part of keys. */
static double lse_of(const softening *k, double most, double sum, double keys)
{
    switch (mha__arg(k->p, AT_LSE, OP_FN)) {
    case MHA__LSE_BASE_2: return (most + log(sum)) / log(2);
    case MHA__LSE_NO_SINKS: return most + log(keys);
    case MHA__LSE_NO_MAXIMUM: return log(sum);
    case MHA__LSE_MAX_UNSCALED: return most / k->p->s.softmax.scale + log(sum);
    default: return (k->base == 0 ? most : k->base > 0 ? most * log(2) : most / log(2)) + log(sum);
    }
}

/* Softmax over n scores `step` apart. */
static void softmax(const softening *k, double *s, const unsigned char *visible, size_t n, size_t step,
                    const logits *rest, double *lse)
{
    double most = -INFINITY, sum = mha__number(k->p, AT_E, OP_PLUS, 0), keys = 0, squares = 0;
    bool any = rest->n > 0 && !k->apart, wrong = false;
    for (size_t r = 0; r < rest->n && !k->apart; r++)
        most = fmax(most, rest->logit[r]);
    for (size_t j = 0; j < n * step; j += step)
        if (visible[j]) {
            any = true;
            wrong |= isnan(s[j]);
            most = s[j] > most ? s[j] : most;
        }
    if (!any) {
        for (size_t j = 0; j < n * step; j += step)
            s[j] = k->nan ? NAN : 0;
        *lse = k->nan ? NAN : -INFINITY;
        return;
    }
    most = wrong || isinf(most) ? NAN : k->unshifted ? 0 : most;
    const bool usual = !k->relu && !(k->below > 0) && k->base == 0 && !k->degree;
    for (size_t r = 0; r < rest->n; r++)
        sum += rest->times[r] * power(k, rest->logit[r], k->apart ? 0 : most);
    for (size_t j = 0; j < n * step; j += step) {
        double x = !visible[j] ? 0 : usual ? exp(s[j] - most) : power(k, s[j], most);
        x = k->narrow && x > FLT_MAX ? INFINITY : x;
        const bool left_out = k->half && 2 * ((long long)(j / step) % k->half) >= k->half;
        const double added = left_out ? 0 : x;
        sum = k->sum_bits ? mha__shortened(sum + added, k->sum_bits) : sum + added;
        keys += x, squares += x * x;
        s[j] = k->bits ? mha__shortened(x, k->bits) : k->levels > 0 ? rint(x * k->levels) / k->levels : x;
    }
    sum = k->narrow && sum > FLT_MAX ? INFINITY : sum;
    const double least = k->loses == MHA__LOSES_KEYS ? k->least * sum : k->least;
    for (size_t j = 0; j < n * step && (k->loses == MHA__LOSES_KEYS || k->loses == MHA__LOSES_EXPONENTIALS); j += step)
        if (s[j] < least) {
            sum -= s[j];
            s[j] = 0;
        }
    const double by = k->divides == MHA__BY_ROOT ? sqrt(squares) : k->divides == MHA__DIVIDED_TWICE ? sum * sum : sum;
    for (size_t j = 0; j < n * step && k->divides != MHA__UNDIVIDED; j += step)
        if (visible[j] || isnan(sum))
            s[j] /= by;
    *lse = lse_of(k, most, sum, keys);
}

/* ---------------------------------------------------------------- tiles of keys */

static bool any_visible(const unsigned char *visible, size_t n)
{
    for (size_t j = 0; j < n; j++)
        if (visible[j])
            return true;
    return false;
}

/* Softmax of one row of n scores, tile by tile of keys, with wrong rescaling. */
static void softmax_in_tiles(const mha__mutation *m, double *s, const unsigned char *visible, size_t n,
                             const logits *rest, double *lse)
{
    const size_t size = (size_t)llabs(m->step), tiles = (n + size - 1) / size;
    const int which = (m->arg - 1) % 3, how = m->arg - which;
    double most = -INFINITY, sum = 0, late = 1;
    for (size_t t = 0; t < tiles; t++) {
        const size_t first = (m->step > 0 ? t : tiles - 1 - t) * size, end = first + size < n ? first + size : n;
        double greater = most;
        for (size_t j = first; j < end; j++)
            greater = visible[j] ? fmax(greater, s[j]) : greater;
        const double by = most - greater, own = most == greater ? 1 : exp(by);
        const bool rescales = m->number == MHA__ODD              ? t % 2 == 0
                              : m->number == MHA__IN_FIRST_BLOCK ? by <= -1 /* or never */
                                                                 : m->number == MHA__BUT_LAST;
        const double wrong = rescales                       ? own
                             : how == MHA__RESCALED_BASE_2  ? isnan(by) ? 1 : exp2(by)
                              : how == MHA__RESCALED_INVERSE ? own > 0 ? 1 / own : 0
                             : how == MHA__TILES_FORGOTTEN  ? !any_visible(visible + first, end - first)
                             : how == MHA__RESCALED_LATE    ? late
                                                            : 1,
                     of_values = which == 2 ? own : wrong;
        late = isinf(most) ? 0 : own;
        for (size_t j = 0; j < n && of_values != 1; j++) /* weights of earlier tiles */
            if (m->step > 0 ? j < first : j >= end)
                s[j] *= of_values;
        sum *= which == 1 ? own : wrong;
        for (size_t j = first; j < end; j++) {
            s[j] = visible[j] ? exp(s[j] - greater) : 0;
            sum += m->number == MHA__BUT_LAST && t + 1 == tiles ? 0 : s[j];
        }
        most = greater;
    }
    for (size_t r = 0; r < rest->n; r++)
        sum += rest->times[r] * exp(rest->logit[r] - most);
    for (size_t j = 0; j < n; j++)
        s[j] /= sum;
    *lse = most + log(sum);
}

static double greatest(const double *s, const unsigned char *visible, size_t n)
{
    double most = -INFINITY;
    for (size_t j = 0; j < n; j++)
        most = visible[j] ? fmax(most, s[j]) : most;
    return most;
}

/* The first key of part t of n keys. */
static size_t part_start(const mha__mutation *m, size_t n, size_t t)
{
    const size_t size = (size_t)llabs(m->step), at = m->step > 0 ? t * size : t * n / size;
    return at < n ? at : n;
}

/* The factor of the result of a part; `sum`: of exp(s - most) over its keys. */
static double part_factor(int way, double most, double sum)
{
    const double lse = most + log(sum);
    switch (way) {
    case MHA__PARTS_UNDIVIDED:
    case MHA__PARTS_TIMES_SUMS:
    case MHA__PARTS_EMPTY_SEEN: return exp(lse);
    case MHA__PARTS_BY_INVERSE: return exp(-lse);
    case MHA__PARTS_BY_SUMS: return sum;
    case MHA__PARTS_BY_LSE: return lse;
    case MHA__PARTS_BY_POWERS_OF_2: return exp2(lse);
    case MHA__PARTS_BASE_2: return exp(lse / log(2));
    case MHA__PARTS_BY_MAXIMA: return exp(most);
    default: return 1;
    }
}

/* Softmax of each part of the keys; averages, adds or merges the results by wrong factors. A negative step is their
 * number. */
static void softmax_of_tiles(const softening *k, const mha__mutation *m, double *s, const unsigned char *visible,
                             size_t n, double *lse)
{
    const size_t size = (size_t)llabs(m->step), tiles = m->step > 0 ? (n + size - 1) / size : size;
    const logits none = {.n = 0};
    const bool by_sum = m->arg == MHA__PARTS_UNDIVIDED, /* powers of lse: a shift of all lse cancels */
        shifts = by_sum || m->arg == MHA__PARTS_BY_INVERSE || m->arg >= MHA__PARTS_BY_POWERS_OF_2,
               keeps = m->arg == MHA__PARTS_LSE_KEPT, empty = m->arg == MHA__PARTS_EMPTY_SEEN;
    double factors = 0, kept = -INFINITY, most = empty ? fmax(greatest(s, visible, n), 0) : greatest(s, visible, n);
    *lse = n > 0 ? NAN : 0;
    for (size_t t = 0; t < tiles && by_sum; t++) { /* shift: the largest lse */
        const size_t first = part_start(m, n, t), end = part_start(m, n, t + 1);
        const double highest = greatest(s + first, visible + first, end - first);
        double sum = 0;
        for (size_t j = first; j < end; j++)
            sum += visible[j] ? exp(s[j] - highest) : 0;
        most = sum > 0 ? fmax(most, highest + log(sum)) : most;
    }
    for (size_t t = 0; t < tiles; t++) {
        const size_t first = part_start(m, n, t), end = part_start(m, n, t + 1), count = end - first;
        double own, factor = empty ? exp(-most) : 0, times = 1;
        const double highest = greatest(s + first, visible + first, count);
        if (!any_visible(visible + first, count))
            memset(s + first, 0, count * sizeof *s);
        else {
            softmax(k, s + first, visible + first, count, 1, &none, &own);
            factor = part_factor(m->arg, highest - (shifts ? most : 0), exp(own - highest));
            times = m->arg == MHA__PARTS_TIMES_SUMS ? exp(own - highest) : 1;
            kept = isinf(kept) ? own : kept;
            factor = keeps && own != kept ? 1 / (1 + exp(kept - own)) : factor;
        }
        for (size_t j = 0; j < first && keeps; j++)
            s[j] *= 1 - factor;
        for (size_t j = first; j < end; j++)
            s[j] *= factor * times;
        factors += factor;
    }
    const double all = by_sum || keeps || m->arg == MHA__PARTS_ADDED ? 1
                       : m->arg == MHA__PARTS_AVERAGED               ? (double)tiles
                                                                     : factors;
    for (size_t j = 0; j < n && all != 0; j++)
        s[j] /= all;
}

/* ---------------------------------------------------------------- one row */

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Hides all keys of a row but those of the largest scores; `late`: after the softmax. `memory`: for n scores. */
static void leave_top(const mha__mutation *m, bool late, const double *s, unsigned char *visible, size_t n,
                      double *memory)
{
    size_t seen = 0;
    for (size_t j = 0; j < n; j++)
        if (visible[j])
            memory[seen++] = s[j];
    if (seen <= (size_t)m->step)
        return;
    qsort(memory, seen, sizeof *memory, descending);
    for (size_t j = 0; j < n; j++)
        if (visible[j] && s[j] < memory[m->step - 1])
            visible[j] = late ? MHA__KEEPS_NO_WEIGHT : 0;
}

/* Sigmoid weights of one row of n scores; a bug divides them by their sum. */
static void sigmoid(const mha__program *p, double *s, const unsigned char *visible, size_t n, size_t keys)
{
    const int usual = mha__arg(p, AT_SIGMOID, OP_TAKE);
    size_t seen = 0;
    for (size_t j = 0; j < n; j++)
        seen += visible[j] != 0;
    const double bias = usual ? -log((double)(usual == MHA__BY_SEEN ? seen : keys)) : p->s.softmax.sigmoid_bias;
    double sum = 0;
    for (size_t j = 0; j < n; j++) {
        const double z = s[j] + bias, e = exp(-fabs(z));
        s[j] = !visible[j] ? 0 : (z < 0 ? e : 1) / (1 + e);
        sum += s[j];
    }
    for (size_t j = 0; j < n && sum > 0 && mha__has(p, AT_SIGMOID, OP_FN); j++)
        s[j] /= sum;
}

static void weigh_row(mha__runner *w, const softening *k, size_t b, size_t h, size_t i)
{
    const mha__program *p = k->p;
    const mha__inputs *in = w->in;
    const size_t S = in->S + mha__rows_beyond(in->c), row = h * in->c->T_q + i;
    double *s = w->scores + w->stored[row] * S;
    unsigned char *visible = w->visible + w->stored[row] * S;
    logits rest = {.n = 0};
    const bool nothing = mha__is_padding(p, b, i) && !any_visible(visible, S);
    const mha__mutation *found = mha__mutation_at(p, AT_SINK, OP_TAKE);
    const double *sinks = found ? found->table : mha__has(p, AT_SINK, OP_ZERO) ? NULL : in->weight[MHA_SINKS],
                 parts = mha__number(p, AT_SINK, OP_TIMES, 1); /* times that logits other than keys count */
    const double *sink = sinks ? sinks + mha__head_of(mha__mutation_at(p, AT_SINK, OP_FROM), in->c->H, h) : NULL;
    const int type = found ? 0 : mha__arg(p, AT_W, OP_ROUND);
    if (sink && *sink != -INFINITY && !nothing)
        join(&rest, mha__number(p, AT_SINK, OP_POWER, 1) * mha__narrowed(*sink, type), parts);
    if (p->s.softmax.softmax_plus_one && !nothing)
        join(&rest, 0, parts);
    const bool sums = p->s.softmax.normaliser == MHA_SIGMOID; /* of parts */
    for (size_t j = in->S; parts != 1 && !sums && j < S; j++)
        s[j] += log(parts);
    const size_t zeros = k->pads || mha__has(p, AT_LENGTHS, OP_FN)
                             ? mha__count_zeros(in, p, k->pads ? k->tile : NULL, b, i)
                             : 0;
    const mha__mutation *top = mha__mutation_at(p, AT_E, OP_KEEP);
    if (zeros > 0)
        join(&rest, 0, (double)zeros);
    if (top)
        leave_top(top, mha__has(p, AT_E, OP_MOVE), s, visible, S, w->ranked);
    const double scale = p->s.softmax.scale;
    for (size_t j = 0; mha__has(p, AT_S, OP_ROUND) && j < S; j++) /* of q.k and scale log2(e), both rounded to float */
        s[j] = isfinite(s[j]) ? (double)((float)(s[j] / scale) * (float)(scale * MHA__LOG2_E)) / MHA__LOG2_E : s[j];
    const size_t first = (size_t)mha__step(p, AT_SINK, OP_OVER, 0); /* tile with whose maximum sinks are added */
    const double late = first > 0 ? greatest(s, visible, S) - greatest(s, visible, first < S ? first : S) : 0;
    for (size_t r = 0; r < rest.n && isfinite(late); r++) /* not rescaled after the first tile */
        rest.logit[r] += late;
    w->lse[row] = 0;
    if (sums)
        sigmoid(p, s, visible, S, in->S);
    else if (k->tile && k->tile->arg >= MHA__PARTS_AVERAGED)
        softmax_of_tiles(k, k->tile, s, visible, S, &w->lse[row]);
    else if (k->tile && !k->pads && any_visible(visible, S))
        softmax_in_tiles(k->tile, s, visible, S, &rest, &w->lse[row]);
    else
        softmax(k, s, visible, S, 1, &rest, &w->lse[row]);
    for (size_t j = in->S; sums && j < S; j++)
        s[j] *= parts;
}

/* ---------------------------------------------------------------- finished weights */

/* Applies mutations to the finished weights of a row; keys hidden after the softmax get 0. */
static void finish_row(const mha__program *p, size_t row, double *weights, const unsigned char *visible, size_t S)
{
    const mha__mutation *dropped = mha__mutation_at(p, AT_P, OP_KEEP);
    const double *kept = dropped ? dropped->table + 1 + row * S : NULL, share = dropped ? dropped->table[0] : 0,
                 times = mha__number(p, AT_P, OP_TIMES, 1) / (1 - share), exponent = mha__number(p, AT_P, OP_POWER, 0),
                 least = mha__number(p, AT_P, OP_LIMIT, 0), below = mha__number(p, AT_P, OP_ZERO, 0),
                 levels = mha__number(p, AT_P, OP_QUANT, 0);
    const int bits = (int)mha__number(p, AT_P, OP_BITS, 0);
    const bool loses = mha__arg(p, AT_P, OP_ZERO) == MHA__LOSES_WEIGHTS;
    const size_t rounded = bits ? (size_t)MHA__SPAN_FIRST(mha__mutation_at(p, AT_P, OP_BITS)) : 0; /* the first */
    const mha__mutation *tile = mha__mutation_at(p, AT_P, OP_FILL);
    const size_t from = tile ? (size_t)MHA__SPAN_FIRST(tile) : 0, to = tile ? from + (size_t)MHA__SPAN_COUNT(tile) : 0;
    for (size_t j = 0; j < S; j++) {
        double x = weights[j] * (visible[j] == MHA__KEEPS_NO_WEIGHT || (kept && kept[j] == 0) ? 0 : times);
        x *= j >= from && j < to ? tile->number : 1;
        x = exponent > 0 ? pow(x, exponent) : x;
        x = least > 0 && visible[j] ? fmax(x, least) : x;
        x = loses && x < below ? 0 : x;
        weights[j] = bits && j >= rounded ? mha__shortened(x, bits) : levels > 0 ? rint(x * levels) / levels : x;
    }
}

/* Gives each head the mean weights of all heads, or those of the first head. */
static void average(mha__runner *w, bool first, size_t rows)
{
    const size_t H = w->in->c->H;
    for (size_t at = 0; at < rows; at++) {
        double sum = 0;
        unsigned char seen = 0;
        for (size_t h = 0; h < H; h++)
            sum += w->scores[h * rows + at], seen |= w->visible[h * rows + at];
        const double weight = first ? w->scores[at] : sum / (double)H;
        seen = first ? w->visible[at] : seen;
        for (size_t h = 0; h < H; h++)
            w->scores[h * rows + at] = weight, w->visible[h * rows + at] = seen;
    }
}

/* Divides each row by the sum of exp(s - maximum) of the first row of its tile; 1 / sum is the largest weight. */
static void share_sums(mha__runner *w, size_t tile, size_t S)
{
    double first = 0;
    for (size_t row = 0; row < w->in->c->H * w->in->c->T_q; row++) {
        double *s = w->scores + w->stored[row] * S, most = 0;
        for (size_t j = 0; j < S; j++)
            most = fmax(most, s[j]);
        first = row % w->in->c->T_q % tile == 0 ? most : first;
        for (size_t j = 0; j < S && most > 0; j++)
            s[j] *= first / most;
    }
}

void mha__weigh_rows(mha__runner *w, const mha__program *p, size_t b)
{
    const mha_case *c = w->in->c;
    const size_t S = w->in->S + mha__rows_beyond(c), T = c->T_q, lines = c->H * T;
    const int axis = mha__arg(p, AT_E, OP_OVER), averaged = mha__arg(p, AT_P, OP_OVER);
    const softening k = softening_of(p);
    const logits none = {.n = 0};
    double unused;
    size_t rows = 0; /* scores of each head, for a softmax or a mean over heads or queries */
    for (size_t i = 0; i < T; i++)
        rows += w->scored[i] ? S : 0;
    for (size_t row = 0; row < lines; row++)
        if (axis != MHA__OVER_KEYS)
            w->lse[row] = NAN; /* a query has none */
        else if (w->scored[row])
            weigh_row(w, &k, b, row / T, row % T);
    for (size_t at = 0; axis == MHA__OVER_QUERIES && at < c->H * S; at++)
        softmax(&k, w->scores + at / S * rows + at % S, w->visible + at / S * rows + at % S, T, S, &none, &unused);
    for (size_t at = 0; axis == MHA__OVER_HEADS && at < rows; at++)
        softmax(&k, w->scores + at, w->visible + at, c->H, rows, &none, &unused);
    if (mha__has(p, AT_P, OP_FROM))
        share_sums(w, (size_t)mha__mutation_at(p, AT_P, OP_FROM)->step, S);
    const bool again = mha__has(p, AT_P, OP_DO);
    bool finishes = mha__arg(p, AT_RULES, OP_MOVE) || mha__has(p, AT_E, OP_MOVE);
    for (size_t i = 0; i < p->n; i++)
        finishes |= p->m[i].site == AT_P;
    for (size_t row = 0; row < lines && finishes; row++) {
        const size_t at = w->scored[row] ? w->stored[row] * S : 0;
        if (w->scored[row] && again)
            softmax(&k, w->scores + at, w->visible + at, S, 1, &none, &unused);
        if (w->scored[row])
            finish_row(p, b * lines + row, w->scores + at, w->visible + at, S);
    }
    if (averaged)
        average(w, averaged == MHA__FIRST_HEAD, rows);
}
