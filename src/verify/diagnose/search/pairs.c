/* Searches pairs of bugs, after no bug and no unnamed change has reproduced the tensor. */
#include "verify/diagnose/search/pairs.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/search/fit.h"
#include "verify/diagnose/search/in_places.h"
#include "verify/diagnose/search/report.h"
#include "verify/places.h"
#include "verify/thresholds/thresholds.h"

enum {
    MOST_MEMBERS = 4096,
    MOST_FOUND = 32,   /* pairs that a worker keeps */
    MOST_NUMBERS = 24, /* of a list: the first */
    MOST_LEADERS = 8,  /* those that explain most, of which each is tried with all members */
};

/* Members of pairs, the more usual ones first. */
enum { IS_PAIRED, IS_ALONE, IS_LISTED, IS_UNNAMED, RANKS };

typedef struct mha__pair_search {
    mha__search *s;
    mha__candidate leaders[MOST_LEADERS];
    size_t leader_count, leader; /* leader: what is everywhere, of a pair in places */
    const mha__candidate *with;  /* members or leaders */
    mha__candidate *all;
    double *numbers;
    size_t count, end[RANKS];     /* `end` of those of each rank */
    size_t from, to, first, last; /* members that are tried with which others */
    double until, end_of_all;     /* of one pair of ranks, of all */
    struct {
        mha__candidate all[MOST_FOUND];
        size_t count;
    } found[MHA__MOST_RUNNERS];
} pairs;

bool mha__search_are_two(const mha__search *s, size_t worker, const mha__candidate *x, mha__program *both)
{
    const bool named = x->unnamed == 0;
    const mha__candidate of[] = {
        *x,
        {.a = named ? x->b : x->a,
         .b = named ? x->a : x->b,
         .numbers = named ? x->numbers_b : x->numbers,
         .numbers_b = named ? x->numbers : x->numbers_b,
         .unnamed = x->unnamed},
        {.a = x->a, .b = -1, .numbers = x->numbers, .unnamed = x->unnamed},
        {.a = -1, .b = x->b, .numbers_b = x->numbers_b},
    };
    mha__program p[4];
    for (int i = 0; i < 4; i++)
        if (!mha__search_program(s, worker, &of[i], &p[i]))
            return false;
    *both = p[0];
    if (mha__has(both, AT_PAST, OP_DO)) /* of two bugs, either may decide the rotation of cached keys */
        return false;
    return mha__programs_equal(&p[0], &p[1]) && !mha__programs_equal(&p[0], &p[2]) &&
           !mha__programs_equal(&p[0], &p[3]);
}

/* ---------------------------------------------------------------- members */

static void join(pairs *x, mha__candidate one)
{
    if (x->count < MOST_MEMBERS)
        x->all[x->count++] = one;
}

/* Lists the changes that may be one of two: no roundings, which move a result by little. */
static void list(pairs *x)
{
    mha__search *s = x->s;
    mha__program program;
    for (int paired = 1; paired >= 0; paired--) {
        for (size_t i = 1; i < s->candidates.singles; i++) {
            const mha__candidate *one = &s->candidates.all[i];
            if (!one->numbers && !one->unchanged && mha__bug_is_paired((size_t)one->a) == paired)
                join(x, *one);
        }
        x->end[paired ? IS_PAIRED : IS_ALONE] = x->count;
    }
    for (size_t i = 0; i < MOST_NUMBERS * mha_bug_count() && x->count < MOST_MEMBERS; i++) {
        const size_t bug = i % mha_bug_count();
        const mha__bug_entry *e = mha__solved_entry_at(bug);
        double *number = &x->numbers[x->count];
        const mha__candidate one = {.a = (int)bug, .b = -1, .order = 1, .numbers = number};
        if (e && e->how == SOLVE_LISTED && e->choice(s->c, i / mha_bug_count(), number) &&
            mha__search_program(s, 0, &one, &program) && !mha__programs_equal(&program, &s->unmodified.program) &&
            !mha__search_only_rounds(s, &one))
            join(x, one);
    }
    x->end[IS_LISTED] = x->count;
    for (size_t i = 0; i < mha__unnamed_count(); i++) {
        const mha__candidate one = {.a = -1, .b = -1, .order = 1, .unnamed = i + 1};
        if (x->count < MOST_MEMBERS && mha__search_program(s, 0, &one, &program) && !mha__search_only_rounds(s, &one))
            join(x, one);
    }
    x->end[IS_UNNAMED] = x->count;
}

