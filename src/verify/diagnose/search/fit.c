/* Fits one candidate: computes it and compares it with the recorded tensor, element by element. */
#include <math.h>
#include <string.h>

#include "verify/diagnose/search/search.h"
#include "verify/places.h"

bool mha__search_same(const mha__target *t, double x, double y)
{
    if (x == y || (isnan(x) && isnan(y)))
        return true;
    if (t->stage == MHA_STAGE_MASKED && x == -INFINITY)
        return y == t->storage.lowest || y == -0x1.fffffep127;
    return isinf(y) && isfinite(x) && (x > 0) == (y > 0) && fabs(x) + t->allowed[0].atol >= t->storage.overflow;
}

/* Counts and sums over the elements compared so far. */
typedef struct comparison {
    size_t elements, odd; /* odd: finite on one side only */
    size_t apart[2];      /* numbers of the tensor that rounding in float32, in float64 does not explain */
    double sum, signed_sum;
} comparison;

/* The larger of two numbers; none is NaN. */
static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Compares n elements x, which are `base` in the unmodified case, with those of the tensor, y. */
static void compare_line(const mha__target *t, const double *x, const double *base, const double *y, size_t n,
                         comparison *all, mha__candidate *result, mha__moved *moved)
{
    const double noise[2] = {t->noise[0], t->noise[1]}, unit = t->storage.relative;
    const double rtol[2] = {t->allowed[0].rtol, t->allowed[1].rtol};
    comparison g = *all;
    double most = result->max_abs, excess = result->excess, needed[2] = {result->needed[0], result->needed[1]};
    double most_moved = moved->most, squares_moved = moved->rms;
    for (size_t j = 0; j < n; j++) {
        const double distance = fabs(x[j] - y[j]), size = fabs(y[j]), by = fabs(x[j] - base[j]);
        if (isfinite(by) || (x[j] != base[j] && !(isnan(x[j]) && isnan(base[j])))) {
            most_moved = larger(most_moved, isfinite(by) ? by : INFINITY);
            squares_moved += by * by;
        }
        if (!isfinite(distance)) {
            const bool same = mha__search_same(t, x[j], y[j]);
            g.odd += !same;
            for (int wide = 0; wide < 2; wide++)
                g.apart[wide] += !same && !isnan(y[j]);
            continue;
        }
        g.apart[0] += distance > noise[0] + unit * size;
        g.apart[1] += distance > noise[1] + unit * size;
        g.sum += distance * distance;
        g.signed_sum += x[j] - y[j];
        most = larger(most, distance);
        excess = larger(excess, distance - unit * size);
        needed[0] = larger(needed[0], distance - rtol[0] * fabs(x[j]));
        needed[1] = larger(needed[1], distance - rtol[1] * fabs(x[j]));
    }
    g.elements += n;
    *all = g;
    result->max_abs = most, result->excess = excess;
    result->needed[0] = needed[0], result->needed[1] = needed[1];
    moved->most = most_moved, moved->rms = squares_moved;
}

/* The same of the heads in which line l of batch row b is looked at, side by side in its n elements. */
static void compare_there(const mha__search *s, size_t b, size_t l, size_t n, const double *x, const double *base,
                          const double *y, comparison *all, mha__candidate *result, mha__moved *moved)
{
    const size_t H = s->there->n[PLACES_HEADS], d = n / H;
    for (size_t h = 0; h < H && d > 0; h++)
        if (mha__places_have(s->there, b, h, l))
            compare_line(&s->target, x + h * d, base + h * d, y + h * d, d, all, result, moved);
}

/* How many elements of line l of batch row b of the stage belong to a region. */
static size_t compared(const mha__search *s, const mha__region *on, size_t b, size_t l)
{
    const size_t T_q = s->c->T_q;
    const unsigned char *rows = on->rows + b * T_q;
    return (s->target.by_query ? rows[l % T_q] : memchr(rows, 1, T_q) != NULL) ? on->columns : 0;
}

