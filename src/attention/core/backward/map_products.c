/* One head of one sequence, from dO to dQ, dK and dV: a function for each line of backward.c. A pair that is hidden is
 * left out of every sum. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/backward/backward.h"
#include "attention/core/exact/rounding.h"

static double stored(mha_dtype type, double x)
{
    return type == MHA_F32 ? x : mha__round_to(type, x);
}

/* dP_ij = m_ij dO_i . V_j */
void mha__map_weights(const mha__backward *b, mha__map *map)
{
    const size_t d_v = b->r->plan.d_v, n = map->n, T = map->s.T_q;
    for (size_t e = 0; e < n * d_v; e++)
        map->turned[e % d_v * n + e / d_v] = map->V[e];
    memset(map->d_weights, 0, T * n * sizeof *map->d_weights);
    b->r->kernels->ordered_sums(T, n, d_v, map->dO, d_v, map->turned, n, map->d_weights, n);
    for (size_t at = 0; at < T * n; at++)
        map->d_weights[at] = map->seen[at] ? map->kept[at] * map->d_weights[at] : 0;
}

/* dO_i . O_i, with O as a modelled precision stores it */
static double rounded_sum(const mha__backward *b, const mha__map *map, size_t i)
{
    const size_t d_v = b->r->plan.d_v, n = map->n;
    double sum = 0;
    for (size_t c = 0; c < d_v; c++) {
        double O = 0;
        for (size_t j = 0; j < n; j++)
            if (map->seen[i * n + j])
                O += map->weights[i * n + j] * map->kept[i * n + j] * map->V[j * d_v + c];
        sum += map->dO[i * d_v + c] * mha__round_to(b->given->precision.output, O);
    }
    return sum;
}

/* dO_i . O_i, of all keys */
static double whole_sum(const mha__backward *b, const mha__map *map, size_t i)
{
    const size_t d_v = b->r->plan.d_v;
    double sum = 0;
    for (size_t c = 0; c < d_v; c++)
        sum += map->dO[i * d_v + c] *
               stored(b->given->precision.output, mha__map_whole(map, &b->given->whole.output, i, c));
    return sum;
}

/* D_i = sum_j P_ij dP_ij */
void mha__map_sums(const mha__backward *b, mha__map *map)
{
    const size_t n = map->n;
    const bool part = b->given->whole.lse.data, rounds = b->given->precision.output != MHA_F32;
    for (size_t i = 0; i < map->s.T_q; i++) {
        map->sums[i] = part ? whole_sum(b, map, i) : rounds ? rounded_sum(b, map, i) : 0;
        for (size_t j = 0; !part && !rounds && j < n; j++)
            if (map->seen[i * n + j])
                map->sums[i] += map->weights[i * n + j] * map->d_weights[i * n + j];
    }
}

/* 1 - P of a sigmoid, from its masked score. */
static double beside(const mha__backward *b, const mha__map *map, size_t i, size_t j)
{
    const double z = mha_view_get(&b->stages[MHA_STAGE_MASKED], (size_t[]){map->b, map->head, i, j}) +
                     mha__semantics_of(b->r)->softmax.sigmoid_bias,
                 e = exp(-fabs(z));
    return (z < 0 ? 1 : e) / (1 + e);
}

/* dZ_ij = P_ij (dP_ij - D_i + dlse_i), or P_ij (1 - P_ij) dP_ij */
void mha__map_masked(const mha__backward *b, mha__map *map)
{
    const bool sigmoid = mha__semantics_of(b->r)->softmax.normaliser == MHA_SIGMOID;
    const size_t n = map->n;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < n; j++) {
            const size_t at = i * n + j;
            const double moved = sigmoid && map->seen[at] == MHA__SEEN
                                     ? beside(b, map, i, j) * map->d_weights[at]
                                     : map->d_weights[at] - map->sums[i] + map->d_lse[i];
            map->d_masked[at] = map->seen[at] == MHA__SEEN ? map->weights[at] * moved : 0;
        }
}

/* dS_ij = dZ_ij / cosh^2(S_ij / c) */
void mha__map_scores(const mha__backward *b, mha__map *map)
{
    (void)b;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        map->d_scores[at] = map->seen[at] == MHA__SEEN ? map->d_masked[at] * map->slope[at] : 0;
}

