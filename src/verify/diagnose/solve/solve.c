/* Finds the numbers of variants that have some: one of a list by trying all, any number by least squares. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/part.h"
#include "verify/diagnose/solve/solve.h"

enum { MOST_CHOSEN = 32 }; /* numbers of a list that are tried on all judged rows */

/* Memory for one worker, and for what one variant's search has found. */
typedef struct scratch {
    double *r, *tried, *J;     /* differences: of the present numbers, of others; derivatives by each number */
    double *products, *slope;  /* J^T J, the lower triangle; -J^T r */
    double *normal, *step;     /* J^T J damped; the solution */
    double *x, *other;         /* numbers */
    double *fits;              /* of numbers of a list, of which there are at most as many as keys, and one */
    unsigned char *rows;       /* (B, T_q) */
} scratch;

typedef struct found {
    size_t index, count; /* of the variant; of the candidates */
    double *numbers;     /* memory for those of MOST_CHOSEN candidates */
    mha__candidate candidates[MOST_CHOSEN];
} found;

typedef struct solving {
    mha__search *s;
    size_t elements; /* in the region of the second pass */
    found *all;
    scratch scratch[MHA_VARIANT_WORKERS];
} solving;

static mha__candidate candidate(size_t index, const double *numbers)
{
    return (mha__candidate){.a = (int)index, .b = -1, .numbers = numbers, .order = 1};
}

/* ---------------------------------------------------------------- one of a list */

