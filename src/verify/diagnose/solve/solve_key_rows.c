/* Finds which rows of k, or of k and v, replace others if queries see different keys: each query, the one with the
 * fewest keys first, tells the row of the key that it sees in addition. After a cache few queries see nearly all keys:
 * whole pages replace others, also of v only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

enum { MOST_KEYS = 1024, FEW_KEYS = 256, MOST_NUMBERS = 1 << 24, MOST_PAIRS = 1 << 22, MOST_SWEEPS = 1 << 24 };
static const double most_work = 1e9; /* products, some seconds */

/* The attention of one batch row. A key counts exp(score - largest), of query and row, times exp(what
 * is added to it at a place), 0 where it is hidden. `rest`: what is no key, in the sum of exp(s - largest). */
typedef struct visibility {
    size_t T, S, H, G, d;            /* G: query heads of a key/value head */
    const double *of_row, *of_place; /* (H, T, S): these two factors */
    const double *rest;              /* (H, T) */
    const double *values, *found;    /* (h_kv, S, d); (T, H*d) */
    const unsigned char *checked;    /* (T) */
    bool with_keys, with_values;     /* rows of k, rows of v are replaced */
    double *row;                     /* (S): found so far */
    double *sum, *total;             /* (T, H, d), (T, H): of the rows found so far, see `take` */
    double noise;                    /* least squared distance of an output that tells two rows apart */
} visibility;

static bool sees(const visibility *v, size_t i, size_t j)
{
    bool any = false;
    for (size_t h = 0; h < v->H; h++)
        any |= v->of_place[(h * v->T + i) * v->S + j] != 0;
    return any;
}

/* exp(s - largest) of head h of query i for row r at place j. */
static double counts(const visibility *v, size_t h, size_t i, size_t j, size_t r)
{
    const size_t at = (h * v->T + i) * v->S;
    return v->of_row[at + (v->with_keys ? r : j)] * v->of_place[at + j];
}

/* Adds row r at place j, `times` 1 or -1, to the sums of query i. */
static void take(const visibility *v, size_t i, size_t j, size_t r, double times)
{
    for (size_t h = 0; h < v->H; h++) {
        const double *value = v->values + (h / v->G * v->S + (v->with_values ? r : j)) * v->d;
        const double e = times * counts(v, h, i, j, r);
        double *sum = v->sum + (i * v->H + h) * v->d;
        if (e == 0)
            continue;
        v->total[i * v->H + h] += e;
        for (size_t f = 0; f < v->d; f++)
            sum[f] += e * value[f];
    }
}

/* The squared distance of the output of query i from what the sums say. */
static double distance(const visibility *v, size_t i)
{
    double apart = 0;
    for (size_t h = 0; h < v->H; h++) {
        const double total = v->total[i * v->H + h] + v->rest[h * v->T + i];
        for (size_t f = 0; f < v->d; f++) {
            const size_t at = (i * v->H + h) * v->d + f;
            const double by = (total > 0 ? v->sum[at] / total : 0) - v->found[at];
            apart += by * by;
        }
    }
    return apart;
}

static void begin(const visibility *v, size_t i, const unsigned char *known)
{
    memset(v->sum + i * v->H * v->d, 0, v->H * v->d * sizeof *v->sum);
    memset(v->total + i * v->H, 0, v->H * sizeof *v->total);
    for (size_t j = 0; j < v->S; j++)
        if ((!known || known[j]) && sees(v, i, j))
            take(v, i, j, (size_t)v->row[j], 1);
}

/* The row at place j with which query i gives what was found; *sure: no other one comes as near. */
static double nearest(const visibility *v, size_t i, size_t j, size_t *best, bool *sure)
{
    double least = INFINITY, second = INFINITY;
    for (size_t r = 0; r < v->S; r++) {
        take(v, i, j, r, 1);
        const double apart = distance(v, i);
        take(v, i, j, r, -1);
        if (apart < least)
            second = least, least = apart, *best = r;
        else
            second = apart < second ? apart : second;
    }
    *sure = second > least + v->noise;
    return least;
}

