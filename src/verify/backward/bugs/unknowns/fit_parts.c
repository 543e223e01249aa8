/* Parts of the sums dQ, dK and dV that count never, or more than once: how often is read from what was computed. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"

/* A product that is added up part by part: rows of dQ over keys, of dK and dV over the queries of all heads that share
 * them. */
typedef struct product {
    const double *matrix, *x; /* (heads, T_q, n), and the rows that it is multiplied with */
    size_t T, n, heads, d;
    bool transposed; /* rows are columns of the matrix */
    double scale;
    mha_gradient gradient;
} product;

/* How a product is cut. */
typedef struct cut {
    size_t rows, terms; /* of the product */
    size_t of_rows, of_terms;
} cut;

/* What terms `from` to `end` of a head add to `count` rows from `first` on. */
static void add_up(const product *p, const size_t rows[2], size_t head, size_t from, size_t end, double *sums)
{
    const double *matrix = p->matrix + head * p->T * p->n, *x = p->x + head * (p->transposed ? p->T : p->n) * p->d;
    memset(sums, 0, rows[1] * p->d * sizeof *sums);
    for (size_t r = 0; r < rows[1]; r++)
        for (size_t k = from; k < end; k++) {
            const double f = p->scale * matrix[p->transposed ? k * p->n + rows[0] + r : (rows[0] + r) * p->n + k];
            for (size_t c = 0; f != 0 && c < p->d; c++)
                sums[r * p->d + c] += f * x[k * p->d + c];
        }
}

static size_t parts_of(size_t n, size_t part)
{
    return (n + part - 1) / part;
}

/* The number of times that parts count which dropout keeps; 0: some count neither so often nor never. A part of which
 * nothing tells counts once. */
static double kept_by_dropout(const double *w, size_t n)
{
    double kept = 0;
    for (size_t k = 0; k < n; k++)
        kept = w[k] != 1 ? fmax(kept, w[k]) : kept;
    for (size_t k = 0; k < n; k++)
        if (w[k] != 1 && fabs(w[k]) > 0x1p-8 && fabs(w[k] - kept) > 0x1p-8)
            return 0;
    return kept;
}

/* Brings `count` rows from `first` on to whole multiples of their parts, or to those that dropout keeps. `to`: these
 * rows, `step` numbers apart. `room`: for the terms and what their equations need. */
static void fit_rows(const product *p, const cut *by, const size_t rows[2], const double *found, double *room,
                     double *to, size_t step)
{
    const size_t each = parts_of(by->terms, by->of_terms), n = p->heads * each, size = rows[1] * p->d;
    double *equations = room + n * size, *w = equations + (n + 1) * n;
    for (size_t k = 0; k < n; k++) {
        const size_t from = k % each * by->of_terms, end = from + by->of_terms;
        add_up(p, rows, k / each, from, end < by->terms ? end : by->terms, room + k * size);
    }
    mha__least_squares(room, found, n, size, 1, equations, w);
    const double kept = by->of_rows == 1 && n < size ? kept_by_dropout(w, n) : 0;
    for (size_t k = 0; k < n; k++) {
        const double whole = kept > 0.5 && w[k] > 0.5 ? w[k] : nearbyint(w[k]),
                     moved = whole >= -1 && whole <= 4 ? whole - 1 : 0;
        for (size_t e = 0; e < size && moved != 0; e++)
            to[e / p->d * step + e % p->d] += moved * room[k * size + e];
    }
}

/* Where row `first` of a gradient of the head of a map is added up, and how far the next row is from it. */
static double *rows_at(const mha__backward *b, const mha__map *map, mha_gradient g, size_t first, size_t *step)
{
    const mha_view *d = g == MHA_D_QUERY ? &b->d[g] : &b->d_keys[g == MHA_D_VALUE];
    const bool keys = g != MHA_D_QUERY;
    const size_t batch = keys ? map->s.k_batch : map->s.batch, from = keys ? map->s.k_from : map->s.q_from;
    *step = d->shape[2] * d->shape[3];
    return (double *)d->data + (batch * d->shape[1] + from + first) * *step + (keys ? map->g : map->head) * d->shape[3];
}

