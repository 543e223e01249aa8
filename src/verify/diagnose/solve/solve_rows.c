/* Finds which rows stand in the place of others: of v, in what the heads are made of, of q, and of the output; and from
 * where on the output is 0. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/search/report.h"
#include "verify/diagnose/solve/solve.h"

enum { MOST_ROWS = 512, MOST_VALUES = 1024 }; /* the work grows with their square, and cube */
static const double most_work = 1e9;          /* products, about a second */

static double squared_distance(const double *x, const double *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum;
}

/* ---------------------------------------------------------------- rows of v */

/* What is known of one key/value head of a batch row: the values v, those that stand there instead, and of the weights
 * W (rows, S) of all queries that read it the products W^T W, and W^T times what the heads found have more. */
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

/* Adds to `far` (S, S) how far the value that the equations say stands at each place is from each value. A place that
 * they say little of keeps its own: `L` has room for A with a little more on its diagonal. */
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

/* By how much the squared distance of the heads changes when row j stands at t instead of the one that does. */
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
    mha__unproject u;
    if (c->P > 0) /* few queries see many values */
        return mha__solve_key_rows(s, index, pool, error);
    const double work = (double)(c->B * S) * (double)S * ((double)(c->H * c->T_q) + (double)(c->H_kv * S) / 3);
    if (c->kind == CASE_ROPE || s->inputs->sequences || S < 2 || S > MOST_VALUES || work > most_work)
        return MHA_OK;
    TRY(mha__unproject_begin(s, pool, &u, error));
    if (!u.can)
        return MHA_OK;
    double *row = mha__arena_take(&s->pool, c->B * S * sizeof *row);
    double *weights = mha__solve_stage(s, &s->unmodified.program, MHA_STAGE_WEIGHTS, pool);
    double *heads = mha__solve_stage(s, &s->unmodified.program, MHA_STAGE_HEADS, pool);
    double *own = mha__solve_stage(s, &s->unmodified.program, MHA_STAGE_PRESENT_VALUE, pool);
    double *memory = mha__arena_take(pool, (2 * S * S + S * d + S + width) * sizeof *memory);
    values *of = mha__arena_take(pool, c->H_kv * sizeof *of);
    double *sums = mha__arena_take(pool, c->H_kv * (S * S + 2 * S * d) * sizeof *sums);
    if (!row || !weights || !heads || !own || !memory || !of || !sums)
        return mha__search_no_memory(s, error);
    double *found = memory + 2 * S * S + S * d + S;
    for (size_t b = 0; b < c->B; b++) {
        memset(sums, 0, c->H_kv * (S * S + 2 * S * d) * sizeof *sums);
        for (size_t g = 0; g < c->H_kv; g++) {
            double *A = sums + g * (S * S + 2 * S * d);
            of[g] = (values){S, d, own + (b * c->H_kv + g) * S * d, A, A + S * S, A + S * S + S * d};
        }
        for (size_t i = 0; i < c->T_q; i++) {
            const size_t at = b * c->T_q + i;
            if (!mha__unproject_row(s, &u, at, found))
                continue;
            for (size_t e = 0; e < width; e++)
                found[e] = isfinite(found[e] - heads[at * width + e]) ? found[e] - heads[at * width + e] : 0;
            for (size_t h = 0; h < c->H; h++)
                add_row(&of[h / G], weights + ((b * c->H + h) * c->T_q + i) * all, found + h * d);
        }
        choose_values(of, c->H_kv, memory, row + b * S);
    }
    mha__solve_offer(s, index, row, c->B * S, S);
    return MHA_OK;
}

/* ---------------------------------------------------------------- rows of q, and of the output */

/* Whether rows of the tensor are those of queries, all of which are checked. */
static bool has_all_rows(const mha__search *s)
{
    const mha_stage stage = s->target.stage;
    return s->c->kind != CASE_ROPE && !s->target.is_zero && !s->in_part && !s->inputs->sequences && s->c->T_q > 1 &&
           (stage == MHA_STAGE_OUTPUT || stage == MHA_STAGE_HEADS);
}

/* Whether an order neither explains the tensor nor comes near: so far are some rows that it puts there. */
static bool is_far(const mha__search *s, double far, size_t elements)
{
    const mha__target *t = &s->target;
    const double rms = sqrt(far / (double)elements), all = (double)mha__search_elements(s, &s->region_full);
    mha__candidate x = {.order = 1, .finite = true, .louder = 1, .excess = rms - t->storage.relative * t->largest};
    for (int wide = 0; wide < 2; wide++)
        x.needed[wide] = rms - t->allowed[wide].rtol * t->largest;
    return isfinite(far) && mha__search_is_refuted(s, &x) && !mha__search_is_close(s, sqrt(far / all) / t->rms);
}

