/* Bugs of dQ, dK and dV, and of heads that share keys and values. */
#include <math.h>
#include <string.h>

#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

/* Sites: gradients, or several of them; of dQ and dK alone their scale. */
enum { DQ = 1, DK = 2, DV = 4 };

/* Matrices of which a gradient is made; `read` 1: of dK and dV without the transpose. */
enum { OF_P, OF_SQUARES, OF_P_OVER_LARGEST, OF_DS, OF_DZ };
/* What a product reads in place of its rows. */
enum { V_FOR_K, DO_FOR_Q, Q_FOR_DO, K_FOR_V, DP_TRANSPOSED, FEWER_FEATURES };

static double *gradient_of(const mha__map *map, int which)
{
    return which == DQ ? map->dQ : which == DK ? map->dK : map->dV;
}

static size_t size_of(const mha__backward *b, const mha__map *map, int which)
{
    return which == DQ ? map->s.T_q * b->r->plan.d_k : map->n * (which == DK ? b->r->plan.d_k : b->r->plan.d_v);
}

/* ---------------------------------------------------------------- factors */

/* The scale of dQ and dK times a factor. */
static void times_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    map->q_scale *= bug->mutation.site & DQ ? mha__factor(&bug->mutation, b->r) : 1;
    map->k_scale *= bug->mutation.site & DK ? mha__factor(&bug->mutation, b->r) : 1;
}

static void other_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    map->q_scale = map->k_scale = mha__scale_of(b, (mha__other_scale)bug->mutation.arg);
}

/* Gradients times a factor. */
static void times(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const double f = mha__factor(&bug->mutation, b->r);
    for (int which = DQ; which <= DV; which *= 2)
        for (size_t e = 0; bug->mutation.site & which && e < size_of(b, map, which); e++)
            gradient_of(map, which)[e] *= map->sizes ? fabs(f) : f;
}

/* ---------------------------------------------------------------- other matrices */

/* A gradient that is a product of another matrix of a map than it should be. */
static void multiply(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    const bool by_rows = m->site == DQ || m->read;
    const size_t n = map->n, d = m->site == DV ? b->r->plan.d_v : b->r->plan.d_k;
    const double *matrix = m->arg == OF_DS ? map->d_scores : m->arg == OF_DZ ? map->d_masked : map->weights,
                 *x = m->site == DQ   ? map->K
                      : m->site == DV ? map->dO
                                      : map->Q,
                 scale = m->site == DQ ? map->q_scale : m->site == DV ? 1 : map->k_scale;
    double *to = gradient_of(map, m->site);
    if (map->sizes)
        return;
    memset(to, 0, size_of(b, map, m->site) * sizeof *to);
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double most = m->arg == OF_P_OVER_LARGEST ? mha__largest_weight(map, i) : 1;
        for (size_t j = 0; j < n && most > 0; j++) {
            const size_t at = i * n + j, row = by_rows ? i : j, met = by_rows ? j : i;
            const double f = scale * matrix[at] / most * (m->arg == OF_SQUARES ? matrix[at] : 1);
            for (size_t c = 0; map->seen[at] == MHA__SEEN && c < d; c++)
                to[row * d + c] += f * x[met * d + c];
        }
    }
}

static void exchange(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    double *x = map->dK, *y = bug->mutation.site & DQ ? map->dQ : map->dV;
    for (size_t e = 0; e < (bug->mutation.site & DQ ? map->s.T_q : map->n) * b->r->plan.d_k; e++) {
        const double kept = x[e];
        x[e] = y[e], y[e] = kept;
    }
}

/* ---------------------------------------------------------------- rows of another kind */

