/* Bugs in the softmax of a query, in tiles and parts of it, in finished weights, and over other axes. */
#include "support/bugs/oracle_bugs.h"
#include "support/bugs/oracle_row.h"

/* ---------------------------------------------------------------- tiles and parts */

/* The softmax over one tile after the other, without some of its corrections. False: nothing was visible. */
static bool soften_in_tiles(oracle_row *x, const double *more, size_t n_more)
{
    const int way = oracle_arg(AT_TILE, OP_FN);
    const double step = STEP(TILE, FN);
    const size_t size = (size_t)fabs(step), tiles = (x->n + size - 1) / size;
    double m = -(double)INFINITY, l = 0, late = 1;
    for (size_t k = 0; k < tiles; k++) {
        const size_t t = step < 0 ? tiles - 1 - k : k;
        const double before = m;
        for (size_t j = t * size; j < x->n && j < (t + 1) * size; j++)
            m = x->s[j] > m ? x->s[j] : m;
        if (isinf(m))
            continue;
        const double own = exp(before - m);
        bool sees = false;
        for (size_t j = t * size; j < x->n && j < (t + 1) * size; j++)
            sees |= !isinf(x->s[j]);
        const double base_2 = pow(2, before - m), inverse = own > 0 ? 1 / own : 0, forgets = sees ? 0 : 1;
        const double of[][2] = {
            /* values, sum */
            [MHA__NEVER_RESCALED] = {1, 1},
            [MHA__VALUES_UNSCALED] = {1, own},
            [MHA__SUM_UNSCALED] = {own, 1},
            [MHA__RESCALED_BASE_2] = {base_2, base_2},
            [MHA__VALUES_BASE_2] = {base_2, own},
            [MHA__SUM_BASE_2] = {own, base_2},
            [MHA__RESCALED_INVERSE] = {inverse, inverse},
            [MHA__VALUES_INVERSE] = {inverse, own},
            [MHA__SUM_INVERSE] = {own, inverse},
            [MHA__VALUES_FORGOTTEN] = {forgets, own},
            [MHA__SUM_FORGOTTEN] = {own, forgets},
            [MHA__RESCALED_LATE] = {late, late},
        };
        late = own, l *= of[way][1];
        for (size_t j = 0; j < x->n; j++)
            x->w[j] *= of[way][0];
        for (size_t j = t * size; j < x->n && j < (t + 1) * size; j++)
            x->w[j] = exp(x->s[j] - m), l += x->w[j];
    }
    if (isinf(m))
        return false;
    for (size_t k = 0; k < n_more; k++)
        l += exp(more[k] - m);
    for (size_t j = 0; j < x->n; j++)
        x->w[j] /= l;
    x->lse = m + log(l);
    return true;
}

/* The first key of part p: parts of so many keys, or so many parts (negative) of numbers of keys that differ by one. */
static size_t part_begin(size_t n, double step, size_t p)
{
    const double at = floor(step > 0 ? (double)p * step : (double)(p * n) / -step);
    return at < (double)n ? (size_t)at : n;
}

