/* The error bound of gradients: how far rounding may move each element, derived once.
 *
 * u is the unit roundoff, gamma(n) = n u / (1 - n u); a sum of n products in any order is off by at most gamma(n) times
 * the sum of the absolute products (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.5). lost(x)
 * is what storing a number of at most x in the type of a point costs (src/verify/tolerance/storage.c), 0 where nothing
 * is rounded there. t is the least normal number: what is below may be kept or be zero. The equations are those of
 * src/attention/core/backward/backward.c; the errors E_Z of masked scores, E_S of scores, E_lse and those of rows, E_q,
 * E_k and E_v, are the forward's (src/verify/tolerance/error_bound.c). Where rows are given as they are attended to, in
 * a type that the arithmetic represents, E_q = E_k = E_v = 0. Unlike the forward's, this bound is one of each
 * element, as dS has numbers of all sizes in one row. A_ij = sum_c |dO_ic| |V_jc|.
 *
 * With a layer dO is made of the gradient of its output, and is off by E_dO (bound_layer.c): below, |dO| means
 * |dO| + E_dO. A sum over c of E_dO |V_jc|, M_ij, is added to E_dP and, times P + E_P, to E_D; P E_dO to dV.
 *
 *   P     is exp(Z - lse), of scores that are computed once more, maybe in another order, or the forward's softmax.
 *         Each score has an error E_S of its own (bound_sums.c). Softcap, masks and relative terms add at most
 *         E_Z - E_S of the forward. lse moves by at most L = min(sum_j P (e^E_S - 1), max E_S), by the error of a sum
 *         of S' exponentials that is rescaled, and by 5 roundings of itself. exp and its argument cost
 *         x = u (3 |log P| + 24). With d the sum of these and of E_S, or 2 E_lse + x where that is less,
 *           E_P = (e^d - 1) P + lost(P) + t.
 *         Sigmoid: the forward's error of a weight.
 *   dP    E_dP = the error of a sum of d_v products + E_v sum_c |dO_c| + lost(|dP|) + (d_v + 1) t
 *         Dropout: dP = m dO V^T. Both grow to m times themselves, and E_dP by l m (A + E_dP) with l = gamma(c + 3) and
 *         c = 1 / (1 - p). A p in the type moves 1 - p by u p, and c by u c of itself. Difference, quotient and product
 *         cost 3u. Below, V has the factor m where P meets it. Where P meets dO, E_P is m (E_P + l (P + E_P)).
 *   D     is the sum of P dP, or dO . O with an O that was stored. Errors of P move both by as much:
 *           E_D = sum_j (E_P |dP| + (P + E_P) E_dP) + gamma(2 S' + d_v + 20) sum_j (P + E_P) A
 *                 + sum_c |dO_c| lost(|O_c| + sum_j E_P |V_jc|) + (S' + d_v) t (1 + sum_c |dO_c|)
 *         Of a part of the keys D is known by O and by W_c = sum_j P |V_jc| of all S' keys, with V the largest |V_jc|.
 *         As sum_j P |log P| <= log S', sum_j E_P |V_jc| is at most off_c = (r + l (1 + r)) W_c + (S' (a + t) +
 *         3 u (1 + r) log S') V, with r = e^(2 E_lse + 24 u) - 1 and with l and a the relative and the absolute part
 *         of lost. Sums over j of P A and E_P A are those over c of |dO_c| W_c and |dO_c| off_c.
 *   dZ    X = dP - D + dlse is off by E_X = E_dP + E_D + 3u (|dP| + |D| + |dlse| + E_dP + E_D), and dZ = P X by
 *           E_dZ = E_P (|X| + E_X) + P E_X + 2u (P + E_P) (|X| + E_X) + t.
 *         Sigmoid: P (1 - P) has slope at most 1, and is off by E_P + 4u: with X = dP the same.
 *   dS    the slope 1 - tanh^2(S / c) of a softcap has itself slope at most 0.77 / c, and is good to 40u:
 *         E_slope = min(E_S / c + 40u, 1),
 *           E_dS = (E_dZ + lost'(dZ)) (slope + E_slope) + |dZ| E_slope + 2u (|dZ| + E_dZ) + lost(|dS|) + t,
 *         where lost' is the same point once more, for kernels that store dZ.
 *   dQ    scale sum_j dS_ij K_j is off by |scale| times
 *           sum_j (E_dS (|K_j| + E_k) + |dS| E_k) + gamma(N) sum_j (|dS| + E_dS) (|K_j| + E_k),
 *         where N = max(S', T_q times the heads of a group) + 6 is the most terms of a sum of dQ, dK and dV. dK
 *         likewise with Q, dV with P, whose error grows by lost(P) where it meets dO, and dO.
 *         Partial sums of a type with half of its least number e lose N e more, before the scale. A sum with
 *         a rounding after each block of n rows has at most R = max(S', T_q) / n roundings more. Each has a relative
 *         part l and an absolute part a. They add (1 + gamma(N)) l R / (1 - l R) to gamma(N), and R a max(|scale|, 1).
 *         What a head has is stored: lost(|dQ|) and so on; all heads together are, too, and rounded: lost + 2u.
 *   added the gradients of masks, slopes and tables are sums of dZ: sums of E_dZ + lost(dZ), and gamma of the number of
 *         all pairs times the sum of |dZ| + E_dZ, each times the size of what dZ is multiplied with.
 *   sinks e^(sink - lse) is off as a P is, by E_lse once, and its product as dZ is.
 *
 * Calls in float32 without a layer, terms added to scores or a dropout have independent errors of pairs, but for rows
 * that are alike (bound_sums.c): independent errors add as the root of the sum of their squares. That is taken where it
 * is smaller, with each square times the number of rows alike:
 *   d     root of E_S^2, L^2 and the other parts of lse, with L the root of sum_j (P (e^E_S - 1))^2
 *   D     root of sum_j P^2 ((e^E_S - 1)^2 dP^2 + E_dP^2), of the square of D times the error of lse, and of the errors
 *         of the sums, where O_c is off by that of S' terms of at most sum_j P |V_jc|; with sum_j P x |dP| added
 *   dQ    root over j of P^2 ((e^E_S - 1)^2 X^2 + E_dP^2) K^2; the rest of E_dS, as E_D, is shared by all keys
 *   dK    root over i of E_dS^2 Q^2; dV root over i of E_P^2 dO^2
 * Where one weight is near 1, as for scores of N(0, 144), the largest part is D times the error of lse: of a D from
 * weights whose scores were added up in another order than those of lse, and which therefore do not add up to 1.
 *
 * Where the errors of the stages themselves are wanted, bound_stages.c keeps these.
 *
 * An error is infinite where A, the terms of X together, or the sums of |dS| |K|, |dS| |Q| and P |dO| reach the end
 * of the range, whatever comes of them. The sums over E are made by the steps of the backward itself, with E in
 * place of dS and absolute values in place of Q, K and dO. bound_rows.c goes on from there. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "verify/backward/bound.h"
#include "verify/tolerance/tolerance.h"

static double lost(mha_dtype type, double x)
{
    return type == MHA_F32 ? 0 : mha__lost(type, x, 1);
}

/* 0, or infinity where a number of this size leaves the range. */
static double beyond(const mha__gradient_errors *e, double size)
{
    return size < mha__gradient_largest(e) ? 0 : INFINITY;
}

