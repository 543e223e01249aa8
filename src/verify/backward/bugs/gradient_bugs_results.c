/* Bugs of what goes out: gradients that are right but for a factor, that stand in another order, or in part. Each
 * is that of all gradients that somebody has wrong. */
#include <math.h>

#include "verify/backward/bugs/gradient_bugs.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* ---------------------------------------------------------------- factors */

typedef enum factor {
    BY_NUMBER, /* `other` */
    BY_SCALE,  /* the scale to the power `other`, and so on */
    BY_BATCH,
    BY_QUERIES,
    BY_KEYS,
    BY_ROWS, /* batch rows and queries */
    BY_HEADS,
    BY_GROUP,
    BY_CAP
} factor;

static double factor_of(const mha__backward *b, const mha__gradient_bug *m)
{
    const mha__sizes *p = &b->r->plan;
    const double h = (double)p->h, B = (double)p->B, T = (double)p->T_q;
    const double base[] = {[BY_SCALE] = p->scale, [BY_BATCH] = B, [BY_QUERIES] = T, [BY_KEYS] = (double)p->S,
                           [BY_ROWS] = B * T, [BY_HEADS] = h, [BY_GROUP] = h / (double)p->h_kv,
                           [BY_CAP] = b->r->semantics.softmax.softcap};
    return m->number == BY_NUMBER ? m->other : pow(base[(int)m->number], m->other);
}

/* The factor is none that does nothing. */
static bool has_factor(const mha__backward *b, const mha__gradient_bug *m)
{
    const double f = factor_of(b, m);
    return isfinite(f) && f != 1 && (m->number == BY_NUMBER || f != 0);
}

static bool times(const mha__wrong_gradient *x, double f)
{
    for (size_t e = 0; e < mha_view_elements(&x->from); e++)
        x->to[e] = (x->sizes ? fabs(f) : f) * ((const double *)x->from.data)[e];
    return true;
}

static bool times_factor(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    return times(x, factor_of(x->b, m));
}

/* ---------------------------------------------------------------- rows in another order */

/* Where an element of (B, T, h, d) lies; of a mask (B, h, T, S). */
typedef struct place {
    size_t b, t, i, c;
    bool by_head; /* the heads come before T */
} place;

/* The extents of a gradient of rows, of a mask, or of what each head has a row of; false: it is no such gradient. */
static bool extents_of(const mha__wrong_gradient *x, place *n)
{
    const size_t *shape = x->from.shape;
    const int rank = x->from.rank;
    const mha__sizes *p = &x->b->r->plan;
    const int weight = (int)x->gradient - MHA_D_WEIGHTS;
    const size_t T = x->gradient == MHA_D_QUERY ? x->b->r->query.shape[1] : x->b->r->key.shape[1];
    if (x->gradient <= MHA_D_VALUE && rank == 4)
        *n = (place){shape[0], shape[1], shape[2], shape[3], false};
    else if (T > 0 && x->gradient <= MHA_D_VALUE) /* of an input of a layer */
        *n = (place){shape[0] / T, T, 1, shape[1], false};
    else if (x->gradient == MHA_D_MASK && rank >= 2)
        *n = (place){rank > 3 ? shape[0] : 1, shape[rank - 2], rank > 2 ? shape[rank - 3] : 1, shape[rank - 1], true};
    else if (x->gradient == MHA_D_ALIBI_SLOPES || weight == MHA_SINKS)
        *n = (place){1, 1, shape[0], 1, false};
    else if (!x->b->r->layer && (weight == MHA_B_Q || weight == MHA_B_K || weight == MHA_B_V))
        *n = (place){1, 1, weight == MHA_B_Q ? p->h : p->h_kv, weight == MHA_B_V ? p->d_v : p->d_k, false};
    else
        return false;
    return mha_view_elements(&x->from) > 0;
}