/* A softmax over each part of the keys, averaged, added, or merged by what is taken for its weight. */
static void soften_parts(oracle_row *x)
{
    const int way = oracle_arg(AT_TILE, OP_FN);
    const double step = STEP(TILE, FN), parts = step < 0 ? -step : ceil((double)x->n / step);
    double sum = 0, greatest = -(double)INFINITY, kept = (double)NAN;
    double lse[ORACLE_KEYS], all[ORACLE_KEYS], most[ORACLE_KEYS];
    for (size_t p = 0; p < (size_t)parts; p++) {
        most[p] = -(double)INFINITY, all[p] = 0;
        for (size_t j = part_begin(x->n, step, p); j < part_begin(x->n, step, p + 1); j++)
            most[p] = fmax(most[p], x->s[j]);
        for (size_t j = part_begin(x->n, step, p); j < part_begin(x->n, step, p + 1); j++)
            all[p] += x->w[j] = isinf(most[p]) ? 0 : exp(x->s[j] - most[p]);
        lse[p] = most[p] + log(all[p]);
        greatest = all[p] > 0 ? fmax(greatest, lse[p]) : greatest;
    }
    for (size_t p = 0; p < (size_t)parts; p++) {
        const double own = lse[p], factor = way == MHA__PARTS_EMPTY_SEEN                ? exp(isinf(most[p]) ? 0 : own)
                                            : isinf(most[p])                            ? 0
                                            : way == MHA__PARTS_BY_SUMS                 ? all[p]
                                            : way == MHA__PARTS_BY_LSE                  ? own
                                            : way == MHA__PARTS_BY_POWERS_OF_2          ? pow(2, own)
                                            : way == MHA__PARTS_BASE_2                  ? exp(own / log(2))
                                            : way == MHA__PARTS_BY_MAXIMA               ? exp(most[p])
                                            : way == MHA__PARTS_BY_INVERSE              ? exp(-own)
                                            : way == MHA__PARTS_UNDIVIDED               ? exp(own - greatest)
                                            : way == MHA__PARTS_TIMES_SUMS              ? exp(own)
                                            : way != MHA__PARTS_LSE_KEPT || isnan(kept) ? 1
                                                                                        : 1 / (1 + exp(kept - own));
        for (size_t j = 0; j < part_begin(x->n, step, p) && way == MHA__PARTS_LSE_KEPT; j++)
            x->w[j] *= 1 - factor;
        kept = isnan(kept) && all[p] > 0 ? own : kept;
        sum += factor;
        for (size_t j = part_begin(x->n, step, p); j < part_begin(x->n, step, p + 1) && all[p] > 0; j++)
            x->w[j] *= factor * (way == MHA__PARTS_TIMES_SUMS ? 1 : 1 / all[p]);
    }
    const bool adds = way == MHA__PARTS_ADDED || way == MHA__PARTS_UNDIVIDED || way == MHA__PARTS_LSE_KEPT;
    for (size_t j = 0; j < x->n && sum != 0 && !adds; j++)
        x->w[j] /= way == MHA__PARTS_AVERAGED ? parts : sum;
}

/* ---------------------------------------------------------------- weights of one query */

/* Whether key j is not among so many with the greatest scores. */
static bool is_below_top(const oracle_row *x, size_t j)
{
    size_t greater = 0;
    for (size_t k = 0; k < x->n; k++)
        greater += x->s[k] > x->s[j];
    return (double)greater >= STEP(E, KEEP);
}

/* Sigmoid in place of softmax. */
static void squash(const run *r, oracle_row *x)
{
    double seen = 0, all = 0;
    for (size_t j = 0; j < x->n; j++)
        seen += !isinf(x->s[j]);
    const double bias = IS(SIGMOID, TAKE, BY_USUAL)              ? -log((double)x->real)
                        : IS(SIGMOID, TAKE, BY_SEEN) && seen > 0 ? -log(seen)
                                                                 : r->s->softmax.sigmoid_bias;
    for (size_t j = 0; j < x->n; j++)
        all += x->w[j] = x->s[j] == -(double)INFINITY ? 0 : 1 / (1 + exp(-x->s[j] - bias));
    for (size_t j = 0; j < x->n; j++)
        x->w[j] *= (j < x->real ? 1 : NUMBER(SINK, TIMES, 1)) / (OP(SIGMOID, FN) && all > 0 ? all : 1);
}

/* The term of a score in the sum of a softmax. */
static double term(double s, double m)
{
    const int relu = oracle_arg(AT_E, OP_FN);
    const double base = NUMBER(E, TIMES, 0), most = NUMBER(E, LIMIT, (double)INFINITY);
    if (relu)
        return relu == MHA__RELU ? fmax(s, 0) : relu == MHA__RELU_SQUARED ? pow(fmax(s, 0), 2) : isinf(s) ? 0 : s;
    const double below = isinf(s) || s - m >= -most ? s - m : -most, whole = floor(below / log(2)),
                 part = below / log(2) - whole;
    if (OP(E, POWER) && !isinf(s))
        return pow(2, whole) * (NUMBER(E, POWER, 0) == 1   ? 1 + part
                                : NUMBER(E, POWER, 0) == 2 ? 1 + 0.6565 * part + 0.3435 * part * part
                                                           : 1 + 0.69514614 * part + 0.22756439 * part * part +
                                                                 0.07711909 * part * part * part);
    return base > 0 ? pow(2, below) : exp(base < 0 ? below / log(2) : below);
}