/* One query of a map. */
typedef struct query {
    mha__gradient_errors *e;
    const mha__backward *b;
    const mha__map *map;
    size_t i;
    double dO;         /* sum_c |dO_c| */
    const double *off; /* E_dO */
    bool moves;        /* one of these is not 0 */
    double repeats, shared; /* equal weights; the error of lse but for those of scores */
} query;

static double *of_pair(const query *q, double *matrix, size_t j)
{
    return matrix + q->i * q->map->n + j;
}

/* sum_c |dO_c| |V_jc|, or, of what dO is off by, M. */
static double sizes_of_products(const query *q, const double *dO, size_t j)
{
    const size_t d_v = q->b->r->plan.d_v;
    double sum = 0;
    for (size_t c = 0; c < d_v; c++)
        sum += fabs(dO[c] * q->map->V[j * d_v + c]);
    return sum;
}

static const double *d_output_of(const query *q)
{
    return q->map->dO + q->i * q->b->r->plan.d_v;
}

/* E_dO of query i. */
static const double *off_of(const mha__gradient_errors *e, const mha__backward *b, const mha__map *map, size_t i)
{
    const size_t row = map->s.batch * b->r->query.shape[1] + map->s.q_from + i;
    return mha__matrix_row(&e->sizes.d_heads, row) + map->head * b->r->plan.d_v;
}

