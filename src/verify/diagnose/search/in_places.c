/* Searches bugs that occur only in some batch rows, heads or query rows: the tensor is right in all others. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/diagnose/search/search.h"
#include "verify/places.h"
#include "verify/thresholds/thresholds.h"

/* Number of heads side by side in a row of the tensor. */
static size_t heads_in_row(const mha__search *s)
{
    return s->target.stage == MHA_STAGE_OUTPUT && s->c->kind == CASE_MHA ? 1 : s->c->H;
}

/* Marks the places where the tensor differs from the case by more than rounding; false where all of them are zeros,
 * which say nothing. */
static bool find_places(const mha__search *s, mha__places *p)
{
    bool any = false;
    const mha__target *t = &s->target;
    const size_t H = heads_in_row(s), d = t->columns / H;
    for (size_t e = 0; e < s->c->B * t->row; e++) {
        const size_t b = e / t->row, row = e % t->row / t->columns, h = e % t->columns / d;
        const double x = s->unmodified.stage[e], y = t->values[e], limit = t->noise[0] + t->storage.relative * fabs(y);
        if (mha__search_same(t, x, y) || fabs(x - y) <= limit)
            continue;
        p->among[PLACES_BATCH][b] = p->among[PLACES_HEADS][h] = p->among[PLACES_ROWS][row] = 1;
        any |= y != 0;
    }
    return any;
}

/* Marks the few rows between others that are marked; how many all of them are. */
static size_t fill_rows(mha__places *p, size_t few)
{
    const size_t T = p->n[PLACES_ROWS];
    unsigned char *rows = p->among[PLACES_ROWS];
    size_t count = 0;
    for (size_t i = 0, last = T; i < T; i++) {
        if (!rows[i])
            continue;
        count++;
        for (size_t k = last; k < i && i - last <= few; k++)
            count += !rows[k], rows[k] = 1;
        last = i;
    }
    return count;
}

/* Tries the bugs with a number of a list, with each; `numbers`: those that fit. */
static size_t try_listed(const mha__search *s, mha__candidate *fits, double *numbers)
{
    size_t n = 0;
    for (size_t bug = 0; bug < mha_bug_count() && n < MHA_SEARCH_MATCHES; bug++) {
        const mha__bug_entry *e = mha__solved_entry_at(bug);
        for (size_t i = 0; e && e->how == SOLVE_LISTED && n < MHA_SEARCH_MATCHES && e->choice(s->c, i, &numbers[n]);
             i++) {
            mha__program program = s->unmodified.program;
            fits[n] = (mha__candidate){.a = (int)bug, .b = -1, .numbers = &numbers[n], .order = 1};
            if (e->apply(s->c, &program, &numbers[n]) && !mha__programs_equal(&program, &s->unmodified.program))
                n += mha__search_try(s, 0, &fits[n]);
        }
    }
    return n;
}

size_t mha__search_singles(mha__search *s, const mha__places *p, mha_bug_match *found)
{
    mha__candidate fits[MHA_SEARCH_MATCHES];
    double numbers[MHA_SEARCH_MATCHES + 1];
    size_t n = 0;
    for (size_t i = 1; i < s->candidates.singles && n < MHA_SEARCH_MATCHES; i++) {
        fits[n] = s->candidates.all[i];
        n += !fits[n].numbers && mha__search_try(s, 0, &fits[n]);
    }
    n = n > 0 ? n : try_listed(s, fits, numbers);
    return mha__report_found(s, fits, n, p, found);
}

mha_status mha__search_in_places(mha__search *s, mha__search_there *try_there, mha_diagnosis *d, mha_error *error)
{
    const mha__target *t = &s->target;
    const size_t B = s->c->B, T = s->c->T_q, H = heads_in_row(s);
    mha_bug_match found[MHA_SEARCH_MATCHES];
    mha__places p;
    size_t n = 0;
    if (s->in_part || !mha__search_is_wide(s) || (t->stage != MHA_STAGE_OUTPUT && t->stage != MHA_STAGE_HEADS))
        return MHA_OK;
    if (!mha__places_begin(&p, B, H, T, &s->pool))
        return mha__search_no_memory(s, error);
    if (!find_places(s, &p) && try_there == mha__search_singles) /* zeros have no known cause */
        return MHA_OK;
    const size_t batch = mha__places_count(&p, PLACES_BATCH), heads = mha__places_count(&p, PLACES_HEADS),
                 rows = fill_rows(&p, try_there == mha__search_singles ? T : 8);
    if (batch * heads * rows * (t->columns / H) < MHA__LEAST_IN_PLACES)
        return MHA_OK;
    mha__places all_rows = p; /* rows that it does not change are right, too */
    unsigned char *every = all_rows.among[PLACES_ROWS] = mha__arena_take(&s->pool, T + 1);
    if (!every)
        return mha__search_no_memory(s, error);
    memset(every, 1, T);
    s->there = &all_rows;
    if (batch < B || heads < H)
        n = try_there(s, &all_rows, found);
    s->there = &p;
    if (n == 0 && rows + 1 < T) /* a row that sees only one key is always right */
        n = try_there(s, &p, found);
    s->there = NULL;
    return mha__report_add(s, found, n, d, error);
}
