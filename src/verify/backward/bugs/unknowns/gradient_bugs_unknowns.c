/* Bugs with unknown numbers, which are taken from what somebody computed, as those that bring it nearest: another D
 * or lse for each query, and parts of a sum that count never, or more than once. Far fewer than the gradients, which
 * the bug then has to give, all of them. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_rows.h"
#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"

/* Rows that go out as they are attended to, or rotated. */
bool mha__has_plain_rows(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__resolved *r = b->r;
    (void)bug;
    return !r->layer && !mha__holds_keys(r) && r->norm[MHA_QUERIES] == MHA_NORM_NONE &&
           r->norm[MHA_KEYS] == MHA_NORM_NONE && r->qkv.clip_qkv == 0 && r->plan.S_extra == 0 &&
           (mha__semantics_of(r)->qkv.rope.kind == MHA_ROPE_NONE || r->qkv.rope.attention_factor == 1) &&
           mha__semantics_of(r)->added.relative.rule == MHA_RELATIVE_NONE;
}

static bool has_softmax_rows(const mha__backward *b, const mha__gradient_bug *bug)
{
    return mha__has_plain_rows(b, bug) && mha__is_softmax(b) && b->given->of[MHA_D_QUERY].data;
}

/* ---------------------------------------------------------------- D and lse */

/* A number of each query that dQ tells: D; the factor of P, e^(lse - lse'), which is never 0; a factor 0; the factor of
 * dP; or those of P in each block of `step` keys. */
enum { FIT_D, FIT_LSE, FIT_LOST, FIT_DP, FIT_BLOCKS };

/* dQ_i = scale sum_j P_ij (dP_ij - D_i) K_j / cosh^2 is linear in each of them. */
static void fit_queries(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha_allocator a = mha__allocator_default();
    const int how = bug->mutation.arg;
    if (!map) { /* P of a query that sees one key is in no dQ */
        mha__fit_lone_queries(b);
        return;
    }
    const size_t d = b->r->plan.d_k, block = how == FIT_BLOCKS ? (size_t)bug->mutation.step : map->n + 1,
                 n = how == FIT_BLOCKS ? (map->n + block - 1) / block : 1,
                 bytes = ((n + 2) * d + (n + 2) * n) * sizeof(double);
    double *found = mha__allocate(&a, bytes), *rest = found + d, *terms = rest + d, *equations = terms + n * d,
           *w = equations + (n + 1) * n;
    for (size_t i = 0; found && i < map->s.T_q; i++) {
        const double D = map->sums[i] - map->d_lse[i];
        mha__found_row(b, map, MHA_D_QUERY, i, found);
        memset(rest, 0, (n + 1) * d * sizeof *rest);
        for (size_t j = 0; j < map->n; j++) {
            const size_t at = i * map->n + j;
            const double P = map->weights[at] * map->slope[at] * map->q_scale,
                         dS = P * (how == FIT_DP ? map->d_weights[at] : map->d_weights[at] - D),
                         term = how == FIT_D ? P : dS,
                         other = how == FIT_D    ? dS
                                 : how == FIT_DP ? -P * D
                                                 : 0;
            for (size_t c = 0; map->seen[at] == MHA__SEEN && c < d; c++)
                terms[j / block * d + c] += term * map->K[j * d + c], rest[c] += other * map->K[j * d + c];
        }
        for (size_t c = 0; c < d; c++)
            found[c] = how == FIT_D ? rest[c] - found[c] : found[c] - rest[c];
        mha__least_squares(terms, found, n, d, how != FIT_D, equations, w);
        map->sums[i] += how == FIT_D && isfinite(*w) ? *w : 0;
        for (size_t j = 0; j < map->n && how != FIT_D; j++) {
            const double fit = w[j / block];
            const bool lost = fabs(fit) < 0x1p-30 && how != FIT_BLOCKS;
            if (isfinite(fit) && lost == (how == FIT_LOST))
                (how == FIT_DP ? map->d_weights : map->weights)[i * map->n + j] *= lost ? 0 : fit;
        }
    }
    mha__release(&a, found, bytes);
}