static size_t index_of(const place *n, const place *at)
{
    const size_t row = n->by_head ? (at->b * n->i + at->i) * n->t + at->t : (at->b * n->t + at->t) * n->i + at->i;
    return row * n->c + at->c;
}

typedef enum order {
    TIME_FIRST,     /* written as (T, h), read as (h, T) */
    HEADS_FIRST,    /* the other way round */
    FEATURES_FIRST, /* of each head written as (d, T), read as (T, d) */
    ROWS_FIRST,     /* the other way round */
    BATCH_INSIDE,   /* written as (h, B), read as (B, h) */
    BATCH_OUTSIDE,  /* the other way round */
    BATCH_IN_TIME,  /* written as (T, B), read as (B, T) */
    TIME_IN_BATCH,  /* the other way round */
    GROUPS_INSIDE,  /* heads written as (group, h_kv), read as (h_kv, group) */
    GROUPS_OUTSIDE,
    NEXT_HEAD, /* element by element that of the next head, and so on */
    PREVIOUS_HEAD,
    HEADS_REVERSED,
    NEXT_BATCH_ROW,
    NEXT_ROW,
    PREVIOUS_ROW,
    ROWS_REVERSED,
    HALVES_EXCHANGED,
    PAIRS_EXCHANGED,
    ONE_LATE_BY_HEAD, /* in memory (B, h, T, d) each number stands where the next one belongs */
    ONE_LATE_BY_TIME  /* in memory (B, T, h, d) */
} order;

/* Element `at` of a matrix of rows x columns that is written by columns and read by rows: its row and column. */
static void turn(size_t at, size_t rows, size_t *row, size_t *column)
{
    *row = at % rows, *column = at / rows;
}

/* The place that lies before another one in memory, (B, h, T, d) or (B, T, h, d); before the first lies the last. */
static place one_before(const place *n, bool by_head, place at)
{
    size_t *const digits[4] = {&at.c, by_head ? &at.t : &at.i, by_head ? &at.i : &at.t, &at.b};
    const size_t extents[4] = {n->c, by_head ? n->t : n->i, by_head ? n->i : n->t, n->b};
    for (int k = 0; k < 4; k++) {
        if ((*digits[k])-- > 0)
            return at;
        *digits[k] = extents[k] - 1;
    }
    return at;
}

/* Which element stands at a place. */
static place source_of(order how, const place *n, size_t h_kv, place at)
{
    place from = at;
    size_t outer = 0, inner = 0;
    const size_t group = n->i / (h_kv < n->i ? h_kv : n->i);
    switch (how) {
    case TIME_FIRST: from.t = (at.i * n->t + at.t) / n->i, from.i = (at.i * n->t + at.t) % n->i; break;
    case HEADS_FIRST: turn(at.t * n->i + at.i, n->t, &from.t, &from.i); break;
    case FEATURES_FIRST: turn(at.t * n->c + at.c, n->t, &from.t, &from.c); break;
    case ROWS_FIRST: from.t = (at.c * n->t + at.t) / n->c, from.c = (at.c * n->t + at.t) % n->c; break;
    case BATCH_INSIDE: turn(at.b * n->i + at.i, n->b, &from.b, &from.i); break;
    case BATCH_OUTSIDE: from.b = (at.i * n->b + at.b) / n->i, from.i = (at.i * n->b + at.b) % n->i; break;
    case BATCH_IN_TIME: turn(at.b * n->t + at.t, n->b, &from.b, &from.t); break;
    case TIME_IN_BATCH: from.b = (at.t * n->b + at.b) / n->t, from.t = (at.t * n->b + at.b) % n->t; break;
    case GROUPS_INSIDE: outer = at.i / group, inner = at.i % group, from.i = inner * (n->i / group) + outer; break;
    case GROUPS_OUTSIDE: turn(at.i, n->i / group, &outer, &inner), from.i = outer * group + inner; break;
    case NEXT_HEAD: from.i = (at.i + 1) % n->i; break;
    case PREVIOUS_HEAD: from.i = (at.i + n->i - 1) % n->i; break;
    case HEADS_REVERSED: from.i = n->i - 1 - at.i; break;
    case NEXT_BATCH_ROW: from.b = (at.b + 1) % n->b; break;
    case NEXT_ROW: from.t = (at.t + 1) % n->t; break;
    case PREVIOUS_ROW: from.t = (at.t + n->t - 1) % n->t; break;
    case ROWS_REVERSED: from.t = n->t - 1 - at.t; break;
    case HALVES_EXCHANGED: from.c = n->c % 2 ? at.c : (at.c + n->c / 2) % n->c; break;
    case PAIRS_EXCHANGED: from.c = n->c % 2 ? at.c : at.c ^ 1; break;
    case ONE_LATE_BY_HEAD:
    case ONE_LATE_BY_TIME: return one_before(n, how == ONE_LATE_BY_HEAD, at);
    }
    return from;
}