/* The rows at two places. */
static void nearest_two(const visibility *v, size_t i, const size_t *j, size_t *best, bool *sure)
{
    double least = INFINITY;
    for (size_t r = 0; r < v->S; r++) {
        size_t other = 0;
        bool alone;
        take(v, i, j[0], r, 1);
        const double apart = nearest(v, i, j[1], &other, &alone);
        take(v, i, j[0], r, -1);
        if (apart + v->noise < least)
            *sure = alone, best[0] = r, best[1] = other;
        else if (apart < least + v->noise)
            *sure = false;
        least = apart < least ? apart : least;
    }
}

typedef struct query {
    size_t i, seen;
} query;

static int by_seen(const void *a, const void *b)
{
    const query *x = a, *y = b;
    return x->seen != y->seen ? (x->seen > y->seen) - (x->seen < y->seen) : (x->i > y->i) - (x->i < y->i);
}

/* One query after the other. Of three keys or more that are not known, the first keep their rows. */
static void go_through(const visibility *v, query *order, unsigned char *known)
{
    enum { MOST_LOST = 8 }; /* of many keys: queries that no row brings near */
    size_t n = 0, lost = 0;
    for (size_t i = 0; i < v->T; i++) {
        if (!v->checked[i])
            continue;
        order[n] = (query){i, 0};
        for (size_t j = 0; j < v->S; j++)
            order[n].seen += sees(v, i, j);
        n++;
    }
    qsort(order, n, sizeof *order, by_seen);
    memset(known, 0, v->S);
    for (size_t q = 0; q < n && (v->S <= FEW_KEYS || lost < MOST_LOST); q++) {
        size_t unknown[2] = {0}, count = 0, best[2] = {0};
        const size_t i = order[q].i, pairs = v->S * v->S * v->H * v->d;
        bool sure = false;
        for (size_t j = 0; j < v->S; j++)
            if (!known[j] && sees(v, i, j)) {
                if (count >= 2 || (count == 1 && pairs > MOST_PAIRS))
                    known[unknown[0]] = 1, unknown[0] = unknown[1], count--;
                unknown[count++] = j;
            }
        begin(v, i, known);
        if (count == 1)
            lost += nearest(v, i, unknown[0], best, &sure) > 16 * v->noise;
        else if (count == 2)
            nearest_two(v, i, unknown, best, &sure);
        for (size_t u = 0; u < count && sure; u++)
            v->row[unknown[u]] = (double)best[u], known[unknown[u]] = 1;
    }
}

/* The squared distance of all outputs from what the rows give. */
static double distances(const visibility *v)
{
    double sum = 0;
    for (size_t i = 0; i < v->T; i++)
        if (v->checked[i]) {
            begin(v, i, NULL);
            sum += distance(v, i);
        }
    return sum;
}

/* Adds to the sums of query i, `times` 1 or -1, the rows of block `from` of n rows at block `at`. Where that block has
 * no row, or is past the last one, the rows found so far are added. Returns false if the query sees none of them. */
static bool take_block(const visibility *v, size_t n, size_t i, size_t at, size_t from, double times)
{
    bool any = false;
    for (size_t j = at * n; j < (at + 1) * n && j < v->S; j++) {
        const size_t r = from * n + j % n;
        if (!sees(v, i, j))
            continue;
        take(v, i, j, r < v->S ? r : (size_t)v->row[j], times);
        any = true;
    }
    return any;
}

