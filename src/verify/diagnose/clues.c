/* Finds relations of a tensor and the case from which it differs: a factor, a vector, exchanged indices. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/clues.h"
#include "verify/thresholds/thresholds.h"

/* ---------------------------------------------------------------- factors */

/* Least squares y = a x over part of a grid; *fits: rounding explains what is left, which moves a, too. */
static double factor_of(const mha__grid *g, const size_t from[4], const size_t n[4], bool *fits)
{
    double xx = 0, xy = 0;
    *fits = true;
    for (int pass = 0; pass < 2 && *fits; pass++) {
        size_t i[4] = {0};
        do {
            const double x = mha__grid_x(g, from[0] + i[0], from[1] + i[1], from[2] + i[2], from[3] + i[3]);
            const double y = mha__grid_y(g, from[0] + i[0], from[1] + i[1], from[2] + i[2], from[3] + i[3]);
            if (pass == 0)
                xx += x * x, xy += x * y;
            else
                *fits &= fabs(y - xy / xx * x) <= MHA__CLUE_ROUNDINGS * fmax(1, fabs(xy / xx)) * mha__grid_limit(g, y);
        } while (mha__index_next(i, n, 4));
    }
    return xx > 0 ? xy / xx : 1;
}

/* Whether the whole is one multiple; else, whether each row of each head is. */
static bool add_factors(const mha__grid *g, mha__clue_list *list)
{
    bool fits;
    const double whole = factor_of(g, (const size_t[4]){0}, g->n, &fits);
    if (fits && whole != 1) {
        /* what is left of a tensor of zeros is its rounding */
        mha__clue_add(list, (mha_clue){.kind = MHA_CLUE_FACTOR, .factor = {fabs(whole) < 1e-12 ? 0 : whole}});
        return true;
    }
    double least = INFINITY, most = -INFINITY;
    for (size_t b = 0; b < g->n[0] && g->n[3] > 2; b++)
        for (size_t h = 0; h < g->n[1]; h++)
            for (size_t t = 0; t < g->n[2]; t++) {
                const size_t from[] = {b, h, t, 0}, n[] = {1, 1, 1, g->n[3]};
                const double factor = factor_of(g, from, n, &fits);
                if (!fits)
                    return false;
                least = fmin(least, factor), most = fmax(most, factor);
            }
    if (!(least < most))
        return false;
    mha__clue_add(list, (mha_clue){.kind = MHA_CLUE_ROW_FACTORS, .factor = {least, most}});
    return true;
}

/* ---------------------------------------------------------------- one vector */

static bool add_vector(const mha__grid *g, mha__clue_list *list)
{
    const size_t all = g->n[0] * g->n[2];
    size_t rows = 0;
    for (size_t r = 0; r < all; r++)
        rows += !g->target->rows_present || g->target->rows_present[r];
    if (rows < 3)
        return false;
    for (size_t h = 0; h < g->n[1]; h++)
        for (size_t f = 0; f < g->n[3]; f++) {
            double mean = 0, rounding = 0;
            for (int pass = 0; pass < 2; pass++)
                for (size_t r = 0; r < all; r++) {
                    if (g->target->rows_present && !g->target->rows_present[r])
                        continue;
                    const size_t b = r / g->n[2], t = r % g->n[2];
                    const double y = mha__grid_y(g, b, h, t, f), moved = y - mha__grid_x(g, b, h, t, f);
                    if (pass == 0)
                        mean += moved / (double)rows, rounding += mha__grid_limit(g, y) / (double)rows;
                    else if (!(fabs(moved - mean) <= mha__grid_limit(g, y) + rounding))
                        return false;
                }
        }
    mha__clue_add(list, (mha_clue){.kind = MHA_CLUE_VECTOR});
    return true;
}

/* ---------------------------------------------------------------- changed places */

/* Whether index i of an axis of the tensor is index j of the case. */
static bool is_moved(const mha__grid *g, int axis, size_t i, size_t j)
{
    size_t n[4] = {g->n[0], g->n[1], g->n[2], g->n[3]}, at[4] = {0};
    n[axis] = 1;
    do {
        size_t x[4] = {at[0], at[1], at[2], at[3]}, y[4] = {at[0], at[1], at[2], at[3]};
        x[axis] = j, y[axis] = i;
        if (!mha__grid_agrees(g, mha__grid_x(g, x[0], x[1], x[2], x[3]), mha__grid_y(g, y[0], y[1], y[2], y[3])))
            return false;
    } while (mha__index_next(at, n, 4));
    return true;
}

/* Names the batch rows or heads that replace another one and are not right at their own index. */
static void add_moved(const mha__grid *g, int axis, mha__clue_list *list)
{
    for (size_t i = 0; i < g->n[axis]; i++)
        for (size_t j = 0; j < g->n[axis] && !is_moved(g, axis, i, i); j++)
            if (is_moved(g, axis, i, j)) {
                mha__clue_add(list, (mha_clue){.kind = MHA_CLUE_MOVED,
                                               .axis = (mha_clue_axis)axis,
                                               .first = i,
                                               .last = j,
                                               .extent = g->n[axis]});
                break;
            }
}

