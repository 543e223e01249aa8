/* Mistakes of dQ, dK and dV, and of heads that share keys and values. */
#include <math.h>
#include <string.h>

#include "verify/backward/mistakes/mistakes.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

enum { OF_Q = 1, OF_K = 2, OF_V = 4 };

static bool has(int which, const mha__mistake *m)
{
    return ((int)m->number & which) != 0;
}

/* ---------------------------------------------------------------- the scale */

static bool has_scale(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->plan.scale != 1;
}

static bool has_own_scale(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->plan.scale * sqrt((double)b->r->plan.d_k) != 1;
}

/* The scale to the power `other` more, of dQ and dK as `number` says. */
static void more_scale(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const double more = pow(b->r->plan.scale, m->other);
    map->q_scale *= has(OF_Q, m) ? more : 1;
    map->k_scale *= has(OF_K, m) ? more : 1;
}

static void default_scale(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    map->q_scale = map->k_scale = 1 / sqrt((double)b->r->plan.d_k);
}

static bool has_widths(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->plan.d_k != b->r->plan.d_v;
}

static void scale_of_values(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    map->q_scale = map->k_scale = 1 / sqrt((double)b->r->plan.d_v);
}

static void times_scale(mha__backward *b, mha__map *map, const mha__mistake *m)
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
static void times(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    for (int which = OF_Q; which <= OF_V; which *= 2)
        for (size_t e = 0; has(which, m) && e < size_of(b, map, which); e++)
            gradient_of(map, which)[e] *= map->sizes ? fabs(m->other) : m->other;
}

static bool has_batch(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->plan.B > 1;
}

static void over_batch(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha__mistake part = {.number = m->number, .other = 1 / (double)b->r->plan.B};
    times(b, map, &part);
}

static void dv_times_scale(mha__backward *b, mha__map *map, const mha__mistake *m)
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

static bool is_square(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    const mha__sizes *p = &b->r->plan;
    return p->T_q == p->S && p->S_extra == 0 && p->h == p->h_kv && p->T_q > 1 && !b->r->semantics.place.cu_seqlens_q;
}

static bool is_square_alone(const mha__backward *b, const mha__mistake *m)
{
    return is_square(b, m) && b->r->semantics.added.relative.rule == MHA_RELATIVE_NONE;
}

static void exchange_q_k(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    exchange(map->dQ, map->dK, map->s.T_q * b->r->plan.d_k);
}

static bool has_equal_widths(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->plan.d_k == b->r->plan.d_v;
}

static void exchange_k_v(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    exchange(map->dK, map->dV, map->n * b->r->plan.d_k);
}

/* dK = scale dS Q in place of dS^T Q, or dV = P dO in place of P^T dO */
static void leave_untransposed(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const bool of_k = has(OF_K, m);
    const size_t n = map->n, d = of_k ? b->r->plan.d_k : b->r->plan.d_v;
    const double *matrix = of_k ? map->d_scores : map->weights, *x = of_k ? map->Q : map->dO;
    double *to = of_k ? map->dK : map->dV;
    memset(to, 0, n * d * sizeof *to);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            for (size_t c = 0; map->seen[i * n + j] == MHA__SEEN && c < d; c++)
                to[i * d + c] += (of_k ? map->k_scale : 1) * matrix[i * n + j] * x[j * d + c];
}

/* ---------------------------------------------------------------- blocks */

/* More than one block of `number` keys or queries, the last one not full. */
static bool has_tail(const mha__backward *b, const mha__mistake *m)
{
    const size_t n = m->other > 0 ? b->r->plan.S : b->r->plan.T_q, block = (size_t)m->number;
    return n > block && n % block != 0;
}

static bool has_blocks(const mha__backward *b, const mha__mistake *m)
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
static void leave_out_tail(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t block = (size_t)m->number, T = map->s.T_q, S = map->s.S;
    const bool of_keys = m->other > 0;
    for (size_t i = of_keys ? 0 : T - T % block; i < T && !map->sizes; i++)
        for (size_t j = of_keys ? S - S % block : 0; j < S; j++)
            take_away(b, map, i, j, of_keys);
}

