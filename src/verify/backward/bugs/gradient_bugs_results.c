/* Bugs of what goes out: gradients that are right but for a factor, in another order, or in part. Each
 * is that of all gradients that somebody has wrong. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/thresholds/thresholds.h"

/* Sums over an axis: of all elements, of a group, or of those up to this one, `step` apart. */
enum { SUM, SUM_OF_GROUP, PREFIX };
/* Factors that are found, for each index of a set of axes (bits of `readers`): 0 or 1,
            as what was found is 0 or not. */
enum { ZERO_OR_ONE, LEAST_SQUARES };
enum { EACH_ROW = 1 << MHA__B | 1 << MHA__T | 1 << MHA__H, EACH_FEATURE = 1 << MHA__C,
       EACH_HEAD = 1 << MHA__B | 1 << MHA__H };

/* The extents of a gradient of rows, of a mask, or of what each head has a row of; false: it is no such gradient. */
static bool extents_of(const mha__wrong_gradient *x, mha__extents *n)
{
    const size_t *shape = x->from.shape;
    const int rank = x->from.rank, weight = (int)x->gradient - MHA_D_WEIGHTS;
    const mha__resolved *r = x->b->r;
    const mha__sizes *p = &r->plan;
    const size_t T = x->gradient == MHA_D_QUERY ? r->query.shape[1] : r->key.shape[1];
    *n = (mha__extents){.order = x->gradient == MHA_D_MASK ? MHA__BHTC : MHA__BTHC,
                        .width = r->layer ? SIZE_MAX : x->gradient == MHA_D_VALUE ? p->d_k : p->d_v};
    if (x->gradient <= MHA_D_VALUE && rank == 4)
        memcpy(n->n, shape, sizeof n->n);
    else if (T > 0 && x->gradient <= MHA_D_VALUE) /* of an input of a layer */
        memcpy(n->n, (const size_t[]){shape[0] / T, T, 1, shape[1]}, sizeof n->n);
    else if (x->gradient == MHA_D_MASK && rank >= 2)
        memcpy(n->n, (const size_t[]){rank > 3 ? shape[0] : 1, shape[rank - 2], rank > 2 ? shape[rank - 3] : 1,
                                      shape[rank - 1]}, sizeof n->n);
    else if (x->gradient == MHA_D_ALIBI_SLOPES || weight == MHA_SINKS)
        memcpy(n->n, (const size_t[]){1, 1, shape[0], 1}, sizeof n->n);
    else if (!r->layer && (weight == MHA_B_Q || weight == MHA_B_K || weight == MHA_B_V))
        memcpy(n->n, (const size_t[]){1, 1, weight == MHA_B_Q ? p->h : p->h_kv, weight == MHA_B_V ? p->d_v : p->d_k},
               sizeof n->n);
    else
        return false;
    n->group = n->n[MHA__H] > p->h_kv ? n->n[MHA__H] / p->h_kv : 1;
    return mha_view_elements(&x->from) > 0;
}

/* Whether a gradient has what a mutation changes. */
static bool has(const mha__wrong_gradient *x, const mha__mutation *m, const mha__extents *n)
{
    const int weight = (int)x->gradient - MHA_D_WEIGHTS;
    if (m->op == MHA__OUT_TO)
        return x->gradient <= MHA_D_VALUE && !x->b->r->layer && mha__map_moves(m, n);
    if (m->op == MHA__OUT_KEEPS) /* keys of a mask have blocks, features have none */
        return m->axis != MHA__C || m->arg != MHA__IN_FIRST_BLOCK || x->gradient == MHA_D_MASK;
    if (m->op == MHA__OUT_OVER) /* a bias has names of its own for the rows that it is a sum of */
        return weight != MHA_B_Q && weight != MHA_B_K && weight != MHA_B_V &&
               (m->arg != SUM_OF_GROUP || n->n[MHA__H] == x->b->r->plan.h);
    return true;
}

static double sum_over(const mha__mutation *m, const mha__extents *n, const double *from, mha__element at)
{
    size_t *const i = &at.at[m->axis];
    const size_t step = m->step > 0 ? (size_t)m->step : 1, of_group = *i / n->group * n->group,
                 end = m->arg == SUM ? n->n[m->axis] : m->arg == SUM_OF_GROUP ? of_group + n->group : *i + 1;
    double sum = 0;
    for (*i = m->arg == SUM ? 0 : m->arg == SUM_OF_GROUP ? of_group : *i % step; *i < end; *i += step)
        sum += from[mha__join(n, n->order, at)];
    return sum;
}

