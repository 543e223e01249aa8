/* Bugs of dQ, dK and dV, and of heads that share keys and values. */
#include <math.h>
#include <string.h>

#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/backward/bugs/scores.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

enum { OF_Q = 1, OF_K = 2, OF_V = 4 };

static bool has(int which, const mha__gradient_bug *m)
{
    return ((int)m->number & which) != 0;
}

/* ---------------------------------------------------------------- the scale */

static bool has_scale(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->plan.scale != 1;
}

/* The scale to the power `other` more, of dQ and dK as `number` says. */
static void more_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const double more = pow(b->r->plan.scale, m->other);
    map->q_scale *= has(OF_Q, m) ? more : 1;
    map->k_scale *= has(OF_K, m) ? more : 1;
}

static bool has_other_scale(const mha__backward *b, const mha__gradient_bug *m)
{
    return mha__has_scale(b, (mha__other_scale)(int)m->number);
}

static void other_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    map->q_scale = map->k_scale = mha__scale_of(b, (mha__other_scale)(int)m->number);
}

static void times_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)b;
    map->q_scale *= m->other, map->k_scale *= m->other;
}

/* ---------------------------------------------------------------- whole gradients */

static double *gradient_of(const mha__map *map, int which)
{
    return which == OF_Q ? map->dQ : which == OF_K ? map->dK : map->dV;
}

static size_t size_of(const mha__backward *b, const mha__map *map, int which)
{
    return which == OF_Q ? map->s.T_q * b->r->plan.d_k : map->n * (which == OF_K ? b->r->plan.d_k : b->r->plan.d_v);
}

/* Gradients times `other`. */
static void times(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    for (int which = OF_Q; which <= OF_V; which *= 2)
        for (size_t e = 0; has(which, m) && e < size_of(b, map, which); e++)
            gradient_of(map, which)[e] *= map->sizes ? fabs(m->other) : m->other;
}

static bool has_batch(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->plan.B > 1;
}

static void over_batch(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__gradient_bug part = {.number = m->number, .other = 1 / (double)b->r->plan.B};
    times(b, map, &part);
}

static void dv_times_scale(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
    for (size_t e = 0; e < size_of(b, map, OF_V); e++)
        map->dV[e] *= fabs(b->r->plan.scale);
}

static void exchange(double *x, double *y, size_t n)
{
    for (size_t e = 0; e < n; e++) {
        const double kept = x[e];
        x[e] = y[e], y[e] = kept;
    }
}

static bool is_square(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    const mha__sizes *p = &b->r->plan;
    return p->T_q == p->S && p->S_extra == 0 && p->h == p->h_kv && p->T_q > 1 && !b->r->semantics.place.cu_seqlens_q;
}

static bool is_square_alone(const mha__backward *b, const mha__gradient_bug *m)
{
    return is_square(b, m) && b->r->semantics.added.relative.rule == MHA_RELATIVE_NONE;
}

static void exchange_q_k(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
    exchange(map->dQ, map->dK, map->s.T_q * b->r->plan.d_k);
}

static bool has_equal_widths(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->plan.d_k == b->r->plan.d_v;
}

static void exchange_k_v(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    (void)m;
    exchange(map->dK, map->dV, map->n * b->r->plan.d_k);
}

/* A gradient that is made of other matrices than it should be. */
typedef enum made_of {
    K_UNTRANSPOSED, /* scale dS Q */
    V_UNTRANSPOSED, /* P dO */
    V_OF_SQUARES,   /* (P P)^T dO, element by element */
    V_OF_D_SCORES,  /* dS^T dO */
    K_OF_WEIGHTS,   /* scale P^T Q */
    Q_OF_WEIGHTS,   /* scale P K */
    Q_OF_D_MASKED,  /* scale dZ K, without the derivative of a softcap */
    K_OF_D_MASKED
} made_of;