static bool next(const place *n, place *at)
{
    size_t *const digits[4] = {&at->c, &at->i, &at->t, &at->b};
    const size_t extents[4] = {n->c, n->i, n->t, n->b};
    for (int k = 0; k < 4; *digits[k++] = 0)
        if (++*digits[k] < extents[k])
            return true;
    return false;
}

static bool reorder(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    place n, at = {0};
    if (!extents_of(x, &n))
        return false;
    do {
        const place from = source_of((order)m->number, &n, x->b->r->plan.h_kv, at);
        x->to[index_of(&n, &at)] = ((const double *)x->from.data)[index_of(&n, &from)];
    } while (next(&n, &at));
    return true;
}

/* Rows written with the width of the other kind of rows, of memory (T, h), or (h, T) for `other` 1. */
static bool write_apart(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    const mha__sizes *p = &x->b->r->plan;
    place n, at = {0};
    if (!extents_of(x, &n) || x->gradient > MHA_D_VALUE || p->d_k == p->d_v || x->b->r->layer)
        return false;
    const size_t width = x->gradient == MHA_D_VALUE ? p->d_k : p->d_v, all = mha_view_elements(&x->from);
    for (size_t row = 0; row < all / n.c; row++) { /* in the order of memory: later rows overwrite earlier ones */
        for (at.c = 0; at.c < n.c; at.c++) {
            const size_t to = row * width + at.c, by_head = row % (n.t * n.i);
            at.b = row / (n.t * n.i);
            at.t = m->other > 0 ? by_head % n.t : by_head / n.i, at.i = m->other > 0 ? by_head / n.t : by_head % n.i;
            const size_t other_row = to / n.c % (n.t * n.i);
            const place stands = {to / n.c / (n.t * n.i), m->other > 0 ? other_row % n.t : other_row / n.i,
                                  m->other > 0 ? other_row / n.t : other_row % n.i, to % n.c, false};
            if (to < all)
                x->to[index_of(&n, &stands)] = ((const double *)x->from.data)[index_of(&n, &at)];
        }
    }
    return true;
}

/* ---------------------------------------------------------------- parts */

typedef enum part {
    FIRST_BATCH_ROW,
    LAST_BATCH_ROW,
    FIRST_HEAD,
    LAST_HEAD,
    FIRST_HALF,     /* of the features */
    OTHER_WIDTH,    /* as many features as the other kind of rows has */
    ALL_BUT_LAST,   /* rows */
    FULL_BLOCKS,    /* the rows of blocks of `other` that are full */
    BUT_LAST_BLOCK, /* of all blocks of `other` rows but the last */
    FIRST_BLOCK,
    FIRST_KEYS /* the first `other` keys, of a mask */
} part;

