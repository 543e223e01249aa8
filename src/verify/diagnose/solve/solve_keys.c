/* Finds which keys are hidden from all queries of a batch row: those without weight, or without part in the heads; and
 * how often each counts. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/solve/solve.h"

enum { MOST_KEYS = 512 }; /* found from heads: the work grows with their square */

/* The tensor, and the attention in which no key is hidden this way. */
typedef struct view_of_keys {
    size_t S, all; /* keys, and with the extra rows */
    mha__look look;
} view_of_keys;

/* ---------------------------------------------------------------- from recorded weights */

/* Hides the keys of a batch row that have no weight in any row although the open attention gives them some. */
static void choose_by_weight(const mha__search *s, const view_of_keys *v, const double *recorded, size_t b,
                             double *kept)
{
    const double least = 1e-6; /* a smaller weight may be 0 after rounding to 16 bits */
    const size_t rows = s->c->H * s->c->T_q;
    for (size_t j = 0; j < v->S; j++) {
        bool expected = false, found = false;
        for (size_t r = 0; r < rows; r++) {
            const size_t at = (b * rows + r) * v->all + j;
            expected |= s->rows_checked[b * s->c->T_q + r % s->c->T_q] && v->look.weights[at] > least;
            found |= recorded[at] != 0;
        }
        kept[j] = found || !expected;
    }
}

/* ---------------------------------------------------------------- from heads */

/* Adds one row of equations: sum_j m_j a_j (v_j - o) = x o - X for each feature of a head, where m_j is 0 for a hidden
 * key and else 1, a_j the weight of key j in the open attention, o the head found, x the weight of what is no key
 * (extra rows, sinks) and X its part in the head; of a sigmoid, whose weights are not divided by their sum,
 * sum_j m_j a_j v_j = o - X. Unknown are m and a factor of the right side: N (n, n), n = S + 1. */
static void add_equation(const double *terms, size_t n, double *N)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i && terms[i] != 0; j++)
            N[i * n + j] += terms[i] * terms[j];
}

static size_t add_equations(const mha__search *s, const view_of_keys *v, size_t row, const double *found, double *terms,
                            double *N)
{
    const mha_case *c = s->c;
    const size_t b = row / c->T_q, i = row % c->T_q, n = v->S + 1;
    const bool sums = c->semantics.softmax.normaliser == MHA_SIGMOID;
    for (size_t h = 0; h < c->H; h++) {
        const double *a = v->look.weights + ((b * c->H + h) * c->T_q + i) * v->all;
        const double *open = v->look.heads + (row * c->H + h) * c->d_v, *o = found + h * c->d_v;
        const double *values = v->look.values + (b * c->H_kv + h / (c->H / c->H_kv)) * v->S * c->d_v;
        for (size_t f = 0; f < c->d_v; f++) {
            double rest = 1, other = open[f];
            for (size_t j = 0; j < v->S; j++) {
                const double weight = a[j], value = weight != 0 ? values[j * c->d_v + f] : 0;
                terms[j] = weight * (sums ? value : value - o[f]);
                rest -= weight, other -= weight * value;
            }
            terms[v->S] = other - (sums ? 1 : rest) * o[f];
            if (!sums && fabs(rest) < 1e-12) /* what is no key has no weight */
                terms[v->S] = 0;
            for (size_t j = 0; j < n; j++)
                if (!isfinite(terms[j]))
                    return 0;
            add_equation(terms, n, N);
        }
    }
    return c->H * c->d_v;
}

/* The unknowns for which the equations come nearest to 0: the eigenvector of the least eigenvalue, by inverse
 * iteration. What no equation contains is kept. */
