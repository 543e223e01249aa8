/* Changes without a name, which are tried when no known bug reproduces the tensor. */
#include "verify/diagnose/search/search.h"

#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/places.h"
#include "verify/thresholds/thresholds.h"

typedef struct mha__changes {
    mha__candidate *all;
    size_t count;
    double *table[2]; /* to compare two */
} changes;

/* Lists the changes that apply. */
static mha_status list(mha__search *s, changes *x, mha_error *error)
{
    for (size_t w = 0; w < s->workers.count + 2; w++) {
        double **table = w < 2 ? &x->table[w] : &s->workers.table[w - 2];
        if (!(*table = mha__arena_take(&s->pool, mha__unnamed_room(s->c) * sizeof **table)))
            return mha__search_no_memory(s, error);
    }
    if (!(x->all = mha__arena_take(&s->pool, mha__unnamed_count() * sizeof *x->all)))
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < mha__unnamed_count(); i++) {
        mha__program program = s->unmodified.program;
        if (mha__unnamed_apply(s->c, i, s->workers.table[0], &program, NULL, 0))
            x->all[x->count++] = (mha__candidate){.a = -1, .b = -1, .order = 1, .unnamed = i + 1};
    }
    return MHA_OK;
}

static void fit_task(void *context, size_t task, int worker)
{
    const mha__search *s = context;
    (void)mha__search_try(s, (size_t)worker, &s->changes->all[task]);
}

/* Whether two changes read the same elements, by other words. */
static bool are_same(const mha__search *s, const mha__candidate *x, const mha__candidate *y)
{
    const size_t bytes = mha__unnamed_room(s->c) * sizeof(double);
    mha__program p[] = {s->unmodified.program, s->unmodified.program};
    for (int k = 0; k < 2; k++) {
        memset(s->changes->table[k], 0, bytes);
        (void)mha__unnamed_apply(s->c, (k ? y : x)->unnamed - 1, s->changes->table[k], &p[k], NULL, 0);
    }
    const mha__mutation *a = p[0].m, *b = p[1].m;
    if (!a->table && !b->table)
        return mha__programs_equal(&p[0], &p[1]);
    return a->table && b->table && a->site == b->site && a->sides == b->sides && a->axis == b->axis &&
           memcmp(a->table, b->table, bytes) == 0;
}

/* Tries all changes, where the search looks; how many reproduce the tensor there. */
static size_t try_all(mha__search *s, const mha__places *p, mha_bug_match *found)
{
    const changes *x = s->changes;
    mha__parallel_for(x->count, (int)s->workers.count, fit_task, s);
    for (size_t i = 0; i < x->count; i++)
        for (size_t k = 0; k < i && x->all[i].complete; k++)
            x->all[i].complete =
                !x->all[k].complete || x->all[k].excess != x->all[i].excess || !are_same(s, &x->all[k], &x->all[i]);
    return mha__report_found(s, x->all, x->count, p, found);
}

mha_status mha__search_unnamed(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    const double now = mha__clock_seconds();
    changes x = {0};
    mha_bug_match found[MHA_SEARCH_MATCHES];
    if (!mha__search_is_wide(s) || (s->candidates.all[0].apart[0] < MHA__LEAST_APART && s->candidates.all[0].finite) ||
        mha__search_is_over(s))
        return MHA_OK;
    TRY(list(s, &x, error));
    s->changes = &x;
    s->until = (now + s->wish->until) / 2;
    TRY(mha__report_add(s, found, try_all(s, NULL, found), d, error));
    size_t untried = 0;
    for (size_t i = 0; i < x.count; i++)
        untried += x.all[i].untried;
    s->untried += untried > 0; /* together they count as one */
    s->no_time |= untried > 0;
    if (d->match_count == 0)
        TRY(mha__search_in_places(s, try_all, d, error));
    if (d->match_count == 0)
        TRY(mha__search_in_heads(s, try_all, d, error));
    s->until = s->wish->until;
    if (d->match_count == 0)
        return MHA_OK;
    mha_allocator a = mha__allocator_default();
    mha__release(&a, d->clues, d->clue_count * sizeof *d->clues);
    d->clues = NULL, d->clue_count = 0;
    return MHA_OK;
}
