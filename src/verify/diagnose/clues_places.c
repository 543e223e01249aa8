/* Where a tensor differs from the case: which batch rows, heads, rows and columns; and the sentences of all clues. */
#include <math.h>

#include "attention/call/resolved.h"
#include "base/base.h"
#include "lab/lab.h"
#include "verify/diagnose/clues.h"

/* ---------------------------------------------------------------- sentences */

static const char *const axis_names[] = {"batch row", "head", "row", "key", "column"};
static const char *const axis_plurals[] = {"batch rows", "heads", "rows", "keys", "columns"};

const char *mha_clue_kind_name(mha_clue_kind kind)
{
    static const char *const names[] = {"range",       "every", "nonfinite", "factor",  "vector",
                                        "row factors", "moved", "shifted",   "reversed"};
    return mha__name_at(names, sizeof names / sizeof *names, (size_t)kind);
}

const char *mha_clue_axis_name(mha_clue_axis axis)
{
    return mha__name_at(axis_names, sizeof axis_names / sizeof *axis_names, (size_t)axis);
}

static void write_range(const mha_clue *c, const char *one, const char *many, char *text, size_t size)
{
    if (c->first == c->last)
        mha__text_print(text, size, "only %s %zu differs", one, c->first);
    else if (c->last + 1 == c->extent)
        mha__text_print(text, size, "the %s up to %s %zu agree", many, one, c->first - 1);
    else if (c->first == 0)
        mha__text_print(text, size, "the %s from %s %zu on agree", many, one, c->last + 1);
    else
        mha__text_print(text, size, "only %s %zu to %zu differ", many, c->first, c->last);
}

char *mha_clue_text(const mha_clue *c, char *text, size_t size)
{
    const char *one = mha_clue_axis_name(c->axis);
    const char *many = mha__name_at(axis_plurals, sizeof axis_plurals / sizeof *axis_plurals, (size_t)c->axis);
    switch (c->kind) {
    case MHA_CLUE_RANGE: write_range(c, one, many, text, size); break;
    case MHA_CLUE_EVERY:
        mha__text_print(text, size, "one %s of %zu differs, from %s %zu on", one, c->step, one, c->first);
        break;
    case MHA_CLUE_NONFINITE:
        mha__text_print(text, size, "only elements differ that are NaN or infinite on one side: %zu of %zu", c->first,
                        c->extent);
        break;
    case MHA_CLUE_FACTOR:
        if (c->factor[0] == 0)
            mha__text_print(text, size, "it is zero throughout");
        else
            mha__text_print(text, size, "it is what the case says times %.4g", c->factor[0]);
        break;
    case MHA_CLUE_VECTOR:
        mha__text_print(text, size, "the difference is one vector, the same in every row, as a bias makes it");
        break;
    case MHA_CLUE_ROW_FACTORS:
        mha__text_print(text, size,
                        "each row of each head is what the case says times a number of its own, from %.4g to %.4g, as "
                        "weights make it that do not add up to 1",
                        c->factor[0], c->factor[1]);
        break;
    case MHA_CLUE_MOVED:
        mha__text_print(text, size, "%s %zu is %s %zu of the case", one, c->first, one, c->last);
        break;
    case MHA_CLUE_SHIFTED:
        mha__text_print(text, size, "%s i is %s i %c %zu of the case", one, one, c->shift < 0 ? '-' : '+',
                        (size_t)(c->shift < 0 ? -c->shift : c->shift));
        break;
    case MHA_CLUE_REVERSED: mha__text_print(text, size, "the %s are those of the case in reverse order", many); break;
    default: mha__text_print(text, size, "?"); break;
    }
    return text;
}

/* ---------------------------------------------------------------- which indices differ */

void mha__clue_add(mha__clue_list *list, mha_clue clue)
{
    const mha_allocator a = mha__allocator_default();
    mha_clue *more = mha__array_grow(&a, list->clues, list->count, &list->room, sizeof *more);
    list->full |= !more;
    if (more) {
        list->clues = more;
        list->clues[list->count++] = clue;
    }
}

double mha__grid_limit(const mha__grid *g, double y)
{
    const mha__target *t = g->target;
    const mha__allowed *allowed = &t->allowed[g->level];
    return fmax(allowed->atol + allowed->rtol * fabs(y),
                t->noise[g->level] + t->storage.relative * fabs(y) + t->storage.absolute);
}

bool mha__grid_agrees(const mha__grid *g, double x, double y)
{
    return mha__search_same(g->target, x, y) || (isfinite(x) && fabs(x - y) <= mha__grid_limit(g, x));
}

/* The step between marked indices when they are equally spaced up to the end; 0 otherwise. At least three of them. */
static size_t step_of(const unsigned char *marks, size_t n, size_t first)
{
    size_t step = 1;
    while (first + step < n && !marks[first + step])
        step++;
    if (step == 1 || first + 2 * step >= n)
        return 0;
    for (size_t i = first; i < n; i++)
        if (marks[i] != ((i - first) % step == 0))
            return 0;
    return first < step ? step : 0;
}

/* Describes the marked indices of one axis, unless nearly all of them are marked. */
static void describe(mha_clue_axis axis, const unsigned char *marks, size_t n, mha__clue_list *list)
{
    size_t first = 0, last = n;
    while (first < n && !marks[first])
        first++;
    if (first == n)
        return;
    while (!marks[last - 1])
        last--;
    const size_t step = step_of(marks, n, first);
    if (step)
        mha__clue_add(list,
                      (mha_clue){.kind = MHA_CLUE_EVERY, .axis = axis, .first = first, .step = step, .extent = n});
    else if (n > 1 && (first > 0 || last < n))
        mha__clue_add(list,
                      (mha_clue){.kind = MHA_CLUE_RANGE, .axis = axis, .first = first, .last = last - 1, .extent = n});
}

size_t mha__clues_of_places(const mha__grid *g, mha__clue_list *list)
{
    const mha_allocator a = mha__allocator_default();
    const size_t *n = g->n, all = n[0] + n[1] + n[2] + n[3];
    unsigned char *marks = mha__allocate(&a, all + 1), *at[4] = {marks};
    size_t index[4] = {0}, found = 0, odd = 0, elements = 0;
    const bool keys = mha__stage_axis(g->target->stage, "S'") >= 0;
    list->full |= !marks;
    if (!marks)
        return 0;
    for (int k = 1; k < 4; k++)
        at[k] = at[k - 1] + n[k - 1];
    do {
        const double x = mha__grid_x(g, index[0], index[1], index[2], index[3]);
        const double y = mha__grid_y(g, index[0], index[1], index[2], index[3]);
        elements++;
        if (mha__grid_agrees(g, x, y))
            continue;
        found++;
        odd += !isfinite(x) || !isfinite(y);
        for (int k = 0; k < 4; k++)
            at[k][index[k]] = 1;
    } while (mha__index_next(index, n, 4));
    if (odd > 0 && odd == found)
        mha__clue_add(list, (mha_clue){.kind = MHA_CLUE_NONFINITE, .first = odd, .extent = elements});
    for (int k = 0; k < 4; k++)
        describe(k < 3 ? (mha_clue_axis)k : keys ? MHA_CLUE_KEYS : MHA_CLUE_COLUMNS, at[k], n[k], list);
    mha__release(&a, marks, all + 1);
    return found;
}