static void make_of(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const made_of how = (made_of)(int)m->number;
    const bool turned = how == K_UNTRANSPOSED || how == V_UNTRANSPOSED,
               of_q = how == Q_OF_WEIGHTS || how == Q_OF_D_MASKED,
               of_v = how == V_UNTRANSPOSED || how == V_OF_SQUARES || how == V_OF_D_SCORES;
    const int which = of_q ? OF_Q : of_v ? OF_V : OF_K;
    const size_t n = map->n, d = of_v ? b->r->plan.d_v : b->r->plan.d_k;
    const double *matrix = how == K_UNTRANSPOSED || how == V_OF_D_SCORES  ? map->d_scores
                           : how == Q_OF_D_MASKED || how == K_OF_D_MASKED ? map->d_masked
                                                                          : map->weights,
                 *x = of_q   ? map->K
                      : of_v ? map->dO
                             : map->Q,
                 scale = of_q   ? map->q_scale
                         : of_v ? 1
                                : map->k_scale;
    double *to = gradient_of(map, which);
    if (map->sizes)
        return;
    memset(to, 0, size_of(b, map, which) * sizeof *to);
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < n; j++) {
            const double f = scale * matrix[i * n + j] * (how == V_OF_SQUARES ? matrix[i * n + j] : 1);
            const size_t row = turned || of_q ? i : j, met = turned || of_q ? j : i;
            for (size_t c = 0; map->seen[i * n + j] == MHA__SEEN && c < d; c++)
                to[row * d + c] += f * x[met * d + c];
        }
}

static bool has_softcap(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->semantics.softmax.softcap > 0;
}

static bool has_no_relative(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->semantics.added.relative.rule == MHA_RELATIVE_NONE;
}

/* ---------------------------------------------------------------- rows of another kind */

typedef enum taken_for { VALUES_IN_DQ, KEYS_IN_DP, DO_IN_DK, QUERIES_IN_DV, TRANSPOSED_DP, FEWER_IN_DP } taken_for;

static bool has_equal_rows(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_equal_widths(b, m) && has_no_relative(b, m) && b->r->plan.S_extra == 0;
}

static bool has_square_dp(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    const mha__sizes *p = &b->r->plan;
    return p->T_q == p->S && p->S_extra == 0 && p->T_q > 1 && !b->r->semantics.place.cu_seqlens_q;
}

static bool has_wide_values(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->plan.d_v > b->r->plan.d_k;
}

/* dP of other rows, or of fewer features. */
static void meet_others(const mha__backward *b, mha__map *map, taken_for how)
{
    const size_t d = b->r->plan.d_v, T = map->s.T_q, S = map->s.S, width = how == FEWER_IN_DP ? b->r->plan.d_k : d;
    for (size_t i = 0; i < T; i++)
        for (size_t j = 0; j < S; j++) {
            const double *dO = map->dO + (how == TRANSPOSED_DP ? j : i) * d,
                         *V = how == KEYS_IN_DP ? map->K + j * d : map->V + (how == TRANSPOSED_DP ? i : j) * d;
            double *dP = &map->d_weights[i * map->n + j];
            *dP = 0;
            for (size_t c = 0; c < width && map->seen[i * map->n + j] == MHA__SEEN; c++)
                *dP += dO[c] * V[c];
        }
}

static void take_others(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const taken_for how = (taken_for)(int)m->number;
    const size_t of_q = map->s.T_q * b->r->plan.d_v * sizeof(double), of_k = map->s.S * b->r->plan.d_v * sizeof(double);
    switch (how) {
    case VALUES_IN_DQ: memcpy(map->K, map->V, of_k); break;
    case DO_IN_DK: memcpy(map->Q, map->dO, of_q); break;
    case QUERIES_IN_DV: memcpy(map->dO, map->Q, of_q); break;
    case KEYS_IN_DP:
    case TRANSPOSED_DP:
    case FEWER_IN_DP: meet_others(b, map, how); break;
    }
}

