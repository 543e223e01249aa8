/* Mistakes of rows on their way back, of the gradients of what is added to scores, and of queries that see nothing. */
#include <math.h>

#include "attention/exact/exact_rows.h"
#include "verify/backward/mistakes/mistakes.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static bool rotates(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->semantics.qkv.rope.kind != MHA_ROPE_NONE;
}

/* number: bit 0 queries, bit 1 keys; other: an mha__turning */
static void turn(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)map;
    for (int side = 0; side < 2; side++)
        if ((int)m->number >> side & 1)
            b->turns[side] = (mha__turning)(int)m->other;
}

static bool normalises(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->norm[MHA_QUERIES] != MHA_NORM_NONE || b->r->norm[MHA_KEYS] != MHA_NORM_NONE;
}

static void keep_divisors(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    (void)map, (void)m;
    b->norms_divide = true;
}

/* ---------------------------------------------------------------- what is added */

static bool has_gradient(const mha__backward *b, const mha__mistake *m)
{
    return b->d[(int)m->number].data != NULL;
}

static void times(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha_view *d = &b->d[(int)m->number];
    (void)map;
    for (size_t e = 0; d->data && e < mha_view_elements(d); e++)
        ((double *)d->data)[e] *= m->other;
}

static bool has_broadcast(const mha__backward *b, const mha__mistake *m)
{
    const mha__sizes *p = &b->r->plan;
    return has_gradient(b, m) && mha_view_elements(&b->d[MHA_D_MASK]) < p->B * p->h * p->T_q * p->S;
}

/* A mean in place of the sum over what shares an element of the mask. */
static void mean(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha__sizes *p = &b->r->plan;
    const double all = (double)p->B * (double)p->h * (double)p->T_q * (double)p->S;
    const mha__mistake part = {.number = m->number, .other = (double)mha_view_elements(&b->d[MHA_D_MASK]) / all};
    times(b, map, &part);
}

static void times_scale(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha__mistake part = {.number = m->number, .other = b->r->plan.scale};
    times(b, map, &part);
}

static bool is_shared(const mha__backward *b, const mha__mistake *m)
{
    return m->number == MHA_D_MASK ? has_broadcast(b, m) : has_gradient(b, m) && b->r->plan.B > 1;
}

/* What a head is about to add to replaces what heads and batch rows before it added; `other`: batch rows alone do. */
static void overwrite(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const mha_view *d = &b->d[(int)m->number];
    if (m->other > 0 && map->head > 0)
        return;
    if (m->number != MHA_D_MASK)
        ((double *)d->data)[map->head] = 0;
    for (size_t i = 0; m->number == MHA_D_MASK && i < map->s.T_q; i++)
        for (size_t j = 0; j < map->s.S; j++)
            *mha__mask_element(d, (const size_t[]){map->b, map->head, i, j}, 4) = 0;
}

typedef enum share {
    FIRST_BATCH_ROW,
    FIRST_HEAD,
    LAST_HEAD
} share;

/* Heads or batch rows share what is added to scores, and the sum over them is all of its gradient. */
static bool is_sum(const mha__backward *b, const mha__mistake *m)
{
    const mha_semantics *s = &b->r->semantics;
    const bool any = b->d[MHA_D_MASK].data || b->d[MHA_D_ALIBI_SLOPES].data || b->d[MHA_D_KEY_PADDING].data;
    return any && s->added.relative.rule == MHA_RELATIVE_NONE &&
           (m->number == FIRST_BATCH_ROW ? b->r->plan.B > 1 : b->r->plan.h > 1);
}

/* What other heads or batch rows would add is left out. */
static void leave_out(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const share of = (share)m->number;
    const bool counts = of == FIRST_BATCH_ROW ? map->b == 0
                        : of == FIRST_HEAD    ? map->head == 0
                                              : map->head + 1 == b->r->plan.h;
    for (size_t at = 0; !counts && at < map->s.T_q * map->n; at++)
        map->d_masked[at] = 0;
}

/* ---------------------------------------------------------------- queries that see nothing */

static bool is_empty(const mha__map *map, size_t i)
{
    bool empty = true;
    for (size_t j = 0; j < map->n; j++)
        empty = empty && map->seen[i * map->n + j] != MHA__SEEN;
    return empty;
}

static bool has_softmax(const mha__backward *b, const mha__mistake *m)
{
    (void)m;
    return b->r->semantics.softmax.normaliser == MHA_SOFTMAX;
}

/* dQ of such a query is NaN (number 0); dK and dV of its sequence, too (1). */
static void spread_nan(mha__backward *b, mha__map *map, const mha__mistake *m)
{
    const size_t d_k = b->r->plan.d_k, d_v = b->r->plan.d_v;
    for (size_t i = 0; i < map->s.T_q; i++) {
        if (!is_empty(map, i))
            continue;
        for (size_t c = 0; c < d_k; c++)
            map->dQ[i * d_k + c] = NAN;
        for (size_t e = 0; m->number > 0 && e < map->n * d_k; e++)
            map->dK[e] = NAN;
        for (size_t e = 0; m->number > 0 && e < map->n * d_v; e++)
            map->dV[e] = NAN;
    }
}

