/* Finds which rows of v replace others, from the heads that are sums of them. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/solve/solve.h"

enum { MOST_VALUES = 1024 };         /* the work grows with their cube */
static const double most_work = 1e9; /* products, about a second */

/* ---------------------------------------------------------------- rows of v */

/* One key/value head of a batch row: the values v, those that replace them, and for the weights W (rows, S) of all
 * queries that read it the products W^T W, and W^T times what the heads found have more. */
typedef struct values {
    size_t S, d;
    const double *own; /* (S, d) */
    double *A, *r;     /* (S, S), (d, S) */
    double *G;         /* (S, d): A v - W^T o, of the values chosen so far */
} values;

/* Adds one row of weights and the difference of its head. */
static void add_row(const values *v, const double *weights, const double *more)
{
    for (size_t i = 0; i < v->S; i++) {
        for (size_t j = 0; j <= i && weights[i] != 0; j++)
            v->A[i * v->S + j] += weights[i] * weights[j];
        for (size_t f = 0; f < v->d; f++)
            v->r[f * v->S + i] += weights[i] * more[f];
    }
}

/* Adds to `far` (S, S) the squared distance of the value that the equations give for each place from each value. A
 * place that they hardly determine keeps its own value. `L`: memory for A with a little more on its diagonal. */
static void measure(const values *v, double *L, double *x, double *far)
{
    const size_t S = v->S;
    const double least = 1e-10;
    double trace = 0;
    memcpy(L, v->A, S * S * sizeof *L);
    for (size_t j = 0; j < S; j++)
        trace += L[j * S + j];
    for (size_t j = 0; j < S; j++)
        L[j * S + j] += least * trace / (double)S + (trace > 0 ? 0 : 1);
    if (!mha__cholesky(L, S, 0))
        return;
    memcpy(x, v->r, S * v->d * sizeof *x);
    for (size_t f = 0; f < v->d; f++)
        mha__cholesky_solve(L, S, x + f * S);
    for (size_t t = 0; t < S; t++)
        for (size_t j = 0; j < S; j++)
            for (size_t f = 0; f < v->d; f++) {
                const double apart = v->own[t * v->d + f] + x[f * S + t] - v->own[j * v->d + f];
                far[t * S + j] += apart * apart;
            }
}

static double product_of(const values *v, size_t i, size_t j)
{
    return i > j ? v->A[i * v->S + j] : v->A[j * v->S + i];
}

/* By how much the squared distance of the heads changes when row j replaces the present row at t. */
static double change(const values *v, const double *row, size_t t, size_t j)
{
    const double *now = v->own + (size_t)row[t] * v->d, *then = v->own + j * v->d, *G = v->G + t * v->d;
    double sum = 0;
    for (size_t f = 0; f < v->d; f++)
        sum += (then[f] - now[f]) * (2 * G[f] + product_of(v, t, t) * (then[f] - now[f]));
    return sum;
}

/* Puts another row at t. */
static void put(const values *v, const double *row, size_t t, size_t j)
{
    const double *now = v->own + (size_t)row[t] * v->d, *then = v->own + j * v->d;
    for (size_t i = 0; i < v->S; i++)
        for (size_t f = 0; f < v->d; f++)
            v->G[i * v->d + f] += product_of(v, i, t) * (then[f] - now[f]);
}

/* Exchanges one row after the other for the one that brings all heads nearest, until none does. Where rows are many,
 * queries mostly are, too, and the rows are found before. */
static void improve(const values *heads, size_t n, double *row)
{
    enum { MOST_ROUNDS = 8, MOST_WORK = 1 << 27 };
    const size_t S = heads->S;
    bool changed = S * S * heads->d * n <= MOST_WORK;
    for (int round = 0; changed && round < MOST_ROUNDS; round++) {
        changed = false;
        for (size_t t = 0; t < S; t++) {
            size_t best = (size_t)row[t];
            double least = 0;
            for (size_t j = 0; j < S; j++) {
                double by = 0;
                for (size_t g = 0; g < n; g++)
                    by += change(&heads[g], row, t, j);
                if (by < least)
                    least = by, best = j;
            }
            if (best == (size_t)row[t])
                continue;
            for (size_t g = 0; g < n; g++)
                put(&heads[g], row, t, best);
            row[t] = (double)best;
            changed = true;
        }
    }
}