static query query_of(mha__gradient_errors *e, const mha__backward *b, const mha__map *map, size_t i)
{
    query q = {.e = e, .b = b, .map = map, .i = i, .off = off_of(e, b, map, i)};
    q.moves = !mha__is_zero(q.off, b->r->plan.d_v);
    for (size_t c = 0; c < b->r->plan.d_v; c++)
        q.dO += fabs(map->dO[i * b->r->plan.d_v + c]) + q.off[c];
    return q;
}

/* c and l of a dropout; 1 and 0 without. */
static double kept_times(const mha__backward *b)
{
    return 1 / (1 - mha__semantics_of(b->r)->softmax.dropout_p);
}

static double kept_error(const mha__gradient_errors *e, const mha__backward *b)
{
    const bool drops = mha__semantics_of(b->r)->softmax.dropout_keep.data != NULL;
    return drops ? mha__gradient_gamma(kept_times(b) + 3, e->sums) : 0;
}

/* E_dP of a pair. */
static double d_weight_error(const query *q, size_t j)
{
    const mha__gradient_errors *e = q->e;
    const size_t d_v = q->b->r->plan.d_v;
    const double *dO = d_output_of(q), A = sizes_of_products(q, dO, j),
                 M = q->moves ? sizes_of_products(q, q->off, j) : 0,
                 kept = *of_pair(q, q->map->kept, j),
                 sum = mha__bound_dot(e, dO, q->map->V + j * d_v, d_v, fmin(e->repeats[0][q->i], e->repeats[1][j])) +
                       (1 + mha__gradient_gamma((double)d_v + 2, e->sums)) * M + e->rows[2] * q->dO,
                 off = kept * (sum + kept_error(e, q->b) * (A + sum));
    return beyond(e, fmax(kept, 1) * A + off) + off +
           lost(e->precision->d_weights, fabs(*of_pair(q, q->map->d_weights, j)) + off) +
           (double)(d_v + 1) * e->tiny * kept;
}

static double norm(double x, double y, double z)
{
    return sqrt(x * x + y * y + z * z);
}

/* What rounding exp and its argument costs, relative to P. */
static double exp_error(const query *q, double P)
{
    return q->e->unit * (3 * fabs(log(fmax(P, DBL_MIN))) + 24);
}

/* E_P of all keys, to the weights of e->sizes.map, and L to its lse. */
static void bound_weights(query *q)
{
    mha__gradient_errors *e = q->e;
    const size_t n = q->map->n, from = q->i * n;
    const unsigned char *seen = q->map->seen + from;
    const double *P = q->map->weights + from, *E_S = e->scores + from, many = 2 * (double)n + 16;
    const bool whole = q->b->given->whole.lse.data != NULL; /* whose error is that of e->lse */
    double sum = 0, squares = 0, most = 0;
    q->repeats = mha__bound_repeats(P, n);
    const double u = e->unit, terms = mha__gradient_gamma(many, e->sums), lse = fabs(q->map->lse[q->i]),
                 of_sum = MHA__ROUNDINGS * u * sqrt(q->repeats * many), of_lse = MHA__ROUNDINGS * u * sqrt(5) * lse;
    q->shared = whole ? 0 : e->sums > u ? terms + 5 * u * lse : fmin(terms + 5 * u * lse, norm(of_sum, of_lse, 0));
    for (size_t j = 0; j < n; j++) {
        const double E = seen[j] ? P[j] * E_S[j] : 0;
        sum += E, squares += e->alike[1][j] * E * E, most = seen[j] ? fmax(most, E_S[j]) : most;
    }
    const double L = whole ? e->lse : fmin(e->independent ? fmin(sum, sqrt(squares)) : sum, most);
    e->sizes.map.lse[q->i] = e->independent ? norm(L, q->shared, 0) : L + e->added + q->shared;
    for (size_t j = 0; j < n; j++) {
        const double all = e->independent ? norm(E_S[j], L, q->shared) : E_S[j] + L + 2 * e->added + q->shared,
                     of_exp = exp_error(q, P[j]), d = fmin(all + of_exp, 2 * e->lse + of_exp),
                     E = mha__semantics_of(q->b->r)->softmax.normaliser == MHA_SIGMOID ? e->weight : expm1(d) * P[j];
        e->sizes.map.weights[from + j] = seen[j] ? E + lost(e->precision->weights, P[j] + E) + e->tiny : 0;
    }
}