/* dQ has the last block of keys alone: what the others added is lost. */
static void keep_last_block(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t block = (size_t)m->number, S = map->s.S;
    for (size_t i = 0; i < map->s.T_q && !map->sizes; i++)
        for (size_t j = 0; S > 0 && j < (S - 1) / block * block; j++)
            take_away(b, map, i, j, true);
}

static bool has_query_blocks(const mha__backward *b, const mha__mistake *m)
{
    return b->r->plan.T_q > (size_t)m->number;
}

/* dK and dV have the last block of queries alone. */
static void keep_last_queries(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t block = (size_t)m->number, T = map->s.T_q;
    for (size_t i = 0; T > 0 && i < (T - 1) / block * block && !map->sizes; i++)
        for (size_t j = 0; j < map->n; j++)
            take_away(b, map, i, j, false);
}

/* dV = sum_i dO_i P_ij / max_j P_ij: of exponentials that are not normalised. */
static void leave_unnormalised(mha__backward *b, mha__map *map, const mha__mistake *m)
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

static bool is_softmax(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX && !b->r->weight[MHA_SINKS].data &&
           !b->r->semantics.softmax.softmax_plus_one;
}

/* The keys of each block are still those of the block before. */
static void keep_keys(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t d = b->r->plan.d_k, block = (size_t)m->number;
    for (size_t j = map->s.S; j-- > block;)
        memcpy(map->K + j * d, map->K + (j - block) * d, d * sizeof *map->K);
}

/* So are the values; D is that of the forward's output. */
static void keep_values(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t d = b->r->plan.d_v, block = (size_t)m->number;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = block; j < map->s.S; j++) {
            double *dP = &map->d_weights[i * map->n + j];
            *dP = 0;
            for (size_t c = 0; c < d && map->seen[i * map->n + j] == MHA__SEEN; c++)
                *dP += map->dO[i * d + c] * map->V[(j - block) * d + c];
        }
}

/* ---------------------------------------------------------------- groups */

static bool has_groups(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->plan.h > b->r->plan.h_kv;
}

static bool can_be_dealt(const mha__backward *b, const mha__mistake *m)
{
    return has_groups(b, m) && b->r->plan.h_kv > 1;
}

/* Only one head of each group counts: that number `other`, -1 for the last. */
static void one_of_group(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t group = b->r->plan.h / b->r->plan.h_kv, which = m->other < 0 ? group - 1 : (size_t)m->other;
    for (int x = OF_K; x <= OF_V && map->head % group != which; x *= 2)
        if (has(x, m))
            memset(gradient_of(map, x), 0, size_of(b, map, x) * sizeof(double));
}

static void mean_of_group(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha__mistake part = {.number = m->number, .other = (double)b->r->plan.h_kv / (double)b->r->plan.h};
    times(b, map, &part);
}

static void deal_heads(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    map->g = map->head % b->r->plan.h_kv;
}

/* The row of keys (0) or values (1) that head i would have if it were dealt to key/value head i mod h_kv. */
static const double *dealt_row(const mha__backward *b, const mha__map *map, int v, size_t j)
{
    const mha__sizes *p = &b->r->plan;
    const size_t d = v ? p->d_v : p->d_k, row = map->s.k_batch * b->keys[v].shape[1] + map->s.k_from + j;
    return (const double *)b->keys[v].data + (row * p->h_kv + map->head % p->h_kv) * d;
}

static void deal_keys(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t d = b->r->plan.d_k;
    (void)m;
    for (size_t j = 0; j < map->s.S; j++)
        memcpy(map->K + j * d, dealt_row(b, map, 0, j), d * sizeof *map->K);
}

static void deal_values(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t d = b->r->plan.d_v;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++) {
            const double *V = dealt_row(b, map, 1, j);
            double *dP = &map->d_weights[i * map->n + j];
            *dP = 0;
            for (size_t c = 0; c < d && map->seen[i * map->n + j] == MHA__SEEN; c++)
                *dP += map->dO[i * d + c] * V[c];
        }
    if (m->other > 0)
        deal_keys(b, map, m);
}