static void fit_member(void *context, size_t task, int worker)
{
    pairs *x = context;
    const mha__search *s = x->s;
    mha__candidate *one = &x->all[task];
    one->untried = mha__clock_seconds() >= x->end_of_all;
    if (!one->untried)
        mha__search_fit(s, (size_t)worker, one->unnamed ? &s->region_first : &s->region_second, one);
}

/* Leaves what changes the tensor; of changes without a name one of those that do the same. */
static void leave_different(pairs *x)
{
    size_t n = 0, end = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        for (size_t i = end; i < x->end[rank]; i++) {
            const mha__candidate *one = &x->all[i];
            bool again = one->unchanged || one->untried;
            for (size_t k = x->end[IS_LISTED]; k < n && !again; k++)
                again = x->all[k].relative == one->relative && x->all[k].max_abs == one->max_abs;
            if (!again)
                x->all[n++] = *one;
        }
        end = x->end[rank];
        x->end[rank] = n;
    }
    x->count = n;
}

/* ---------------------------------------------------------------- pairs */

static mha__candidate pair_of(const mha__candidate *a, const mha__candidate *b)
{
    mha__candidate both = *b; /* a change without a name comes first */
    if (b->unnamed > 0)
        both.b = a->a, both.numbers_b = a->numbers;
    else
        both.a = a->a, both.numbers = a->numbers, both.b = b->a, both.numbers_b = b->numbers;
    both.order = 2;
    return both;
}

/* The part of the tensor's difference that a candidate leaves: of its rms, or of its elements where that is less. */
static double left_by(const mha__search *s, const mha__candidate *x, const mha__region *on)
{
    const mha__candidate *said = &s->candidates.all[0];
    const double all = (double)said->apart[0] / (double)mha__search_elements(s, &s->region_full);
    return fmin(x->relative / said->relative, (double)x->apart[0] / (double)mha__search_elements(s, on) / all);
}

/* Finds the bugs that explain most, those with numbers that a solver found among them. */
static void choose_leaders(pairs *x)
{
    const mha__search *s = x->s;
    const size_t fitted = s->candidates.singles - 1, listed = x->end[IS_LISTED] - x->end[IS_ALONE];
    const double most = 0.5;
    double left[MOST_LEADERS];
    for (size_t i = 0; i < fitted + listed; i++) {
        const bool whole = i < fitted;
        const mha__candidate *one = whole ? &s->candidates.all[i + 1] : &x->all[x->end[IS_ALONE] + i - fitted];
        const double own = left_by(s, one, whole ? &s->region_full : &s->region_second);
        bool leads = one->order == 1 && one->finite && own < most;
        for (size_t k = 0; k < x->leader_count && leads; k++)
            leads = x->leaders[k].relative != one->relative;
        size_t at = x->leader_count;
        for (; at > 0 && own < left[at - 1]; at--)
            if (leads && at < MOST_LEADERS)
                x->leaders[at] = x->leaders[at - 1], left[at] = left[at - 1];
        if (leads && at < MOST_LEADERS)
            x->leaders[at] = *one, left[at] = own, x->leader_count += x->leader_count < MOST_LEADERS;
    }
}

/* Tries a member with those before it, or with the leaders. */
static void try_with_others(void *context, size_t task, int worker)
{
    pairs *x = context;
    const size_t k = x->first + task;
    for (size_t i = x->from; i < x->to && (i < k || x->with != x->all); i++) {
        mha__program program;
        mha__candidate both = pair_of(&x->with[i], &x->all[k]);
        if (mha__clock_seconds() >= x->until || x->found[worker].count == MOST_FOUND)
            return;
        if (!mha__search_are_two(x->s, (size_t)worker, &both, &program))
            continue;
        mha__search_fit(x->s, (size_t)worker, &x->s->region_first, &both);
        if (!mha__search_is_promising(x->s, &both))
            continue;
        mha__search_fit(x->s, (size_t)worker, &x->s->region_full, &both);
        both.complete = !both.untried;
        if (mha__search_is_exact(x->s, &both, 0, both.excess))
            x->found[worker].all[x->found[worker].count++] = both;
    }
}

/* Tries what is set; how many pairs reproduce the tensor. */
static size_t try_set(pairs *x, mha_bug_match *found)
{
    const mha__search *s = x->s;
    double best = INFINITY;
    size_t n = 0;
    x->until = (mha__clock_seconds() + x->end_of_all) / 2; /* half of the time left */
    mha__parallel_for(x->last - x->first, (int)s->workers.count, try_with_others, x);
    for (size_t w = 0; w < s->workers.count; w++)
        for (size_t i = 0; i < x->found[w].count; i++)
            best = fmin(best, x->found[w].all[i].excess);
    for (size_t w = 0; w < s->workers.count; w++)
        for (size_t i = 0; i < x->found[w].count && n < MHA_SEARCH_MATCHES; i++)
            if (mha__search_is_exact(s, &x->found[w].all[i], 0, best))
                found[n++] = mha__search_explain(s, &x->found[w].all[i], true, 0);
    return n;
}