/* E_D, of all keys of which those of the call are a part. */
static double whole_sum_error(const query *q)
{
    const mha__gradient_errors *e = q->e;
    const mha_whole_softmax *w = &q->b->given->whole;
    const mha__storage of_P = mha__storage_of(e->precision->weights), of_dP = mha__storage_of(e->precision->d_weights);
    const double keys = (double)w->keys, d_v = (double)q->b->r->plan.d_v, r = expm1(2 * e->lse + 24 * e->unit),
                 moved = r + of_P.relative * (1 + r),
                 least = keys * (of_P.absolute + e->tiny) + 3.1 * e->unit * (1 + r) * log(keys),
                 small = mha__gradient_gamma(2 * keys + d_v + 20, e->sums), weights = 1 + moved + least;
    double off = 0, all = 0, of_O = 0;
    for (size_t c = 0; c < q->b->r->plan.d_v; c++) {
        const double dO = fabs(q->map->dO[q->i * q->b->r->plan.d_v + c]),
                     W = mha__map_whole(q->map, &w->sizes, q->i, c),
                     O = mha__map_whole(q->map, &w->output, q->i, c), off_c = moved * W + least * w->largest;
        off += dO * off_c, all += dO * (W + off_c), of_O += dO * lost(e->precision->output, fabs(O) + off_c);
    }
    const double stored = of_dP.relative * (1 + small) * all + of_dP.absolute * weights;
    return beyond(e, q->dO * w->largest) + off + small * all + weights * e->rows[2] * q->dO + stored + of_O +
           (keys + d_v) * e->tiny * (1 + q->dO);
}

/* E_D. */
static double sum_error(const query *q)
{
    const mha__gradient_errors *e = q->e;
    const size_t d_v = q->b->r->plan.d_v, n = q->map->n, from = q->i * n;
    const double *dO = d_output_of(q), *P = q->map->weights + from, *dP = q->map->d_weights + from,
                 *E_P = e->sizes.map.weights + from, *E_dP = e->sizes.map.d_weights + from,
                 small = mha__gradient_gamma((double)(2 * n + d_v + 20), e->sums) + kept_error(e, q->b),
                 rounding = MHA__ROUNDINGS * MHA__ROUNDINGS * e->unit * e->unit * q->repeats * (double)(2 * n + 16);
    double *O = e->products, *W = O + d_v, *off = W + d_v, moved = 0, own = 0, rest = 0, repeats = 1, terms = 0;
    memset(O, 0, 3 * d_v * sizeof *O);
    for (size_t j = 0; j < n; j++) {
        if (!q->map->seen[from + j])
            continue;
        const double size = fabs(dP[j]), of_score = P[j] * e->scores[from + j] * size, of_dP = P[j] * E_dP[j];
        moved += E_P[j] * size + (P[j] + E_P[j]) * E_dP[j], terms += P[j] * size;
        own += e->alike[1][j] * (of_score * of_score + of_dP * of_dP);
        rest += P[j] * exp_error(q, P[j]) * size + e->tiny * (size + E_dP[j]);
        repeats += P[j] * (e->repeats[1][j] - 1);
        for (size_t c = 0; c < d_v; c++) {
            const double V = q->map->kept[from + j] * q->map->V[j * d_v + c];
            O[c] += P[j] * V, W[c] += (P[j] + E_P[j]) * fabs(V), off[c] += E_P[j] * fabs(V);
        }
    }
    double all = 0, of_O = 0, squares = 0;
    for (size_t c = 0; c < d_v; c++) {
        const double size = fabs(dO[c]) + q->off[c];
        all += size * W[c], squares += size * size * W[c] * W[c];
        of_O += size * lost(e->precision->output, fabs(O[c]) + off[c]);
    }
    const double stored = of_O + (double)(n + d_v) * e->tiny * (1 + q->dO) * kept_times(q->b),
                 linear = moved + small * all + stored, D = fabs(q->map->sums[q->i]),
                 of_lse = D * expm1(e->sizes.map.lse[q->i]),
                 of_sum = mha__bound_dot(e, dO, O, d_v, fmin(e->repeats[0][q->i], repeats));
    own += of_lse * of_lse + of_sum * of_sum + rounding * (repeats * squares + terms * terms);
    return e->independent ? fmin(linear, (1 + small) * (sqrt(own) + rest) + 2 * e->unit * D + stored) : linear;
}

