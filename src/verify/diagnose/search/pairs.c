/* Searches pairs of bugs, after no bug and no unnamed change has reproduced the tensor. */
#include "verify/diagnose/search/search.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/places.h"
#include "verify/sample.h"
#include "verify/thresholds/thresholds.h"

enum {
    MOST_MEMBERS = 4096,
    MOST_FOUND = 32,   /* pairs that are kept */
    MOST_NUMBERS = 24, /* of a list: the first */
    MOST_LEADERS = 8,  /* candidates that explain most: each is tried with all members */
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
    double work, left;            /* multiply-adds: of a pair, on the first rows; that all others may take */
    mha__candidate found[MOST_FOUND];
    size_t found_count;
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
    mha__candidate *one = &x->all[task];
    one->untried = false;
    mha__search_fit(x->s, (size_t)worker, one->unnamed ? &x->s->region_first : &x->s->region_second, one);
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
    double left[MOST_LEADERS] = {0};
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
        if (!mha__search_are_two(x->s, (size_t)worker, &both, &program) ||
            !mha__search_try(x->s, (size_t)worker, &both) || !mha__search_is_exact(x->s, &both, 0, both.excess))
            continue;
        const size_t at = __atomic_fetch_add(&x->found_count, 1, __ATOMIC_RELAXED);
        if (at < MOST_FOUND)
            x->found[at] = both;
    }
}

/* Takes half of the work that is left for what is set, and returns the number of pairs that it pays for. */
static size_t take_work(pairs *x)
{
    x->left /= 2;
    return (size_t)(x->left / x->work);
}

/* Tries what is set, as far as the work for it reaches; how many pairs reproduce the tensor. */
static size_t try_set(pairs *x, mha_bug_match *found)
{
    size_t n = take_work(x), tasks = 0, used = 0;
    for (; x->first + tasks < x->last && used < n; tasks++) {
        const size_t end = x->with == x->all && x->first + tasks < x->to ? x->first + tasks : x->to;
        used += end > x->from ? end - x->from : 0;
    }
    x->left += x->work * (double)(used < n ? n - used : 0);
    mha__parallel_for(tasks, (int)x->s->workers.count, try_with_others, x);
    const size_t kept = x->found_count < MOST_FOUND ? x->found_count : MOST_FOUND;
    return mha__report_found(x->s, x->found, kept, NULL, found);
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
    const size_t most = take_work(x);
    x->found_count = 0;
    for (size_t k = 0; k < x->count && k < most && x->found_count < MHA_SEARCH_MATCHES; k++) {
        mha__program program;
        mha__candidate both = pair_of(&x->leaders[x->leader], &x->all[k]);
        if (mha__search_are_two(s, 0, &both, &program) && mha__search_try(s, 0, &both))
            x->found[x->found_count++] = both;
    }
    x->left += x->work * (double)(most > x->count ? most - x->count : 0);
    const size_t n = mha__report_found(s, x->found, x->found_count, p, found);
    x->found_count = 0;
    return n;
}

/* Tries each leader with members in the only places where it leaves the tensor unexplained. */
static mha_status try_places(pairs *x, mha_diagnosis *d, mha_error *error)
{
    mha__search *s = x->s;
    double *const stage = s->unmodified.stage, *led = mha__arena_take(&s->pool, s->c->B * s->target.row * sizeof *led);
    mha_status status = led ? MHA_OK : mha__search_no_memory(s, error);
    s->pairs = x;
    for (x->leader = 0; x->leader < x->leader_count && d->match_count == 0 && status == MHA_OK; x->leader++) {
        mha__candidate one = x->leaders[x->leader];
        mha__search_fit(s, 0, &s->region_full, &one);
        memcpy(led, s->workers.computed[0], s->c->B * s->target.row * sizeof *led);
        s->unmodified.stage = led;
        status = one.untried ? MHA_OK : mha__search_in_places(s, try_there, d, error);
        s->unmodified.stage = stage;
    }
    return status;
}

/* Fits a number on top of each leader, as far as the work for it reaches. */
static size_t try_numbers(pairs *x, mha_bug_match *found)
{
    enum { MOST_FITS = 0x400 }; /* of a leader with all bugs that have a real number */
    mha__search *s = x->s;
    mha__program program;
    size_t left = take_work(x), n = 0;
    mha__candidate *all = mha__arena_take(&s->pool, mha_bug_count() * sizeof *all);
    for (size_t k = 0; all && k < x->leader_count && left >= MOST_FITS && n == 0; k++) {
        left -= MOST_FITS;
        s->with = &x->leaders[k];
        const size_t count = mha__search_solve_with(s, all);
        s->with = NULL;
        for (size_t i = 0; i < count; i++)
            if (mha__search_are_two(s, 0, &all[i], &program))
                all[n++] = all[i];
    }
    x->left += x->work * (double)left;
    return mha__report_found(s, all, n, NULL, found);
}

mha_status mha__search_pairs(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    static const int ranks[][2] = {{IS_PAIRED, IS_ALONE}, {IS_ALONE, IS_ALONE},   {IS_PAIRED, IS_LISTED},
                                   {IS_ALONE, IS_LISTED}, {IS_LISTED, IS_LISTED}, {IS_PAIRED, IS_UNNAMED},
                                   {IS_ALONE, IS_UNNAMED}};
    mha_bug_match found[MHA_SEARCH_MATCHES];
    if (s->in_part || !mha__search_is_wide(s) || s->candidates.all[0].apart[0] < MHA__LEAST_APART ||
        mha__search_is_over(s))
        return MHA_OK;
    pairs *x = mha__arena_take(&s->pool, sizeof *x);
    const double rows =
        (double)mha__search_elements(s, &s->region_first) / (double)mha__search_elements(s, &s->region_full);
    if (x)
        *x = (pairs){.s = s,
                     .all = mha__arena_take(&s->pool, MOST_MEMBERS * sizeof *x->all),
                     .numbers = mha__arena_take(&s->pool, MOST_MEMBERS * sizeof *x->numbers),
                     .work = MHA__PAIR_WORK + rows * mha__case_work(s->c),
                     .left = d->clue_count > 0 ? MHA__PAIRS_WORK / 8 : MHA__PAIRS_WORK};
    if (!x || !x->all || !x->numbers)
        return mha__search_no_memory(s, error);
    s->until = (mha__clock_seconds() + s->wish->until) / 2;
    list(x);
    mha__parallel_for(x->count, (int)s->workers.count, fit_member, x);
    leave_different(x);
    choose_leaders(x);
    TRY(mha__report_add(s, found, try_leaders(x, found), d, error));
    if (d->match_count == 0)
        TRY(try_places(x, d, error));
    if (d->match_count == 0)
        TRY(mha__report_add(s, found, try_numbers(x, found), d, error));
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks && d->match_count == 0; i++)
        TRY(mha__report_add(s, found, try_ranks(x, ranks[i][0], ranks[i][1], found), d, error));
    s->until = s->wish->until;
    return MHA_OK;
}