/* ---------------------------------------------------------------- blocks */

/* More than one block of `number` keys or queries, the last one not full. */
static bool has_tail(const mha__backward *b, const mha__gradient_bug *m)
{
    const size_t n = m->other > 0 ? b->r->plan.S : b->r->plan.T_q, block = (size_t)m->number;
    return n > block && n % block != 0;
}

static bool has_blocks(const mha__backward *b, const mha__gradient_bug *m)
{
    return b->r->plan.S > (size_t)m->number;
}

/* Takes pairs away from the sums: of dQ, or of dK and dV. The errors stay what they are: they are larger. */
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

/* Without the queries (other 0), or the keys, of the last block. */
static void leave_out_tail(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t block = (size_t)m->number, T = map->s.T_q, S = map->s.S;
    const bool of_keys = m->other > 0;
    for (size_t i = of_keys ? 0 : T - T % block; i < T && !map->sizes; i++)
        for (size_t j = of_keys ? S - S % block : 0; j < S; j++)
            take_away(b, map, i, j, of_keys);
}

/* dQ has the last block of keys alone: what the others added is lost. */
static void keep_last_block(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t block = (size_t)m->number, S = map->s.S;
    for (size_t i = 0; i < map->s.T_q && !map->sizes; i++)
        for (size_t j = 0; S > 0 && j < (S - 1) / block * block; j++)
            take_away(b, map, i, j, true);
}

static bool has_query_blocks(const mha__backward *b, const mha__gradient_bug *m)
{
    return b->r->plan.T_q > (size_t)m->number;
}

/* dK and dV have the last block of queries alone. */
static void keep_last_queries(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t block = (size_t)m->number, T = map->s.T_q;
    for (size_t i = 0; T > 0 && i < (T - 1) / block * block && !map->sizes; i++)
        for (size_t j = 0; j < map->n; j++)
            take_away(b, map, i, j, false);
}

/* dV = sum_i dO_i P_ij / max_j P_ij: of exponentials that are not normalised. */
static void leave_unnormalised(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t n = map->n, d = b->r->plan.d_v;
    (void)m;
    if (map->sizes)
        return;
    memset(map->dV, 0, n * d * sizeof *map->dV);
    for (size_t i = 0; i < map->s.T_q; i++) {
        const double *P = map->weights + i * n;
        double most = 0;
        for (size_t j = 0; j < n; j++)
            most = fmax(most, P[j]);
        for (size_t j = 0; j < n && most > 0; j++)
            for (size_t c = 0; c < d && map->seen[i * n + j]; c++)
                map->dV[j * d + c] += P[j] / most * map->dO[i * d + c];
    }
}

static bool is_softmax(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX && !b->r->weight[MHA_SINKS].data &&
           !b->r->semantics.softmax.softmax_plus_one;
}

/* ---------------------------------------------------------------- groups */

static bool has_groups(const mha__backward *b, const mha__gradient_bug *m)
{
    (void)m;
    return b->r->plan.h > b->r->plan.h_kv;
}

static bool can_be_dealt(const mha__backward *b, const mha__gradient_bug *m)
{
    return has_groups(b, m) && b->r->plan.h_kv > 1;
}

/* Only one head of each group counts: that number `other`, -1 for the last. */
static void one_of_group(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const size_t group = b->r->plan.h / b->r->plan.h_kv, which = m->other < 0 ? group - 1 : (size_t)m->other;
    for (int x = OF_K; x <= OF_V && map->head % group != which; x *= 2)
        if (has(x, m))
            memset(gradient_of(map, x), 0, size_of(b, map, x) * sizeof(double));
}

static void mean_of_group(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__gradient_bug part = {.number = m->number, .other = (double)b->r->plan.h_kv / (double)b->r->plan.h};
    times(b, map, &part);
}