/* Makes of a gradient, or of its errors, element by element what a bug does. */
static bool change(const mha__wrong_gradient *x, const mha__mutation *m)
{
    const double *from = x->from.data;
    const size_t all = mha_view_elements(&x->from);
    mha__extents n;
    bool any = false;
    if (!extents_of(x, &n) || !has(x, m, &n))
        return false;
    const size_t block = m->arg == MHA__OTHER_WIDTH ? n.width : (size_t)m->step;
    for (size_t e = 0; e < all; e++) {
        const mha__element at = mha__split(&n, m->op == MHA__OUT_TO ? m->read : n.order, e);
        const size_t here = m->op == MHA__OUT_TO ? mha__join(&n, n.order, at) : e;
        const mha__element other = m->op == MHA__OUT_FROM || m->op == MHA__OUT_TO ? mha__map_element(m, &n, at) : at;
        const size_t there = m->op == MHA__OUT_FROM || m->op == MHA__OUT_TO ? mha__join(&n, n.order, other) : e;
        if (m->op == MHA__OUT_TO && other.at[MHA__B] < n.n[MHA__B]) /* later rows overwrite earlier ones */
            x->to[there] = from[here];
        else if (m->op == MHA__OUT_FROM)
            x->to[here] = from[there];
        else if (m->op == MHA__OUT_OVER)
            x->to[here] = sum_over(m, &n, from, at);
        else if (m->op == MHA__OUT_KEEPS && mha__part_has((mha__axis_part)m->arg, block, at.at[m->axis], n.n[m->axis]))
            x->to[here] = from[here], any = true;
    }
    return m->op != MHA__OUT_KEEPS || any; /* a result of zeros has another name */
}

static void multiply(const mha__wrong_gradient *x, size_t e, double f)
{
    x->to[e] = (x->sizes ? fabs(f) : f) * ((const double *)x->from.data)[e];
}

static double element_at(const mha_view *of, size_t e)
{
    size_t index[MHA_MAX_RANK] = {0};
    for (int k = of->rank; k-- > 0; e /= of->shape[k])
        index[k] = e % of->shape[k];
    return mha_view_get(of, index);
}

static double found_at(const mha__wrong_gradient *x, size_t e)
{
    return element_at(&x->b->given->of[x->gradient], e);
}

/* ---------------------------------------------------------------- other tensors of the same size */

/* The right gradient that is nearest to what was found; NULL: none is of its size. */
static const mha_view *nearest(const mha__wrong_gradient *x)
{
    const size_t all = mha_view_elements(&x->from);
    const mha_view *found = NULL;
    double least = INFINITY;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *of = mha__backward_result(x->b, g);
        double off = 0;
        if (g == (int)x->gradient || !of->data || mha_view_elements(of) != all)
            continue;
        for (size_t e = 0; e < all; e++)
            off += fabs(element_at(of, e) - found_at(x, e));
        if (off < least)
            least = off, found = of;
    }
    return found;
}

/* Gradients are those of another tensor, or begin at what is in their buffer: rows of a tensor that was given. */
static bool take(const mha__wrong_gradient *x, const mha__mutation *m)
{
    const mha__resolved *r = x->b->r;
    const mha_view *const given[] = {&r->query, &r->key, &r->value}, *of = m->read ? &x->b->given->d_output : NULL;
    if (m->op == MHA__OUT_OTHER)
        of = nearest(x);
    else if (!of && x->gradient <= MHA_D_VALUE)
        of = given[x->gradient];
    if (!of || !of->data || mha_view_elements(of) != mha_view_elements(&x->from))
        return false;
    for (size_t e = 0; e < mha_view_elements(of); e++)
        x->to[e] = (x->sizes || m->op == MHA__OUT_PLUS ? ((const double *)x->from.data)[e] : 0) +
                   (x->sizes ? 0 : element_at(of, e));
    return true;
}

/* ---------------------------------------------------------------- factors that are found */