bool mha__search_program(const mha__search *s, size_t worker, const mha__candidate *x, mha__program *program)
{
    *program = mha__program_of(s->c);
    return (!s->with || mha__bug_apply(s->c, (size_t)s->with->a, s->with->numbers, program)) &&
           (x->unnamed == 0 || mha__unnamed_apply(s->c, x->unnamed - 1, s->workers.table[worker], program, NULL, 0)) &&
           (x->a < 0 || mha__bug_apply(s->c, (size_t)x->a, x->numbers, program)) &&
           (x->b < 0 || mha__bug_apply(s->c, (size_t)x->b, x->numbers_b, program));
}

/* Computes a candidate, and finds the scale that it has; false when there is no memory for it. */
static bool compute(const mha__search *s, size_t worker, const mha__region *on, const mha__candidate *x, double *scale)
{
    mha__program program;
    (void)mha__search_program(s, worker, x, &program);
    s->workers.bench[worker]->columns = on->columns < s->target.columns ? on->columns : 0;
    s->workers.bench[worker]->inside = x->heads, s->workers.bench[worker]->outside = s->unmodified.heads;
    const bool ran =
        mha__run(s->workers.bench[worker], &program, s->target.stage, on->rows, s->workers.computed[worker]);
    const bool cosines = program.s.qkv.norm.unweighted && !s->c->semantics.qkv.norm.unweighted; /* are no larger */
    *scale = cosines ? s->unmodified.program.s.softmax.scale : program.s.softmax.scale;
    return ran;
}

void mha__search_hold(const mha__search *s, const mha__region *on, const double *values, mha__candidate *x,
                      mha__moved *moved)
{
    const mha__target *t = &s->target;
    const size_t lines = t->row / t->columns;
    comparison g = {0};
    *moved = (mha__moved){0};
    x->max_abs = x->excess = x->needed[0] = x->needed[1] = 0;
    for (size_t b = 0; b < s->c->B; b++)
        for (size_t l = 0; l < lines; l++) {
            const size_t at = b * t->row + l * t->columns;
            const double *y = t->values + (b * lines + l) * t->recorded_columns;
            const size_t n = compared(s, on, b, l);
            if (s->there)
                compare_there(s, b, l, n, values + at, s->unmodified.stage + at, y, &g, x, moved);
            else if (n > 0)
                compare_line(t, values + at, s->unmodified.stage + at, y, n, &g, x, moved);
        }
    const double n = g.elements > 0 ? (double)g.elements : 1;
    moved->rms = sqrt(moved->rms / n);
    x->finite = g.odd == 0;
    x->apart[0] = g.apart[0], x->apart[1] = g.apart[1];
    if (g.odd > 0)
        x->max_abs = x->excess = x->needed[0] = x->needed[1] = INFINITY;
    x->relative = sqrt(g.sum / n) / (t->rms > 0 ? t->rms : 1) + (double)g.odd / n;
    x->lean = fabs(g.signed_sum) / n / (t->rms > 0 ? t->rms : 1);
    x->unchanged = x->order > 0 && g.elements > 0 && mha__is_nothing(moved->most, t->largest);
}

bool mha__search_is_over(const mha__search *s)
{
    return s->halted || mha__clock_seconds() >= s->until;
}

void mha__search_fit(const mha__search *s, size_t worker, const mha__region *on, mha__candidate *x)
{
    mha__moved moved;
    const double scale = s->unmodified.program.s.softmax.scale;
    double own;
    if ((x->order > 0 && mha__search_is_over(s)) || !compute(s, worker, on, x, &own)) {
        x->untried = true;
        x->finite = x->unchanged = false;
        x->max_abs = x->excess = x->relative = x->needed[0] = x->needed[1] = INFINITY;
        return;
    }
    mha__search_hold(s, on, s->workers.computed[worker], x, &moved);
    x->louder = scale != 0 ? fmax(1, fabs(own / scale)) : 1;
}

void mha__search_append(mha__search *s, size_t index, const double *numbers)
{
    mha__candidates *list = &s->candidates;
    mha__candidate x = {.a = (int)index, .b = -1, .numbers = numbers, .order = 1};
    mha__search_fit(s, 0, &s->region_full, &x);
    if (x.untried)
        return;
    x.complete = true;
    list->all[list->count++] = x;
    list->singles = list->count;
}