#define SINKS (MHA_D_WEIGHTS + MHA_SINKS)

/* clang-format off */
static const mha__mistake rows[] = {
    {{"rope-not-turned-back", "dQ and dK are those of rotated rows: the rotation is not turned back", false},
        rotates, MHA__BACKWARD_HEADS, turn, 3, MHA__NOT_TURNED, NULL},
    {{"rope-turned-forward", "dQ and dK are rotated forward, not back", false},
        rotates, MHA__BACKWARD_HEADS, turn, 3, MHA__TURNED_FORWARD, NULL},
    {{"rope-dq-not-turned-back", "dQ is that of rotated rows, dK is turned back", false},
        rotates, MHA__BACKWARD_HEADS, turn, 1, MHA__NOT_TURNED, NULL},
    {{"rope-dk-not-turned-back", "dK is that of rotated rows, dQ is turned back", false},
        rotates, MHA__BACKWARD_HEADS, turn, 2, MHA__NOT_TURNED, NULL},
    {{"rope-dq-turned-forward", "dQ is rotated forward, dK is turned back", false},
        rotates, MHA__BACKWARD_HEADS, turn, 1, MHA__TURNED_FORWARD, NULL},
    {{"rope-dk-turned-forward", "dK is rotated forward, dQ is turned back", false},
        rotates, MHA__BACKWARD_HEADS, turn, 2, MHA__TURNED_FORWARD, NULL},
    {{"norm-second-term-missing", "the divisor of a norm of q or k is taken for a constant: dx = dy w / r", false},
        normalises, MHA__BACKWARD_HEADS, keep_divisors, 0, 0, NULL},
    {{"sinks-zero", "the gradient of the sinks is 0", false}, has_gradient, MHA__BACKWARD_HEADS, times, SINKS, 0, NULL},
    {{"sinks-negated", "the gradient of the sinks has the other sign", false},
        has_gradient, MHA__BACKWARD_HEADS, times, SINKS, -1, NULL},
    {{"mask-zero", "the gradient of the mask is 0", false}, has_gradient, MHA__BACKWARD_HEADS, times, MHA_D_MASK, 0,
        NULL},
    {{"mask-mean", "the gradient of a mask that is broadcast is a mean, not a sum", false},
        has_broadcast, MHA__BACKWARD_HEADS, mean, MHA_D_MASK, 0, NULL},
    {{"mask-overwritten", "the gradient of a mask that heads or batch rows share is that of the last, not their sum",
      false}, is_shared, MHA__BACKWARD_PRODUCTS, overwrite, MHA_D_MASK, 0, NULL},
    {{"mask-of-last-batch-row", "the gradient of a mask that batch rows share is that of the last one", false},
        is_shared, MHA__BACKWARD_PRODUCTS, overwrite, MHA_D_MASK, 1, NULL},
    {{"added-of-first-batch-row",
      "the gradient of what is added to scores (mask, slopes) is that of the first batch row alone", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, FIRST_BATCH_ROW, 0, NULL},
    {{"added-of-first-head", "the gradient of what is added to scores is that of the first head alone", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, FIRST_HEAD, 0, NULL},
    {{"added-of-last-head", "the gradient of what is added to scores is that of the last head alone", false},
        is_sum, MHA__BACKWARD_PRODUCTS, leave_out, LAST_HEAD, 0, NULL},
    {{"sinks-overwritten", "the gradient of the sinks is that of the last batch row, not their sum", false},
        is_shared, MHA__BACKWARD_PRODUCTS, overwrite, SINKS, 0, NULL},
    {{"alibi-slopes-overwritten", "the gradient of the ALiBi slopes is that of the last batch row, not their sum",
      false}, is_shared, MHA__BACKWARD_PRODUCTS, overwrite, MHA_D_ALIBI_SLOPES, 0, NULL},
    {{"mask-scaled", "the gradient of the mask is multiplied by the scale", false},
        has_gradient, MHA__BACKWARD_HEADS, times_scale, MHA_D_MASK, 0, NULL},
    {{"alibi-slopes-negated", "the gradient of the ALiBi slopes has the other sign", false},
        has_gradient, MHA__BACKWARD_HEADS, times, MHA_D_ALIBI_SLOPES, -1, NULL},
    {{"empty-rows-nan", "dQ of a query that sees no key is NaN", false},
        has_softmax, MHA__BACKWARD_ADDED, spread_nan, 0, 0, NULL},
    {{"empty-rows-nan-everywhere", "a query that sees no key makes all dK and dV of its sequence NaN", false},
        has_softmax, MHA__BACKWARD_ADDED, spread_nan, 1, 0, NULL},
};
/* clang-format on */

mha__mistake_list mha__mistakes_of_rest(void)
{
    return (mha__mistake_list){rows, COUNT(rows)};
}