/* clang-format off */
#define TAILS(B) \
    {{"tail-queries-missing-" #B, "dK and dV lack the queries of the last block of " #B ", which is not full", false}, \
        has_tail, MHA__BACKWARD_ADDED, leave_out_tail, B, 0, NULL}, \
    {{"tail-keys-missing-" #B, "dQ lacks the keys of the last block of " #B ", which is not full", false}, \
        has_tail, MHA__BACKWARD_ADDED, leave_out_tail, B, 1, NULL}, \
    {{"dq-of-last-block-" #B, "dQ has the last block of " #B " keys alone: what the others add is lost", false}, \
        has_blocks, MHA__BACKWARD_ADDED, keep_last_block, B, 0, NULL}, \
    {{"dk-dv-of-last-block-" #B, "dK and dV have the last block of " #B " queries alone: what the others add is lost", \
      false}, has_query_blocks, MHA__BACKWARD_ADDED, keep_last_queries, B, 0, NULL}, \
    {{"stale-keys-" #B, "dQ meets, in each block of " #B " keys, those of the block before", false}, \
        has_blocks, MHA__BACKWARD_READ, keep_keys, B, 0, NULL}, \
    {{"stale-values-" #B, "dP meets, in each block of " #B " values, those of the block before", false}, \
        has_blocks, MHA__BACKWARD_SUMS, keep_values, B, 0, NULL}

static const mha__mistake rows[] = {
    {{"scale-missing", "dQ and dK lack the scale", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q | OF_K,
        -1, NULL},
    {{"scale-twice", "dQ and dK are scaled twice", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q | OF_K, 1,
        NULL},
    {{"scale-missing-dq", "dQ lacks the scale, dK has it", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q,
        -1, NULL},
    {{"scale-missing-dk", "dK lacks the scale, dQ has it", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_K,
        -1, NULL},
    {{"scale-twice-dq", "dQ is scaled twice, dK once", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q, 1,
        NULL},
    {{"scale-twice-dk", "dK is scaled twice, dQ once", false}, has_scale, MHA__BACKWARD_SUMS, more_scale, OF_K, 1,
        NULL},
    {{"scale-default", "dQ and dK have the scale 1/sqrt(d_k), the forward has another", false},
        has_own_scale, MHA__BACKWARD_SUMS, default_scale, 0, 0, NULL},
    {{"scale-of-values", "dQ and dK have the scale 1/sqrt(d_v)", false},
        has_widths, MHA__BACKWARD_SUMS, scale_of_values, 0, 0, NULL},
    {{"scale-times-log2e", "dQ and dK are also multiplied by log2(e), which belongs to the exponent", false},
        NULL, MHA__BACKWARD_SUMS, times_scale, 0, 1.4426950408889634, NULL},
    {{"scale-times-ln2", "dQ and dK are also multiplied by ln(2)", false},
        NULL, MHA__BACKWARD_SUMS, times_scale, 0, 0.6931471805599453, NULL},
    {{"scale-root", "dQ and dK have the root of the scale", false},
        has_scale, MHA__BACKWARD_SUMS, more_scale, OF_Q | OF_K, -0.5, NULL},
    {{"dv-unnormalised", "dV is made of exponentials that are not divided by their sum", false},
        is_softmax, MHA__BACKWARD_ADDED, leave_unnormalised, 0, 0, NULL},
    {{"dv-scaled", "dV is multiplied by the scale", false}, has_scale, MHA__BACKWARD_ADDED, dv_times_scale, 0, 0, NULL},
    {{"dq-twice", "dQ is twice what it should be: it was added to itself", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_Q, 2, NULL},
    {{"dk-dv-twice", "dK and dV are twice what they should be: they were added to themselves", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_K | OF_V, 2, NULL},
    {{"dq-negated", "dQ has the other sign", false}, NULL, MHA__BACKWARD_ADDED, times, OF_Q, -1, NULL},
    {{"dk-negated", "dK has the other sign", false}, NULL, MHA__BACKWARD_ADDED, times, OF_K, -1, NULL},
    {{"dv-negated", "dV has the other sign", false}, NULL, MHA__BACKWARD_ADDED, times, OF_V, -1, NULL},
    {{"all-negated", "dQ, dK and dV have the other sign", false},
        NULL, MHA__BACKWARD_ADDED, times, OF_Q | OF_K | OF_V, -1, NULL},
    {{"all-over-batch", "dQ, dK and dV are divided by the number of batch rows", false},
        has_batch, MHA__BACKWARD_ADDED, over_batch, OF_Q | OF_K | OF_V, 0, NULL},
    {{"dq-half", "dQ is half of what it should be", false}, NULL, MHA__BACKWARD_ADDED, times, OF_Q, 0.5, NULL},
    {{"dq-zero", "dQ is 0", false}, NULL, MHA__BACKWARD_ADDED, times, OF_Q, 0, NULL},
    {{"dk-zero", "dK is 0", false}, NULL, MHA__BACKWARD_ADDED, times, OF_K, 0, NULL},
    {{"dv-zero", "dV is 0", false}, NULL, MHA__BACKWARD_ADDED, times, OF_V, 0, NULL},
    {{"dk-untransposed", "dK = scale dS Q, without the transpose of dS", false},
        is_square_alone, MHA__BACKWARD_ADDED, leave_untransposed, OF_K, 0, NULL},
    {{"dv-untransposed", "dV = P dO, without the transpose of P", false},
        is_square, MHA__BACKWARD_ADDED, leave_untransposed, OF_V, 0, NULL},
    {{"dq-dk-exchanged", "dQ and dK stand in each other's place", false},
        is_square, MHA__BACKWARD_ADDED, exchange_q_k, 0, 0, NULL},
    {{"dk-dv-exchanged", "dK and dV stand in each other's place", false},
        has_equal_widths, MHA__BACKWARD_ADDED, exchange_k_v, 0, 0, NULL},
    TAILS(16), TAILS(32), TAILS(64), TAILS(128),
    {{"group-last", "dK and dV are those of the last head of a group, not their sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_K | OF_V, -1, NULL},
    {{"group-first", "dK and dV are those of the first head of a group, not their sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_K | OF_V, 0, NULL},
    {{"group-last-dk", "dK is that of the last head of a group, dV is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_K, -1, NULL},
    {{"group-last-dv", "dV is that of the last head of a group, dK is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, one_of_group, OF_V, -1, NULL},
    {{"group-mean", "dK and dV are means over the heads of a group, not sums", false},
        has_groups, MHA__BACKWARD_ADDED, mean_of_group, OF_K | OF_V, 0, NULL},
    {{"group-mean-dk", "dK is a mean over the heads of a group, dV is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, mean_of_group, OF_K, 0, NULL},
    {{"group-mean-dv", "dV is a mean over the heads of a group, dK is the sum", false},
        has_groups, MHA__BACKWARD_ADDED, mean_of_group, OF_V, 0, NULL},
    {{"keys-by-remainder", "dQ of head i meets the keys of key/value head i mod h_kv", false},
        can_be_dealt, MHA__BACKWARD_READ, deal_keys, 0, 0, NULL},
    {{"values-by-remainder", "dP of head i meets the values of key/value head i mod h_kv", false},
        can_be_dealt, MHA__BACKWARD_SUMS, deal_values, 0, 0, NULL},
    {{"heads-by-remainder", "head i meets the keys and values of key/value head i mod h_kv", false},
        can_be_dealt, MHA__BACKWARD_SUMS, deal_values, 0, 1, NULL},
    {{"group-by-remainder", "dK and dV of head i go to key/value head i mod h_kv", false},
        can_be_dealt, MHA__BACKWARD_ADDED, deal_heads, 0, 0, NULL},
};
/* clang-format on */

mha__mistake_list mha__mistakes_of_products(void)
{
    return (mha__mistake_list){rows, COUNT(rows)};
}
