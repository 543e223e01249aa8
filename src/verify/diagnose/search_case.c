/* The search: finds the single bugs and pairs that turn the inputs of a case into its recorded tensor. */
#include <math.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/clues.h"
#include "verify/diagnose/search_case.h"
#include "verify/diagnose/solve/solve.h"
#include "verify/thresholds/thresholds.h"

/* ---------------------------------------------------------------- many candidates */

typedef struct work {
    mha__search *s;
    const size_t *which; /* candidates, by number */
    const mha__region *on;
} work;

static void fit_task(void *context, size_t task, int worker)
{
    const work *w = context;
    mha__search *s = w->s;
    mha__candidate *x = &s->candidates.all[w->which[task]];
    mha__search_fit(s, (size_t)worker, w->on, x);
    x->complete = w->on == &s->region_full && !x->untried;
    if (x->untried)
        mha__search_leave(s, 1);
    else
        mha__search_step(s, (size_t)worker);
}

/* Fits n candidates on a region. */
static void fit_all(mha__search *s, const size_t *which, size_t n, const mha__region *on)
{
    work w = {s, which, on};
    mha__parallel_for(n, (int)s->workers.count, fit_task, &w);
}

/* ---------------------------------------------------------------- searching */

/* Lists the unmodified case and the single bugs that apply to it. */
static mha_status list_singles(mha__search *s, mha_error *error)
{
    const int n = (int)mha_bug_count();
    const size_t N = (size_t)n, most = 1 + N + MHA_SEARCH_TIES * N, most_pairs = N * N / 2;
    size_t paired = 0;
    mha__program program;
    s->candidates.all = mha__arena_take(&s->pool, (most + most_pairs) * sizeof *s->candidates.all);
    if (!s->candidates.all)
        return mha__search_no_memory(s, error);
    const bool is_lse = s->target.stage == MHA_STAGE_LSE;
    for (int a = -1; a < n; a++) /* bugs of the log-sum-exp change nothing else; a softmax over others has none */
        if (mha__bugs_apply(s->c, a, -1, &program) &&
            !mha__has(&program, is_lse ? AT_E : AT_LSE, is_lse ? OP_OVER : OP_FN) &&
            (a < 0 || mha__search_tries(s, a, -1, &program))) {
            s->candidates.all[s->candidates.count++] = (mha__candidate){.a = a, .b = -1, .order = a >= 0};
            paired += a >= 0 && mha__bug_is_paired((size_t)a);
        }
    s->candidates.singles = s->candidates.count;
    s->progress.alone = s->candidates.singles + mha__search_count_solved(s);
    s->progress.total = s->progress.alone + paired * (paired - (paired > 0)) / 2; /* or less: list_pairs */
    return MHA_OK;
}

/* Lists the pairs of single bugs, after all candidates. */
static void list_pairs(mha__search *s)
{
    const size_t before = s->candidates.count, singles = s->candidates.singles;
    const mha__candidate *all = s->candidates.all;
    mha__program program;
    for (size_t i = 1; i < singles; i++)
        for (size_t j = i + 1; j < singles && mha__bug_is_paired((size_t)all[i].a); j++) {
            const mha__candidate both = {.a = all[i].a, .b = all[j].a, .order = 2};
            if (mha__bug_is_paired((size_t)all[j].a) && mha__search_are_two(s, 0, &both, &program) &&
                mha__search_tries(s, both.a, both.b, &program))
                s->candidates.all[s->candidates.count++] = both;
        }
    s->progress.total = s->progress.alone + s->candidates.count - before;
}

static void add_up(size_t *which, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        which[i - from] = i;
}

/* Leaves those candidates that fit where they were tried, and the best `most` others. */
static size_t leave_promising(const mha__search *s, size_t *which, size_t n, size_t most)
{
    enum { MOST = 64 };
    size_t best[MOST] = {0}, kept = 0, left = 0;
    for (size_t i = 0; i < n && most > 0; i++) {
        const mha__candidate *x = &s->candidates.all[which[i]];
        if (x->untried)
            continue;
        size_t at = kept < most ? kept : most - 1;
        if (kept == most && !(x->relative < s->candidates.all[best[at]].relative))
            continue;
        kept += kept < most;
        for (; at > 0 && s->candidates.all[best[at - 1]].relative > x->relative; at--)
            best[at] = best[at - 1];
        best[at] = which[i];
    }
    for (size_t i = 0; i < n; i++) {
        const mha__candidate *x = &s->candidates.all[which[i]];
        bool chosen = mha__search_is_promising(s, x) || (x->order == 1 && x->unchanged);
        for (size_t k = 0; k < kept && !chosen; k++)
            chosen = best[k] == which[i];
        if (chosen)
            which[left++] = which[i];
    }
    return left;
}