/* Replaces each block of n rows by the block that brings all outputs nearest; returns the remaining difference. */
static double sweep(const visibility *v, size_t n)
{
    enum { ROUNDS = 3 };
    const size_t blocks = (v->S + n - 1) / n, own = blocks;
    bool changed = blocks * v->S * v->T * v->H * v->d <= MOST_SWEEPS;
    double left = distances(v);
    for (int round = 0; round < ROUNDS && changed; round++) {
        changed = false;
        for (size_t at = 0; at < blocks; at++) {
            size_t best = own;
            double least = INFINITY;
            for (size_t k = 0; k <= blocks; k++) {
                const size_t from = (own + k) % (blocks + 1); /* its own first */
                double apart = 0;
                for (size_t i = 0; i < v->T && apart < least; i++) {
                    if (!v->checked[i] || !take_block(v, n, i, at, own, -1))
                        continue;
                    (void)take_block(v, n, i, at, from, 1);
                    apart += distance(v, i);
                    (void)take_block(v, n, i, at, from, -1), (void)take_block(v, n, i, at, own, 1);
                }
                if (apart + (k > 0 ? v->noise : 0) < least)
                    least = apart, best = from;
            }
            for (size_t i = 0; i < v->T && best != own; i++)
                (void)take_block(v, n, i, at, own, -1), (void)take_block(v, n, i, at, best, 1);
            for (size_t j = at * n; j < (at + 1) * n && j < v->S && best != own; j++)
                v->row[j] = best * n + j % n < v->S ? (double)(best * n + j % n) : v->row[j];
            changed |= best != own;
        }
        left = distances(v);
    }
    return left;
}

/* Tries pages of 4, 8, ... rows, the largest first, and keeps those that bring the outputs clearly nearer. */
static void find_pages(const visibility *v)
{
    double best = distances(v), row[MOST_KEYS];
    size_t largest = 4;
    while (2 * largest < v->S)
        largest *= 2;
    for (size_t n = largest; n >= 4; n /= 2) {
        memcpy(row, v->row, v->S * sizeof *row);
        for (size_t j = 0; j < v->S; j++)
            v->row[j] = (double)j;
        const double left = sweep(v, n);
        if (left < MHA__MOST_LEFT * best)
            best = left;
        else
            memcpy(v->row, row, v->S * sizeof *row);
    }
}

/* ---------------------------------------------------------------- all batch rows */

/* Whether a case has rows that can be looked at in this way. */
static bool can_look(const mha__search *s)
{
    const mha_case *c = s->c;
    const size_t S = s->inputs->S;
    return c->kind != CASE_ROPE && !s->inputs->sequences && mha__rows_beyond(c) == 0 && S > 1 && S <= MOST_KEYS &&
           c->semantics.softmax.normaliser == MHA_SOFTMAX &&
           (c->P > 0 || c->semantics.qkv.rope.kind == MHA_ROPE_NONE) && /* what is cached is rotated */
           c->semantics.added.relative.rule == MHA_RELATIVE_NONE && c->B * c->H * c->T_q * S <= MOST_NUMBERS &&
           (S <= FEW_KEYS || (c->P == 0 && (double)(c->T_q * S) * (double)(c->H * c->d_v) <= most_work));
}

/* Turns scores and masked scores into factors of rows and of places, and finds what is no key in each sum; whether
 * queries see different keys. */
static bool look(const mha_case *c, double *score, const double *weights, double *masked, double *largest, double *rest)
{
    const double most_added = 600; /* whose exp is a number */
    const size_t S = c->P + c->T_k;
    bool differs = false;
    for (size_t row = 0; row < c->B * c->H * c->T_q; row++) {
        double most = -INFINITY, keys = 0, sum = 0, *added = masked + row * S;
        for (size_t j = 0; j < S; j++)
            most = fmax(most, fmax(added[j], score[row * S + j]));
        for (size_t j = 0; j < S; j++) {
            const double e = exp(added[j] - most);
            keys += e;
            sum += weights[row * S + j];
            differs |=
                (added[j] == -INFINITY) != (masked[row / c->T_q * c->T_q * S + j] == -INFINITY) && row % c->T_q > 0;
        }
        rest[row] = sum > 0 ? fmax(keys / sum - keys, 0) : 0;
        if (rest[row] < 1e-12 * keys)
            rest[row] = 0;
        largest[row] = most;
    }
    for (size_t at = 0; at < c->B * c->H * c->T_q * S; at++) {
        masked[at] = masked[at] == -INFINITY ? 0 : exp(fmin(masked[at] - score[at], most_added));
        score[at] = exp(score[at] - largest[at / S]);
    }
    return differs;
}