/* Of candidates in the order in which they fit leaves those that may fit, judging by where they were tried: what
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

/* Keeps the numbers that fit best where little is to be computed. */
static void choose(const mha__search *s, size_t worker, const mha__variant_entry *e, found *f)
{
    double x;
    for (size_t i = 0; e->choice(s->c, i, &x); i++) {
        mha__knobs knobs = s->unmodified.knobs;
        mha__candidate one = candidate(f->index, &x);
        if (!e->apply(s->c, &knobs, &x) || mha__knobs_equal(&knobs, &s->unmodified.knobs))
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
    leave_first(s, f);
}

/* ---------------------------------------------------------------- one of a list for each batch row */

/* How well the numbers in m->other fit where m->rows and the columns say. */
static double fit_there(const mha__search *s, size_t worker, size_t index, const scratch *m, size_t columns)
{
    const mha__region there = {m->rows, columns};
    mha__candidate one = candidate(index, m->other);
    mha__search_fit(s, worker, &there, &one);
    return one.relative;
}

/* Puts the number of the list that fits batch row b best on its judged rows into m->x. All are tried on a few rows, and
 * on the others those that fit there as well as the best. */
static void choose_for_batch(const mha__search *s, size_t worker, const mha__variant_entry *e, size_t index, size_t b,
                             const scratch *m)
{
    enum { FEW = 2 };
    const size_t T = s->c->T_q;
    const double slack = 2 * s->target.noise[0] / fmax(s->target.rms, s->target.noise[0]);
    double least = INFINITY, best = INFINITY;
    memset(m->rows, 0, s->c->B * T);
    mha__search_mark(s, b, FEW, FEW, s->rows_judged, m->rows);
    memcpy(m->other, m->x, s->c->B * sizeof *m->x);
    for (size_t i = 0; i <= s->inputs->S && e->choice(s->c, i, &m->other[b]); i++) {
        m->fits[i] = fit_there(s, worker, index, m, s->region_second.columns);
        least = fmin(least, m->fits[i]);
    }
    memcpy(m->rows + b * T, s->rows_judged + b * T, T);
    for (size_t i = 0; i <= s->inputs->S && e->choice(s->c, i, &m->other[b]); i++) {
        const bool is_near = m->fits[i] <= least + slack;
        const double fit = is_near ? fit_there(s, worker, index, m, s->region_full.columns) : INFINITY;
        if (fit < best) {
            best = fit;
            m->x[b] = m->other[b];
        }
    }
}

/* Chooses the best number of the list for each batch row with judged rows; for others the first of the list. */
static void choose_by_batch(const solving *w, size_t worker, const mha__variant_entry *e, found *f)
{
    const mha__search *s = w->s;
    const scratch *m = &w->scratch[worker];
    for (size_t b = 0; b < s->c->B; b++)
        (void)e->choice(s->c, 0, &m->x[b]);
    for (size_t b = 0; b < s->c->B; b++)
        if (memchr(s->rows_judged + b * s->c->T_q, 1, s->c->T_q))
            choose_for_batch(s, worker, e, f->index, b, m);
    memcpy(f->numbers, m->x, s->c->B * sizeof *m->x);
    f->candidates[f->count++] = candidate(f->index, f->numbers);
}

/* ---------------------------------------------------------------- least squares */

static double squares(const double *r, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += r[i] * r[i];
    return sum;
}

static double product(const double *x, const double *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* The number of equal ratio to its neighbours: x + step times x where numbers keep their sign, else x + step. */
static double moved(const mha__variant_entry *e, double x, double step)
{
    return e->low * e->high > 0 ? copysign(fmin(fmax(fabs(x) * exp(step), e->low), e->high), x) : x + step;
}

/* The sum of squared differences of these numbers in the region of the second pass; stores the differences. */
static double evaluate(const solving *w, size_t worker, size_t index, const double *x, double *differences)
{
    const mha__candidate one = candidate(index, x);
    mha__search_differences(w->s, worker, &w->s->region_second, &one, differences);
    return squares(differences, w->elements);
}

/* Least squares after Levenberg and Marquardt from the numbers in m->x, which it improves. */
static void descend(const solving *w, size_t worker, const mha__variant_entry *e, size_t index, size_t n)
{
    enum { MOST_STEPS = 40 };
    const scratch *m = &w->scratch[worker];
    const double tiny = 1e-6, little = 1e-3;
    double damping = 1e-3, now = evaluate(w, worker, index, m->x, m->r);
    for (int step = 0; step < MOST_STEPS && damping < 1e6 && now > 0; step++) {
        memcpy(m->other, m->x, n * sizeof *m->x);
        for (size_t k = 0; k < n; k++) {
            double *column = m->J + k * w->elements;
            m->other[k] = moved(e, m->x[k], tiny);
            (void)evaluate(w, worker, index, m->other, column);
            for (size_t i = 0; i < w->elements; i++)
                column[i] = (column[i] - m->r[i]) / tiny;
            m->other[k] = m->x[k];
        }
        for (size_t i = 0; i < n; i++) {
            const double *column = m->J + i * w->elements;
            for (size_t j = 0; j <= i; j++)
                m->products[i * n + j] = product(column, m->J + j * w->elements, w->elements);
            m->slope[i] = -product(column, m->r, w->elements);
        }
        double gained = 0;
        while (damping < 1e6 && gained <= 0) {
            memcpy(m->normal, m->products, n * n * sizeof *m->normal);
            memcpy(m->step, m->slope, n * sizeof *m->step);
            for (size_t i = 0; i < n; i++)
                if ((m->normal[i * n + i] *= 1 + damping) == 0)
                    m->normal[i * n + i] = 1; /* a number without effect stays */
            if (!mha__cholesky(m->normal, n, 0))
                return;
            mha__cholesky_solve(m->normal, n, m->step);
            for (size_t k = 0; k < n; k++)
                m->other[k] = moved(e, m->x[k], m->step[k]);
            const double then = evaluate(w, worker, index, m->other, m->tried);
            gained = now - then;
            if (gained > 0) {
                memcpy(m->x, m->other, n * sizeof *m->x);
                memcpy(m->r, m->tried, w->elements * sizeof *m->r);
                now = then;
            }
            damping *= gained > 0 ? 0.01 : 100;
        }
        if (!(gained > little * now)) /* the minimum, or so shallow that nothing is there */
            return;
    }
}

/* Offers shorter numbers beside x. */
static void offer_shorter(const mha__variant_entry *e, double x, found *f)
{
    enum { MOST_DIGITS = 6 };
    for (int digits = 1; digits <= MOST_DIGITS + 1; digits++) {
        char text[32];
        mha__text_print(text, sizeof text, "%.*g", digits, x);
        const double shorter = strtod(text, NULL);
        const bool inside = fabs(shorter) >= e->low && fabs(shorter) <= e->high;
        f->numbers[f->count] = digits <= MOST_DIGITS && inside ? shorter : x;
        f->candidates[f->count] = candidate(f->index, &f->numbers[f->count]);
        f->count++;
    }
}

/* Tries numbers in equal ratios, those that fit best where little is to be computed once more, descends from the best
 * one, and offers shorter numbers beside the one it finds. */
static void descend_from_best(const solving *w, size_t worker, const mha__variant_entry *e, found *f)
{
    enum { STEPS = 33, AGAIN = 8 };
    const mha__search *s = w->s;
    double best = INFINITY, *x = w->scratch[worker].x, tried[2 * STEPS];
    mha__candidate one[2 * STEPS];
    const int n = e->how == SOLVE_SIGNED ? 2 * STEPS : STEPS;
    *x = e->low;
    for (int i = 0; i < n; i++) {
        tried[i] = (i < STEPS ? 1 : -1) * e->low * pow(e->high / e->low, (double)(i % STEPS) / (STEPS - 1));
        one[i] = candidate(f->index, &tried[i]);
        mha__search_fit(s, worker, &s->region_first, &one[i]);
    }
    for (int i = 0; i < n; i++) {
        int better = 0;
        for (int k = 0; k < n; k++)
            better += one[k].relative < one[i].relative;
        mha__candidate again = candidate(f->index, &tried[i]);
        if (better >= AGAIN)
            continue;
        mha__search_fit(s, worker, &s->region_second, &again);
        if (again.relative < best) {
            best = again.relative;
            *x = tried[i];
        }
    }
    descend(w, worker, e, f->index, 1);
    offer_shorter(e, *x, f);
}

/* Looks for the numbers that fit best among some in equal ratios, and again between their neighbours, where the result
 * changes in steps; the last times on all rows. Of numbers that fit alike the middle one is taken. */
static void step_to_best(const mha__search *s, size_t worker, const mha__variant_entry *e, found *f)
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
        if (round == 0 && least > 0.9 * most) /* no number does much */
            return;
        best = sqrt(from * to);
        low = fmax(from / ratio, e->low), high = fmin(to * ratio, e->high);
    }
    offer_shorter(e, best, f);
}