/* Adds factor times a row to sums that are held in a type; MHA_F32: as they are. */
static void add_times(mha_dtype sums, double *to, double factor, const double *from, size_t n)
{
    for (size_t c = 0; c < n; c++)
        to[c] += factor * from[c];
    for (size_t c = 0; sums != MHA_F32 && c < n; c++)
        to[c] = mha__round_to(sums, to[c]);
}

static void scale(double *x, size_t n, double factor)
{
    for (size_t e = 0; e < n; e++)
        x[e] *= factor;
}

static bool are_finite(const double *x, size_t n)
{
    bool finite = true;
    for (size_t e = 0; e < n; e++)
        finite &= isfinite(x[e]) != 0;
    return finite;
}

/* Rounds n sums if term `at` of `terms` ends a block that is not the last one. */
static void end_block(const mha_backward_precision *p, size_t at, size_t terms, double *sums, size_t n)
{
    if (p->block_rows > 0 && (at + 1) % p->block_rows == 0 && at + 1 < terms)
        mha__round_all(p->gradients, sums, n);
}

/* The sums pair by pair, held in a type, or of rows that a 0 does not leave out. */
static void add_pairs(const mha__backward *b, mha__map *map)
{
    const size_t d_k = b->r->plan.d_k, d_v = b->r->plan.d_v, n = map->n, T = map->s.T_q;
    const mha_backward_precision *p = &b->given->precision;
    const mha_dtype sums = p->sums, met = p->probabilities;
    for (size_t i = 0; i < T; i++) {
        for (size_t j = 0; j < n; j++) {
            const size_t at = i * n + j;
            if (map->seen[at] == MHA__SEEN) {
                add_times(sums, map->dQ + i * d_k, map->d_scores[at], map->K + j * d_k, d_k);
                add_times(sums, map->dK + j * d_k, map->d_scores[at], map->Q + i * d_k, d_k);
            }
            if (map->seen[at])
                add_times(sums, map->dV + j * d_v, stored(met, map->weights[at]) * map->kept[at], map->dO + i * d_v,
                          d_v);
            end_block(p, j, n, map->dQ + i * d_k, d_k);
        }
        end_block(p, i, T, map->dK, n * d_k);
        end_block(p, i, T, map->dV, n * d_v);
    }
}

/* The same sums, term by term in the same order, many side by side: a pair that is hidden adds 0. */
static void add_products(const mha__backward *b, mha__map *map)
{
    const size_t d_k = b->r->plan.d_k, d_v = b->r->plan.d_v, n = map->n, T = map->s.T_q;
    const mha_dtype met = b->given->precision.probabilities;
    const mha__kernels *kernels = b->r->kernels;
    kernels->ordered_sums(T, d_k, n, map->d_scores, n, map->K, d_k, map->dQ, d_k);
    for (size_t at = 0; at < T * n; at++)
        map->turned[at % n * T + at / n] = map->d_scores[at];
    kernels->ordered_sums(n, d_k, T, map->turned, T, map->Q, d_k, map->dK, d_k);
    for (size_t at = 0; at < T * n; at++)
        map->turned[at % n * T + at / n] = map->seen[at] ? stored(met, map->weights[at]) * map->kept[at] : 0;
    kernels->ordered_sums(n, d_v, T, map->turned, T, map->dO, d_v, map->dV, d_v);
}

/* dQ_i = scale sum_j dS_ij K_j, dK_j = scale sum_i dS_ij Q_i, dV_j = sum_i P_ij m_ij dO_i */
void mha__map_products(const mha__backward *b, mha__map *map)
{
    const size_t d_k = b->r->plan.d_k, d_v = b->r->plan.d_v, n = map->n, T = map->s.T_q;
    memset(map->dQ, 0, T * d_k * sizeof *map->dQ);
    memset(map->dK, 0, n * d_k * sizeof *map->dK);
    memset(map->dV, 0, n * d_v * sizeof *map->dV);
    const mha_backward_precision *p = &b->given->precision;
    if (p->sums == MHA_F32 && p->block_rows == 0 && are_finite(map->Q, T * d_k) && are_finite(map->K, n * d_k) &&
        are_finite(map->dO, T * d_v))
        add_products(b, map);
    else
        add_pairs(b, map);
    scale(map->dQ, T * d_k, map->q_scale);
    scale(map->dK, n * d_k, map->k_scale);
}