/* dK and dV of head i go to key/value head i mod h_kv, or one of them does. */
static void deal_heads(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    for (int v = 0; v < 2; v++) {
        const size_t d = v ? p->d_v : p->d_k, from = map->s.k_batch * b->d_keys[v].shape[1] + map->s.k_from;
        double *of_map = v ? map->dV : map->dK, *to = b->d_keys[v].data;
        for (size_t e = 0; has(v ? OF_V : OF_K, m) && e < map->s.S * d; e++) {
            to[((from + e / d) * p->h_kv + map->head % p->h_kv) * d + e % d] += of_map[e];
            of_map[e] = 0;
        }
    }
}

/* Rows of the heads of a group are written as (group, S) and added up as if they were (S, group). */
static void deal_rows(mha__backward *b, mha__map *map, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    const size_t group = p->h / p->h_kv;
    (void)m;
    for (int v = 0; v < 2; v++) {
        const size_t d = v ? p->d_v : p->d_k, from = map->s.k_batch * b->d_keys[v].shape[1] + map->s.k_from;
        double *of_map = v ? map->dV : map->dK, *to = b->d_keys[v].data;
        for (size_t e = 0; e < map->s.S * d; e++) {
            const size_t row = (map->head % group * map->s.S + e / d) / group;
            to[((from + row) * p->h_kv + map->g) * d + e % d] += of_map[e];
            of_map[e] = 0;
        }
    }
}