/* The weights of a softmax over keys and other logits; `padded`: number of zeros. */
static void divide(const run *r, oracle_row *x, const double *more, size_t n_more, size_t padded)
{
    const int divides = oracle_arg(AT_P, OP_FN), loses = oracle_arg(AT_P, OP_ZERO), lse = oracle_arg(AT_LSE, OP_FN);
    const double parts = NUMBER(SINK, TIMES, 1), least = NUMBER(P, ZERO, 0);
    double m = -(double)INFINITY, keys = 0, squares = 0;
    bool odd = false, unshifted = OP(SINK, FN) != NULL;
    for (size_t j = 0; j < x->n; j++)
        m = fmax(m, x->s[j]), odd |= isnan(x->s[j]) || (isinf(x->s[j]) && x->s[j] > 0);
    for (size_t k = 0; k < n_more && !unshifted; k++)
        m = fmax(m, more[k]);
    if (odd || (isinf(m) && padded == 0)) {
        const bool nan = odd || r->s->softmax.empty_rows == MHA_EMPTY_NAN;
        for (size_t j = 0; j < x->n; j++)
            x->w[j] = nan ? (double)NAN : 0;
        x->lse = nan ? (double)NAN : -(double)INFINITY;
        return;
    }
    m = padded > 0 ? fmax(m, 0) : m;
    m = OP(E, DO) ? 0 : m;
    for (size_t j = 0; j < x->n; j++) {
        x->w[j] = term(x->s[j], m);
        x->w[j] = loses == MHA__LOSES_EXPONENTIALS && x->w[j] < least ? 0 : x->w[j];
        keys += x->w[j] *= j < x->real ? 1 : parts;
    }
    double all = keys + (padded > 0 ? (double)padded * term(0, m) : 0) + NUMBER(E, PLUS, 0);
    for (size_t k = 0; k < n_more; k++)
        all += parts * term(more[k], unshifted ? 0 : m);
    for (size_t j = 0; j < x->n && OP(E, ROUND); j++)
        all = oracle_shortened((j ? all : all - keys) + x->w[j], (int)NUMBER(E, ROUND, 0));
    for (size_t j = 0; j < x->n && OP(E, ZERO); j++)
        all = (j ? all : all - keys) + (fmod((double)j, STEP(E, ZERO)) < STEP(E, ZERO) / 2 ? x->w[j] : 0);
    const double whole = all;
    for (size_t j = 0; j < x->n; j++) {
        if (loses == MHA__LOSES_KEYS && x->w[j] < least * whole)
            all -= x->w[j], x->w[j] = 0;
        squares += x->w[j] * x->w[j];
    }
    const double by = divides == MHA__UNDIVIDED       ? 1
                      : divides == MHA__DIVIDED_TWICE ? all * all
                      : divides == MHA__BY_ROOT       ? sqrt(squares)
                                                      : all;
    for (size_t j = 0; j < x->n; j++)
        if (!isinf(x->s[j])) /* else 0, even of 0 / 0 */
            x->w[j] = (OP(E, BITS)    ? oracle_shortened(x->w[j], (int)NUMBER(E, BITS, 0))
                       : OP(E, QUANT) ? nearbyint(x->w[j] * NUMBER(E, QUANT, 1)) / NUMBER(E, QUANT, 1)
                                      : x->w[j]) /
                      by;
    x->lse = lse == MHA__LSE_BASE_2         ? m / log(2) + log2(all)
             : lse == MHA__LSE_NO_SINKS     ? m + log(keys)
             : lse == MHA__LSE_NO_MAXIMUM   ? log(all)
             : lse == MHA__LSE_MAX_UNSCALED ? m / r->s->softmax.scale + log(all)
                                            : m + log(all);
}

