/* Mistakes with unknown numbers, which are taken from what somebody computed, as those that bring it nearest: another D
 * or lse for each query, and blocks of a sum that count never, or more than once. Far fewer than the gradients, which
 * the mistake then has to give, all of them. */
#include <math.h>
#include <string.h>

#include "attention/exact/exact_rows.h"
#include "base/base.h"
#include "verify/backward/mistakes/mistakes.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* Rows that go out as they are attended to, or rotated. */
static bool has_plain_rows(const mha__backward *b, const mha__mistake *m)
{
    const mha__resolved *r = b->r;
    (void)m;
    return !r->layer && !mha__holds_keys(r) && r->norm[MHA_QUERIES] == MHA_NORM_NONE &&
           r->norm[MHA_KEYS] == MHA_NORM_NONE && mha__limit(&r->semantics) == 0 && r->plan.S_extra == 0 &&
           (r->semantics.qkv.rope.kind == MHA_ROPE_NONE || r->rope_times == 1) &&
           r->semantics.added.relative.rule == MHA_RELATIVE_NONE;
}

static bool has_softmax_rows(const mha__backward *b, const mha__mistake *m)
{
    return has_plain_rows(b, m) && b->r->semantics.softmax.normaliser == MHA_SOFTMAX && b->given->of[MHA_D_QUERY].data;
}

/* Row i of a head of a gradient that somebody computed, as a map has it. */
static void read_found(const mha__backward *b, const mha__map *map, mha_gradient g, size_t i, double *row)
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

/* ---------------------------------------------------------------- D and lse */

/* u_i = scale sum_j P_ij K_j / cosh^2, by which D goes into dQ_i, and dQ_i itself. */
static void query_parts(const mha__backward *b, const mha__map *map, size_t i, double *u, double *dQ)
{
    const size_t d = b->r->plan.d_k;
    memset(u, 0, d * sizeof *u), memset(dQ, 0, d * sizeof *dQ);
    for (size_t j = 0; j < map->n; j++) {
        const size_t at = i * map->n + j;
        const double P = map->weights[at] * map->slope[at] * map->q_scale,
                     dP = map->d_weights[at] - map->sums[i] + map->d_lse[i];
        for (size_t c = 0; map->seen[at] == MHA__SEEN && c < d; c++)
            u[c] += P * map->K[j * d + c], dQ[c] += P * dP * map->K[j * d + c];
    }
}

static double product(const double *x, const double *y, size_t n)
{
    double sum = 0;
    for (size_t c = 0; c < n; c++)
        sum += x[c] * y[c];
    return sum;
}

/* D of each query as dQ has it (number 0), or the factor of its P: e^(lse - lse') (1), never 0; or 0 where
 * dQ is (2). */
static void fit_queries(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha_allocator a = mha__allocator_default();
    const size_t d = b->r->plan.d_k;
    const size_t bytes = 3 * d * sizeof(double);
    double *found = mha__allocate(&a, bytes), *u = found + d, *dQ = u + d;
    for (size_t i = 0; found && i < map->s.T_q; i++) {
        read_found(b, map, MHA_D_QUERY, i, found);
        query_parts(b, map, i, u, dQ);
        const double *of = m->number > 0 ? dQ : u, squares = product(of, of, d);
        for (size_t c = 0; c < d && m->number == 0; c++)
            found[c] = dQ[c] - found[c];
        const double fit = product(of, found, d) / squares;
        const bool lost = fabs(fit) < 0x1p-30;
        if (!(squares > 0) || !isfinite(fit) || (m->number > 0 && lost != (m->number == 2)))
            continue;
        map->sums[i] += m->number > 0 ? 0 : fit;
        for (size_t j = 0; j < map->n && m->number > 0; j++)
            map->weights[i * map->n + j] *= lost ? 0 : fit;
    }
    mha__release(&a, found, bytes);
}

/* ---------------------------------------------------------------- blocks */

/* A product that is summed up block by block: of rows of dQ over keys, of dK and dV over queries. */
typedef struct blocked {
    const mha__map *map;
    const double *matrix, *x; /* (T_q, n), and the rows that it is multiplied with */
    bool transposed;
    size_t rows, terms, d, block;
    double scale, *to;
} blocked;

/* What block `block` of terms adds to `count` rows from `first` on. */
static void term(const blocked *p, size_t first, size_t count, size_t block, double *sums)
{
    const size_t from = block * p->block, end = from + p->block < p->terms ? from + p->block : p->terms;
    memset(sums, 0, count * p->d * sizeof *sums);
    for (size_t r = 0; r < count; r++)
        for (size_t k = from; k < end; k++) {
            const size_t at = p->transposed ? k * p->map->n + first + r : (first + r) * p->map->n + k;
            for (size_t c = 0; p->map->seen[at] == MHA__SEEN && c < p->d; c++)
                sums[r * p->d + c] += p->scale * p->matrix[at] * p->x[k * p->d + c];
        }
}