/* clang-format off */
#define TAILS(B) \
    {{"tail-queries-missing-" #B, "dK and dV lack the queries of the last block of " #B ", which is not full", false}, \
        has_tail, MHA__BACKWARD_ADDED, leave_out_tail, B, 0, NULL, MHA__LEAVES_Q, {0}}, \
    {{"tail-keys-missing-" #B, "dQ lacks the keys of the last block of " #B ", which is not full", false}, \
        has_tail, MHA__BACKWARD_ADDED, leave_out_tail, B, 1, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}}, \
    {{"dq-of-last-block-" #B, "dQ has the last block of " #B " keys alone: what the others add is lost", false}, \
        has_blocks, MHA__BACKWARD_ADDED, keep_last_block, B, 0, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}}, \
    {{"dk-dv-of-last-block-" #B, "dK and dV have the last block of " #B " queries alone: what the others add is lost", \
      false}, has_query_blocks, MHA__BACKWARD_ADDED, keep_last_queries, B, 0, NULL, MHA__LEAVES_Q, {0}}

#define SCALE(name, what, how) \
    {{"scale-" name, "dQ and dK have the scale " what, false}, has_other_scale, MHA__BACKWARD_SUMS, other_scale, how, \
        0, NULL, MHA__LEAVES_V, {0}}

static const mha__gradient_bug rows[] = {
    {{"scale-missing", "dQ and dK lack the scale", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q | OF_K,
        -1, NULL, MHA__LEAVES_V, {0}},
    {{"scale-twice", "dQ and dK are scaled twice", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q | OF_K, 1,
        NULL, MHA__LEAVES_V, {0}},
    {{"scale-missing-dq", "dQ lacks the scale, dK has it", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q,
        -1, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"scale-missing-dk", "dK lacks the scale, dQ has it", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_K,
        -1, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"scale-twice-dq", "dQ is scaled twice, dK once", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q, 1,
        NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"scale-twice-dk", "dK is scaled twice, dQ once", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_K, 1,
        NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    SCALE("default", "1/sqrt(d_k), the forward has another", MHA__SCALE_DEFAULT),
    SCALE("of-values", "1/sqrt(d_v)", MHA__SCALE_OF_VALUES),
    SCALE("of-padded", "1/sqrt(n), n the power of two to which d_k is padded", MHA__SCALE_OF_PADDED),
    SCALE("of-model", "1/sqrt(h d_k)", MHA__SCALE_OF_MODEL),
    SCALE("over-width", "1/d_k", MHA__SCALE_OVER_WIDTH),
    {{"scale-times-log2e", "dQ and dK are also multiplied by log2(e), which belongs to the exponent", false},
        NULL, MHA__BACKWARD_SUMS, times_scale, 0, 1.4426950408889634, NULL, MHA__LEAVES_V, {0}},
    {{"scale-times-ln2", "dQ and dK are also multiplied by ln(2)", false},
        NULL, MHA__BACKWARD_SUMS, times_scale, 0, 0.6931471805599453, NULL, MHA__LEAVES_V, {0}},
    {{"scale-root", "dQ and dK have the root of the scale", false},
        has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q | OF_K, -0.5, NULL, MHA__LEAVES_V, {0}},
    {{"dv-unnormalised", "dV is made of exponentials that are not divided by their sum", false},
        is_softmax, MHA__BACKWARD_ADDED, leave_unnormalised, 0, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"dv-scaled", "dV is multiplied by the scale", false},
        has_scale, MHA__BACKWARD_ADDED, dv_times_scale, 0, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"dq-twice", "dQ is twice what it should be: it was added to itself", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_Q, 2, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"dk-dv-twice", "dK and dV are twice what they should be: they were added to themselves", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_K | OF_V, 2, NULL, MHA__LEAVES_Q, {0}},
    {{"dq-negated", "dQ has the other sign", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_Q, -1, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"dk-negated", "dK has the other sign", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_K, -1, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"dv-negated", "dV has the other sign", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_V, -1, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"all-negated", "dQ, dK and dV have the other sign", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_Q | OF_K | OF_V, -1, NULL, 0, {0}},
    {{"all-over-batch", "dQ, dK and dV are divided by the number of batch rows", false},
        has_batch, MHA__BACKWARD_ADDED, over_batch, OF_Q | OF_K | OF_V, 0, NULL, 0, {0}},
    {{"dq-half", "dQ is half of what it should be", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_Q, 0.5, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"dq-zero", "dQ is 0", false}, NULL, MHA__BACKWARD_ADDED, times, OF_Q, 0, NULL,
        MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"dk-zero", "dK is 0", false}, NULL, MHA__BACKWARD_ADDED, times, OF_K, 0, NULL,
        MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"dv-zero", "dV is 0", false}, NULL, MHA__BACKWARD_ADDED, times, OF_V, 0, NULL,
        MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"dk-untransposed", "dK = scale dS Q, without the transpose of dS", false},
        is_square_alone, MHA__BACKWARD_ADDED, make_of, K_UNTRANSPOSED, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"dv-untransposed", "dV = P dO, without the transpose of P", false},
        is_square, MHA__BACKWARD_ADDED, make_of, V_UNTRANSPOSED, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"dv-of-squares", "dV is made of the squares of P", false}, NULL, MHA__BACKWARD_ADDED, make_of, V_OF_SQUARES, 0,
        NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"dv-of-d-scores", "dV = dS^T dO: dS is read where P belongs", false},
        NULL, MHA__BACKWARD_ADDED, make_of, V_OF_D_SCORES, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"dk-of-weights", "dK = scale P^T Q: P is read where dS belongs", false},
        has_no_relative, MHA__BACKWARD_ADDED, make_of, K_OF_WEIGHTS, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"dq-of-weights", "dQ = scale P K: P is read where dS belongs", false},
        has_no_relative, MHA__BACKWARD_ADDED, make_of, Q_OF_WEIGHTS, 0, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"softcap-slope-missing-dq", "dQ lacks the derivative of the softcap, dK has it", false},
        has_softcap, MHA__BACKWARD_ADDED, make_of, Q_OF_D_MASKED, 0, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"softcap-slope-missing-dk", "dK lacks the derivative of the softcap, dQ has it", false},
        has_softcap, MHA__BACKWARD_ADDED, make_of, K_OF_D_MASKED, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"dq-of-values", "dQ reads V where K belongs", false},
        has_equal_rows, MHA__BACKWARD_READ, take_others, VALUES_IN_DQ, 0, NULL, MHA__LEAVES_K | MHA__LEAVES_V, {0}},
    {{"dk-of-do", "dK reads dO where Q belongs", false},
        has_equal_rows, MHA__BACKWARD_READ, take_others, DO_IN_DK, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"dv-of-queries", "dV reads Q where dO belongs", false},
        has_equal_rows, MHA__BACKWARD_SCORES, take_others, QUERIES_IN_DV, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"dp-of-keys", "dP reads K where V belongs", false},
        has_equal_rows, MHA__BACKWARD_SUMS, take_others, KEYS_IN_DP, 0, NULL, MHA__LEAVES_V, {0}},
    {{"dp-transposed", "dP = V dO^T, without the transpose", false},
        has_square_dp, MHA__BACKWARD_SUMS, take_others, TRANSPOSED_DP, 0, NULL,
            MHA__LEAVES_V | MHA__READS_ALL_QUERIES, {0}},
    {{"dp-of-fewer-features", "dP is the sum over d_k features of dO and V", false},
        has_wide_values, MHA__BACKWARD_SUMS, take_others, FEWER_IN_DP, 0, NULL, MHA__LEAVES_V, {0}},
    {{"dq-dk-exchanged", "dQ and dK stand in each other's place", false},
        is_square, MHA__BACKWARD_ADDED, exchange_q_k, 0, 0, NULL, MHA__LEAVES_V | MHA__READS_ALL_QUERIES, {0}},
    {{"dk-dv-exchanged", "dK and dV stand in each other's place", false},
        has_equal_widths, MHA__BACKWARD_ADDED, exchange_k_v, 0, 0, NULL, MHA__LEAVES_Q, {0}},
    TAILS(16), TAILS(32), TAILS(64), TAILS(128),
    {{"group-last", "dK and dV are those of the last head of a group, not their sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_K | OF_V, -1, NULL, MHA__LEAVES_Q, {0}},
    {{"group-first", "dK and dV are those of the first head of a group, not their sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_K | OF_V, 0, NULL, MHA__LEAVES_Q, {0}},
    {{"group-last-dk", "dK is that of the last head of a group, dV is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_K, -1, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"group-last-dv", "dV is that of the last head of a group, dK is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_V, -1, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"group-mean", "dK and dV are means over the heads of a group, not sums", false},
        has_groups, MHA__BACKWARD_ADDED, mean_of_group, OF_K | OF_V, 0, NULL, MHA__LEAVES_Q, {0}},
    {{"group-mean-dk", "dK is a mean over the heads of a group, dV is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, mean_of_group, OF_K, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"group-mean-dv", "dV is a mean over the heads of a group, dK is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, mean_of_group, OF_V, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"group-by-remainder", "dK and dV of head i go to key/value head i mod h_kv", false},
        can_be_dealt, MHA__BACKWARD_ADDED, deal_heads, OF_K | OF_V, 0, NULL, MHA__LEAVES_Q, {0}},
    {{"group-by-remainder-dk", "dK of head i goes to key/value head i mod h_kv, dV goes to its own", false},
        can_be_dealt, MHA__BACKWARD_ADDED, deal_heads, OF_K, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_V, {0}},
    {{"group-by-remainder-dv", "dV of head i goes to key/value head i mod h_kv, dK goes to its own", false},
        can_be_dealt, MHA__BACKWARD_ADDED, deal_heads, OF_V, 0, NULL, MHA__LEAVES_Q | MHA__LEAVES_K, {0}},
    {{"group-of-other-order", "dK and dV of a group are written as (group, S) and added up as (S, group)", false},
        has_groups, MHA__BACKWARD_ADDED, deal_rows, 0, 0, NULL, MHA__LEAVES_Q, {0}},
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_products(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