/* Descends from numbers that change little, and offers rounded numbers beside those it finds. */
static void descend_by_head(const solving *w, size_t worker, const mha__variant_entry *e, found *f)
{
    static const double starts[] = {0, 0.25};
    const mha__search *s = w->s;
    const size_t H = s->c->H;
    double *x = w->scratch[worker].x, *rounded = f->numbers, *best = f->numbers + H;
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        for (size_t h = 0; h < H; h++)
            x[h] = starts[i];
        descend(w, worker, e, f->index, H);
        mha__candidate one = candidate(f->index, x);
        mha__search_fit(s, worker, &s->region_second, &one);
        if (one.relative < least) {
            least = one.relative;
            memcpy(best, x, H * sizeof *x);
        }
    }
    for (size_t h = 0; h < H; h++) {
        most = fmax(most, fabs(best[h]));
        if (!(best[h] >= e->low && best[h] <= e->high)) /* so great that they leave nothing, which explains all zeros */
            return;
    }
    const double unit = most > 0 ? pow(10, floor(log10(most)) - 3) : 1; /* four digits of the largest */
    for (size_t h = 0; h < H; h++)
        rounded[h] = round(best[h] / unit) * unit;
    f->candidates[f->count++] = candidate(f->index, rounded);
    f->candidates[f->count++] = candidate(f->index, best);
}

