/* Mistakes of dO, D, dlse and dS. */
#include <math.h>
#include <string.h>

#include "verify/backward/mistakes/mistakes.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static bool is_softmax(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX;
}

static bool has_two_queries(const mha__backward *b, const mha__mistake *m)
{
    return is_softmax(b, m) && b->r->plan.T_q > 1;
}

static bool has_d_lse(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->given->d_lse.data != NULL;
}

static bool has_scale(const mha__backward *b, const mha__mistake *m)
{
    return is_softmax(b, m) && b->r->plan.scale != 1;
}

/* Several heads and queries, whose order in memory can be mixed up. */
static bool has_heads_and_time(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->plan.h > 1 && b->r->plan.T_q > 1 && !b->r->semantics.place.cu_seqlens_q;
}

/* D times `number`. */
static void scale_sums(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->sums[i] *= m->number;
}

/* D times the scale. */
static void scaled_sums(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->sums[i] *= b->r->plan.scale;
}

/* D as a mean over the features of dO O. */
static void mean_sums(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)m;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->sums[i] /= (double)b->r->plan.d_v;
}

/* D of the next query, or of the one before. */
static void other_sums(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t T = map->s.T_q;
    double *x = map->sums;
    (void)b;
    if (T < 2)
        return;
    const double first = x[0], last = x[T - 1];
    if (m->number > 0) {
        memmove(x, x + 1, (T - 1) * sizeof *x);
        x[T - 1] = first;
    } else {
        memmove(x + 1, x, (T - 1) * sizeof *x);
        x[0] = last;
    }
}

static void scale_d_lse(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++)
        map->d_lse[i] *= m->number;
}

/* dS = dP - D */
static void leave_out_weights(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const size_t i = at / map->n;
        if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] = map->d_weights[at] - map->sums[i] + map->d_lse[i];
    }
}

/* dS = P dP - D */
static void leave_sums_outside(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++) {
        const size_t i = at / map->n;
        if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] = map->weights[at] * (map->d_weights[at] + map->d_lse[i]) - map->sums[i];
    }
}

/* D of a query of any sequence and head, without a ragged batch. */
static double sum_of(const mha__backward *b, size_t sequence, size_t head, size_t i)
{
    const mha__sizes *p = &b->r->plan;
    const size_t g = head / (p->h / p->h_kv), row = sequence * p->T_q + i;
    const double *dO = (const double *)b->d_heads.data + (row * p->h + head) * p->d_v;
    double sum = 0;
    for (size_t j = 0; j < mha__resolved_sequence(b->r, sequence).S; j++) {
        const double P = mha_view_get(&b->stages[MHA_STAGE_WEIGHTS], (size_t[]){sequence, head, i, j});
        const double *V = (const double *)b->keys[1].data +
                          ((sequence * b->keys[1].shape[1] + j) * p->h_kv + g) * p->d_v;
        for (size_t c = 0; c < p->d_v && P > 0; c++)
            sum += P * dO[c] * V[c];
    }
    return sum;
}

/* Several heads, and D that sums over keys of the call alone. */
static bool has_sums_of_heads(const mha__backward *b, const mha__mistake *m)
{
    return is_softmax(b, m) && b->r->plan.h > 1 && b->r->plan.S_extra == 0 && !b->r->semantics.place.cu_seqlens_q &&
           !b->given->whole.lse.data;
}

/* D of the next head (number 0), or that of an array (batch, heads, T) which is read as (batch, T, heads). */
static void sums_elsewhere(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t h = b->r->plan.h, T = map->s.T_q;
    for (size_t i = 0; i < T; i++) {
        const size_t at = i * h + map->head;
        map->sums[i] = m->number > 1   ? sum_of(b, 0, map->head, i)
                       : m->number > 0 ? sum_of(b, map->b, at / T, at % T)
                                       : sum_of(b, map->b, (map->head + 1) % h, i);
    }
}

static bool has_sums_of_rows(const mha__backward *b, const mha__mistake *m)
{
    return has_sums_of_heads(b, m) && b->r->plan.B > 1;
}

/* D of an O that is not divided by the sum of its exponentials. */
static void unnormalised_sums(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b, (void)m;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double most = 0;
        for (size_t j = 0; j < map->n; j++)
            most = fmax(most, map->weights[i * map->n + j]);
        map->sums[i] = most > 0 ? map->sums[i] / most : 0;
    }
}

/* D = sum_j dP_ij, or their mean (number 1). */
static void unweighted_sums(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double sum = 0, count = 0;
        for (size_t j = 0; j < map->n; j++)
            if (map->seen[i * map->n + j] == MHA__SEEN)
                sum += map->d_weights[i * map->n + j], count++;
        map->sums[i] = m->number > 0 && count > 0 ? sum / count : sum;
    }
}

/* dS_ij = P_ij (1 - P_ij) dP_ij */
static void keep_diagonal(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)b, (void)m;
    for (size_t at = 0; at < map->s.T_q * map->n; at++)
        if (map->seen[at] == MHA__SEEN)
            map->d_masked[at] = map->weights[at] * (1 - map->weights[at]) * map->d_weights[at];
}

