/* Finds the numbers of bugs that have some: one of a list by trying all, any number by least squares. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/solve/solve.h"

enum { MOST_CHOSEN = 32 }; /* numbers of a list that are tried on all checked rows */

/* Memory for one worker, and for what one bug's search has found. */
typedef struct scratch {
    mha__descent descent;
    double *fits;        /* of numbers of a list: at most the number of keys and one */
    unsigned char *rows; /* (B, T_q) */
} scratch;

typedef struct found {
    size_t index, count; /* of the bug; of the candidates */
    bool hopeless;       /* none of them explains the tensor: what is left of them may still come close */
    double *numbers;     /* memory for those of MOST_CHOSEN candidates */
    mha__candidate candidates[MOST_CHOSEN];
} found;

typedef struct mha__solving {
    mha__search *s;
    found *all;
    size_t count;
    bool rounds; /* come_close: of what only rounds */
    scratch scratch[MHA__MOST_RUNNERS];
} solving;

static mha__candidate candidate(size_t index, const double *numbers)
{
    return (mha__candidate){.a = (int)index, .b = -1, .numbers = numbers, .order = 1};
}

/* ---------------------------------------------------------------- one of a list */

/* Of candidates in the order in which they fit leaves those that may fit, checking by where they were tried: what
 * reproduces the tensor fits everywhere. If none may, the first few. */
static void leave_first(const mha__search *s, found *f)
{
    enum { FEW = 4 };
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++)
        if (mha__search_is_promising(s, &f->candidates[i]))
            f->candidates[n++] = f->candidates[i];
    f->count = n > 0 ? n : f->count < FEW ? f->count : FEW;
}

/* Number i that is tried of a bug: of its list, or of numbers in equal ratios. Returns false past the end. */
static bool number_at(const mha__search *s, const mha__bug_entry *e, size_t i, double *x)
{
    enum { STEPS = 33 };
    if (e->how == SOLVE_LISTED)
        return e->choice(s->c, i, x);
    *x = (i < STEPS ? 1 : -1) * e->low * pow(e->high / e->low, (double)(i % STEPS) / (STEPS - 1));
    return i < (e->how == SOLVE_SIGNED ? 2 * STEPS : STEPS);
}

/* Keeps the numbers that fit best where little is to be computed, in the order in which they fit. */
static void choose(const mha__search *s, size_t worker, const mha__bug_entry *e, found *f)
{
    double x;
    for (size_t i = 0; number_at(s, e, i, &x); i++) {
        mha__program program = s->unmodified.program;
        mha__candidate one = candidate(f->index, &x);
        if (!e->apply(s->c, &program, &x) || mha__programs_equal(&program, &s->unmodified.program))
            continue;
        mha__search_fit(s, worker, &s->region_first, &one);
        size_t at = f->count < MOST_CHOSEN ? f->count : MOST_CHOSEN - 1;
        if (f->count == MOST_CHOSEN && !(one.relative < f->candidates[at].relative))
            continue;
        f->count += f->count < MOST_CHOSEN;
        for (; at > 0 && f->candidates[at - 1].relative > one.relative; at--) {
            f->candidates[at] = f->candidates[at - 1];
            f->numbers[at] = f->numbers[at - 1];
        }
        f->candidates[at] = one;
        f->numbers[at] = x;
    }
    for (size_t i = 0; i < f->count; i++)
        f->candidates[i].numbers = &f->numbers[i];
}

/* ---------------------------------------------------------------- one of a list for each batch row */

/* How well the numbers in m->descent.other fit where m->rows and the columns say. */
static double fit_there(const mha__search *s, size_t worker, size_t index, const scratch *m, size_t columns)
{
    const mha__region there = {m->rows, columns};
    mha__candidate one = candidate(index, m->descent.other);
    mha__search_fit(s, worker, &there, &one);
    return one.relative;
}

/* Puts the number of the list that fits batch row b best on its checked rows into m->x. All are tried on a few rows,
 * and on the others those that fit there as well as the best. */
