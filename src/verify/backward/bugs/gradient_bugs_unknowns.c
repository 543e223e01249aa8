/* Bugs with unknown numbers, which are taken from what somebody computed, as those that bring it nearest: another D
 * or lse for each query, and parts of a sum that count never, or more than once. Far fewer than the gradients, which
 * the bug then has to give, all of them. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/exact_rows.h"
#include "base/base.h"
#include "verify/backward/bugs/unknowns/unknowns.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* Rows that go out as they are attended to, or rotated. */
static bool has_plain_rows(const mha__backward *b, const mha__gradient_bug *m)
{
    const mha__resolved *r = b->r;
    (void)m;
    return !r->layer && !mha__holds_keys(r) && r->norm[MHA_QUERIES] == MHA_NORM_NONE &&
           r->norm[MHA_KEYS] == MHA_NORM_NONE && r->semantics.qkv.clip_qkv == 0 && r->plan.S_extra == 0 &&
           (r->semantics.qkv.rope.kind == MHA_ROPE_NONE || r->rope_times == 1) &&
           r->semantics.added.relative.rule == MHA_RELATIVE_NONE;
}

static bool has_softmax_rows(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_plain_rows(b, m) && b->r->semantics.softmax.normaliser == MHA_SOFTMAX && b->given->of[MHA_D_QUERY].data;
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

/* D of each query as dQ has it (number 0), or the factor of its P: e^(lse - lse') (1), never 0; or 0 where
 * dQ is (2). */
static void fit_queries(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha_allocator a = mha__allocator_default();
    const size_t d = b->r->plan.d_k;
    const size_t bytes = 3 * d * sizeof(double);
    if (!map) { /* P of a query that sees one key is in no dQ */
        mha__fit_lone_queries(b);
        return;
    }
    double *found = mha__allocate(&a, bytes), *u = found + d, *dQ = u + d;
    for (size_t i = 0; found && i < map->s.T_q; i++) {
        mha__found_row(b, map, MHA_D_QUERY, i, found);
        query_parts(b, map, i, u, dQ);
        const double *of = m->number > 0 ? dQ : u, squares = mha__inner(of, of, d);
        for (size_t c = 0; c < d && m->number == 0; c++)
            found[c] = dQ[c] - found[c];
        const double fit = mha__inner(of, found, d) / squares;
        const bool lost = fabs(fit) < 0x1p-30;
        if (!(squares > 0) || !isfinite(fit) || (m->number > 0 && lost != (m->number == 2)))
            continue;
        map->sums[i] += m->number > 0 ? 0 : fit;
        for (size_t j = 0; j < map->n && m->number > 0; j++)
            map->weights[i * map->n + j] *= lost ? 0 : fit;
    }
    mha__release(&a, found, bytes);
}

/* P of each query times a number in each block of `number` keys, as dQ has it. */
static void fit_query_blocks(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha_allocator a = mha__allocator_default();
    const size_t d = b->r->plan.d_k, block = (size_t)m->number, n = (map->n + block - 1) / block,
                 bytes = ((n + 1) * d + (n + 2) * n) * sizeof(double);
    double *found = mha__allocate(&a, bytes), *terms = found ? found + d : NULL;
    for (size_t i = 0; found && i < map->s.T_q; i++) {
        double *equations = terms + n * d, *w = equations + (n + 1) * n;
        mha__found_row(b, map, MHA_D_QUERY, i, found);
        memset(terms, 0, n * d * sizeof *terms);
        for (size_t j = 0; j < map->n; j++) {
            const size_t at = i * map->n + j;
            const double dS =
                map->weights[at] * map->slope[at] * map->q_scale * (map->d_weights[at] - map->sums[i] + map->d_lse[i]);
            for (size_t c = 0; map->seen[at] == MHA__SEEN && c < d; c++)
                terms[j / block * d + c] += dS * map->K[j * d + c];
        }
        mha__least_squares(terms, found, n, d, 1, equations, w);
        for (size_t j = 0; j < map->n; j++)
            map->weights[i * map->n + j] *= isfinite(w[j / block]) ? w[j / block] : 1;
    }
    mha__release(&a, found, bytes);
}

/* Fewer blocks than half of the numbers that tell of them. */
static bool has_query_blocks(const mha__backward *b, const mha__gradient_bug *m)
{
    const double blocks = ceil((double)b->r->plan.S / m->number);
    return has_softmax_rows(b, m) && blocks > 1 && 2 * blocks <= (double)b->r->plan.d_k;
}

/* ---------------------------------------------------------------- parts of sums */

/* Parts of `number` keys or queries; 0: whole heads. */
static void fit_parts(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    (void)map;
    mha__fit_parts(b, m->number > 0 ? (size_t)m->number : p->S + p->T_q, m->number <= 1);
}

static bool has_blocks(const mha__backward *b, const mha__gradient_bug *m)
{
    const double n = m->number;
    return has_plain_rows(b, m) && ((double)b->r->plan.S > n || (double)b->r->plan.T_q > n);
}

static bool has_groups(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_plain_rows(b, m) && b->r->plan.h > b->r->plan.h_kv;
}

/* Each row of a sum is an unknown: few enough for their equations. */
enum { MOST_ROWS = 128, MOST_PAIRS = 1 << 14 };

static bool has_few_rows(const mha__backward *b, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    const size_t group = p->h / p->h_kv;
    return has_plain_rows(b, m) && p->S <= MOST_ROWS && group * p->T_q <= MOST_ROWS &&
           group * p->T_q * p->S <= MOST_PAIRS && p->T_q > 1;
}

/* clang-format off */
#define BLOCKS(B) \
    {{"blocks-miscounted-" #B, \
      "in the gradients that are wrong some blocks of " #B " keys or queries count never, or more than once: a tile " \
      "is lost, overwritten or added twice", true}, has_blocks, MHA__BACKWARD_HEADS, fit_parts, B, 0, NULL, 0, {0}}

#define QUERY_BLOCKS(B) \
    {{"lse-unknown-of-blocks-" #B, \
      "P of each query is multiplied by a number in each block of " #B " keys: a block is not rescaled", true}, \
        has_query_blocks, MHA__BACKWARD_SUMS, fit_query_blocks, B, 0, NULL, 0, {0}}

static const mha__gradient_bug rows[] = {
    {{"queries-missing", "some queries count in no gradient, and all else is right", true},
        has_softmax_rows, MHA__BACKWARD_SUMS, fit_queries, 2, 0, NULL, 0, {0}},
    {{"d-unknown", "D of each query, less dlse, is another number than it should be, and all else is right", true},
        has_softmax_rows, MHA__BACKWARD_SUMS, fit_queries, 0, 0, NULL, 0, {0}},
    {{"lse-unknown", "P of each query is multiplied by a number: lse is another one, and all else is right", true},
        has_softmax_rows, MHA__BACKWARD_SUMS, fit_queries, 1, 0, NULL, MHA__ENDS_LATER, {0}},
    {{"heads-miscounted", "in dK and dV some heads of a group count never, or more than once", true},
        has_groups, MHA__BACKWARD_HEADS, fit_parts, 0, 0, NULL, MHA__LEAVES_Q, {0}},
    BLOCKS(128), BLOCKS(64), BLOCKS(32), BLOCKS(16),
    {{"rows-miscounted",
      "in dQ some keys count never, or more than once, or in dK and dV some queries, and all others are right", true},
        has_few_rows, MHA__BACKWARD_HEADS, fit_parts, 1, 0, NULL, 0, {0}},
    QUERY_BLOCKS(128), QUERY_BLOCKS(64), QUERY_BLOCKS(32), QUERY_BLOCKS(16),
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_unknowns(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