static void fit(const mha__backward *b, const mha__map *map, const product *p, size_t block, bool whole)
{
    const mha_allocator a = mha__allocator_default();
    cut by = {p->transposed ? map->s.S : p->T, p->transposed ? p->T : map->s.S, block, block};
    by.of_rows = whole || block > by.rows ? by.rows : block, by.of_terms = block > by.terms ? by.terms : block;
    if (!b->given->of[p->gradient].data || by.rows * by.terms == 0)
        return;
    const size_t n = p->heads * parts_of(by.terms, by.of_terms), size = by.of_rows * p->d,
                 bytes = ((n + 1) * size + (n + 2) * n) * sizeof(double);
    double *found = mha__allocate(&a, bytes);
    for (size_t first = 0; found && first < by.rows; first += by.of_rows) {
        const size_t rows[2] = {first, by.rows - first < by.of_rows ? by.rows - first : by.of_rows};
        size_t step;
        double *to = rows_at(b, map, p->gradient, first, &step);
        bool finite = true;
        for (size_t r = 0; r < rows[1]; r++)
            mha__found_row(b, map, p->gradient, first + r, found + r * p->d);
        for (size_t e = 0; e < rows[1] * p->d; e++)
            finite &= isfinite(found[e]) != 0;
        if (finite)
            fit_rows(p, &by, rows, found, found + size, to, step);
    }
    mha__release(&a, found, bytes);
}

/* The heads that share key/value head g; `room`: for dS, P, Q and dO of all of them. */
static void fit_group(mha__backward *b, size_t sequence, size_t g, size_t block, bool whole, double *room)
{
    const mha__sizes *p = &b->r->plan;
    const mha__map *map = &b->map;
    const size_t group = p->h / p->h_kv;
    product of_k = {NULL, NULL, 0, 0, group, p->d_k, true, p->scale, MHA_D_KEY},
            of_v = {NULL, NULL, 0, 0, group, p->d_v, true, 1, MHA_D_VALUE};
    for (size_t i = 0; i < group; i++) {
        const size_t head = g * group + i;
        if (b->alone && head != b->alone_head)
            continue;
        mha__make_map(b, sequence, head);
        const size_t T = map->s.T_q, pairs = T * map->n;
        const product of_q = {map->d_scores, map->K, T, map->n, 1, p->d_k, false, p->scale, MHA_D_QUERY};
        fit(b, map, &of_q, block, whole);
        double *dS = room, *P = dS + group * pairs, *Q = P + group * pairs, *dO = Q + group * T * p->d_k;
        memcpy(dS + i * pairs, map->d_scores, pairs * sizeof *dS);
        memcpy(P + i * pairs, map->weights, pairs * sizeof *P);
        memcpy(Q + i * T * p->d_k, map->Q, T * p->d_k * sizeof *Q);
        memcpy(dO + i * T * p->d_v, map->dO, T * p->d_v * sizeof *dO);
        of_k.matrix = dS, of_k.x = Q, of_v.matrix = P, of_v.x = dO;
        of_k.T = of_v.T = T, of_k.n = of_v.n = map->n;
    }
    if (b->alone)
        return;
    fit(b, map, &of_k, block, whole);
    fit(b, map, &of_v, block, whole);
}

void mha__fit_parts(mha__backward *b, size_t block, bool whole)
{
    const mha_allocator a = mha__allocator_default();
    const mha__sizes *p = &b->r->plan;
    const size_t group = p->h / p->h_kv, n = p->S + p->S_extra,
                 bytes = (group * p->T_q * (2 * n + p->d_k + p->d_v) + 1) * sizeof(double);
    double *room = mha__allocate(&a, bytes);
    for (size_t sequence = 0; room && sequence < p->B; sequence++)
        for (size_t g = 0; g < p->h_kv; g++)
            if (!b->alone || (sequence == b->alone_sequence && g == b->alone_head / group))
                fit_group(b, sequence, g, block, whole, room);
    mha__release(&a, room, bytes);
}