/* Element e of those that have factors of their own: its index along a set of axes. */
static size_t factor_at(const mha__extents *n, unsigned axes, size_t e)
{
    const mha__element at = mha__split(n, n->order, e);
    size_t index = 0;
    for (int k = 0; k < 4; k++)
        index = axes >> k & 1 ? index * n->n[k] + at.at[k] : index;
    return index;
}

/* The sums of which the factors are made, and the factors. False: they explain nothing. */
static bool find_factors(const mha__wrong_gradient *x, const mha__mutation *m, const mha__extents *n, double *factors,
                         double *squares, size_t count)
{
    const size_t all = mha__elements(n);
    bool any = false, each = true;
    for (size_t e = 0; e < all; e++) {
        const size_t k = factor_at(n, m->readers, e);
        const double right = ((const double *)x->right.data)[e], found = found_at(x, e);
        factors[k] += m->arg == ZERO_OR_ONE ? found != 0 : right * found, squares[k] += right * right;
    }
    for (size_t k = 0; k < count; k++) {
        const double f = factors[k] / squares[k];
        factors[k] = m->arg == ZERO_OR_ONE ? factors[k] != 0 : isfinite(f) || count == 1 ? f : 1;
        any |= factors[k] == 0, each &= factors[k] == 0;
    }
    if (m->arg == ZERO_OR_ONE)
        return any && !(each && m->readers == EACH_FEATURE);
    return count > 1 ? all / count >= 16 : all > 1 && isfinite(*factors) && fabs(*factors - 1) > MHA__FACTOR_APART;
}

/* Gradients times the factors that bring what is right nearest to what was found; errors likewise. */
static bool fit(const mha__wrong_gradient *x, const mha__mutation *m)
{
    const mha_allocator a = mha__allocator_default();
    const size_t all = mha_view_elements(&x->from);
    mha__extents n = {{1, 1, 1, all}, MHA__BTHC, 1, 1};
    size_t count = 1;
    if (m->readers && (!extents_of(x, &n) || x->gradient > MHA_D_VALUE))
        return false;
    for (int k = 0; k < 4; k++)
        count *= m->readers >> k & 1 ? n.n[k] : 1;
    double *factors = m->readers == EACH_HEAD && count < 2 ? NULL : mha__allocate(&a, 2 * count * sizeof *factors);
    if (!factors)
        return false;
    memset(factors, 0, 2 * count * sizeof *factors);
    const bool found = find_factors(x, m, &n, factors, factors + count, count);
    for (size_t e = 0; e < all && found; e++) {
        const double f = factors[factor_at(&n, m->readers, e)];
        if (m->arg != ZERO_OR_ONE || f != 0)
            multiply(x, e, f);
    }
    mha__release(&a, factors, 2 * count * sizeof *factors);
    return found;
}

bool mha__change_result(const mha__wrong_gradient *x, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    if (bug->result)
        return bug->result(x, bug);
    if (m->op == MHA__OUT_SUMS)
        return mha__sum_of_rows(x, m);
    if (m->op == MHA__OUT_OTHER || m->op == MHA__OUT_PLUS)
        return take(x, m);
    for (size_t e = 0; m->op == MHA__OUT_TIMES && e < mha_view_elements(&x->from); e++)
        multiply(x, e, mha__factor(m, x->b->r));
    return m->op == MHA__OUT_FITS ? fit(x, m) : m->op == MHA__OUT_TIMES || change(x, m);
}