/* E_dZ of a pair, and the part of it that no other pair of the query has. */
static double d_masked_error(const query *q, size_t j, double *own)
{
    const mha__gradient_errors *e = q->e;
    const double u = e->unit, P = *of_pair(q, q->map->weights, j), E_P = *of_pair(q, e->sizes.map.weights, j),
                 dP = *of_pair(q, q->map->d_weights, j), E_dP = *of_pair(q, e->sizes.map.d_weights, j);
    if (mha__semantics_of(q->b->r)->softmax.normaliser == MHA_SIGMOID)
        return (E_P + 4 * u) * (fabs(dP) + E_dP) + P * E_dP + 2 * u * P * (fabs(dP) + E_dP) + e->tiny;
    const double D = q->map->sums[q->i], d_lse = q->map->d_lse[q->i], X = fabs(dP - D + d_lse),
                 E_D = e->sizes.map.sums[q->i],
                 all = fabs(dP) + fabs(D) + fabs(d_lse) + E_dP + E_D,
                 E_X = beyond(e, all) + E_dP + E_D + 3 * u * all,
                 E = E_P * (X + E_X) + P * E_X + 2 * u * (P + E_P) * (X + E_X) + e->tiny;
    *own = fmin(P * norm(*of_pair(q, e->scores, j) * X, E_dP, 0), E);
    return E;
}

/* Keeps the errors of the stages of a pair. */
static void keep_pair(const query *q, size_t j, bool seen, double E_dZ, double E_dS)
{
    const mha__gradient_errors *e = q->e;
    mha__bound_keep_pair(e, MHA_BACKWARD_D_WEIGHTS, q->map, q->i, j, *of_pair(q, q->map->d_weights, j),
                         *of_pair(q, e->sizes.map.d_weights, j), !seen);
    mha__bound_keep_pair(e, MHA_BACKWARD_D_MASKED, q->map, q->i, j, *of_pair(q, q->map->d_masked, j), E_dZ, false);
    mha__bound_keep_pair(e, MHA_BACKWARD_D_SCORES, q->map, q->i, j, *of_pair(q, q->map->d_scores, j), E_dS, false);
}

/* R: number of roundings between the blocks of a sum of `terms` terms. */
static double block_roundings(const mha__gradient_errors *e, size_t terms)
{
    const size_t n = e->precision->block_rows, blocks = n > 0 && terms > 0 ? (terms - 1) / n : 0;
    return (double)blocks;
}

/* Writes the errors of the pairs of a query to the matrices of e->sizes.map, and the cost of their sums: `N` terms in a
 * product, `all` terms in the gradient of a mask or table. */