static bool is_in(part which, const mha__wrong_gradient *x, const place *n, const place *at, size_t block)
{
    const mha__sizes *p = &x->b->r->plan;
    switch (which) {
    case FIRST_BATCH_ROW: return at->b == 0;
    case LAST_BATCH_ROW: return at->b + 1 == n->b;
    case FIRST_HEAD: return at->i == 0;
    case LAST_HEAD: return at->i + 1 == n->i;
    case FIRST_HALF: return at->c < n->c / 2;
    case OTHER_WIDTH: return x->b->r->layer || at->c < (x->gradient == MHA_D_VALUE ? p->d_k : p->d_v);
    case ALL_BUT_LAST: return at->t + 1 < n->t;
    case FULL_BLOCKS: return at->t < n->t / block * block;
    case BUT_LAST_BLOCK: return at->t < (n->t - 1) / block * block;
    case FIRST_BLOCK: return at->t < block;
    case FIRST_KEYS: return at->c < block;
    }
    return true;
}

/* Zeros but in a part. */
static bool keep_part(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    place n, at = {0};
    bool any = false;
    if (!extents_of(x, &n) || ((part)m->number == FIRST_KEYS && x->gradient != MHA_D_MASK))
        return false;
    do {
        const bool kept = is_in((part)m->number, x, &n, &at, (size_t)m->other);
        any |= kept;
        if (kept)
            x->to[index_of(&n, &at)] = ((const double *)x->from.data)[index_of(&n, &at)];
    } while (next(&n, &at));
    return any; /* what keeps nothing has another name */
}

/* ---------------------------------------------------------------- sums */

typedef enum sum {
    OVER_BATCH, /* each batch row has the sum of all */
    UP_TO_HEAD, /* each head has those before it, too */
    UP_TO_BATCH_ROW,
    OVER_HEADS,
    OVER_GROUP, /* each head has the sum of those that share its keys */
    UP_TO_BLOCK /* each row has those at the same place in the blocks of `other` before it, too */
} sum;

/* A bias has names of its own for the rows that it is a sum of. */
static bool is_bias(const mha__wrong_gradient *x)
{
    const int weight = (int)x->gradient - MHA_D_WEIGHTS;
    return weight == MHA_B_Q || weight == MHA_B_K || weight == MHA_B_V;
}

static bool add_up(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    place n, at = {0};
    const sum how = (sum)m->number;
    const mha__sizes *p = &x->b->r->plan;
    const size_t group = p->h / p->h_kv, block = (size_t)m->other;
    if (!extents_of(x, &n) || is_bias(x) || (how == OVER_GROUP && n.i != p->h))
        return false;
    do {
        place from = at;
        size_t *moves = how == OVER_BATCH || how == UP_TO_BATCH_ROW ? &from.b : how == UP_TO_BLOCK ? &from.t : &from.i;
        const size_t end = how == OVER_BATCH   ? n.b
                           : how == OVER_HEADS ? n.i
                           : how == OVER_GROUP ? at.i / group * group + group
                                               : *moves + 1,
                     step = how == UP_TO_BLOCK ? block : 1;
        for (*moves = how == OVER_GROUP    ? at.i / group * group
                      : how == UP_TO_BLOCK ? at.t % block
                                           : 0;
             *moves < end; *moves += step)
            x->to[index_of(&n, &at)] += ((const double *)x->from.data)[index_of(&n, &from)];
    } while (next(&n, &at));
    return true;
}

/* ---------------------------------------------------------------- numbers that are found */

static double found_at(const mha__wrong_gradient *x, size_t e)
{
    size_t index[MHA_MAX_RANK] = {0};
    const mha_view *found = &x->b->given->of[x->gradient];
    for (int k = found->rank; k-- > 0; e /= found->shape[k])
        index[k] = e % found->shape[k];
    return mha_view_get(found, index);
}

/* The factor that brings what is right nearest to what was found; of the errors it is made likewise. */
static bool times_found(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    const mha_view *right = &x->right;
    double products = 0, squares = 0;
    (void)m;
    for (size_t e = 0; e < mha_view_elements(right); e++) {
        const double d = ((const double *)right->data)[e];
        products += d * found_at(x, e), squares += d * d;
    }
    const double f = products / squares;
    return mha_view_elements(right) > 1 && isfinite(f) && fabs(f - 1) > 0x1p-8 && times(x, f);
}