/* Begins with these rows and improves them; the squared distance of the heads, less that of the case's own rows. */
static double improve_from(const values *heads, size_t n, double *row)
{
    const size_t S = heads->S, d = heads->d;
    double sum = 0;
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; i < S; i++)
            for (size_t f = 0; f < d; f++)
                heads[g].G[i * d + f] = -heads[g].r[f * S + i];
    for (size_t t = 0; t < S; t++) {
        const size_t begun = (size_t)row[t];
        row[t] = (double)t;
        for (size_t g = 0; g < n && begun != t; g++)
            put(&heads[g], row, t, begun);
        row[t] = (double)begun;
    }
    improve(heads, n, row);
    for (size_t g = 0; g < n; g++)
        for (size_t i = 0; i < S; i++)
            for (size_t f = 0; f < d; f++) {
                const double more = heads[g].own[(size_t)row[i] * d + f] - heads[g].own[i * d + f];
                sum += more * (heads[g].G[i * d + f] - heads[g].r[f * S + i]);
            }
    return sum;
}

/* The row of one batch row of v in each place. Two beginnings are improved: each place with its own row, as where few
 * rows are exchanged, and with the row that is nearest by least squares. */
static void choose_values(const values *heads, size_t n, double *memory, double *row)
{
    const size_t S = heads->S;
    double *far = memory, *L = far + S * S, *x = L + S * S, *nearest = x + S * heads->d;
    memset(far, 0, S * S * sizeof *far);
    for (size_t g = 0; g < n; g++)
        measure(&heads[g], L, x, far);
    for (size_t t = 0; t < S; t++) {
        nearest[t] = (double)mha__solve_nearest(far + t * S, S, t);
        row[t] = (double)t;
    }
    const double own = improve_from(heads, n, row);
    if (improve_from(heads, n, nearest) < own)
        memcpy(row, nearest, S * sizeof *row);
}

mha_status mha__solve_values(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha_case *c = s->c;
    const size_t S = c->T_k, d = c->d_v, G = c->H / c->H_kv, all = S + mha__rows_beyond(c), width = c->H * d;
    mha__look l;
    if (c->P > 0) /* few queries see many values */
        return mha__solve_key_rows(s, index, pool, error);
    const double work = (double)(c->B * S) * (double)S * ((double)(c->H * c->T_q) + (double)(c->H_kv * S) / 3);
    if (c->kind == CASE_ROPE || s->inputs->sequences || S < 2 || S > MOST_VALUES || work > most_work)
        return MHA_OK;
    TRY(mha__look_begin(s, pool, &l, error));
    if (!l.found)
        return MHA_OK;
    TRY(mha__look_at_program(s, &s->unmodified.program, pool, &l, error));
    double *row = mha__arena_take(&s->pool, c->B * S * sizeof *row);
    double *memory = mha__arena_take(pool, (2 * S * S + S * d + S + width) * sizeof *memory);
    values *of = mha__arena_take(pool, c->H_kv * sizeof *of);
    double *sums = mha__arena_take(pool, c->H_kv * (S * S + 2 * S * d) * sizeof *sums);
    if (!row || !memory || !of || !sums)
        return mha__search_no_memory(s, error);
    double *more = memory + 2 * S * S + S * d + S;
    for (size_t b = 0; b < c->B; b++) {
        memset(sums, 0, c->H_kv * (S * S + 2 * S * d) * sizeof *sums);
        for (size_t g = 0; g < c->H_kv; g++) {
            double *A = sums + g * (S * S + 2 * S * d);
            of[g] = (values){S, d, l.values + (b * c->H_kv + g) * S * d, A, A + S * S, A + S * S + S * d};
        }
        for (size_t i = 0; i < c->T_q; i++) {
            const size_t at = b * c->T_q + i;
            for (size_t e = 0; e < width; e++) {
                const double by = l.found[at * width + e] - l.heads[at * width + e];
                more[e] = isfinite(by) ? by : 0;
            }
            for (size_t h = 0; h < c->H && s->rows_checked[at]; h++)
                add_row(&of[h / G], l.weights + ((b * c->H + h) * c->T_q + i) * all, more + h * d);
        }
        choose_values(of, c->H_kv, memory, row + b * S);
    }
    mha__solve_offer(s, index, row, c->B * S, S);
    return MHA_OK;
}