static void bound_pairs(const query *q, double N, double all)
{
    mha__gradient_errors *e = q->e;
    mha__map *to = &e->sizes.map;
    const mha_backward_precision *p = e->precision;
    const double R = block_roundings(e, q->map->n > q->map->s.T_q ? q->map->n : q->map->s.T_q),
                 of_blocks = mha__gradient_gamma(R, mha__storage_of(p->gradients).relative),
                 of_terms = mha__gradient_gamma(N, e->sums), sum = of_terms + (1 + of_terms) * of_blocks,
                 softcap = mha__semantics_of(q->b->r)->softmax.softcap,
                 of_all = mha__gradient_gamma(all, e->sums);
    for (size_t j = 0; j < q->map->n; j++) {
        const unsigned char visibility = q->map->seen[q->i * q->map->n + j];
        double own = 0;
        const double P = *of_pair(q, q->map->weights, j), dZ = fabs(*of_pair(q, q->map->d_masked, j)),
                     dS = fabs(*of_pair(q, q->map->d_scores, j)), slope = fabs(*of_pair(q, q->map->slope, j)),
                     E_slope = softcap > 0 ? fmin(*of_pair(q, e->scores, j) / softcap + 40 * e->unit, 1) : 0,
                     E_dZ = visibility == MHA__SEEN ? d_masked_error(q, j, &own) : 0,
                     of_dZ = lost(p->d_scores, dZ + E_dZ),
                     moved = (E_dZ + of_dZ) * (slope + E_slope) + dZ * E_slope + 2 * e->unit * (dZ + E_dZ),
                     E_dS = visibility == MHA__SEEN ? moved + lost(p->d_scores, dS + moved) + e->tiny : 0;
        double *E_P = of_pair(q, to->weights, j);
        *E_P += visibility ? lost(p->probabilities, P + *E_P) + kept_error(e, q->b) * (P + *E_P) : 0;
        *E_P *= *of_pair(q, q->map->kept, j);
        keep_pair(q, j, visibility == MHA__SEEN, E_dZ + of_dZ, E_dS);
        *of_pair(q, e->own[0], j) = own, *of_pair(q, e->own[1], j) = E_dS, *of_pair(q, e->own[2], j) = *E_P;
        *E_P += sum * (P * *of_pair(q, q->map->kept, j) + *E_P);
        *of_pair(q, to->d_masked, j) = E_dZ + of_dZ + of_all * (dZ + E_dZ + of_dZ);
        *of_pair(q, to->d_scores, j) = E_dS + sum * (dS + E_dS);
    }
}

/* The errors E of x y (transposed: x^T y), with x off by `all`: made smaller where its elements are off by `own`
 * independently, and infinite where its sums may leave the range. */
static void bound_product(const mha__gradient_errors *e, const mha__map *map, bool transposed, const double *x,
                          const double *all, const double *own, const double *y, size_t d, double times, double *E)
{
    const size_t rows = transposed ? map->n : map->s.T_q;
    double *squares = e->products, *rest = squares + rows * d, *sizes = rest + rows * d;
    memset(squares, 0, 3 * rows * d * sizeof *squares);
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const size_t i = at / map->n, j = at % map->n, to = (transposed ? j : i) * d, from = (transposed ? i : j) * d;
        const double left = all[at] - own[at], square = e->alike[!transposed][transposed ? i : j] * own[at] * own[at];
        for (size_t c = 0; map->seen[at] == MHA__SEEN && c < d; c++) {
            const double size = fabs(y[from + c]);
            squares[to + c] += square * size * size, rest[to + c] += left * size, sizes[to + c] += fabs(x[at]) * size;
        }
    }
    for (size_t at = 0; at < rows * d; at++) {
        E[at] = fmin(E[at], e->independent ? times * (sqrt(squares[at]) + rest[at]) : INFINITY);
        E[at] += beyond(e, sizes[at]);
    }
}

static void sizes_of(double *to, const double *from, size_t n, double more)
{
    for (size_t e = 0; e < n; e++)
        to[e] = fabs(from[e]) + more;
}

/* Adds |scale| |dS_ij| E_k to dQ_i, and the same of E_q to dK_j. */
static void add_rows_off(const mha__gradient_errors *e, const mha__backward *b, const mha__map *map, mha__map *to)
{
    const size_t d_k = b->r->plan.d_k, n = map->n;
    for (size_t i = 0; i < map->s.T_q && (e->rows[0] > 0 || e->rows[1] > 0); i++)
        for (size_t j = 0; j < n; j++)
            for (size_t c = 0; c < d_k; c++) {
                const double dS = fabs(map->d_scores[i * n + j]);
                to->dQ[i * d_k + c] += to->q_scale * dS * e->rows[1];
                to->dK[j * d_k + c] += to->k_scale * dS * e->rows[0];
            }
}

