/* What somebody computed, as a bug reads it, and the numbers that come nearest to it. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/exact_rows.h"
#include "base/base.h"
#include "base/dot.h"
#include "verify/backward/bugs/gradient_bugs.h"

void mha__found_row(const mha__backward *b, const mha__map *map, mha_gradient g, size_t i, double *row)
{
    const mha__resolved *r = b->r;
    const mha_view *found = &b->given->of[g];
    const bool keys = g != MHA_D_QUERY;
    const size_t heads = keys ? map->g : map->head, d = g == MHA_D_VALUE ? r->plan.d_v : r->plan.d_k,
                 batch = keys ? map->s.k_batch : map->s.batch, t = i + (keys ? map->s.k_from : map->s.q_from);
    for (size_t c = 0; c < d; c++)
        row[c] = mha_view_get(found, (size_t[]){batch, t, heads, c});
    if (g != MHA_D_VALUE)
        mha__exact_rotate(r, row, 1, batch, t, mha__exact_position(r, keys ? MHA_KEYS : MHA_QUERIES, &map->s, i),
                          false);
    for (size_t c = 0; c < d && !keys; c++)
        row[c] /= mha__exact_query_scale(r, mha__exact_position(r, MHA_QUERIES, &map->s, i));
}

/* Solves n symmetric equations in place, whose diagonal was `sizes`. */
static void solve(double *N, const double *sizes, size_t n, double otherwise, double *w)
{
    for (size_t k = 0; k < n; k++) {
        const double pivot = N[k * n + k];
        for (size_t i = k + 1; i < n && pivot > 0x1p-30 * sizes[k]; i++) {
            const double f = N[i * n + k] / pivot;
            for (size_t j = k; j < n; j++)
                N[i * n + j] -= f * N[k * n + j];
            w[i] -= f * w[k];
        }
    }
    for (size_t k = n; k-- > 0;) {
        for (size_t j = k + 1; j < n; j++)
            w[k] -= N[k * n + j] * w[j];
        w[k] = N[k * n + k] > 0x1p-30 * sizes[k] ? w[k] / N[k * n + k] : otherwise;
    }
}

void mha__least_squares(const double *terms, const double *found, size_t n, size_t size, double otherwise, double *room,
                        double *w)
{
    double *N = room, *sizes = N + n * n;
    for (size_t k = 0; k < n; k++) {
        w[k] = mha__dot(terms + k * size, found, size);
        for (size_t l = 0; l <= k; l++)
            N[k * n + l] = N[l * n + k] = mha__dot(terms + k * size, terms + l * size, size);
        sizes[k] = N[k * n + k];
    }
    solve(N, sizes, n, otherwise, w);
}

/* ---------------------------------------------------------------- queries that see one key */

enum { MOST_LONE = 64 };

enum { NO_QUERY = -1, MANY_QUERIES = -2 };

/* Which query of a head sees only key j, for all keys j. */
static void find_lone(const mha__backward *b, size_t sequence, const mha__sequence *s, size_t head, ptrdiff_t *lone)
{
    for (size_t j = 0; j < s->S; j++)
        lone[j] = NO_QUERY;
    for (size_t i = 0; i < s->T_q; i++) {
        size_t seen = 0, which = 0;
        for (size_t j = 0; j < s->S && seen < 2; j++)
            if (mha_view_get(&b->stages[MHA_STAGE_WEIGHTS], (size_t[]){sequence, head, i, j}) > 0)
                seen++, which = j;
        if (seen == 1)
            lone[which] = lone[which] == NO_QUERY ? (ptrdiff_t)i : MANY_QUERIES;
    }
}

/* Row j of dV of the key/value head of a map. `lone`: (heads that share it, S). `room`: for what is found, the terms
 * and their equations. */
static void fit_value(const mha__backward *b, const mha__map *at, size_t j, const ptrdiff_t *lone, double *room)
{
    const mha__sizes *p = &b->r->plan;
    const size_t group = p->h / p->h_kv, d = p->d_v;
    double *found = room, *terms = room + d, *equations = terms + MOST_LONE * d,
           *w = equations + (size_t)MOST_LONE * (MOST_LONE + 1),
           *row = (double *)b->d_keys[1].data +
                  ((at->s.k_batch * b->d_keys[1].shape[1] + at->s.k_from + j) * p->h_kv + at->g) * d;
    size_t n = 0;
    for (size_t i = 0; i < group && n < MOST_LONE; i++) {
        const ptrdiff_t query = lone[i * at->s.S + j];
        const size_t head = at->g * group + i;
        if (query < 0)
            continue;
        const double *dO =
            mha__matrix_row(&b->d_heads, at->s.batch * b->r->query.shape[1] + at->s.q_from + (size_t)query) + head * d;
        const double P = mha_view_get(&b->stages[MHA_STAGE_WEIGHTS], (size_t[]){at->b, head, (size_t)query, j});
        for (size_t c = 0; c < d; c++)
            terms[n * d + c] = P * dO[c];
        n++;
    }
    if (n == 0)
        return;
    mha__found_row(b, at, MHA_D_VALUE, j, found);
    for (size_t c = 0; c < d; c++)
        found[c] -= row[c];
    mha__least_squares(terms, found, n, d, 0, equations, w);
    for (size_t e = 0; e < n * d; e++)
        row[e % d] += w[e / d] * terms[e];
}

void mha__fit_lone_queries(mha__backward *b)
{
    const mha_allocator a = mha__allocator_default();
    const mha__sizes *p = &b->r->plan;
    const size_t group = p->h / p->h_kv, numbers = (MOST_LONE + 1) * (p->d_v + MOST_LONE + 1),
                 bytes = numbers * sizeof(double) + group * p->S * sizeof(ptrdiff_t);
    double *room = b->alone || !b->given->of[MHA_D_VALUE].data ? NULL : mha__allocate(&a, bytes);
    ptrdiff_t *lone = room ? (ptrdiff_t *)(void *)(room + numbers) : NULL;
    for (size_t sequence = 0; room && sequence < p->B; sequence++)
        for (size_t g = 0; g < p->h_kv; g++) {
            const mha__map at = {.b = sequence, .g = g, .s = mha__resolved_sequence(b->r, sequence)};
            for (size_t i = 0; i < group; i++)
                find_lone(b, sequence, &at.s, g * group + i, lone + i * at.s.S);
            for (size_t j = 0; j < at.s.S; j++)
                fit_value(b, &at, j, lone, room);
        }
    mha__release(&a, room, room ? bytes : 0);
}