static size_t try_ranks(pairs *x, int one, int other, mha_bug_match *found)
{
    x->with = x->all, x->from = one ? x->end[one - 1] : 0, x->to = x->end[one];
    x->first = x->end[other - 1], x->last = x->end[other];
    return try_set(x, found);
}

static size_t try_leaders(pairs *x, mha_bug_match *found)
{
    x->with = x->leaders, x->from = 0, x->to = x->leader_count;
    x->first = 0, x->last = x->count;
    return try_set(x, found);
}

/* Tries the leader everywhere with each member in places. */
static size_t try_there(mha__search *s, const mha__places *p, mha_bug_match *found)
{
    pairs *x = s->pairs;
    size_t n = 0;
    for (size_t k = 0; k < x->count && n < MHA_SEARCH_MATCHES && mha__clock_seconds() < x->until; k++) {
        mha__program program;
        mha__candidate both = pair_of(&x->leaders[x->leader], &x->all[k]);
        if (!mha__search_are_two(s, 0, &both, &program) || !mha__search_fits_there(s, &both) ||
            !mha__search_is_exact(s, &both, 0, both.excess))
            continue;
        found[n] = mha__search_explain(s, &both, true, 0);
        mha__search_say_places(p, &found[n++]);
    }
    return n;
}

/* Tries leaders, each where it leaves the tensor unexplained in some places alone, with members there. */
static mha_status try_places(pairs *x, mha_diagnosis *d, mha_error *error)
{
    mha__search *s = x->s;
    double *const stage = s->unmodified.stage, *led = mha__arena_take(&s->pool, s->c->B * s->target.row * sizeof *led);
    mha_status status = led ? MHA_OK : mha__search_no_memory(s, error);
    s->pairs = x;
    for (x->leader = 0; x->leader < x->leader_count && d->match_count == 0 && status == MHA_OK; x->leader++) {
        mha__candidate one = x->leaders[x->leader];
        x->until = (mha__clock_seconds() + x->end_of_all) / 2;
        mha__search_fit(s, 0, &s->region_full, &one);
        memcpy(led, s->workers.computed[0], s->c->B * s->target.row * sizeof *led);
        s->unmodified.stage = led;
        status = one.untried ? MHA_OK : mha__search_in_places(s, try_there, d, error);
        s->unmodified.stage = stage;
    }
    return status;
}

mha_status mha__search_pairs(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    static const int ranks[][2] = {{IS_PAIRED, IS_ALONE}, {IS_ALONE, IS_ALONE},   {IS_PAIRED, IS_LISTED},
                                   {IS_ALONE, IS_LISTED}, {IS_LISTED, IS_LISTED}, {IS_PAIRED, IS_UNNAMED},
                                   {IS_ALONE, IS_UNNAMED}};
    mha_bug_match found[MHA_SEARCH_MATCHES];
    /* Four seconds of the usual limit, and a multiple of the time so far. */
    const double now = mha__clock_seconds(), most_seconds = (s->wish->until - s->begun) / 13,
                 share = d->clue_count > 0 ? 2 : 16;
    if (s->in_part || s->wish->whole || s->wish->only || s->inputs->sequences || s->c->kind == CASE_ROPE ||
        s->target.is_zero || s->candidates.all[0].apart[0] < MHA__LEAST_APART || mha__search_is_over(s))
        return MHA_OK;
    pairs *x = mha__arena_take(&s->pool, sizeof *x);
    if (x)
        *x =
            (pairs){.s = s,
                    .all = mha__arena_take(&s->pool, MOST_MEMBERS * sizeof *x->all),
                    .numbers = mha__arena_take(&s->pool, MOST_MEMBERS * sizeof *x->numbers),
                    .end_of_all = now + fmin(fmin((s->wish->until - now) / 2, most_seconds), share * (now - s->begun))};
    if (!x || !x->all || !x->numbers)
        return mha__search_no_memory(s, error);
    list(x);
    mha__parallel_for(x->count, (int)s->workers.count, fit_member, x);
    leave_different(x);
    choose_leaders(x);
    TRY(mha__search_add(s, found, try_leaders(x, found), d, error));
    if (d->match_count == 0)
        TRY(try_places(x, d, error));
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks && d->match_count == 0; i++)
        TRY(mha__search_add(s, found, try_ranks(x, ranks[i][0], ranks[i][1], found), d, error));
    return MHA_OK;
}