static void choose_for_batch(const mha__search *s, size_t worker, const mha__bug_entry *e, size_t index, size_t b,
                             const scratch *m)
{
    enum { FEW = 2 };
    const size_t T = s->c->T_q;
    const double slack = 2 * s->target.noise[0] / fmax(s->target.rms, s->target.noise[0]);
    double least = INFINITY, best = INFINITY;
    memset(m->rows, 0, s->c->B * T);
    mha__search_mark(s, b, FEW, FEW, s->rows_checked, m->rows);
    memcpy(m->descent.other, m->descent.x, s->c->B * sizeof *m->descent.x);
    for (size_t i = 0; i <= s->inputs->S && e->choice(s->c, i, &m->descent.other[b]); i++) {
        m->fits[i] = fit_there(s, worker, index, m, s->region_second.columns);
        least = fmin(least, m->fits[i]);
    }
    memcpy(m->rows + b * T, s->rows_checked + b * T, T);
    for (size_t i = 0; i <= s->inputs->S && e->choice(s->c, i, &m->descent.other[b]); i++) {
        const bool is_near = m->fits[i] <= least + slack;
        const double fit = is_near ? fit_there(s, worker, index, m, s->region_full.columns) : INFINITY;
        if (fit < best) {
            best = fit;
            m->descent.x[b] = m->descent.other[b];
        }
    }
}

/* Chooses the best number of the list for each batch row with checked rows; for others the first of the list. */
static void choose_by_batch(const solving *w, size_t worker, const mha__bug_entry *e, found *f)
{
    const mha__search *s = w->s;
    const scratch *m = &w->scratch[worker];
    for (size_t b = 0; b < s->c->B; b++)
        (void)e->choice(s->c, 0, &m->descent.x[b]);
    for (size_t b = 0; b < s->c->B; b++)
        if (memchr(s->rows_checked + b * s->c->T_q, 1, s->c->T_q))
            choose_for_batch(s, worker, e, f->index, b, m);
    memcpy(f->numbers, m->descent.x, s->c->B * sizeof *m->descent.x);
    f->candidates[f->count++] = candidate(f->index, f->numbers);
}

/* ---------------------------------------------------------------- any number */

/* Offers x and shorter numbers near it. */
static void offer_shorter(const mha__bug_entry *e, double x, found *f)
{
    enum { MOST_DIGITS = 6 };
    for (int digits = 1; digits <= MOST_DIGITS + 1; digits++) {
        char text[32];
        mha__text_print(text, sizeof text, "%.*g", digits, x);
        const double shorter = strtod(text, NULL);
        const bool inside = fabs(shorter) >= e->low && fabs(shorter) <= e->high;
        const double offered = digits <= MOST_DIGITS && inside ? shorter : x;
        if (f->count > 0 && offered == f->numbers[f->count - 1])
            continue;
        f->numbers[f->count] = offered;
        f->candidates[f->count] = candidate(f->index, &f->numbers[f->count]);
        f->count++;
    }
}

/* Descends from the best of some numbers, and offers shorter numbers next to the one that it finds. */
static void descend_from_best(const solving *w, size_t worker, const mha__bug_entry *e, found *f)
{
    enum { AGAIN = 8 }; /* are tried on more rows */
    double best = INFINITY, *x = w->scratch[worker].descent.x;
    *x = e->low;
    choose(w->s, worker, e, f);
    for (size_t i = 0; i < f->count && i < AGAIN; i++) {
        mha__search_fit(w->s, worker, &w->s->region_second, &f->candidates[i]);
        if (f->candidates[i].relative < best)
            best = f->candidates[i].relative, *x = f->numbers[i];
    }
    f->count = 0;
    mha__descend(&w->scratch[worker].descent, f->index, 1);
    offer_shorter(e, *x, f);
}

/* Looks for the numbers that fit best among some in equal ratios, and again between their neighbours, where the result
 * changes in steps; the last times on all rows. Of numbers that fit alike the middle one is taken. */
static void step_to_best(const mha__search *s, size_t worker, const mha__bug_entry *e, found *f)
{
    enum { STEPS = 33, AGAIN = 9, ROUNDS = 6, ALL_ROWS = 4 };
    double low = e->low, high = e->high, best = low;
    for (int round = 0; round < ROUNDS; round++) {
        const int n = round == 0 ? STEPS : AGAIN;
        const double ratio = pow(high / low, 1.0 / (n - 1));
        double least = INFINITY, most = 0, x = low, from = low, to = low;
        for (int i = 0; i < n; i++) {
            mha__candidate one = candidate(f->index, &x);
            mha__search_fit(s, worker, round < ALL_ROWS ? &s->region_second : &s->region_full, &one);
            from = one.relative < least ? x : from, least = fmin(least, one.relative);
            to = one.relative <= least ? x : to, most = i == 0 ? one.relative : most;
            x *= ratio;
        }
        if (round == 0 && least > 0.99 * most) /* no number does anything */
            return;
        best = sqrt(from * to);
        low = fmax(from / ratio, e->low), high = fmin(to * ratio, e->high);
    }
    offer_shorter(e, best, f);
}