/* The least squares w of sum_k w_k term_k = found: n symmetric equations, solved in place; 1 where nothing tells. */
static void solve(double *N, double *w, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const double pivot = N[k * n + k];
        for (size_t i = k + 1; i < n && pivot > 0; i++) {
            const double f = N[i * n + k] / pivot;
            for (size_t j = k; j < n; j++)
                N[i * n + j] -= f * N[k * n + j];
            w[i] -= f * w[k];
        }
    }
    for (size_t k = n; k-- > 0;) {
        for (size_t j = k + 1; j < n; j++)
            w[k] -= N[k * n + j] * w[j];
        w[k] = N[k * n + k] > 0 ? w[k] / N[k * n + k] : 1;
    }
}

/* Makes `count` rows of whole multiples of the blocks, those that come nearest to `found`. `room`: for the terms, the
 * equations and w. */
static void fit_rows(const blocked *p, size_t first, size_t count, const double *found, double *room)
{
    const size_t n = (p->terms + p->block - 1) / p->block, size = count * p->d;
    double *terms = room, *N = terms + n * size, *w = N + n * n;
    for (size_t k = 0; k < n; k++) {
        term(p, first, count, k, terms + k * size);
        w[k] = product(terms + k * size, found, size);
        for (size_t l = 0; l <= k; l++)
            N[k * n + l] = N[l * n + k] = product(terms + k * size, terms + l * size, size);
    }
    solve(N, w, n);
    for (size_t k = 0; k < n; k++) {
        const double whole = nearbyint(w[k]), moved = whole >= -1 && whole <= 4 ? whole - 1 : 0;
        for (size_t e = 0; e < size && moved != 0; e++)
            p->to[first * p->d + e] += moved * terms[k * size + e];
    }
}

static void fit_product(const mha__backward *b, const mha__map *map, mha_gradient g, const blocked *p)
{
    const mha_allocator a = mha__allocator_default();
    const size_t n = (p->terms + p->block - 1) / p->block, size = p->block * p->d;
    const size_t bytes = (size + n * size + n * n + n) * sizeof(double);
    double *found = mha__allocate(&a, bytes);
    for (size_t first = 0; found && first < p->rows; first += p->block) {
        const size_t count = p->rows - first < p->block ? p->rows - first : p->block;
        bool finite = true;
        for (size_t r = 0; r < count; r++)
            read_found(b, map, g, first + r, found + r * p->d);
        for (size_t e = 0; e < count * p->d; e++)
            finite &= isfinite(found[e]) != 0;
        if (finite)
            fit_rows(p, first, count, found, found + size);
    }
    mha__release(&a, found, bytes);
}

/* Blocks of `number` terms that count never or more than once, in dQ, and where heads do not share keys in dK, dV. */
static void fit_blocks(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha__sizes *p = &b->r->plan;
    const size_t T = map->s.T_q, S = map->s.S, block = (size_t)m->number;
    const blocked of[3] = {{map, map->d_scores, map->K, false, T, S, p->d_k, block, map->q_scale, map->dQ},
                           {map, map->d_scores, map->Q, true, S, T, p->d_k, block, map->k_scale, map->dK},
                           {map, map->weights, map->dO, true, S, T, p->d_v, block, 1, map->dV}};
    for (int g = MHA_D_QUERY; g <= MHA_D_VALUE && !map->sizes; g++)
        if (b->given->of[g].data && (g == MHA_D_QUERY || p->h == p->h_kv))
            fit_product(b, map, (mha_gradient)g, &of[g]);
}

static bool has_blocks(const mha__backward *b, const mha__mistake *m)
{
    const double n = m->number;
    return has_plain_rows(b, m) && ((double)b->r->plan.S > n || (double)b->r->plan.T_q > n);
}

/* clang-format off */
#define BLOCKS(B) \
    {{"blocks-miscounted-" #B, \
      "in the gradients that are wrong some blocks of " #B " keys or queries count never, or more than once: a tile " \
      "is lost, overwritten or added twice", true}, has_blocks, MHA__BACKWARD_ADDED, fit_blocks, B, 0, NULL, 0}

static const mha__mistake rows[] = {
    {{"queries-missing", "some queries count in no gradient, and all else is right", true},
        has_softmax_rows, MHA__BACKWARD_SUMS, fit_queries, 2, 0, NULL, 0},
    {{"d-unknown", "D of each query, less dlse, is another number than it should be, and all else is right", true},
        has_softmax_rows, MHA__BACKWARD_SUMS, fit_queries, 0, 0, NULL, 0},
    {{"lse-unknown", "P of each query is multiplied by a number: lse is another one, and all else is right", true},
        has_softmax_rows, MHA__BACKWARD_SUMS, fit_queries, 1, 0, NULL, 0},
    BLOCKS(128), BLOCKS(64), BLOCKS(32), BLOCKS(16),
};
/* clang-format on */

mha__mistake_list mha__mistakes_of_unknowns(void)
{
    return (mha__mistake_list){rows, COUNT(rows)};
}