/* Rows of a head that are 0 where what is right is not, and right otherwise. */
static bool leave_rows_out(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    place n;
    bool any = false;
    (void)m;
    if (!extents_of(x, &n) || x->gradient > MHA_D_VALUE)
        return false;
    for (size_t row = 0; row < n.b * n.t * n.i; row++) {
        bool zero = true;
        for (size_t c = 0; c < n.c; c++)
            zero &= found_at(x, row * n.c + c) == 0;
        for (size_t c = 0; c < n.c && !zero; c++)
            x->to[row * n.c + c] = ((const double *)x->from.data)[row * n.c + c];
        any |= zero;
    }
    return any;
}

/* Features of all rows that are 0 where what is right is not, and right otherwise. */
static bool leave_features_out(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    place n;
    bool any = false, all = true;
    (void)m;
    if (!extents_of(x, &n) || x->gradient > MHA_D_VALUE)
        return false;
    for (size_t c = 0; c < n.c; c++) {
        bool zero = true;
        for (size_t row = 0; row < n.b * n.t * n.i; row++)
            zero &= found_at(x, row * n.c + c) == 0;
        for (size_t row = 0; row < n.b * n.t * n.i && !zero; row++)
            x->to[row * n.c + c] = ((const double *)x->from.data)[row * n.c + c];
        any |= zero, all &= zero;
    }
    return any && !all;
}

/* As times_found, a factor for each head of each batch row. */
static bool times_found_by_head(const mha__wrong_gradient *x, const mha__gradient_bug *m)
{
    place n;
    (void)m;
    if (!extents_of(x, &n) || x->gradient > MHA_D_VALUE || n.b * n.i < 2 || n.t * n.c < 16)
        return false;
    for (size_t of = 0; of < n.b * n.i; of++) {
        double products = 0, squares = 0;
        for (int fitted = 0; fitted < 2; fitted++)
            for (size_t e = 0; e < n.t * n.c; e++) {
                const size_t at = ((of / n.i * n.t + e / n.c) * n.i + of % n.i) * n.c + e % n.c;
                const double d = ((const double *)x->right.data)[at],
                             f = squares > 0 && isfinite(products) ? products / squares : 1;
                if (fitted == 0)
                    products += d * found_at(x, at), squares += d * d;
                else
                    x->to[at] = (x->sizes ? fabs(f) : f) * ((const double *)x->from.data)[at];
            }
    }
    return true;
}

/* clang-format off */
#define FACTOR(name, what, kind, power) \
    {{"result-" name, "the gradients that are wrong are right but for a factor: " what, false}, has_factor, \
        MHA__BACKWARD_INPUTS, NULL, kind, power, times_factor, 0}
#define ORDER(name, what, how) \
    {{"result-" name, "the gradients that are wrong " what, false}, NULL, MHA__BACKWARD_INPUTS, NULL, how, 0, \
        reorder, 0}
#define PART(name, what, which, block) \
    {{"result-" name, "the gradients that are wrong " what, false}, NULL, MHA__BACKWARD_INPUTS, NULL, which, block, \
        keep_part, 0}