/* ---------------------------------------------------------------- one variant */

/* Whether what is judged has more to say than n numbers can be fitted to: more elements, and more weights that are
 * free to differ. */
static bool is_enough(const mha__search *s, size_t n)
{
    const size_t T = s->c->T_q, most = n + 4,
                 bound = s->unmodified.knobs.s.softmax.normaliser == MHA_SOFTMAX; /* they add up to 1 */
    size_t free_weights = 0;
    for (size_t r = 0; r < s->c->B * T && free_weights < most; r++) {
        if (!s->region_second.rows[r])
            continue;
        const size_t seen = mha__variant_count_seen(s->inputs, &s->unmodified.knobs, r / T, r % T);
        free_weights += seen > bound ? (seen - bound) * s->c->H : 0;
    }
    return free_weights >= most && mha__search_elements(s, &s->region_second) >= most;
}

/* Leaves those that may fit, judging by a few rows; if none may, the best one there. */
static void leave_promising(const mha__search *s, size_t worker, found *f)
{
    size_t best = 0, n = 0;
    if (f->count < 2)
        return;
    for (size_t i = 0; i < f->count; i++) {
        mha__search_fit(s, worker, &s->region_second, &f->candidates[i]);
        best = f->candidates[i].relative < f->candidates[best].relative ? i : best;
    }
    for (size_t i = 0; i < f->count; i++)
        if (mha__search_is_promising(s, &f->candidates[i]))
            f->candidates[n++] = f->candidates[i];
    if (n == 0)
        f->candidates[n++] = f->candidates[best];
    f->count = n;
}