bool mha__search_is_promising(const mha__search *s, const mha__candidate *x)
{
    const mha__target *t = &s->target;
    return x->finite && (x->excess <= x->louder * t->noise[0] + t->storage.absolute ||
                         (t->states[0] && x->needed[0] <= t->allowed[0].atol));
}

bool mha__leaves_undecided(const mha_diagnosis *d, const char *bug)
{
    for (size_t i = 0; i < d->undecided_count; i++)
        if (d->undecided[i] == bug)
            return true;
    return false;
}

/* Whether an answer names a bug, also in a pair, or a pair. */
static bool names(const mha_diagnosis *d, const char *a, const char *b)
{
    for (size_t i = 0; i < d->match_count + d->closest_count; i++) {
        const mha_bug_match *e = i < d->match_count ? &d->matches[i] : &d->closest[i - d->match_count];
        if (b ? e->count == 2 && e->bugs[0] == a && e->bugs[1] == b
              : (e->count > 0 && e->bugs[0] == a) || (e->count > 1 && e->bugs[1] == a))
            return true;
    }
    return !b && mha__leaves_undecided(d, a);
}

bool mha__search_knows_visibility(const mha__search *s, int bug, const mha__program *k)
{
    return s->wish->known_visibility && mha__leaves_undecided(s->wish->only, mha_bug_at((size_t)bug)->name) &&
           mha__heads_see_alike(k) && mha__heads_see_alike(&s->unmodified.program);
}

bool mha__search_tries(const mha__search *s, int a, int b, const mha__program *k)
{
    const mha_diagnosis *only = s->wish->only;
    const mha_case *whole = s->wish->whole;
    const bool solved = mha__solved_entry_at((size_t)a) != NULL; /* its number is that of the whole */
    const char *first = mha_bug_at((size_t)a)->name, *second = b < 0 ? NULL : mha_bug_at((size_t)b)->name;
    if (s->wish->slice && (solved ? mha__program_by_head(k) : mha__bugs_by_head(s->c, s->wish->slice, a, b)) &&
        !names(s->wish->refuted, first, second))
        return false;
    return (!whole || (solved ? mha__program_by_head(k) : mha__bugs_by_head(whole, s->c, a, b))) &&
           (!only || names(only, first, second));
}

void mha__search_leave(mha__search *s, size_t count)
{
    (void)__atomic_add_fetch(&s->untried, count, __ATOMIC_RELAXED);
    if (count > 0 && !mha__search_is_over(s))
        __atomic_store_n(&s->no_memory, true, __ATOMIC_RELAXED);
}

void mha__search_step(mha__search *s, size_t worker)
{
    mha__search_progress *p = &s->progress;
    const size_t done = __atomic_add_fetch(&p->done, 1, __ATOMIC_RELAXED);
    if (worker == 0 && p->caller && p->caller->report)
        p->caller->report(p->caller->context, done < p->total ? done : p->total, p->total);
}

size_t mha__search_elements(const mha__search *s, const mha__region *on)
{
    const size_t lines = s->target.row / s->target.columns;
    size_t n = 0;
    for (size_t b = 0; b < s->c->B; b++)
        for (size_t l = 0; l < lines; l++)
            n += compared(s, on, b, l);
    return n;
}

void mha__search_differences(const mha__search *s, size_t worker, const mha__region *on, const mha__candidate *x,
                             double *differences)
{
    const mha__target *t = &s->target;
    const size_t lines = t->row / t->columns;
    double scale;
    if (mha__search_is_over(s) || !compute(s, worker, on, x, &scale)) {
        memset(differences, 0, mha__search_elements(s, on) * sizeof *differences);
        return;
    }
    for (size_t b = 0; b < s->c->B; b++)
        for (size_t l = 0; l < lines; l++) {
            const double *found = s->workers.computed[worker] + b * t->row + l * t->columns;
            const double *y = t->values + (b * lines + l) * t->recorded_columns;
            for (size_t j = 0, n = compared(s, on, b, l); j < n; j++)
                *differences++ =
                    mha__search_same(t, found[j], y[j]) || !isfinite(found[j] - y[j]) ? 0 : found[j] - y[j];
        }
}