/* Adds P_ij E_dO_i to dV_j. */
static void add_d_output_off(const mha__gradient_errors *e, const mha__backward *b, const mha__map *map, mha__map *to)
{
    const size_t d_v = b->r->plan.d_v, n = map->n;
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double *off = off_of(e, b, map, i);
        for (size_t j = 0; j < n && !mha__is_zero(off, d_v); j++)
            for (size_t c = 0; map->seen[i * n + j] && c < d_v; c++)
                to->dV[j * d_v + c] += fabs(map->weights[i * n + j]) * map->kept[i * n + j] * off[c];
    }
}

/* Adds what rows that are off do to the tables of relative terms, of which |dZ| E_q and |dZ| E_k are sums. */
static void add_tables_off(const mha__gradient_errors *e, const mha__backward *b, const mha__map *map,
                           const mha__map *to)
{
    const size_t T = map->s.T_q, n = map->n, d_k = b->r->plan.d_k;
    mha__backward tables = {.r = b->r};
    mha__map off = *to;
    if (mha__semantics_of(b->r)->added.relative.rule == MHA_RELATIVE_NONE || !(e->rows[0] > 0 || e->rows[1] > 0))
        return;
    for (int w = MHA_D_WEIGHTS + MHA_RELATIVE_K; w <= MHA_D_WEIGHTS + MHA_RELATIVE_Q; w++)
        tables.d[w] = e->sizes.d[w];
    off.dQ = e->spare, off.dK = e->spare + T * d_k; /* what goes there is not read */
    for (size_t at = 0; at < T * d_k; at++)
        off.Q[at] = e->rows[0];
    for (size_t at = 0; at < n * d_k; at++)
        off.K[at] = e->rows[1];
    sizes_of(off.d_masked, map->d_masked, T * n, 0);
    mha__map_added(&tables, &off);
}

/* What storing the gradients of one head costs, and what underflows in their sums: of what has any terms. */
static void add_stored(const mha__gradient_errors *e, double N, double R, double scale, const double *d, size_t n,
                       double *to)
{
    const double least = R * mha__storage_of(e->precision->gradients).absolute * fmax(scale, 1);
    for (size_t at = 0; at < n; at++)
        if (to[at] > 0 || d[at] != 0)
            to[at] += lost(e->precision->gradients, fabs(d[at]) + to[at]) + N * (e->tiny + scale * e->under) + least;
}

static void bound_sinks(const mha__gradient_errors *e, const mha__backward *b, const mha__map *map, size_t i,
                        double E_D)
{
    const mha_view *to = &e->sizes.d[MHA_D_WEIGHTS + MHA_SINKS];
    if (!to->data || !b->r->weight[MHA_SINKS].data) /* a call may leave those of its layer out */
        return;
    const double sink = mha_view_get(&b->r->weight[MHA_SINKS], &map->head);
    if (sink == -INFINITY || !(map->lse[i] > -INFINITY))
        return;
    const double P = exp(sink - map->lse[i]), u = e->unit, X = fabs(map->sums[i]) + fabs(map->d_lse[i]),
                 E_P = expm1(fmin(e->lse, e->sizes.map.lse[i]) + u * (fabs(sink - map->lse[i]) + 24)) * P + e->tiny,
                 E = E_P * (X + E_D) + P * E_D + 3 * u * (P + E_P) * (X + E_D),
                 sum = mha__gradient_gamma((double)(b->r->plan.B * b->r->plan.T_q + 4), e->sums);
    ((double *)to->data)[map->head] += E + sum * (P + E_P) * (X + E_D) + e->tiny;
}

/* Whether a query sees no key, of all that there are. */
static bool sees_none(const query *q)
{
    size_t j = 0;
    while (j < q->map->n && q->map->seen[q->i * q->map->n + j] != MHA__SEEN)
        j++;
    return j == q->map->n && !q->b->given->whole.lse.data;
}