/* Finds the row of q that is nearest in each place of `rows`; the squared distances are added to *far. */
static void choose_queries(mha__search *s, mha__program *program, const unsigned char *rows, double *computed,
                           double *least, double *row, double *far)
{
    const mha__target *t = &s->target;
    const size_t T = s->c->T_q, n = t->columns;
    for (size_t by = 0; by < T; by++) {
        mha__put(program, (mha__mutation){.site = AT_ROW,
                                          .op = OP_FROM,
                                          .sides = MHA__SIDE_Q,
                                          .arg = MHA__SHIFT,
                                          .axis = MHA__T,
                                          .step = -(long long)by});
        mha__run(s->workers.bench[0], program, t->stage, rows, computed);
        for (size_t at = 0; at < s->c->B * T; at++) {
            const double apart = rows[at] ? squared_distance(t->values + at * n, computed + at * n, n) : INFINITY;
            if (rows[at] && (by == 0 || apart + (double)n * t->noise[0] * t->noise[0] < least[at]))
                least[at] = apart, row[at] = (double)((at % T + T - by) % T);
        }
    }
    for (size_t at = 0; at < s->c->B * T; at++)
        *far += rows[at] ? least[at] : 0;
}

/* With all rows of q moved by each number, the row that brings each row of the tensor nearest; its own, if no other is
 * nearer by more than rounding: a query that sees one key gives what others give. Three rows of eight
 * are looked at first: mostly they tell that no order is near. */
mha_status mha__solve_queries(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha__target *t = &s->target;
    const size_t T = s->c->T_q, all = s->c->B * T, n = t->columns;
    const double work = (double)(all * T) * (double)s->inputs->S * (double)(s->c->H * (s->c->d_k + s->c->d_v));
    if (!has_all_rows(s) || work > most_work)
        return MHA_OK;
    double *row = mha__arena_take(&s->pool, all * sizeof *row), *least = mha__arena_take(pool, all * sizeof *least);
    double *computed = mha__arena_take(pool, all * n * sizeof *computed), far = 0;
    unsigned char *rows = mha__arena_take(pool, all);
    if (!row || !least || !computed || !rows)
        return mha__search_no_memory(s, error);
    mha__program program = s->unmodified.program;
    if (!mha__solved_entry_at(index)->apply(s->c, &program, row))
        return MHA_OK;
    mha__runner_columns(s->workers.bench[0], 0);
    size_t count = 0;
    for (size_t at = 0; at < all; at++)
        count += rows[at] = at % T % 8 < 3;
    choose_queries(s, &program, rows, computed, least, row, &far);
    if (is_far(s, far, count * n))
        return MHA_OK;
    for (size_t at = 0; at < all; at++)
        rows[at] = !rows[at];
    choose_queries(s, &program, rows, computed, least, row, &far);
    mha__solve_offer(s, index, row, all, T);
    return MHA_OK;
}

/* The row of the case that is nearest to each of the tensor. */
mha_status mha__solve_written(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha__target *t = &s->target;
    const size_t B = s->c->B, T = s->c->T_q, n = t->columns;
    (void)pool;
    if (!has_all_rows(s) || T > MOST_ROWS)
        return MHA_OK;
    double *row = mha__arena_take(&s->pool, B * T * sizeof *row);
    if (!row)
        return mha__search_no_memory(s, error);
    for (size_t at = 0; at < B * T; at++) {
        const size_t b = at / T;
        const double *y = t->values + at * n, *own = s->unmodified.stage + b * T * n;
        double least = squared_distance(y, own + at % T * n, n);
        row[at] = (double)(at % T);
        for (size_t j = 0; j < T; j++) {
            const double far = squared_distance(y, own + j * n, n);
            if (far < least)
                least = far, row[at] = (double)j;
        }
    }
    mha__solve_offer(s, index, row, B * T, T);
    return MHA_OK;
}

/* Behind the last element that is not 0. An end of the memory is none where all that is lacking are rows, heads or
 * batch rows. */
mha_status mha__solve_unwritten(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha_case *c = s->c;
    const mha__target *x = &s->target;
    const size_t T = c->T_q, width = x->columns;
    const double one = 1;
    mha__program program = s->unmodified.program;
    size_t from = 0, end = 0;
    (void)pool;
    if (c->kind == CASE_ROPE || x->is_zero || s->in_part || s->inputs->sequences ||
        (x->stage != MHA_STAGE_OUTPUT && x->stage != MHA_STAGE_HEADS) ||
        !mha__solved_entry_at(index)->apply(c, &program, &one))
        return MHA_OK;
    const int part = mha__arg(&program, AT_OUT, OP_ZERO);
    for (size_t i = 0; i < c->B * T * width; i++) {
        const size_t at = mha__number_written(c, part, i / width / T, i / width % T, i % width, width) + 1;
        end = at > end ? at : end;
        from = at > from && x->values[i] != 0 ? at : from;
    }
    const bool by_head = part == MHA__LACKS_END_BY_HEAD, whole = part < MHA__LACKS_END;
    const size_t unit = by_head ? T * c->d_v : width, all = T * width;
    double *number = mha__arena_take(&s->pool, sizeof *number);
    if (!number)
        return mha__search_no_memory(s, error);
    *number = (double)from;
    if (from > 0 && from < end && (whole || (from % all != 0 && (c->B > 1 || from % unit != 0))))
        mha__search_append(s, index, number);
    return MHA_OK;
}