#define BLOCKS(B) \
    PART("of-full-blocks-" #B, "are 0 in the rows behind the last full block of " #B, FULL_BLOCKS, B), \
    PART("without-last-block-" #B, "are 0 in the rows of the last block of " #B, BUT_LAST_BLOCK, B), \
    PART("of-first-block-" #B, "are 0 in all rows but the first block of " #B, FIRST_BLOCK, B)
#define SUM(name, what, how, block) \
    {{"result-" name, "the gradients that are wrong " what, false}, NULL, MHA__BACKWARD_INPUTS, NULL, how, block, \
        add_up, 0}
#define SUM_OF_BLOCKS(B) \
    SUM("added-to-previous-blocks-" #B, "begin, in each block of " #B " rows, at what the block before has: the " \
        "accumulator is not cleared", UP_TO_BLOCK, B)

static const mha__gradient_bug rows[] = {
    FACTOR("zero", "0", BY_NUMBER, 0),
    FACTOR("negated", "-1", BY_NUMBER, -1),
    FACTOR("scaled", "the scale", BY_SCALE, 1),
    FACTOR("over-scale", "1 / scale", BY_SCALE, -1),
    FACTOR("scaled-twice", "the square of the scale", BY_SCALE, 2),
    FACTOR("over-scale-twice", "1 / scale^2", BY_SCALE, -2),
    FACTOR("over-batch", "1 over the number of batch rows", BY_BATCH, -1),
    FACTOR("over-queries", "1 over the number of queries", BY_QUERIES, -1),
    FACTOR("over-keys", "1 over the number of keys", BY_KEYS, -1),
    FACTOR("over-rows", "1 over the number of queries of all batch rows", BY_ROWS, -1),
    FACTOR("over-heads", "1 over the number of heads", BY_HEADS, -1),
    FACTOR("over-group", "1 over the number of heads that share keys", BY_GROUP, -1),
    FACTOR("times-batch", "the number of batch rows", BY_BATCH, 1),
    FACTOR("times-group", "the number of heads that share keys", BY_GROUP, 1),
    FACTOR("times-cap", "the cap of the softcap", BY_CAP, 1),
    FACTOR("over-cap", "1 over the cap of the softcap", BY_CAP, -1),
    FACTOR("doubled", "2, as of what is added to itself", BY_NUMBER, 2),
    FACTOR("halved", "1/2", BY_NUMBER, 0.5),
    FACTOR("times-log2e", "log2(e), which belongs to the exponent", BY_NUMBER, 1.4426950408889634),
    FACTOR("times-ln2", "ln(2)", BY_NUMBER, 0.6931471805599453),
    ORDER("of-other-order-time", "are written as (batch, T, heads, width) and read as (batch, heads, T, width)",
          TIME_FIRST),
    ORDER("of-other-order-heads", "are written as (batch, heads, T, width) and read as (batch, T, heads, width)",
          HEADS_FIRST),
    ORDER("of-other-order-features", "are written as (width, T) of each head and read as (T, width)", FEATURES_FIRST),
    ORDER("of-other-order-rows", "are written as (T, width) of each head and read as (width, T)", ROWS_FIRST),
    ORDER("of-other-order-batch", "are written as (heads, batch) and read as (batch, heads)", BATCH_INSIDE),
    ORDER("of-other-order-batch-first", "are written as (batch, heads) and read as (heads, batch)", BATCH_OUTSIDE),
    ORDER("of-other-order-batch-time", "are written as (T, batch) and read as (batch, T)", BATCH_IN_TIME),
    ORDER("of-other-order-time-batch", "are written as (batch, T) and read as (T, batch)", TIME_IN_BATCH),
    ORDER("of-other-order-groups", "stand in the order of heads i mod h_kv, which share no keys", GROUPS_INSIDE),
    ORDER("of-other-order-groups-first", "stand in the order of groups, and are read by i mod h_kv", GROUPS_OUTSIDE),
    ORDER("of-next-head", "are those of the next head", NEXT_HEAD),
    ORDER("of-previous-head", "are those of the head before", PREVIOUS_HEAD),
    ORDER("of-heads-reversed", "have the heads in the reverse order", HEADS_REVERSED),
    ORDER("of-next-batch-row", "are those of the next batch row", NEXT_BATCH_ROW),
    ORDER("of-next-row", "are those of the next row", NEXT_ROW),
    ORDER("of-previous-row", "are those of the row before", PREVIOUS_ROW),
    ORDER("of-rows-reversed", "have the rows in the reverse order", ROWS_REVERSED),
    ORDER("of-halves-exchanged", "have the halves of the features exchanged", HALVES_EXCHANGED),
    ORDER("of-pairs-exchanged", "have neighbouring features exchanged", PAIRS_EXCHANGED),
    ORDER("one-late", "stand one number late in (batch, heads, T, width): a pointer is off by one", ONE_LATE_BY_HEAD),
    ORDER("one-late-time", "stand one number late in (batch, T, heads, width): a pointer is off by one",
          ONE_LATE_BY_TIME),
    {{"result-of-other-width-time",
      "the gradients that are wrong are written with the row width of the other kind, d_k for d_v or d_v for d_k, as "
      "(batch, T, heads)", false}, NULL, MHA__BACKWARD_INPUTS, NULL, 0, 0, write_apart, 0},
    {{"result-of-other-width-heads",
      "the gradients that are wrong are written with the row width of the other kind, d_k for d_v or d_v for d_k, as "
      "(batch, heads, T)", false}, NULL, MHA__BACKWARD_INPUTS, NULL, 0, 1, write_apart, 0},
    PART("of-first-batch-row", "are 0 behind the first batch row", FIRST_BATCH_ROW, 0),
    PART("of-last-batch-row", "are 0 but in the last batch row", LAST_BATCH_ROW, 0),
    PART("of-first-head", "are 0 behind the first head", FIRST_HEAD, 0),
    PART("of-last-head", "are 0 but in the last head", LAST_HEAD, 0),
    PART("of-first-half", "are 0 in the second half of the features", FIRST_HALF, 0),
    PART("of-fewer-features",
         "are 0 in the features that the other kind of rows does not have, d_k of d_v, or d_v of d_k", OTHER_WIDTH, 0),
    PART("without-last-row", "are 0 in the last row", ALL_BUT_LAST, 0),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    PART("of-first-keys-16", "are 0 behind the first 16 keys of a mask", FIRST_KEYS, 16),
    PART("of-first-keys-32", "are 0 behind the first 32 keys of a mask", FIRST_KEYS, 32),
    PART("of-first-keys-64", "are 0 behind the first 64 keys of a mask", FIRST_KEYS, 64),
    PART("of-first-keys-128", "are 0 behind the first 128 keys of a mask", FIRST_KEYS, 128),
    SUM("over-all-batch-rows", "are sums over the batch rows, the same in each", OVER_BATCH, 0),
    SUM("over-all-heads", "are sums over the heads, the same in each", OVER_HEADS, 0),
    SUM("added-to-previous-heads", "begin at what the head before has: the accumulator is not cleared", UP_TO_HEAD, 0),
    SUM("added-to-previous-batch-rows", "begin at what the batch row before has: the accumulator is not cleared",
        UP_TO_BATCH_ROW, 0),
    SUM("over-heads-of-group", "are sums over the heads that share keys, the same in each", OVER_GROUP, 0),
    SUM_OF_BLOCKS(16), SUM_OF_BLOCKS(32), SUM_OF_BLOCKS(64), SUM_OF_BLOCKS(128),
    {{"result-of-some-rows", "the gradients that are wrong are 0 in some rows, and right in the others", true}, NULL,
        MHA__BACKWARD_INPUTS, NULL, 0, 0, leave_rows_out, 0},
    {{"result-of-some-features", "the gradients that are wrong are 0 in some features, and right in the others", true},
        NULL, MHA__BACKWARD_INPUTS, NULL, 0, 0, leave_features_out, 0},
    {{"result-times-a-number", "the gradients that are wrong are right but for a factor, one number for each", true},
        NULL, MHA__BACKWARD_INPUTS, NULL, 0, 0, times_found, 0},
    {{"result-times-a-number-by-head",
      "the gradients that are wrong are right but for a factor, one number for each head of a batch row", true}, NULL,
        MHA__BACKWARD_INPUTS, NULL, 0, 0, times_found_by_head, 0},
};
/* clang-format on */

mha__gradient_bug_list mha__gradient_bugs_of_results(void)
{
    return (mha__gradient_bug_list){rows, COUNT(rows)};
}