static bool choose_by_heads(double *N, size_t S, bool counts, double *m, double *kept)
{
    enum { ROUNDS = 20 };
    const size_t n = S + 1;
    double most = 0, trace = 0, largest = 0;
    for (size_t j = 0; j < n; j++)
        most = fmax(most, N[j * n + j]), trace += N[j * n + j];
    for (size_t j = 0; j < n; j++) {
        m[j] = N[j * n + j] > 1e-13 * most ? 1 : 0;
        if (m[j] == 0) { /* leaves the equations; its own makes it 0 */
            for (size_t k = 0; k < n; k++)
                N[j > k ? j * n + k : k * n + j] = 0;
            N[j * n + j] = trace;
        }
        if (j < S)
            kept[j] = 1 - m[j];
    }
    for (size_t j = 0; j < n; j++)
        N[j * n + j] += 1e-15 * trace;
    if (!(most > 0) || !mha__cholesky(N, n, 0))
        return false;
    for (int round = 0; round < ROUNDS; round++) {
        double length = 0;
        mha__cholesky_solve(N, n, m);
        for (size_t j = 0; j < n; j++)
            length = fmax(length, fabs(m[j]));
        for (size_t j = 0; j < n; j++)
            m[j] /= length;
    }
    for (size_t j = 0; j < n; j++)
        largest = fabs(m[j]) > fabs(largest) ? m[j] : largest;
    double once = largest;
    for (size_t j = 0; j < S && counts; j++) /* some keys count twice */
        once = fabs(m[j] / largest - 0.5) < 0.125 ? largest / 2 : once;
    for (size_t j = 0; j < S; j++)
        if (kept[j] == 0)
            kept[j] = counts ? fmax(0, rint(m[j] / once)) : m[j] / largest > 0.5;
    bool whole = true;
    for (size_t j = 0; j < S && counts; j++)
        whole &= fabs(m[j] / once - rint(m[j] / once)) < 0.1;
    return whole;
}

static bool find_in_heads(const mha__search *s, const view_of_keys *v, size_t b, bool counts, double *memory,
                          double *kept)
{
    const size_t n = v->S + 1, T = s->c->T_q;
    double *N = memory, *terms = N + n * n, *m = terms + n;
    size_t equations = 0;
    memset(N, 0, n * n * sizeof *N);
    for (size_t i = 0; i < T; i++) {
        const size_t row = b * T + i;
        if (!s->rows_checked[row])
            continue;
        equations += add_equations(s, v, row, v->look.found + row * v->look.width, terms, N);
        if (equations > 16 * n && n > 64) /* enough, where they are many */
            break;
    }
    return equations > n && choose_by_heads(N, v->S, counts, m, kept);
}

mha_status mha__solve_keys(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha_case *c = s->c;
    const size_t S = s->inputs->S, n = S + 1;
    const bool counts = mha__solved_entry_at(index)->how == SOLVE_COUNTS;
    mha__program open = s->unmodified.program;
    view_of_keys v = {.S = S, .all = S + mha__rows_beyond(c)};
    double *kept = mha__arena_take(&s->pool, (c->B * S + 1) * sizeof *kept), *recorded = NULL;
    if (!kept)
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < c->B * S; i++)
        kept[i] = 1;
    if (!mha__solved_entry_at(index)->apply(c, &open, kept))
        return MHA_OK;
    if (!counts)
        TRY(mha__look_for_weights(s, pool, &recorded, error));
    TRY(mha__look_begin(s, pool, &v.look, error));
    if (!recorded && (!v.look.found || S > MOST_KEYS))
        return MHA_OK;
    TRY(mha__look_at_program(s, &open, pool, &v.look, error));
    double *memory = recorded ? NULL : mha__arena_take(pool, (n * n + 2 * n) * sizeof *memory);
    if (!recorded && !memory)
        return mha__search_no_memory(s, error);
    bool found = true;
    for (size_t b = 0; b < c->B; b++)
        if (recorded)
            choose_by_weight(s, &v, recorded, b, kept + b * S);
        else if (memory && memchr(s->rows_checked + b * c->T_q, 1, c->T_q))
            found &= find_in_heads(s, &v, b, counts, memory, kept + b * S);
    for (size_t i = 0; i < c->B * S && (found || !counts); i++)
        if (counts ? kept[i] > 1 : kept[i] == 0) {
            mha__search_append(s, index, kept);
            break;
        }
    return MHA_OK;
}