/* Descends from numbers that change little, and offers the numbers that it finds, rounded and as they are. */
static void descend_freely(const solving *w, size_t worker, const mha__bug_entry *e, found *f)
{
    static const double starts[] = {0, 0.25};
    const mha__search *s = w->s;
    const size_t n = mha__solved_count(s->c, e);
    double *x = w->scratch[worker].descent.x, *rounded = f->numbers, *best = f->numbers + n;
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        for (size_t h = 0; h < n; h++)
            x[h] = starts[i];
        mha__descend(&w->scratch[worker].descent, f->index, n);
        mha__candidate one = candidate(f->index, x);
        mha__search_fit(s, worker, &s->region_second, &one);
        if (one.relative < least) {
            least = one.relative;
            memcpy(best, x, n * sizeof *x);
        }
    }
    for (size_t h = 0; h < n; h++) {
        most = fmax(most, fabs(best[h]));
        if (!(best[h] >= e->low && best[h] <= e->high)) /* so great that they leave nothing, which explains all zeros */
            return;
    }
    const double unit = most > 0 ? pow(10, floor(log10(most)) - 3) : 1; /* four digits of the largest */
    for (size_t h = 0; h < n; h++)
        rounded[h] = round(best[h] / unit) * unit;
    f->candidates[f->count++] = candidate(f->index, rounded);
    f->candidates[f->count++] = candidate(f->index, best);
}

/* ---------------------------------------------------------------- one bug */

/* Whether what is checked has more to say than n numbers can be fitted to: more elements, and more weights that are
 * free to differ. */
static bool is_enough(const mha__search *s, size_t n)
{
    const size_t T = s->c->T_q, most = n + 4,
                 bound = s->unmodified.program.s.softmax.normaliser == MHA_SOFTMAX; /* they add up to 1 */
    size_t free_weights = 0;
    for (size_t r = 0; r < s->c->B * T && free_weights < most; r++) {
        if (!s->region_second.rows[r])
            continue;
        size_t hidden;
        const size_t seen =
            mha__count_seen(s->inputs, &s->unmodified.program, r / T, r % T, &hidden) + mha__rows_beyond(s->c);
        free_weights += seen > bound ? (seen - bound) * s->c->H : 0;
    }
    return free_weights >= most && mha__search_elements(s, &s->region_second) >= most;
}

/* Whether none of the candidates explains the tensor. Little is computed for that: what is refuted in some rows is
 * refuted. Those of a list were tried there. */
static bool is_hopeless(const mha__search *s, size_t worker, int how, const found *f)
{
    bool hopeless = true;
    for (size_t i = 0; i < f->count && hopeless; i++) {
        mha__candidate x = f->candidates[i];
        if (how != SOLVE_LISTED)
            mha__search_fit(s, worker, &s->region_first, &x);
        hopeless = mha__search_is_refuted(s, &x);
    }
    return hopeless;
}

/* Leaves those that may fit, checking by a few rows; if none may, the best one there. */
static void leave_promising(const mha__search *s, size_t worker, found *f)
{
    size_t best = 0, n = 0;
    for (size_t i = 0; i < f->count; i++) {
        mha__search_fit(s, worker, &s->region_second, &f->candidates[i]);
        best = f->candidates[i].relative < f->candidates[best].relative ? i : best;
    }
    for (size_t i = 0; i < f->count; i++)
        if (mha__search_is_promising(s, &f->candidates[i]))
            f->candidates[n++] = f->candidates[i];
    if (n == 0 && f->count > 0)
        f->candidates[n++] = f->candidates[best];
    f->count = n;
}

/* Whether a candidate, fitted on the rows of the second pass, may come near on all: at least its squares there are
 * left of the whole. */
static bool may_be_close(const mha__search *s, const mha__candidate *x)
{
    const double there = (double)mha__search_elements(s, &s->region_second),
                 all = (double)mha__search_elements(s, &s->region_full);
    return x->finite && mha__search_is_close(s, x->relative * sqrt(there / all));
}