static void take_others(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const int how = bug->mutation.arg;
    const size_t d = b->r->plan.d_v, T = map->s.T_q, S = map->s.S, width = how == FEWER_FEATURES ? b->r->plan.d_k : d;
    double *const to[] = {map->K, map->Q, map->dO}, *const from[] = {map->V, map->dO, map->Q};
    if (how <= Q_FOR_DO)
        memcpy(to[how], from[how], (how == V_FOR_K ? S : T) * d * sizeof *map->Q);
    for (size_t at = 0; how > Q_FOR_DO && at < T * map->n; at++) {
        const size_t i = at / map->n, j = at % map->n;
        const double *dO = map->dO + (how == DP_TRANSPOSED ? j : i) * d,
                     *V = how == K_FOR_V ? map->K + j * d : map->V + (how == DP_TRANSPOSED ? i : j) * d;
        map->d_weights[at] = j < S ? 0 : map->d_weights[at];
        for (size_t c = 0; c < width && map->seen[at] == MHA__SEEN && j < S; c++)
            map->d_weights[at] += dO[c] * V[c];
    }
}

/* ---------------------------------------------------------------- parts */

/* Takes a pair away from dQ, or from dK and dV. The errors stay what they are: they are larger. */
static void take_away(const mha__backward *b, mha__map *map, size_t i, size_t j, bool of_q)
{
    const size_t at = i * map->n + j, d_k = b->r->plan.d_k, d_v = b->r->plan.d_v;
    for (size_t c = 0; c < d_k && map->seen[at] == MHA__SEEN && of_q; c++)
        map->dQ[i * d_k + c] -= map->q_scale * map->d_scores[at] * map->K[j * d_k + c];
    for (size_t c = 0; c < d_k && map->seen[at] == MHA__SEEN && !of_q; c++)
        map->dK[j * d_k + c] -= map->k_scale * map->d_scores[at] * map->Q[i * d_k + c];
    for (size_t c = 0; c < d_v && map->seen[at] == MHA__SEEN && !of_q; c++)
        map->dV[j * d_v + c] -= map->weights[at] * map->dO[i * d_v + c];
}

/* Sums over a part of the queries, keys, or heads of a group. */
static void keep(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    const mha__axis_part part = (mha__axis_part)m->arg;
    const size_t block = (size_t)m->step, group = b->r->plan.h / b->r->plan.h_kv, T = map->s.T_q, S = map->s.S;
    for (int x = DK; x <= DV && m->axis == MHA__H && !mha__part_has(part, 0, map->head % group, group); x *= 2)
        if (m->site & x)
            memset(gradient_of(map, x), 0, size_of(b, map, x) * sizeof(double));
    const size_t keys = part == MHA__FULL_BLOCKS || m->site == DQ ? S : map->n;
    for (size_t i = 0; i < T && m->axis != MHA__H && !map->sizes; i++)
        for (size_t j = 0; j < keys && !(m->axis == MHA__T && mha__part_has(part, block, i, T)); j++)
            if (m->axis == MHA__T || !mha__part_has(part, block, j, S))
                take_away(b, map, i, j, m->site == DQ);
}

/* dK and dV of head i are added to those of key/value head i mod h_kv; or rows of the heads of a group are written as
 * (group, S) and added up as if they were (S, group). */
static void deal(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__sizes *p = &b->r->plan;
    const bool by_remainder = bug->mutation.arg == MHA__REMAINDER;
    const size_t group = p->h / p->h_kv, g = by_remainder ? map->head % p->h_kv : map->g;
    for (int v = 0; v < 2; v++) {
        const size_t d = v ? p->d_v : p->d_k, from = map->s.k_batch * b->d_keys[v].shape[1] + map->s.k_from;
        double *of_map = v ? map->dV : map->dK, *to = b->d_keys[v].data;
        for (size_t e = 0; bug->mutation.site & (v ? DV : DK) && e < map->s.S * d; e++) {
            const size_t row = by_remainder ? e / d : (map->head % group * map->s.S + e / d) / group;
            to[((from + row) * p->h_kv + g) * d + e % d] += of_map[e];
            of_map[e] = 0;
        }
    }
}