/* clang-format off */
#define ROW(name, what, wide, operator, ...) \
    {.shown = {"result-" name, "the gradients that are wrong " what, wide}, .step = MHA__BACKWARD_INPUTS, \
        .mutation = {.op = MHA__OUT_##operator, __VA_ARGS__}}
#define FACTOR(name, what, base, power) \
    ROW(name, "are right but for a factor: " what, false, TIMES, .arg = MHA__##base, .number = power)
#define ORDER(name, what, ...) ROW(name, what, false, FROM, __VA_ARGS__)
#define APART(name, order, as) \
    ROW(name, "are written with the row width of the other kind, d_k for d_v or d_v for d_k, as " as, false, TO, \
        MHA__IN_ORDER(WIDTH, order))
#define PART(name, what, ...) ROW(name, what, false, KEEPS, __VA_ARGS__)
#define BLOCKS(B) \
    PART("of-full-blocks-" #B, "are 0 in the rows behind the last full block of " #B, MHA__BY(FULL_BLOCKS, T, B)), \
    PART("without-last-block-" #B, "are 0 in the rows of the last block of " #B, MHA__BY(BUT_LAST_BLOCK, T, B)), \
    PART("of-first-block-" #B, "are 0 in all rows but the first block of " #B, MHA__BY(IN_FIRST_BLOCK, T, B))
#define KEYS(B) PART("of-first-keys-" #B, "are 0 behind the first " #B " keys of a mask", MHA__BY(IN_FIRST_BLOCK, C, B))
#define SUM_OVER(name, what, how, Axis, by) \
    ROW(name, what, false, OVER, .arg = how, .axis = MHA__##Axis, .step = by)
#define SUM_OF_BLOCKS(B) \
    SUM_OVER("added-to-previous-blocks-" #B, "begin, in each block of " #B " rows, at what the block before has: the " \
             "accumulator is not cleared", PREFIX, T, B)
#define FOUND(name, what, how, each) ROW(name, what, true, FITS, .arg = how, .readers = each)

static const mha__gradient_bug rows[] = {
    FACTOR("zero", "0", NUMBER, 0),
    FACTOR("negated", "-1", NUMBER, -1),
    FACTOR("scaled", "the scale", SCALE, 1),
    FACTOR("over-scale", "1 / scale", SCALE, -1),
    FACTOR("scaled-twice", "the square of the scale", SCALE, 2),
    FACTOR("over-scale-twice", "1 / scale^2", SCALE, -2),
    FACTOR("over-batch", "1 over the number of batch rows", BATCH, -1),
    FACTOR("over-queries", "1 over the number of queries", QUERIES, -1),
    FACTOR("over-keys", "1 over the number of keys", KEYS, -1),
    FACTOR("over-rows", "1 over the number of queries of all batch rows", ROWS, -1),
    FACTOR("over-heads", "1 over the number of heads", HEADS, -1),
    FACTOR("over-group", "1 over the number of heads that share keys", GROUP_SIZE, -1),
    FACTOR("times-batch", "the number of batch rows", BATCH, 1),
    FACTOR("times-group", "the number of heads that share keys", GROUP_SIZE, 1),
    FACTOR("times-cap", "the cap of the softcap", CAP, 1),
    FACTOR("over-cap", "1 over the cap of the softcap", CAP, -1),
    FACTOR("doubled", "2, as of what is added to itself", NUMBER, 2),
    FACTOR("halved", "1/2", NUMBER, 0.5),
    FACTOR("times-log2e", "log2(e), which belongs to the exponent", NUMBER, MHA__LOG2_E),
    FACTOR("times-ln2", "ln(2)", NUMBER, MHA__LN_2),
    ORDER("of-other-order-time", "are written as (batch, T, heads, width) and read as (batch, heads, T, width)",
          MHA__READ_AS(BHTC, BTHC)),
    ORDER("of-other-order-heads", "are written as (batch, heads, T, width) and read as (batch, T, heads, width)",
          MHA__READ_AS(BTHC, BHTC)),
    ORDER("of-other-order-features", "are written as (width, T) of each head and read as (T, width)",
        MHA__READ_AS(BHTC, BHCT)),
    ORDER("of-other-order-rows", "are written as (T, width) of each head and read as (width, T)",
        MHA__READ_AS(BHCT, BHTC)),
    ORDER("of-other-order-batch", "are written as (heads, batch) and read as (batch, heads)", MHA__READ_AS(BHTC, HBTC)),
    ORDER("of-other-order-batch-first", "are written as (batch, heads) and read as (heads, batch)",
        MHA__READ_AS(HBTC, BHTC)),
    ORDER("of-other-order-batch-time", "are written as (T, batch) and read as (batch, T)", MHA__READ_AS(BTHC, TBHC)),
    ORDER("of-other-order-time-batch", "are written as (batch, T) and read as (T, batch)", MHA__READ_AS(TBHC, BTHC)),
    ORDER("of-other-order-groups", "stand in the order of heads i mod h_kv, which share no keys",
        MHA__BY(GROUPS_INSIDE, H, 0)),
    ORDER("of-other-order-groups-first", "stand in the order of groups, and are read by i mod h_kv",
        MHA__BY(GROUPS_OUTSIDE, H, 0)),
    ORDER("of-next-head", "are those of the next head", MHA__NEXT(H)),
    ORDER("of-previous-head", "are those of the head before", MHA__PREVIOUS(H)),
    ORDER("of-heads-reversed", "have the heads in the reverse order", MHA__BY(REVERSED, H, 0)),
    ORDER("of-next-batch-row", "are those of the next batch row", MHA__NEXT(B)),
    ORDER("of-next-row", "are those of the next row", MHA__NEXT(T)),
    ORDER("of-previous-row", "are those of the row before", MHA__PREVIOUS(T)),
    ORDER("of-rows-reversed", "have the rows in the reverse order", MHA__BY(REVERSED, T, 0)),
    ORDER("of-halves-exchanged", "have the halves of the features exchanged", MHA__BY(HALVES, C, 0)),
    ORDER("of-pairs-exchanged", "have neighbouring features exchanged", MHA__BY(PAIRS, C, 0)),
    ORDER("one-late", "stand one number late in (batch, heads, T, width): a pointer is off by one",
        MHA__IN_ORDER(ONE_LATE, BHTC)),
    ORDER("one-late-time", "stand one number late in (batch, T, heads, width): a pointer is off by one",
          MHA__IN_ORDER(ONE_LATE, BTHC)),
    APART("of-other-width-time", BTHC, "(batch, T, heads)"),
    APART("of-other-width-heads", BHTC, "(batch, heads, T)"),
    PART("of-first-batch-row", "are 0 behind the first batch row", MHA__BY(THE_FIRST, B, 0)),
    PART("of-last-batch-row", "are 0 but in the last batch row", MHA__BY(THE_LAST, B, 0)),
    PART("of-first-head", "are 0 behind the first head", MHA__BY(THE_FIRST, H, 0)),
    PART("of-last-head", "are 0 but in the last head", MHA__BY(THE_LAST, H, 0)),
    PART("of-first-half", "are 0 in the second half of the features", MHA__BY(FIRST_HALF, C, 0)),
    PART("of-fewer-features",
         "are 0 in the features that the other kind of rows does not have, d_k of d_v, or d_v of d_k",
             MHA__BY(OTHER_WIDTH, C, 0)),
    PART("without-last-row", "are 0 in the last row", MHA__BY(BUT_LAST, T, 0)),
    BLOCKS(16), BLOCKS(32), BLOCKS(64), BLOCKS(128),
    KEYS(16), KEYS(32), KEYS(64), KEYS(128),
    SUM_OVER("over-all-batch-rows", "are sums over the batch rows, the same in each", SUM, B, 1),
    SUM_OVER("over-all-heads", "are sums over the heads, the same in each", SUM, H, 1),
    SUM_OVER("added-to-previous-heads", "begin at what the head before has: the accumulator is not cleared",
        PREFIX, H, 1),
    SUM_OVER("added-to-previous-batch-rows", "begin at what the batch row before has: the accumulator is not cleared",
             PREFIX, B, 1),
    SUM_OVER("over-heads-of-group", "are sums over the heads that share keys, the same in each", SUM_OF_GROUP, H, 1),
    SUM_OF_BLOCKS(16), SUM_OF_BLOCKS(32), SUM_OF_BLOCKS(64), SUM_OF_BLOCKS(128),
    ROW("of-another", "are those of another tensor of their size", false, OTHER, 0),
    ROW("begin-at-input", "begin at the rows of their input: a buffer is not cleared", false, PLUS, .read = 0),
    ROW("begin-at-do", "begin at the rows of dO: a buffer is not cleared", false, PLUS, .read = 1),
    FOUND("of-some-rows", "are 0 in some rows, and right in the others", ZERO_OR_ONE, EACH_ROW),
    FOUND("of-some-features", "are 0 in some features, and right in the others", ZERO_OR_ONE, EACH_FEATURE),
    FOUND("times-a-number", "are right but for a factor, one number for each", LEAST_SQUARES, 0),
    FOUND("times-a-number-by-head", "are right but for a factor, one number for each head of a batch row",
        LEAST_SQUARES,
          EACH_HEAD),
};
MHA__GRADIENT_BUGS(results)
/* clang-format on */