/* Finished weights of a query, those of a dropout that was left on among them. */
static void finish(const run *r, size_t b, size_t head, size_t i, oracle_row *x)
{
    const mha__mutation *drops = OP(P, KEEP);
    const size_t line = ((b * r->h + head) * r->T_q + i) * (r->S + r->extra);
    double again = 0;
    for (size_t j = 0; j < x->n && OP(P, DO); j++)
        again += isinf(x->s[j]) ? 0 : exp(x->w[j]);
    for (size_t j = 0; j < x->n && again > 0; j++)
        x->w[j] = isinf(x->s[j]) ? 0 : exp(x->w[j]) / again;
    for (size_t j = 0; j < x->n; j++) {
        double w = x->w[j] * (x->dropped[j] ? 0 : NUMBER(P, TIMES, 1));
        if (drops)
            w *= drops->table[1 + line + j] != 0 ? 1 / (1 - drops->table[0]) : 0;
        w = OP(P, POWER) ? pow(w, NUMBER(P, POWER, 1)) : w;
        w = OP(P, LIMIT) && !isinf(x->s[j]) ? fmax(w, NUMBER(P, LIMIT, 0)) : w;
        w = IS(P, ZERO, LOSES_WEIGHTS) && w < NUMBER(P, ZERO, 0) ? 0 : w;
        w = OP(P, QUANT) ? nearbyint(w * NUMBER(P, QUANT, 1)) / NUMBER(P, QUANT, 1) : w;
        x->w[j] = OP(P, BITS) ? oracle_shortened(w, (int)NUMBER(P, BITS, 0)) : w;
    }
}

void oracle_soften(const run *r, size_t b, size_t head, size_t i, oracle_row *x)
{
    const int way = oracle_arg(AT_TILE, OP_FN);
    const double scale = r->s->softmax.scale, log2e = 1 / log(2);
    double more[2] = {0};
    size_t n_more = 0, padded = 0;
    bool nothing = oracle_pads(r, b, i), below[ORACLE_KEYS] = {false};
    for (size_t j = 0; j < x->n; j++)
        nothing &= x->s[j] == -(double)INFINITY;
    const size_t of = OP(SINK, FROM) ? oracle_mapped(OP(SINK, FROM), b, head, r->h) : head;
    if (!nothing && r->sinks.data && isfinite(oracle_get(&r->sinks, of, 0, 0, 0)))
        more[n_more++] = oracle_get(&r->sinks, of, 0, 0, 0) * NUMBER(SINK, POWER, 1);
    n_more += r->s->softmax.softmax_plus_one && !nothing;
    for (size_t j = 0; j < x->n && OP(E, KEEP); j++)
        below[j] = is_below_top(x, j);
    for (size_t j = 0; j < x->n; j++) {
        x->w[j] = 0;
        if (below[j] && OP(E, MOVE))
            x->dropped[j] = true;
        else if (below[j])
            x->s[j] = -(double)INFINITY;
        if (OP(S, ROUND) && isfinite(x->s[j]))
            x->s[j] = (double)((float)(x->s[j] / scale) * (float)(scale * log2e)) / log2e;
    }
    x->lse = 0;
    if (r->s->softmax.normaliser == MHA_SIGMOID)
        squash(r, x);
    else if (way >= MHA__PARTS_AVERAGED)
        soften_parts(x);
    else if (way == 0 || way >= MHA__TILE_PADDED || !soften_in_tiles(x, more, n_more)) {
        padded = way >= MHA__TILE_PADDED ? oracle_padded(r, b, i, x->n) : 0;
        divide(r, x, more, n_more, padded);
    }
    finish(r, b, head, i, x);
}

/* Feature f of a head from sums that are rounded after each tile of keys, and shrink as the greatest score grows. */
static double sum_in_tiles(const oracle_row *x, const number *v, size_t step)
{
    const mha__mutation *m = OP(O, BITS);
    double sum = 0, most = -(double)INFINITY;
    for (size_t first = 0; first < x->n; first += (size_t)m->step) {
        const size_t end = first + (size_t)m->step < x->n ? first + (size_t)m->step : x->n;
        const double before = most;
        for (size_t j = first; j < end; j++)
            most = fmax(most, x->s[j]);
        if (isinf(most))
            continue;
        sum *= exp(before - most);
        for (size_t j = first; j < end; j++)
            sum += isinf(x->s[j]) ? 0 : exp(x->s[j] - most) * v[j * step].v;
        sum = oracle_shortened(sum, (int)m->number);
    }
    return isinf(most) ? 0 : sum * exp(most - x->lse);
}