/* Leaves the best candidate, shortest number first, and those that do the same. */
static void leave_best(const mha__search *s, size_t worker, int how, found *f)
{
    const double unit = s->target.wide ? 0x1p-53 : 0x1p-24, ulp = 4 * unit * s->target.largest;
    double best = INFINITY;
    size_t n = 0;
    leave_promising(s, worker, f);
    for (size_t i = 0; i < f->count; i++) {
        mha__candidate *x = &f->candidates[i];
        mha__search_fit(s, worker, &s->region_full, x);
        x->complete = true;
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
    const mha__variant_entry *e = mha__solved_entry_at(f->index);
    switch (e->how) {
    case SOLVE_LISTED: choose(s, (size_t)worker, e, f); break;
    case SOLVE_BY_BATCH: choose_by_batch(w, (size_t)worker, e, f); break;
    case SOLVE_REAL:
    case SOLVE_SIGNED: descend_from_best(w, (size_t)worker, e, f); break;
    case SOLVE_STEPPED: step_to_best(s, (size_t)worker, e, f); break;
    default: descend_by_head(w, (size_t)worker, e, f); break;
    }
    leave_best(s, (size_t)worker, e->how, f);
    mha__search_step(s, (size_t)worker);
}

/* ---------------------------------------------------------------- all of them */

/* Whether a variant applies to the case with some numbers, which it is not to read. */
static bool applies(const mha__search *s, size_t index, const mha__variant_entry *e)
{
    mha__knobs knobs = s->unmodified.knobs;
    double x = e->low;
    if (e->how >= SOLVE_HEADS) /* is looked for on its own */
        return false;
    return (!e->choice || e->choice(s->c, 0, &x)) && e->apply(s->c, &knobs, &x) &&
           mha__search_tries(s, (int)index, -1, &knobs);
}

/* The variant at an index of the list if its numbers can be looked for. A list is too short to fit to anything. */
static const mha__variant_entry *entry_at(const mha__search *s, size_t index)
{
    const mha__variant_entry *e = mha__solved_entry_at(index);
    const bool can =
        e && applies(s, index, e) && (e->how <= SOLVE_BY_BATCH || is_enough(s, mha__solved_count(s->c, e)));
    return can ? e : NULL;
}

size_t mha__search_count_solved(const mha__search *s)
{
    size_t n = 0;
    for (size_t i = 0; i < mha_variant_count(); i++)
        n += entry_at(s, i) != NULL;
    return n;
}

/* Memory for n numbers, `free_ones` of which are found by least squares at once. */
static bool make_scratch(mha__search *s, solving *w, size_t n, size_t free_ones)
{
    for (size_t i = 0; i < s->workers.count; i++) {
        scratch *m = &w->scratch[i];
        const size_t square = free_ones * free_ones;
        const size_t numbers =
            (free_ones + 2) * w->elements + 2 * (square + free_ones) + 2 * n + s->inputs->S + 1;
        double *memory = mha__arena_take(&s->pool, numbers * sizeof *memory);
        m->rows = mha__arena_take(&s->pool, s->c->B * s->c->T_q);
        if (!memory || !m->rows)
            return false;
        m->r = memory;
        m->tried = m->r + w->elements;
        m->J = m->tried + w->elements;
        m->products = m->J + free_ones * w->elements;
        m->slope = m->products + square;
        m->normal = m->slope + free_ones;
        m->step = m->normal + square;
        m->x = m->step + free_ones;
        m->other = m->x + n;
        m->fits = m->other + n;
    }
    return true;
}

mha_status mha__search_solve(mha__search *s, mha_error *error)
{
    const size_t variants = mha_variant_count();
    solving w = {.s = s, .elements = mha__search_elements(s, &s->region_second)};
    size_t n = 0, most = 1, free_ones = 1;
    for (size_t i = 0; i < variants; i++) {
        const mha__variant_entry *e = entry_at(s, i);
        const size_t count = e ? mha__solved_count(s->c, e) : 1;
        most = count > most ? count : most;
        free_ones = e && e->how == SOLVE_BY_HEAD ? count : free_ones;
    }
    w.all = mha__arena_take(&s->pool, variants * sizeof *w.all);
    if (!w.all || !make_scratch(s, &w, most, free_ones))
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < variants; i++) {
        if (!entry_at(s, i))
            continue;
        w.all[n] = (found){.index = i, .numbers = mha__arena_take(&s->pool, (MOST_CHOSEN + 2 * most) * sizeof(double))};
        if (!w.all[n++].numbers)
            return mha__search_no_memory(s, error);
    }
    mha__parallel_for(n, (int)s->workers.count, solve_one, &w);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < w.all[i].count; k++)
            s->candidates.all[s->candidates.count++] = w.all[i].candidates[k];
    s->candidates.singles = s->candidates.count;
    return MHA_OK;
}

mha_status mha__search_solve_each(mha__search *s, int how, mha_error *error)
{
    static mha_status (*const solve[])(mha__search *, size_t, mha__arena *, mha_error *) = {
        [SOLVE_HEADS] = mha__solve_heads,
        [SOLVE_KV_HEADS] = mha__solve_kv_heads,
        [SOLVE_BATCHES] = mha__solve_batches,
        [SOLVE_KEYS] = mha__solve_keys,
        [SOLVE_DROPPED] = mha__solve_dropout,
        [SOLVE_QUERIES] = mha__solve_queries,
        [SOLVE_VALUES] = mha__solve_values,
        [SOLVE_KEY_ROWS] = mha__solve_key_rows,
        [SOLVE_UNWRITTEN] = mha__solve_unwritten,
        [SOLVE_WRITTEN] = mha__solve_written,
    };
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha_status status = MHA_OK;
    for (size_t i = 0; i < mha_variant_count() && status == MHA_OK; i++) {
        const mha__variant_entry *e = mha__solved_entry_at(i);
        if (e && e->how == how)
            status = solve[how](s, i, &pool, error);
    }
    mha__arena_free(&pool);
    return status;
}