/* Whether row i is row i + shift of the case for all rows that have one. */
static bool is_shifted(const mha__grid *g, ptrdiff_t shift)
{
    const ptrdiff_t T = (ptrdiff_t)g->n[2];
    bool wrong = false;
    for (ptrdiff_t i = shift < 0 ? -shift : 0; i < T && i + shift < T; i++) {
        if (!is_moved(g, 2, (size_t)i, (size_t)(i + shift)))
            return false;
        wrong |= !is_moved(g, 2, (size_t)i, (size_t)i);
    }
    return wrong;
}

static void add_row_order(const mha__grid *g, mha__clue_list *list)
{
    const size_t T = g->n[2];
    const ptrdiff_t most = T / 2 < 64 ? (ptrdiff_t)(T / 2) : 64;
    bool reversed = T > 1;
    for (size_t i = 0; i < T && reversed; i++)
        reversed = is_moved(g, 2, i, T - 1 - i);
    if (reversed)
        mha__clue_add(list, (mha_clue){.kind = MHA_CLUE_REVERSED, .axis = MHA_CLUE_ROWS, .extent = T});
    for (ptrdiff_t s = 1; s <= most && !reversed; s++)
        for (int sign = -1; sign <= 1; sign += 2)
            if (is_shifted(g, sign * s)) {
                mha__clue_add(
                    list, (mha_clue){.kind = MHA_CLUE_SHIFTED, .axis = MHA_CLUE_ROWS, .shift = sign * s, .extent = T});
                return;
            }
}

/* ---------------------------------------------------------------- all of them */

/* Whether the difference is far above rounding, and all numbers are finite. */
static bool is_clear(const mha__grid *g, bool *finite)
{
    size_t at[4] = {0};
    bool found = false;
    *finite = true;
    do {
        const double x = mha__grid_x(g, at[0], at[1], at[2], at[3]), y = mha__grid_y(g, at[0], at[1], at[2], at[3]);
        *finite &= isfinite(x) && isfinite(y);
        found |= fabs(x - y) > MHA__CLEAR * mha__grid_limit(g, y) && !mha__search_same(g->target, x, y);
    } while (mha__index_next(at, g->n, 4));
    return found;
}

/* Adds what connects the two: a factor, a vector, indices that changed places. */
static void add_relations(const mha__grid *g, mha__clue_list *list)
{
    bool finite;
    if (!is_clear(g, &finite))
        return;
    if (finite && (add_factors(g, list) || add_vector(g, list)))
        return;
    add_moved(g, 0, list);
    add_moved(g, 1, list);
    add_row_order(g, list);
}

/* The tensor as a grid. Heads have an axis of their own, or are parts of a row, or W_O mixes them. */
static mha__grid grid_of(const mha__search *s, int level)
{
    const mha__target *t = &s->target;
    const mha_case *c = s->c;
    size_t shape[4], heads = 1;
    const int rank = mha__run_shape(s->inputs, t->stage, shape);
    const bool lse = t->stage == MHA_STAGE_LSE, by_head = rank == 4 || lse;
    if (t->stage == MHA_STAGE_Q || t->stage == MHA_STAGE_Q_ROT || t->stage == MHA_STAGE_HEADS ||
        (t->stage == MHA_STAGE_OUTPUT && c->kind != CASE_MHA))
        heads = c->H;
    else if (t->stage == MHA_STAGE_K || t->stage == MHA_STAGE_K_ROT || t->stage == MHA_STAGE_V)
        heads = c->H_kv;
    const size_t rows = by_head ? shape[2] : shape[1], recorded = lse ? 1 : t->recorded_columns,
                 width = lse         ? 1
                         : rank == 4 ? shape[3]
                                     : shape[2] / heads;
    return (mha__grid){
        .target = t,
        .n = {shape[0], by_head ? shape[1] : heads, rows, by_head || heads == 1 ? recorded : width},
        .xs = {t->row, by_head ? rows * width : width, by_head ? width : width * heads, 1},
        .ys = {t->row / t->columns * t->recorded_columns, by_head ? rows * recorded : width, recorded, 1},
        .x = s->unmodified.whole,
        .y = t->values,
        .level = level,
    };
}

mha_status mha__search_clues(const mha__search *s, mha_diagnosis *d, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    mha__clue_list list = {0};
    mha_status status = MHA_OK;
    for (int level = s->target.wide && !s->in_part; level >= 0 && list.count == 0 && status == MHA_OK; level--) {
        const mha__grid g = grid_of(s, level);
        if (mha__clues_of_places(&g, &list) == 0)
            continue;
        add_relations(&g, &list);
        status = mha__clues_of_heads(s, &g, &list, error);
    }
    if (status == MHA_OK && list.count > 0)
        d->clues = mha__allocate(&a, list.count * sizeof *d->clues);
    list.full |= list.count > 0 && !d->clues;
    if (d->clues)
        memcpy(d->clues, list.clues, (d->clue_count = list.count) * sizeof *d->clues);
    mha__release(&a, list.clues, list.room * sizeof *list.clues);
    if (status == MHA_OK && list.full)
        return mha__search_no_memory(s, error);
    return status;
}