/* Leaves the pairs that may fit: rounding moves a result by little, so what it is paired with must be near on its own.
 * `marks`: memory for each bug. */
static size_t leave_possible(mha__search *s, unsigned char *marks, size_t *which, size_t n)
{
    enum { ROUNDS = 1, IS_FAR = 2 };
    size_t left = 0;
    for (size_t i = 1; i < s->candidates.singles; i++) {
        const mha__candidate *x = &s->candidates.all[i];
        if (!x->numbers)
            marks[x->a] = (mha__search_only_rounds(s, x) ? ROUNDS : 0) | (x->relative > MHA__MOST_LEFT ? IS_FAR : 0);
    }
    for (size_t i = 0; i < n; i++) {
        const mha__candidate *x = &s->candidates.all[which[i]];
        const unsigned char a = marks[x->a], b = marks[x->b];
        if ((a & ROUNDS && b & IS_FAR) || (b & ROUNDS && a & IS_FAR))
            mha__search_step(s, 0);
        else
            which[left++] = which[i];
    }
    return left;
}

/* Tries all pairs where little is to be computed, those that fit there and the best others where it is more, and again
 * on all that is checked. */
static mha_status try_pairs(mha__search *s, size_t *which, mha_error *error)
{
    const size_t first = s->candidates.count;
    unsigned char *marks = mha__arena_take(&s->pool, mha_bug_count());
    if (!marks)
        return mha__search_no_memory(s, error);
    list_pairs(s);
    if (mha__search_is_over(s)) {
        mha__search_leave(s, s->candidates.count - first);
        s->candidates.count = first;
    }
    add_up(which, first, s->candidates.count);
    size_t n = leave_possible(s, marks, which, s->candidates.count - first);
    fit_all(s, which, n, &s->region_first);
    n = leave_promising(s, which, n, 64);
    fit_all(s, which, n, &s->region_second);
    n = leave_promising(s, which, n, 16);
    fit_all(s, which, n, &s->region_full);
    return MHA_OK;
}

/* Whether the tensor is finite in at least an eighth of the elements in which the unmodified case is. */
static bool is_mostly_finite(const mha__search *s)
{
    const mha__target *t = &s->target;
    const size_t lines = s->c->B * (t->row / t->columns), n = t->recorded_columns;
    size_t expected = 0, finite = 0;
    for (size_t i = 0; i < lines * n; i++)
        if (isfinite(s->unmodified.whole[i / n * t->columns + i % n])) {
            expected++;
            finite += isfinite(t->values[i]) != 0;
        }
    return 8 * finite >= expected;
}

/* Compares the unmodified case with all that is checked, and then the single bugs: where a part is checked, all of
 * them on few rows, and on the others those that fit there, those that change nothing there and the best others. Of a
 * tensor that `has_numbers` says has few numbers none is tried: NaN agrees with NaN, whatever made it. */
static void fit_singles(mha__search *s, size_t *which, bool has_numbers)
{
    enum { BEST = 16 };
    mha__moved moved;
    mha__candidate *said = &s->candidates.all[0];
    mha__search_hold(s, &s->region_full, s->unmodified.stage, said, &moved);
    said->complete = true;
    said->louder = 1;
    size_t n = has_numbers ? s->candidates.singles - 1 : 0;
    add_up(which, 1, s->candidates.singles);
    if (s->in_part) {
        fit_all(s, which, n, &s->region_first);
        n = leave_promising(s, which, n, BEST);
    }
    fit_all(s, which, n, &s->region_full);
}

/* Widens the search until something reproduces the tensor: single bugs, another number of heads, bugs with a
 * number, pairs. */