/* Leaves the best candidate, shortest number first, and those that do the same. */
static void leave_best(const mha__search *s, size_t worker, int how, found *f)
{
    const double unit = s->target.wide ? 0x1p-53 : 0x1p-24, ulp = 4 * unit * s->target.largest;
    double best = INFINITY;
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++) {
        mha__candidate *x = &f->candidates[i];
        mha__search_fit(s, worker, &s->region_full, x);
        x->complete = !x->untried;
        if (x->finite && !x->unchanged)
            best = fmin(best, x->excess);
    }
    for (size_t i = 0; i < f->count && n < (how >= SOLVE_REAL ? 1 : MHA_SEARCH_TIES); i++) {
        const mha__candidate *x = &f->candidates[i];
        if (x->finite && !x->unchanged && x->excess <= 2 * best + ulp)
            f->candidates[n++] = *x;
    }
    f->count = n;
}

static void solve_one(void *context, size_t task, int worker)
{
    const solving *w = context;
    mha__search *s = w->s;
    found *f = &w->all[task];
    const mha__bug_entry *e = mha__solved_entry_at(f->index);
    switch (e->how) {
    case SOLVE_LISTED:
        choose(s, (size_t)worker, e, f);
        leave_first(s, f);
        break;
    case SOLVE_BY_BATCH: choose_by_batch(w, (size_t)worker, e, f); break;
    case SOLVE_REAL:
    case SOLVE_SIGNED: descend_from_best(w, (size_t)worker, e, f); break;
    case SOLVE_STEPPED: step_to_best(s, (size_t)worker, e, f); break;
    default: descend_freely(w, (size_t)worker, e, f); break;
    }
    f->hopeless = is_hopeless(s, (size_t)worker, e->how, f);
    if (!f->hopeless && f->count > 1)
        leave_promising(s, (size_t)worker, f);
    if (!f->hopeless)
        leave_best(s, (size_t)worker, e->how, f);
    if (mha__search_is_over(s))
        mha__search_leave(s, 1);
    else
        mha__search_step(s, (size_t)worker);
}

static bool comes_close(const solving *w, const found *f)
{
    return f->hopeless && f->count > 0 && mha__search_only_rounds(w->s, &f->candidates[0]) == w->rounds;
}

/* Leaves of a hopeless bug the best candidate, if it may be among the closest. */
static void come_close(void *context, size_t task, int worker)
{
    const solving *w = context;
    const mha__search *s = w->s;
    found *f = &w->all[task];
    if (!comes_close(w, f))
        return;
    leave_promising(s, (size_t)worker, f);
    if (f->count == 1 && !may_be_close(s, &f->candidates[0]))
        f->count = 0;
    leave_best(s, (size_t)worker, mha__solved_entry_at(f->index)->how, f);
}

/* ---------------------------------------------------------------- all of them */

/* True if a bug applies to the case with some numbers, which it must not read. */
static bool applies(const mha__search *s, size_t index, const mha__bug_entry *e)
{
    mha__program program = s->unmodified.program;
    double x = e->low;
    if (e->how >= SOLVE_HEADS) /* is looked for on its own */
        return false;
    return (!e->choice || e->choice(s->c, 0, &x)) && e->apply(s->c, &program, &x) &&
           mha__search_tries(s, (int)index, -1, &program);
}

/* The bug at an index of the list if its numbers can be looked for. A list is too short to fit to anything. */
static const mha__bug_entry *entry_at(const mha__search *s, size_t index)
{
    const mha__bug_entry *e = mha__solved_entry_at(index);
    const bool can =
        e && applies(s, index, e) && (e->how <= SOLVE_BY_BATCH || is_enough(s, mha__solved_count(s->c, e)));
    return can ? e : NULL;
}

size_t mha__search_count_solved(const mha__search *s)
{
    size_t n = 0;
    for (size_t i = 0; i < mha_bug_count(); i++)
        n += entry_at(s, i) != NULL;
    return n;
}

/* Takes memory for n numbers; least squares finds `free_ones` of them at once. */
static bool make_scratch(mha__search *s, solving *w, size_t n, size_t free_ones)
{
    for (size_t i = 0; i < s->workers.count; i++) {
        scratch *m = &w->scratch[i];
        m->fits = mha__arena_take(&s->pool, (s->inputs->S + 1) * sizeof *m->fits);
        m->rows = mha__arena_take(&s->pool, s->c->B * s->c->T_q);
        if (!m->fits || !m->rows || !mha__descent_begin(s, i, n, free_ones, &m->descent))
            return false;
    }
    return true;
}