/* Fewer blocks than half of the numbers that tell of them. */
static bool has_query_blocks(const mha__backward *b, const mha__gradient_bug *bug)
{
    const double blocks = ceil((double)b->r->plan.S / bug->mutation.step);
    return has_softmax_rows(b, bug) && blocks > 1 && 2 * blocks <= (double)b->r->plan.d_k;
}

/* ---------------------------------------------------------------- parts of sums */

/* Parts of `step` keys or queries; 0: whole heads; with `arg` single pairs. */
static void fit_parts(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__sizes *p = &b->r->plan;
    const int n = bug->mutation.step;
    (void)map;
    mha__fit_parts(b, n > 0 ? (size_t)n : p->S + p->T_q, n <= 1 && !bug->mutation.arg);
}

/* Each row of a sum is an unknown: few enough for their equations. */
enum { MOST_ROWS = 128, MOST_PAIRS = 1 << 14 };

static bool has_few_rows(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__sizes *p = &b->r->plan;
    const size_t queries = p->h / p->h_kv * p->T_q;
    return mha__has_plain_rows(b, bug) && p->S <= MOST_ROWS && queries <= MOST_ROWS && queries * p->S <= MOST_PAIRS &&
           p->T_q > 1;
}

/* clang-format off */
APPLIES(has_groups, mha__has_plain_rows(b, bug) && b->r->plan.h > b->r->plan.h_kv)

APPLIES(has_blocks, mha__has_plain_rows(b, bug) && ((double)b->r->plan.S > bug->mutation.step ||
        (double)b->r->plan.T_q > bug->mutation.step))

#define ROW(name, what, applies, stage, function, leaves, ...) \
    {{name, what, true}, applies, MHA__BACKWARD_##stage, function, NULL, leaves, .mutation = {__VA_ARGS__}}
#define BLOCKS(B) \
    ROW("blocks-miscounted-" #B, \
        "in the gradients that are wrong some blocks of " #B " keys or queries count never, or more than once: a " \
        "tile is lost, overwritten or added twice", has_blocks, HEADS, fit_parts, 0, .step = B)
#define QUERY_BLOCKS(B) \
    ROW("lse-unknown-of-blocks-" #B, \
        "P of each query is multiplied by a number in each block of " #B " keys: a block is not rescaled", \
        has_query_blocks, SUMS, fit_queries, 0, .step = B, .arg = FIT_BLOCKS)

static const mha__gradient_bug rows[] = {
    ROW("queries-missing", "some queries count in no gradient, and all else is right", has_softmax_rows, SUMS,
        fit_queries, 0, .arg = FIT_LOST),
    ROW("d-unknown", "D of each query, less dlse, is another number than it should be, and all else is right",
        has_softmax_rows, SUMS, fit_queries, 0, .arg = FIT_D),
    ROW("dp-unknown", "dP of each query is multiplied by a number, as by 1 / (1 - rate) of a dropout, and D is right",
        has_softmax_rows, SUMS, fit_queries, MHA__LEAVES_V, .arg = FIT_DP),
    ROW("lse-unknown", "P of each query is multiplied by a number: lse is another one, and all else is right",
        has_softmax_rows, SUMS, fit_queries, MHA__ENDS_LATER, .arg = FIT_LSE),
    ROW("heads-miscounted", "in dK and dV some heads of a group count never, or more than once", has_groups, HEADS,
        fit_parts, MHA__LEAVES_Q, .step = 0),
    BLOCKS(128), BLOCKS(64), BLOCKS(32), BLOCKS(16),
    ROW("rows-miscounted",
        "in dQ some keys count never, or more than once, or in dK and dV some queries, and all others are right",
        has_few_rows, HEADS, fit_parts, 0, .step = 1),
    ROW("pairs-miscounted",
        "in the gradients that are wrong some pairs count never, and the others times a number: as with dropout",
        has_few_rows, HEADS, fit_parts, 0, .step = 1, .arg = 1),
    QUERY_BLOCKS(128), QUERY_BLOCKS(64), QUERY_BLOCKS(32), QUERY_BLOCKS(16),
};
MHA__GRADIENT_BUGS(unknowns)
/* clang-format on */