/* dO of (B, h, T, d_v) read as (B, T, h, d_v), or the other way round: elements of a batch row in the other order. */
static void turn_d_output(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha__sizes *p = &b->r->plan;
    const mha_view *dO = &b->given->d_output;
    for (size_t i = 0; i < map->s.T_q; i++)
        for (size_t c = 0; c < p->d_v; c++) {
            const size_t by_time = (i * p->h + map->head), by_head = (map->head * p->T_q + i);
            const size_t row = m->number > 0 ? by_head : by_time, /* what was meant, read in the other order */
                         t = m->number > 0 ? row / p->h : row % p->T_q,
                         head = m->number > 0 ? row % p->h : row / p->T_q;
            const size_t four[4] = {map->s.batch, t, head, c}, three[3] = {map->s.batch, t, head * p->d_v + c};
            map->dO[i * p->d_v + c] = mha_view_get(dO, dO->rank == 4 ? four : three);
        }
}

/* clang-format off */
static const mha__mistake rows[] = {
    {{"do-of-other-order-heads", "dO is read as (batch, T, heads, width) and is (batch, heads, T, width)", false},
        has_heads_and_time, MHA__BACKWARD_READ, turn_d_output, -1, 0, NULL},
    {{"do-of-other-order-time", "dO is read as (batch, heads, T, width) and is (batch, T, heads, width)", false},
        has_heads_and_time, MHA__BACKWARD_READ, turn_d_output, 1, 0, NULL},
    {{"d-missing", "dS = P dP: D = rowsum(dO O) is not taken away", false},
        is_softmax, MHA__BACKWARD_SUMS, scale_sums, 0, 0, NULL},
    {{"d-added", "dS = P (dP + D): D is added", false}, is_softmax, MHA__BACKWARD_SUMS, scale_sums, -1, 0, NULL},
    {{"d-twice", "D is taken away twice", false}, is_softmax, MHA__BACKWARD_SUMS, scale_sums, 2, 0, NULL},
    {{"d-scaled", "D is multiplied by the scale, dP is not", false}, has_scale, MHA__BACKWARD_SUMS, scaled_sums, 0,
        0, NULL},
    {{"d-mean", "D is a mean over the features, not their sum", false},
        is_softmax, MHA__BACKWARD_SUMS, mean_sums, 0, 0, NULL},
    {{"d-of-next-query", "D is that of the next query", false}, has_two_queries, MHA__BACKWARD_SUMS, other_sums, 1,
        0, NULL},
    {{"d-of-previous-query", "D is that of the query before", false},
        has_two_queries, MHA__BACKWARD_SUMS, other_sums, -1, 0, NULL},
    {{"d-of-next-head", "D is that of the next head", false},
        has_sums_of_heads, MHA__BACKWARD_SUMS, sums_elsewhere, 0, 0, NULL},
    {{"d-of-other-order", "D is read as (batch, T, heads) and is (batch, heads, T)", false},
        has_sums_of_heads, MHA__BACKWARD_SUMS, sums_elsewhere, 1, 0, NULL},
    {{"d-of-first-batch-row", "D is that of the first batch row", false},
        has_sums_of_rows, MHA__BACKWARD_SUMS, sums_elsewhere, 2, 0, NULL},
    {{"d-unnormalised", "D is made of an O that is not divided by the sum of its exponentials", false},
        is_softmax, MHA__BACKWARD_SUMS, unnormalised_sums, 0, 0, NULL},
    {{"d-unweighted", "D = sum dP, without P", false}, is_softmax, MHA__BACKWARD_SUMS, unweighted_sums, 0, 0, NULL},
    {{"d-mean-of-dp", "D is the mean of dP over the keys", false},
        is_softmax, MHA__BACKWARD_SUMS, unweighted_sums, 1, 0, NULL},
    {{"softmax-diagonal", "dS = P (1 - P) dP: of the derivative of softmax the diagonal alone", false},
        is_softmax, MHA__BACKWARD_MASKED, keep_diagonal, 0, 0, NULL},
    {{"d-outside-weights", "dS = P dP - D, in place of P (dP - D)", false},
        is_softmax, MHA__BACKWARD_MASKED, leave_sums_outside, 0, 0, NULL},
    {{"dlse-dropped", "the gradient of lse is left out", false}, has_d_lse, MHA__BACKWARD_SUMS, scale_d_lse, 0, 0,
        NULL},
    {{"dlse-subtracted", "the gradient of lse is taken away, as D is", false},
        has_d_lse, MHA__BACKWARD_SUMS, scale_d_lse, -1, 0, NULL},
    {{"weights-missing-in-ds", "dS = dP - D, without P", false},
        is_softmax, MHA__BACKWARD_MASKED, leave_out_weights, 0, 0, NULL},
};
/* clang-format on */

mha__mistake_list mha__mistakes_of_sums(void)
{
    return (mha__mistake_list){rows, COUNT(rows)};
}
