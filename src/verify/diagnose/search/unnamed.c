/* Changes without a name, which are tried when no known bug reproduces the tensor. */
#include "verify/diagnose/search/unnamed.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/search/fit.h"
#include "verify/diagnose/search/in_places.h"
#include "verify/diagnose/search/report.h"
#include "verify/places.h"

enum { LEAST_APART = 32 /* numbers that are wrong: fewer agree by chance */ };

typedef struct change {
    uint64_t key;
    bool is_named; /* by a bug with a number, which is tried everywhere alone */
    mha__candidate candidate;
} change;

typedef struct mha__changes {
    mha__search *s;
    change *all;
    size_t count;
} changes;

/* Marks the changes that a bug makes, with one of its numbers. */
static void mark_named(changes *x)
{
    const mha_case *c = x->s->c;
    for (size_t i = 0; i < mha_bug_count(); i++) {
        const mha__bug_entry *e = mha__solved_entry_at(i);
        double number = 0;
        for (size_t k = 0; !e ? k == 0 : e->how == SOLVE_LISTED && e->choice(c, k, &number); k++) {
            mha__program program = x->s->unmodified.program;
            const uint64_t key = mha__bug_apply(c, i, e ? &number : NULL, &program) ? mha__unnamed_key(c, &program) : 0;
            for (size_t n = 0; key && n < x->count; n++)
                x->all[n].is_named |= x->all[n].key == key;
        }
    }
}

/* Lists the changes that apply, each once. */
static mha_status list(changes *x, mha_error *error)
{
    mha__search *s = x->s;
    size_t most = 0;
    for (size_t w = 0; w < s->workers.count; w++)
        if (!(s->workers.table[w] = mha__arena_take(&s->pool, mha__unnamed_room(s->c) * sizeof(double))))
            return mha__search_no_memory(s, error);
    for (int pass = 0; pass < 2; pass++) {
        if (pass > 0 && !(x->all = mha__arena_take(&s->pool, most * sizeof *x->all)))
            return mha__search_no_memory(s, error);
        for (size_t i = 0; i < mha__unnamed_count(); i++) {
            mha__program program = s->unmodified.program;
            if (!mha__unnamed_apply(s->c, i, s->workers.table[0], &program, NULL, 0))
                continue;
            most += pass == 0;
            const uint64_t key = pass > 0 ? mha__unnamed_key(s->c, &program) : 0;
            bool again = pass == 0;
            for (size_t n = 0; key && n < x->count && !again; n++)
                again = x->all[n].key == key;
            if (!again)
                x->all[x->count++] = (change){key, false, {.a = -1, .b = -1, .order = 1, .unnamed = i + 1}};
        }
    }
    mark_named(x);
    return MHA_OK;
}

static void fit_task(void *context, size_t task, int worker)
{
    const changes *x = context;
    const mha__search *s = x->s;
    mha__candidate *one = &x->all[task].candidate;
    one->complete = false;
    if (!s->there && x->all[task].is_named)
        return;
    mha__search_fit(s, (size_t)worker, &s->region_first, one);
    if (one->unchanged || !mha__search_is_promising(s, one))
        return;
    mha__search_fit(s, (size_t)worker, &s->region_full, one);
    one->complete = !one->untried;
}

/* Tries all changes, where the search looks; how many reproduce the tensor there. */
static size_t try_all(mha__search *s, const mha__places *p, mha_bug_match *found)
{
    const changes *x = s->changes;
    double best = INFINITY;
    size_t n = 0;
    mha__parallel_for(x->count, (int)s->workers.count, fit_task, s->changes);
    for (size_t i = 0; i < x->count; i++)
        if (x->all[i].candidate.complete)
            best = fmin(best, x->all[i].candidate.excess);
    for (size_t i = 0; i < x->count && n < MHA_SEARCH_MATCHES; i++)
        if (mha__search_is_exact(s, &x->all[i].candidate, 0, best)) {
            found[n] = mha__search_explain(s, &x->all[i].candidate, true, 0);
            char *text = found[n++].found[0];
            const size_t used = strlen(text), size = sizeof found->found[0];
            if (p && used + 2 < size) {
                memcpy(text + used, ", ", 3);
                mha__places_say(p, text + used + 2, size - used - 2);
            }
        }
    return n;
}

mha_status mha__search_unnamed(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    changes x = {.s = s};
    if (s->wish->whole || s->wish->only || s->inputs->sequences || s->c->kind == CASE_ROPE || s->target.is_zero ||
        s->candidates.all[0].apart < LEAST_APART)
        return MHA_OK;
    TRY(list(&x, error));
    s->changes = &x;
    mha_bug_match found[MHA_SEARCH_MATCHES];
    TRY(mha__search_add(s, found, try_all(s, NULL, found), d, error));
    size_t untried = 0;
    for (size_t i = 0; i < x.count; i++)
        untried += x.all[i].candidate.untried;
    mha__search_leave(s, untried);
    d->tried += x.count - untried;
    if (d->match_count == 0)
        TRY(mha__search_in_places(s, try_all, d, error));
    if (d->match_count == 0)
        return MHA_OK;
    mha_allocator a = mha__allocator_default();
    mha__release(&a, d->clues, d->clue_count * sizeof *d->clues);
    d->clues = NULL, d->clue_count = 0;
    return MHA_OK;
}