void oracle_weigh(run *r, size_t b, size_t head, size_t i, const oracle_row *x, number *heads)
{
    const size_t all = r->S + r->extra, line = (b * r->h + head) * r->T_q + i;
    const number *v = r->values + (b * r->h_kv + head / (r->h / r->h_kv)) * all * r->d_v;
    const bool propagate = r->s->softmax.hidden_values == MHA_HIDDEN_PROPAGATE && !oracle_pads(r, b, i);
    for (size_t f = 0; f < r->d_v; f++) {
        double sum = x->n == 0 && isnan(x->lse) ? x->lse : 0; /* no weight has the NaN */
        for (size_t j = 0; j < x->n; j++)
            if (x->w[j] != 0 || (propagate && j < x->real) || !isinf(x->s[j]))
                sum += x->w[j] * v[j * r->d_v + f].v *
                       (oracle_keeps(&r->s->softmax, b, head, i, j) ? 1 / (1 - r->s->softmax.dropout_p) : 0);
        sum = OP(O, BITS) && !isnan(x->lse) ? sum_in_tiles(x, v + f, r->d_v) : sum;
        heads[query_row(r, b, i) * r->h * r->d_v + head * r->d_v + f] = (number){sum, 0};
    }
    for (size_t j = 0; j < x->n; j++)
        r->out->stage[MHA_STAGE_WEIGHTS].value[line * all + j] = x->w[j];
    r->out->stage[MHA_STAGE_LSE].value[line] = x->lse;
}

/* ---------------------------------------------------------------- over heads and queries */

/* softmax(scores, dim=-2), or dim=-3, or the mean of the weights of all heads, or those of the first; right scores and
 * weights have been kept. */
void buggy_weights_across(run *r, number *heads)
{
    const bool softens = OP(E, OVER) != NULL, queries = IS(E, OVER, OVER_QUERIES);
    const size_t n = r->S + r->extra, T = r->T_q, size = r->B * r->h * T * n, step = queries ? n : T * n,
                 many = queries                   ? T
                        : IS(P, OVER, FIRST_HEAD) ? 1
                                                  : r->h;
    static double s[ORACLE_KEYS], w[ORACLE_KEYS];
    double *masked = malloc((size + 1) * sizeof *masked), *weights = malloc((size + 1) * sizeof *weights);
    memcpy(masked, r->out->stage[MHA_STAGE_MASKED].value, size * sizeof *masked);
    memcpy(weights, r->out->stage[MHA_STAGE_WEIGHTS].value, size * sizeof *weights);
    for (size_t at = 0; at < r->B * r->h * T; at++) {
        const size_t b = at / T / r->h, h = at / T % r->h, i = at % T,
                     first = (queries ? at - i : b * r->h * T + i) * n;
        const oracle_row x = {.real = keys_of(r, b),
                              .n = keys_of(r, b) + r->extra,
                              .s = s,
                              .w = w,
                              .lse = softens ? 0 : r->out->stage[MHA_STAGE_LSE].value[at]};
        for (size_t j = 0; i < queries_of(r, b) && j < x.n; j++) {
            double m = -(double)INFINITY, sum = 0, mean = 0;
            for (size_t k = 0; k < many; k++)
                m = fmax(m, masked[first + k * step + j]), mean += weights[first + k * step + j] / (double)many;
            for (size_t k = 0; k < many && !isinf(m); k++)
                sum += exp(masked[first + k * step + j] - m);
            x.s[j] = softens ? masked[at * n + j] : m;
            x.w[j] = !softens                                    ? mean
                     : !isinf(m)                                 ? exp(x.s[j] - m) / sum
                     : r->s->softmax.empty_rows == MHA_EMPTY_NAN ? (double)NAN
                                                                 : 0;
        }
        if (i < queries_of(r, b))
            oracle_weigh(r, b, h, i, &x, heads);
    }
    free(masked), free(weights);
}
