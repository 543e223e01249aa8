/* Finds which weights a dropout that was left on has dropped: in recorded weights, or in what the heads are made of. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

/* A weight is seen to be 0 where the case has more than this: a smaller one may be rounded to 0 in 16 bits. */
static const double seen = 1e-6;

/* The result: one number for each weight, 1 where it is kept, and the sums of kept weights, as they are in the case
 * and in the result. */
typedef struct dropped {
    double *kept, said, found;
    size_t count; /* of dropped ones */
} dropped;

static void decide(dropped *d, size_t at, double said, double found)
{
    const bool kept = found > said / 2; /* a kept one grows */
    d->kept[at] = kept;
    if (kept)
        d->said += said, d->found += found;
    else
        d->count++;
}

static void find_in_weights(const double *weights, const double *recorded, size_t n, dropped *d)
{
    for (size_t at = 0; at < n; at++)
        if (weights[at] > seen)
            decide(d, at, weights[at], recorded[at]);
}

/* Finds the weights with which a head of one query sums values: at most as many as the head has features. */
static bool find_in_head(const double *weights, const double *values, const double *head, size_t S, size_t d_v,
                         size_t first, double *memory, dropped *d)
{
    size_t n = 0;
    double *A = memory, *r = A + d_v * d_v, *rows = r + d_v;
    memset(A, 0, (d_v + 1) * d_v * sizeof *A);
    for (size_t j = 0; j < S; j++) {
        if (!(weights[j] > seen))
            continue;
        if (n == d_v)
            return false;
        memcpy(rows + n++ * d_v, values + j * d_v, d_v * sizeof *rows);
    }
    mha__equations_add(rows, n, d_v, head, A, r);
    if (!mha__equations_solve(A, n, MHA__PIVOT, r))
        return false;
    for (size_t j = 0, i = 0; j < S; j++)
        if (weights[j] > seen)
            decide(d, first + j, weights[j], r[i++]);
    return true;
}

static bool find_in_heads(const mha__search *s, const mha__look *l, double *memory, dropped *d)
{
    const mha_case *c = s->c;
    const size_t S = s->inputs->S;
    for (size_t row = 0; row < c->B * c->T_q; row++)
        for (size_t h = 0; h < c->H && s->rows_checked[row]; h++) {
            const size_t b = row / c->T_q, at = ((b * c->H + h) * c->T_q + row % c->T_q) * S;
            const double *v = l->values + (b * c->H_kv + h / (c->H / c->H_kv)) * S * c->d_v;
            if (!find_in_head(l->weights + at, v, l->found + row * l->width + h * c->d_v, S, c->d_v, at, memory, d))
                return false;
        }
    return true;
}

mha_status mha__solve_dropout(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha_case *c = s->c;
    const mha__bug_entry *entry = mha__solved_entry_at(index);
    const double none = 0;
    mha__program program = s->unmodified.program;
    if (!entry->apply(c, &program, &none))
        return MHA_OK;
    const size_t n = mha__solved_count(c, entry) - 1;
    double *recorded;
    mha__look l;
    TRY(mha__look_for_weights(s, pool, &recorded, error));
    TRY(mha__look_begin(s, pool, &l, error));
    if (n == 0 || (!recorded && (!l.found || mha__rows_beyond(c) > 0)))
        return MHA_OK;
    TRY(mha__look_at_program(s, &s->unmodified.program, pool, &l, error));
    double *numbers = mha__arena_take(&s->pool, (n + 1) * sizeof *numbers);
    double *memory = mha__arena_take(pool, (2 * c->d_v + 1) * c->d_v * sizeof *memory);
    if (!numbers || !memory)
        return mha__search_no_memory(s, error);
    dropped d = {.kept = numbers + 1};
    for (size_t i = 0; i <= n; i++)
        numbers[i] = 1;
    const size_t S_all = s->inputs->S + mha__rows_beyond(c);
    for (size_t row = 0; row < n / S_all; row++) /* of rows that are not checked */
        if (!s->rows_checked[row / (c->H * c->T_q) * c->T_q + row % c->T_q])
            memset(l.weights + row * S_all, 0, S_all * sizeof *l.weights);
    if (recorded)
        find_in_weights(l.weights, recorded, n, &d);
    else if (!find_in_heads(s, &l, memory, &d))
        return MHA_OK;
    const double p = d.found > 0 ? 1 - d.said / d.found : 0, rounded = round(p * 1e4) / 1e4;
    numbers[0] = fabs(p - rounded) < 1e-6 ? rounded : p;
    if (d.count > 0 && numbers[0] > 0)
        mha__search_append(s, index, numbers);
    return MHA_OK;
}