static mha_status widen(mha__search *s, mha_diagnosis *d, size_t *which, size_t *order, mha_error *error)
{
    const int wide = s->target.wide;
    *order = mha__search_least_order(s, wide, 1);
    if (*order <= 2)
        return MHA_OK;
    if (!s->wish->whole && !mha__search_is_over(s))
        TRY(mha__report_other_heads(s, d, error));
    if (d->match_count > 0)
        return MHA_OK;
    TRY(mha__search_solve(s, error));
    if (!s->wish->whole)
        TRY(mha__search_solve_each(s, error));
    d->tried = s->progress.alone - s->untried;
    *order = mha__search_least_order(s, wide, 1);
    if (*order <= 2)
        return MHA_OK;
    TRY(try_pairs(s, which, error));
    d->tried = s->progress.total - s->untried;
    *order = mha__search_least_order(s, wide, 2);
    return MHA_OK;
}

/* True if only numbers for each head reproduce the tensor. */
static bool has_number_by_head(const mha__search *s, size_t order, int wide)
{
    bool all = order == 1;
    for (size_t i = 0; i < s->candidates.singles && all; i++) {
        const mha__candidate *x = &s->candidates.all[i];
        const mha__bug_entry *e = x->a >= 0 ? mha__solved_entry_at((size_t)x->a) : NULL;
        all = !mha__search_is_exact(s, x, wide, 0x1p1000) || (e && x->numbers && e->how == SOLVE_BY_HEAD);
    }
    return all;
}

static mha_status find(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    size_t order;
    mha__search_choose_regions(s);
    TRY(list_singles(s, error));
    const size_t most = s->progress.total + MHA_SEARCH_TIES * mha_bug_count();
    size_t *which = mha__arena_take(&s->pool, most * sizeof *which);
    if (!which)
        return mha__search_no_memory(s, error);
    const bool has_numbers = is_mostly_finite(s);
    fit_singles(s, which, has_numbers);
    s->candidates.count = s->candidates.singles = has_numbers ? s->candidates.singles : 1;
    d->tried = s->candidates.count - s->untried;
    const mha__candidate *said = &s->candidates.all[0];
    d->baseline = mha__search_explain(s, said, mha__search_is_exact(s, said, s->target.wide, 0), s->target.wide);
    order = has_numbers ? 3 : mha__search_least_order(s, s->target.wide, 1);
    if (has_numbers)
        TRY(widen(s, d, which, &order, error));
    if (d->match_count > 0)
        return MHA_OK;
    /* A tensor recorded in float64 is explained to float64 accuracy; only if that fails is float32 accuracy tried. */
    int wide = s->target.wide;
    if (order > 2 && wide && isfinite(s->target.noise[0]))
        order = mha__search_least_order(s, wide = 0, 2);
    /* A bug in some heads comes before a number for each head, which fits more. */
    if (has_numbers && (order > 2 || has_number_by_head(s, order, wide))) {
        TRY(mha__search_in_places(s, mha__search_singles, d, error));
        TRY(d->match_count > 0 ? MHA_OK : mha__search_in_heads(s, mha__search_singles, d, error));
    }
    if (d->match_count == 0 && order <= 2)
        return mha__report_exact(s, order, wide, which, d, error);
    if (d->match_count > 0)
        return MHA_OK;
    TRY(mha__search_clues(s, d, error));
    if (!has_numbers)
        return MHA_OK;
    if (d->clue_count == 0)
        TRY(mha__report_low_precision(s, which, d, error));
    if (!mha__search_is_over(s))
        mha__search_solve_closest(s, true);
    TRY(mha__report_rounding(s, which, d, error));
    if (d->match_count == 0)
        TRY(mha__search_unnamed(s, d, error));
    if (d->match_count == 0)
        TRY(mha__search_pairs(s, d, error));
    if (d->match_count > 0)
        return MHA_OK;
    if (!mha__search_is_over(s))
        mha__search_solve_closest(s, false);
    return mha__report_closest(s, which, d, error);
}

/* ---------------------------------------------------------------- the whole */

/* Numbers of the inputs, and of them read in other ways. */
static double input_numbers(const mha__inputs *in)
{
    if (!in)
        return 0;
    double numbers = input_numbers(in->other) + input_numbers(in->turned);
    for (int i = 0; i < 3; i++)
        numbers += (double)(in->c->B * in->T[i] * in->in[i]);
    for (int i = 0; i < PROJECTION_COUNT; i++)
        numbers += in->weight[mha__projection_W(i)] ? (double)(in->in[i] * in->out[i]) : 0;
    return numbers;
}

/* The memory that the search takes in any case, and that of one more worker: its scores, rows of heads and slots. Rows
 * that are not checked take none, except for those of the slots and of inputs read in other ways. */