static mha_status solve_key_rows(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const mha_case *c = s->c;
    const size_t T = c->T_q, S = s->inputs->S, H = c->H, d = c->d_v;
    mha__look l;
    mha__program program = s->unmodified.program;
    TRY(mha__look_begin(s, pool, &l, error));
    double *row = mha__arena_take(&s->pool, c->B * S * sizeof *row);
    double *of_rows = mha__arena_take(pool, 2 * c->B * H * T * sizeof(double));
    double *found = mha__arena_take(pool, (2 * T * H * d + T * H) * sizeof(double));
    query *order = mha__arena_take(pool, T * sizeof *order);
    unsigned char *known = mha__arena_take(pool, S);
    if (!row || !of_rows || !found || !order || !known)
        return mha__search_no_memory(s, error);
    for (size_t j = 0; j < c->B * S; j++)
        row[j] = (double)(j % S);
    if (!l.found || !mha__solved_entry_at(index)->apply(c, &program, row))
        return MHA_OK;
    double *score, *added;
    TRY(mha__look_at(s, &s->unmodified.program, MHA_STAGE_CAPPED, pool, &score, error));
    TRY(mha__look_at(s, &s->unmodified.program, MHA_STAGE_MASKED, pool, &added, error));
    TRY(mha__look_at_program(s, &s->unmodified.program, pool, &l, error));
    if (!look(c, score, l.weights, added, of_rows, of_rows + c->B * H * T) && c->P == 0)
        return MHA_OK;
    const int whose = mha__mutation_at(&program, c->P > 0 ? AT_JOINED : AT_ROW, OP_FROM)->sides;
    for (size_t b = 0; b < c->B; b++) {
        const visibility v = {T,
                              S,
                              H,
                              H / c->H_kv,
                              d,
                              score + b * H * T * S,
                              added + b * H * T * S,
                              of_rows + (c->B + b) * H * T,
                              l.values + b * c->H_kv * S * d,
                              found,
                              s->rows_checked + b * T,
                              (whose >> PROJECTION_K & 1) != 0,
                              (whose >> PROJECTION_V & 1) != 0,
                              row + b * S,
                              found + T * H * d,
                              found + 2 * T * H * d,
                              16 * (double)(H * d) * s->target.noise[0] * s->target.noise[0]};
        for (size_t i = 0; i < T * H * d; i++) {
            const double y = l.found[b * T * H * d + i];
            found[i] = isfinite(y) ? y : 0;
        }
        const double apart = distances(&v);
        if (c->P > 0)
            find_pages(&v);
        else
            go_through(&v, order, known);
        if (distances(&v) < MHA__MOST_LEFT * apart)
            (void)sweep(&v, 1);
    }
    mha__solve_offer(s, index, row, c->B * S, S);
    return MHA_OK;
}

/* Looks at all rows, also where a part of them is checked. */
mha_status mha__solve_key_rows(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    unsigned char *const checked = s->rows_checked, *all = mha__arena_take(pool, s->c->B * s->c->T_q);
    mha__runner *const bench = s->workers.bench[0];
    if (!can_look(s))
        return MHA_OK;
    if (!s->in_part)
        return solve_key_rows(s, index, pool, error);
    if (!all || !(s->workers.bench[0] = mha__runner_create(s->inputs, NULL, 0))) {
        s->workers.bench[0] = bench;
        return mha__search_no_memory(s, error);
    }
    memset(all, 1, s->c->B * s->c->T_q);
    s->rows_checked = all;
    const mha_status status = solve_key_rows(s, index, pool, error);
    mha__runner_destroy(s->workers.bench[0]);
    s->rows_checked = checked, s->workers.bench[0] = bench;
    return status;
}