/* clang-format off */
APPLIES(has_other_scale, mha__has_scale(b, (mha__other_scale)bug->mutation.arg))
/* The last block is not full. */
APPLIES(has_tail, (bug->mutation.axis == MHA__T ? b->r->plan.T_q : b->r->plan.S) % (size_t)bug->mutation.step != 0)

#define LEFT_BY(sites) (7u & ~(unsigned)(sites))
#define HAS(what) MHA__HAS_##what
#define ROW(name, what, stage, function, leaves, ...) \
    {{name, what, false}, NULL, MHA__BACKWARD_##stage, function, NULL, leaves, .mutation = {__VA_ARGS__}}
#define SCALED(name, what, sites, has, factor, x) \
    ROW("scale-" name, what, SUMS, times_scale, LEFT_BY(sites), .site = sites, .arg = MHA__##factor, .number = x, \
        .needs = has)
#define SCALE(name, what, how) \
    {{"scale-" name, "dQ and dK have the scale " what, false}, has_other_scale, MHA__BACKWARD_SUMS, other_scale, NULL, \
        MHA__LEAVES_V, .mutation = {.arg = how}}
#define TIMES(name, what, sites, factor, x, has) \
    ROW(name, what, ADDED, times, LEFT_BY(sites), .site = sites, .arg = MHA__##factor, .number = x, .needs = has)
#define PRODUCT(name, what, has, where, matrix, untransposed) \
    ROW(name, what, ADDED, multiply, LEFT_BY(where), .site = where, .arg = matrix, .read = untransposed, .needs = has)
#define TAKES(name, what, stage, leaves, how, has) ROW(name, what, stage, take_others, leaves, .arg = how, .needs = has)
#define PART(name, what, sites, has, ...) \
    ROW(name, what, ADDED, keep, LEFT_BY(sites), .site = sites, .needs = has, __VA_ARGS__)
#define TAIL(name, what, sites, has, ...) \
    {{name, what, false}, has_tail, MHA__BACKWARD_ADDED, keep, NULL, LEFT_BY(sites), \
        .mutation = {.site = sites, .needs = has, __VA_ARGS__}}
#define PARTS(B) \
    TAIL("tail-queries-missing-" #B, "dK and dV lack the queries of the last block of " #B ", which is not full", \
         DK | DV, HAS(QUERY_BLOCKS), MHA__BY(FULL_BLOCKS, T, B)), \
    TAIL("tail-keys-missing-" #B, "dQ lacks the keys of the last block of " #B ", which is not full", DQ, \
         HAS(KEY_BLOCKS), MHA__BY(FULL_BLOCKS, C, B)), \
    PART("dq-of-last-block-" #B, "dQ has the last block of " #B " keys alone: what the others add is lost", DQ, \
         HAS(KEY_BLOCKS), MHA__BY(IN_LAST_BLOCK, C, B)), \
    PART("dk-dv-of-last-block-" #B, \
         "dK and dV have the last block of " #B " queries alone: what the others add is lost", \
         DK | DV, HAS(QUERY_BLOCKS), MHA__BY(IN_LAST_BLOCK, T, B))
#define GROUP(name, what, sites, part) PART("group-" name, what, sites, HAS(GROUPS), MHA__BY(part, H, 0))
#define DEALT(name, what, sites, map, has) \
    ROW(name, what, ADDED, deal, LEFT_BY(sites), .site = sites, .arg = map, .needs = HAS(GROUPS) | (has))
#define PLAIN (HAS(SOFTMAX) | HAS(KEYS_ALONE))
#define EQUAL_ROWS (HAS(EQUAL_WIDTHS) | HAS(NO_RELATIVE) | HAS(NO_EXTRA))

static const mha__gradient_bug rows[] = {
    SCALED("missing", "dQ and dK lack the scale", DQ | DK, HAS(SCALE), SCALE, -1),
    SCALED("twice", "dQ and dK are scaled twice", DQ | DK, HAS(SCALE), SCALE, 1),
    SCALED("missing-dq", "dQ lacks the scale, dK has it", DQ, HAS(SCALE), SCALE, -1),
    SCALED("missing-dk", "dK lacks the scale, dQ has it", DK, HAS(SCALE), SCALE, -1),
    SCALED("twice-dq", "dQ is scaled twice, dK once", DQ, HAS(SCALE), SCALE, 1),
    SCALED("twice-dk", "dK is scaled twice, dQ once", DK, HAS(SCALE), SCALE, 1),
    SCALE("default", "1/sqrt(d_k), the forward has another", MHA__SCALE_DEFAULT),
    SCALE("of-values", "1/sqrt(d_v)", MHA__SCALE_OF_VALUES),
    SCALE("of-padded", "1/sqrt(n), n the power of two to which d_k is padded", MHA__SCALE_OF_PADDED),
    SCALE("of-model", "1/sqrt(h d_k)", MHA__SCALE_OF_MODEL),
    SCALE("over-width", "1/d_k", MHA__SCALE_OVER_WIDTH),
    SCALED("times-log2e", "dQ and dK are also multiplied by log2(e), which belongs to the exponent", DQ | DK, 0, NUMBER,
           MHA__LOG2_E),
    SCALED("times-ln2", "dQ and dK are also multiplied by ln(2)", DQ | DK, 0, NUMBER, MHA__LN_2),
    SCALED("root", "dQ and dK have the root of the scale", DQ | DK, HAS(SCALE), SCALE, -0.5),
    PRODUCT("dv-unnormalised", "dV is made of exponentials that are not divided by their sum", PLAIN, DV,
            OF_P_OVER_LARGEST, 0),
    TIMES("dv-scaled", "dV is multiplied by the scale", DV, SCALE, 1, HAS(SCALE)),
    TIMES("dq-twice", "dQ is twice what it should be: it was added to itself", DQ, NUMBER, 2, 0),
    TIMES("dk-dv-twice", "dK and dV are twice what they should be: they were added to themselves", DK | DV, NUMBER,
          2, 0),
    TIMES("dq-negated", "dQ has the other sign", DQ, NUMBER, -1, 0),
    TIMES("dk-negated", "dK has the other sign", DK, NUMBER, -1, 0),
    TIMES("dv-negated", "dV has the other sign", DV, NUMBER, -1, 0),
    TIMES("all-negated", "dQ, dK and dV have the other sign", DQ | DK | DV, NUMBER, -1, 0),
    TIMES("all-over-batch", "dQ, dK and dV are divided by the number of batch rows", DQ | DK | DV, BATCH, -1,
          HAS(BATCH)),
    TIMES("dq-half", "dQ is half of what it should be", DQ, NUMBER, 0.5, 0),
    TIMES("dq-zero", "dQ is 0", DQ, NUMBER, 0, 0),
    TIMES("dk-zero", "dK is 0", DK, NUMBER, 0, 0),
    TIMES("dv-zero", "dV is 0", DV, NUMBER, 0, 0),
    PRODUCT("dk-untransposed", "dK = scale dS Q, without the transpose of dS",
            HAS(SQUARE) | HAS(ALL_KV_HEADS) | HAS(NO_RELATIVE), DK, OF_DS, 1),
    PRODUCT("dv-untransposed", "dV = P dO, without the transpose of P", HAS(SQUARE) | HAS(ALL_KV_HEADS), DV, OF_P, 1),
    PRODUCT("dv-of-squares", "dV is made of the squares of P", 0, DV, OF_SQUARES, 0),
    PRODUCT("dv-of-d-scores", "dV = dS^T dO: dS is read where P belongs", 0, DV, OF_DS, 0),
    PRODUCT("dk-of-weights", "dK = scale P^T Q: P is read where dS belongs", HAS(NO_RELATIVE), DK, OF_P, 0),
    PRODUCT("dq-of-weights", "dQ = scale P K: P is read where dS belongs", HAS(NO_RELATIVE), DQ, OF_P, 0),
    PRODUCT("softcap-slope-missing-dq", "dQ lacks the derivative of the softcap, dK has it", HAS(SOFTCAP), DQ,
            OF_DZ, 0),
    PRODUCT("softcap-slope-missing-dk", "dK lacks the derivative of the softcap, dQ has it", HAS(SOFTCAP), DK,
            OF_DZ, 0),
    TAKES("dq-of-values", "dQ reads V where K belongs", READ, LEFT_BY(DQ), V_FOR_K, EQUAL_ROWS),
    TAKES("dk-of-do", "dK reads dO where Q belongs", READ, LEFT_BY(DK), DO_FOR_Q, EQUAL_ROWS),
    TAKES("dv-of-queries", "dV reads Q where dO belongs", SCORES, LEFT_BY(DV), Q_FOR_DO, EQUAL_ROWS),
    TAKES("dp-of-keys", "dP reads K where V belongs", SUMS, MHA__LEAVES_V, K_FOR_V, EQUAL_ROWS),
    TAKES("dp-transposed", "dP = V dO^T, without the transpose", SUMS, MHA__LEAVES_V | MHA__READS_ALL_QUERIES,
          DP_TRANSPOSED, HAS(SQUARE)),
    TAKES("dp-of-fewer-features", "dP is the sum over d_k features of dO and V", SUMS, MHA__LEAVES_V,
          FEWER_FEATURES, HAS(WIDE_VALUES)),
    ROW("dq-dk-exchanged", "dQ and dK stand in each other's place", ADDED, exchange,
        MHA__LEAVES_V | MHA__READS_ALL_QUERIES,
        .site = DQ | DK, .needs = HAS(SQUARE) | HAS(ALL_KV_HEADS)),
    ROW("dk-dv-exchanged", "dK and dV stand in each other's place", ADDED, exchange, MHA__LEAVES_Q, .site = DK | DV,
        .needs = HAS(EQUAL_WIDTHS)),
    PARTS(16), PARTS(32), PARTS(64), PARTS(128),
    GROUP("last", "dK and dV are those of the last head of a group, not their sum", DK | DV, THE_LAST),
    GROUP("first", "dK and dV are those of the first head of a group, not their sum", DK | DV, THE_FIRST),
    GROUP("last-dk", "dK is that of the last head of a group, dV is the sum", DK, THE_LAST),
    GROUP("last-dv", "dV is that of the last head of a group, dK is the sum", DV, THE_LAST),
    TIMES("group-mean", "dK and dV are means over the heads of a group, not sums", DK | DV, GROUP_SIZE, -1,
          HAS(GROUPS)),
    TIMES("group-mean-dk", "dK is a mean over the heads of a group, dV is the sum", DK, GROUP_SIZE, -1, HAS(GROUPS)),
    TIMES("group-mean-dv", "dV is a mean over the heads of a group, dK is the sum", DV, GROUP_SIZE, -1, HAS(GROUPS)),
    DEALT("group-by-remainder", "dK and dV of head i go to key/value head i mod h_kv", DK | DV, MHA__REMAINDER,
          HAS(KV_HEADS)),
    DEALT("group-by-remainder-dk", "dK of head i goes to key/value head i mod h_kv, dV goes to its own", DK,
          MHA__REMAINDER, HAS(KV_HEADS)),
    DEALT("group-by-remainder-dv", "dV of head i goes to key/value head i mod h_kv, dK goes to its own", DV,
          MHA__REMAINDER, HAS(KV_HEADS)),
    DEALT("group-of-other-order", "dK and dV of a group are written as (group, S) and added up as (S, group)", DK | DV,
          MHA__GROUPS_INSIDE, 0),
};
MHA__GRADIENT_BUGS(products)
/* clang-format on */