static void measure_memory(const mha__search *s, double *shared, double *worker)
{
    const mha__inputs *in = s->inputs;
    const double H = (double)s->c->H, d = (double)(s->c->d_k + s->c->d_v), stage = (double)(s->c->B * s->target.row),
                 others = in->other || in->turned ? 3 * (double)(s->c->T_q * s->c->d_v) * H : 0;
    double rows = 0, slot = 0;
    for (size_t r = 0; r < s->c->B * s->c->T_q; r++)
        rows += s->rows_checked[r];
    for (int i = 0; i < 3; i++)
        slot = fmax(slot, (double)(in->T[i] * in->h[i] * in->d[i]));
    *shared = sizeof(double) * (input_numbers(in) + 3 * stage);
    *worker = sizeof(double) *
              (2 * H * rows * (double)(in->S + 2) + 8 * rows * H * d + (2 * MHA__LEAST_SLOTS + 1) * slot + others);
}

static mha_status make_benches(mha__search *s, int threads, mha_error *error)
{
    size_t bytes;
    double shared, worker;
    s->workers.count = mha__runner_count(threads, &bytes);
    measure_memory(s, &shared, &worker);
    while (s->workers.count > 0 && shared + worker * (double)s->workers.count > s->wish->memory)
        s->workers.count--;
    s->halted = s->no_memory = s->workers.count == 0;
    if (s->halted)
        return MHA_OK;
    const int benches = 1 + (s->inputs->other != NULL) + (s->inputs->turned != NULL); /* each takes so many bytes */
    const double left = ((s->wish->memory - shared) / (double)s->workers.count - worker) / benches;
    bytes = left < (double)bytes ? (size_t)left : bytes;
    for (size_t w = 0; w < s->workers.count; w++) {
        s->workers.bench[w] = mha__runner_create(s->inputs, s->in_part ? s->rows_checked : NULL, bytes);
        s->workers.computed[w] = mha__arena_take(&s->pool, s->c->B * s->target.row * sizeof(double));
        if (!s->workers.bench[w] || !s->workers.computed[w])
            return mha__search_no_memory(s, error);
    }
    return MHA_OK;
}

static mha_status search(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    TRY(mha__inputs_create(s->asked, &s->inputs, error));
    s->c = s->inputs->c;
    s->unmodified.program = mha__program_of(s->c);
    TRY(mha__target_load(s, s->wish->tensor, d, error));
    TRY(mha__search_prepare(s, error));
    const mha__target *t = &s->target;
    if (t->allowed[t->wide].derived && !isfinite(t->allowed[t->wide].atol))
        return mha__fail(error, MHA_UNSUPPORTED, d->tensor,
                         "is not checked: numbers may leave the range of float32 on the way, so that no tolerance "
                         "follows from the call: expected one in the case (atol, rtol), or smaller inputs");
    for (size_t r = 0; r < s->c->B * s->c->T_q; r++) {
        d->part.checked += s->rows_checked[r] && s->rows_present[r];
        d->part.rows += s->rows_present[r];
    }
    TRY(make_benches(s, s->wish->threads, error));
    TRY(find(s, d, error));
    d->limits.untried = s->untried;
    d->limits.reached = s->no_memory ? MHA_LIMIT_MEMORY : MHA_LIMIT_NONE;
    if (s->no_time || mha__clock_seconds() >= s->until)
        d->limits.reached = MHA_LIMIT_TIME;
    return MHA_OK;
}

mha_status mha__search_case(const mha_case *c, const mha__search_wish *wish, mha_diagnosis *diagnosis, mha_error *error)
{
    *diagnosis = (mha_diagnosis){0};
    const mha_progress *progress = wish->progress;
    mha__search s = {.wish = wish, .asked = c, .c = c, .progress.caller = progress, .until = wish->until};
    s.pool.allocator = mha__allocator_default();
    mha__gemm_bracket bracket;
    TRY(mha__gemm_begin(wish->threads, &bracket, error));
    mha_status status = search(&s, diagnosis, error);
    mha__gemm_end(&bracket);
    if (status == MHA_OK && progress && progress->report)
        progress->report(progress->context, s.progress.total, s.progress.total);
    for (size_t w = 0; w < s.workers.count; w++)
        mha__runner_destroy(s.workers.bench[w]);
    mha__inputs_destroy(s.inputs);
    mha__arena_free(&s.pool);
    if (status != MHA_OK)
        mha_diagnosis_clear(diagnosis);
    return status;
}