/* Appends what was found of bugs to the candidates: of those that are hopeless, or of the others. */
static void append(mha__search *s, const solving *w, bool hopeless)
{
    for (size_t i = 0; i < w->count; i++)
        for (size_t k = 0; k < w->all[i].count && (hopeless ? comes_close(w, &w->all[i]) : !w->all[i].hopeless); k++)
            s->candidates.all[s->candidates.count++] = w->all[i].candidates[k];
}

mha_status mha__search_solve(mha__search *s, mha_error *error)
{
    const size_t bugs = mha_bug_count();
    solving *w = s->solving = mha__arena_take(&s->pool, sizeof *w);
    size_t most = 1, free_ones = 1;
    for (size_t i = 0; i < bugs; i++) {
        const mha__bug_entry *e = entry_at(s, i);
        const size_t count = e ? mha__solved_count(s->c, e) : 1;
        most = count > most ? count : most;
        free_ones = e && e->how == SOLVE_BY_HEAD ? count : free_ones;
    }
    if (w)
        *w = (solving){.s = s, .all = mha__arena_take(&s->pool, bugs * sizeof *w->all)};
    if (!w || !w->all || !make_scratch(s, w, most, free_ones))
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < bugs; i++) {
        if (!entry_at(s, i))
            continue;
        found *f = &w->all[w->count++];
        *f = (found){.index = i, .numbers = mha__arena_take(&s->pool, (MOST_CHOSEN + 2 * most) * sizeof(double))};
        if (!f->numbers)
            return mha__search_no_memory(s, error);
    }
    if (mha__search_is_over(s))
        mha__search_leave(s, w->count);
    else
        mha__parallel_for(w->count, (int)s->workers.count, solve_one, w);
    append(s, w, false);
    s->candidates.singles = s->candidates.count;
    return MHA_OK;
}

void mha__search_solve_closest(mha__search *s, bool rounds)
{
    s->solving->rounds = rounds;
    mha__parallel_for(s->solving->count, (int)s->workers.count, come_close, s->solving);
    append(s, s->solving, true);
}

/* Leaves of a bug with a real number the first number that may explain the tensor. */
static void solve_with_task(void *context, size_t task, int worker)
{
    const solving *w = context;
    mha__search *s = w->s;
    found *f = &w->all[task];
    const mha__bug_entry *e = mha__solved_entry_at(f->index);
    size_t k = 0;
    if ((e->how != SOLVE_REAL && e->how != SOLVE_SIGNED) || (size_t)s->with->a == f->index || mha__search_is_over(s))
        return;
    descend_from_best(w, (size_t)worker, e, f);
    while (k < f->count && !mha__search_try(s, (size_t)worker, &f->candidates[k]))
        k++;
    f->candidates[0] = f->candidates[k < f->count ? k : 0];
    f->count = k < f->count;
}

size_t mha__search_solve_with(mha__search *s, mha__candidate *pairs)
{
    solving w = *s->solving;
    size_t n = 0;
    bool whole = (w.all = mha__arena_take(&s->pool, w.count * sizeof *w.all)) != NULL;
    for (size_t i = 0; whole && i < w.count; i++) {
        double *numbers = mha__arena_take(&s->pool, MOST_CHOSEN * sizeof *numbers);
        w.all[i] = (found){.index = s->solving->all[i].index, .numbers = numbers};
        whole = numbers;
    }
    if (whole)
        mha__parallel_for(w.count, (int)s->workers.count, solve_with_task, &w);
    for (size_t i = 0; whole && i < w.count; i++) {
        pairs[n] = w.all[i].candidates[0];
        pairs[n].b = s->with->a, pairs[n].numbers_b = s->with->numbers, pairs[n].order = 2;
        n += w.all[i].count;
    }
    return n;
}

mha_status mha__solve_by_heads(mha__search *s, size_t index, mha__arena *pool, mha_error *error)
{
    const size_t n = 2 * s->c->H;
    mha__descent m;
    if (n < 4 || !is_enough(s, n))
        return MHA_OK;
    if (!pool || !mha__descent_begin(s, 0, n, n, &m))
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < n; i++) /* those of the case */
        m.x[i] = 2 * i < n ? s->unmodified.program.s.softmax.scale : 1;
    mha__descend(&m, index, n);
    mha__search_append(s, index, m.x);
    return MHA_OK;
}