/* How often the numbers and the rows of a map repeat. */
static void measure(const mha__gradient_errors *e, const mha__backward *b, const mha__map *map)
{
    const mha__sizes *p = &b->r->plan;
    const double *rows[4] = {map->dO, map->V, map->Q, map->K};
    for (size_t k = 0; k < 4; k++) {
        const size_t count = k % 2 ? map->n : map->s.T_q, n = k < 2 ? p->d_v : p->d_k;
        for (size_t i = 0; i < count; i++) {
            e->repeats[k][i] = mha__bound_repeats(rows[k] + i * n, n);
            e->alike[k % 2][i] = k < 2 ? 1 : e->alike[k % 2][i];
        }
        if (e->independent)
            mha__bound_alike(rows[k], count, n, e->alike[k % 2], e->products);
    }
}

void mha__bound_sums(mha__gradient_errors *e, const mha__backward *b, const mha__map *map)
{
    const size_t d_k = b->r->plan.d_k;
    measure(e, b, map);
    for (size_t i = 0; i < map->s.T_q; i++) {
        query q = query_of(e, b, map, i);
        for (size_t j = 0; j < map->n; j++) {
            const bool meets = map->seen[i * map->n + j];
            const double *q_i = map->Q + i * d_k, *k_j = map->K + j * d_k,
                         alike = fmin(e->repeats[2][i], e->repeats[3][j]);
            *of_pair(&q, e->scores, j) = meets ? expm1(mha__bound_score(e, &b->r->plan, q_i, k_j, alike)) : 0;
            *of_pair(&q, e->sizes.map.d_weights, j) = meets ? d_weight_error(&q, j) : 0;
        }
        bound_weights(&q);
        e->sizes.map.sums[i] = b->given->whole.lse.data ? whole_sum_error(&q) : sum_error(&q);
        mha__bound_keep_pair(e, MHA_BACKWARD_ROW_SUMS, map, i, 0, map->sums[i], e->sizes.map.sums[i], sees_none(&q));
    }
}

void mha__bound_map(mha__gradient_errors *e, const mha__backward *b, const mha__map *map)
{
    const mha__sizes *p = &b->r->plan;
    const size_t T = map->s.T_q, n = map->n, at_once = T * (p->h / p->h_kv);
    const double N = (double)(n > at_once ? n : at_once) + 6,
                 all = (double)p->B * (double)p->h * (double)p->T_q * (double)(p->S + p->S_extra) + 6;
    mha__map *to = &e->sizes.map;
    to->b = map->b, to->head = map->head, to->g = map->g, to->s = map->s, to->n = n, to->sizes = true;
    to->q_scale = fabs(map->q_scale), to->k_scale = fabs(map->k_scale);
    to->seen = map->seen;
    for (size_t at = 0; at < T * n; at++)
        to->kept[at] = 1; /* E_P has it */
    sizes_of(to->Q, map->Q, T * p->d_k, e->rows[0]);
    sizes_of(to->K, map->K, n * p->d_k, e->rows[1]);
    sizes_of(to->dO, map->dO, T * p->d_v, 0);
    for (size_t at = 0; at < T * p->d_v; at++)
        to->dO[at] += off_of(e, b, map, at / p->d_v)[at % p->d_v];
    for (size_t i = 0; i < T; i++) {
        query q = query_of(e, b, map, i);
        bound_weights(&q);
        bound_pairs(&q, N, all);
        bound_sinks(e, b, map, i, to->sums[i]);
    }
    mha__map_products(&e->sizes, to);
    bound_product(e, map, false, map->d_scores, to->d_scores, e->own[0], map->K, p->d_k, to->q_scale, to->dQ);
    bound_product(e, map, true, map->d_scores, to->d_scores, e->own[1], map->Q, p->d_k, to->k_scale, to->dK);
    for (size_t at = 0; at < T * n; at++)
        e->own[0][at] = map->weights[at] * map->kept[at];
    bound_product(e, map, true, e->own[0], to->weights, e->own[2], map->dO, p->d_v, 1, to->dV);
    mha__map_added(&e->sizes, to);
    add_rows_off(e, b, map, to);
    add_d_output_off(e, b, map, to);
    add_tables_off(e, b, map, to);
    add_stored(e, N, block_roundings(e, n), to->q_scale, map->dQ, T * p->d_k, to->dQ);
    add_stored(e, N, block_roundings(e, T), to->k_scale, map->dK, n * p->d_k, to->dK);
    add_stored(e, N, block_roundings(e, T), kept_times(b), map->dV, n * p->d_v, to->dV);
}
