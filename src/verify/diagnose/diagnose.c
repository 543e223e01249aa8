/* The diagnosis: finds the variants, alone or in pairs, that turn the inputs of a case into its recorded tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compute/gemm.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/search.h"

static mha_status no_memory(const mha__search *s, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, s->c->name, "no memory to diagnose the case");
}

/* ---------------------------------------------------------------- the tensor */

/* An expected tensor in the order and shape in which variants compute it, batch row by batch row. */
static mha_view in_order(const mha_case *c, const case_expected *e, mha_stage stage)
{
    const mha_view *v = &e->view;
    if (stage == MHA_STAGE_OUTPUT && c->kind == CASE_MHA)
        return mha_view_rows(v->data, v->dtype, c->layout, c->B, c->T_q, c->E_out);
    if (stage == MHA_STAGE_OUTPUT)
        return mha_view_heads(v->data, v->dtype, c->layout, c->B, c->T_q, c->H, c->kind == CASE_ROPE ? c->d_k : c->d_v);
    return *v;
}

static bool find_tensor(const mha_case *c, const char *name, int *wide, int *slot)
{
    static const char *const prefix[] = {"expected.", "expected64."};
    /* Without a name, the output is taken; without an output, the last stage that is recorded. */
    for (int s = name ? CASE_EXPECTED_COUNT - 1 : CASE_EXPECTED_COUNT; s >= 0; s--) {
        int candidate_slot = s == CASE_EXPECTED_COUNT ? (int)MHA_STAGE_OUTPUT : s;
        for (int w = 0; w < 2; w++) {
            const char *full = c->expected[w][candidate_slot].name;
            bool skip = !full || candidate_slot == CASE_PREFILL_OUTPUT;
            if (!skip && (!name || strcmp(name, full) == 0 || strcmp(name, full + strlen(prefix[w])) == 0)) {
                *wide = w;
                *slot = candidate_slot;
                return true;
            }
        }
    }
    return false;
}

static void measure_size(mha__target *t, size_t elements)
{
    double sum = 0;
    size_t finite = 0;
    for (size_t i = 0; i < elements; i++) {
        if (!isfinite(t->values[i]))
            continue;
        t->largest = fmax(t->largest, fabs(t->values[i]));
        sum += t->values[i] * t->values[i];
        finite++;
    }
    t->rms = finite > 0 ? sqrt(sum / (double)finite) : 0;
}

static mha_status load(mha__search *s, const char *name, mha_diagnosis *d, mha_error *error)
{
    const mha_case *c = s->c;
    mha__target *t = &s->target;
    int wide;
    if (!find_tensor(c, name, &wide, &t->slot))
        return name ? mha__fail(error, MHA_NOT_FOUND, "tensor", "expected a recorded stage, found none named %s", name)
                    : mha__fail(error, MHA_NOT_FOUND, NULL, "expected a recorded stage, found none");
    const case_expected *e = &c->expected[wide][t->slot];
    mha__text_print(d->tensor, sizeof d->tensor, "%s", e->name);
    t->stage = t->slot == CASE_QK ? c->qk_stage : (mha_stage)t->slot;
    t->stored = d->stored = e->stored;
    t->storage = mha__storage_of(e->stored);
    t->wide = e->view.dtype == MHA_F64;
    t->by_query = mha__stage_is_by_query(c, t->stage);
    size_t shape[4];
    const int rank = mha__variant_shape(s->inputs, t->stage, shape);
    t->row = 1;
    for (int k = 1; k < rank; k++)
        t->row *= shape[k];
    t->columns = shape[rank - 1];
    const mha_view v = in_order(c, e, t->stage);
    t->recorded_columns = t->slot == CASE_QK ? v.shape[v.rank - 1] : t->columns;
    const size_t elements = mha_view_elements(&v), rows = c->B * c->T_q;
    if (elements == 0)
        return mha__fail(error, MHA_UNSUPPORTED, e->name, "expected elements, found none");
    t->values = mha__arena_take(&s->pool, elements * sizeof *t->values);
    s->base = mha__arena_take(&s->pool, c->B * t->row * sizeof *s->base);
    s->judged = mha__arena_take(&s->pool, rows);
    s->screened = mha__arena_take(&s->pool, rows);
    s->distance = mha__arena_take(&s->pool, rows * sizeof *s->distance);
    if (!t->values || !s->base || !s->judged || !s->screened || !s->distance)
        return no_memory(s, error);
    const mha_view copy = mha_view_of(t->values, MHA_F64, v.rank, v.shape);
    (void)mha_view_copy(&copy, &v); /* cannot fail: both are floats */
    measure_size(t, elements);
    return MHA_OK;
}

/* ---------------------------------------------------------------- one candidate */

/* Whether two variants make a pair: both are tried in pairs, each changes a knob even after the other, and their order
 * does not matter. */
static bool are_compatible(const mha__search *s, int a, int b)
{
    mha__knobs one, other, both, reverse;
    if (!mha_variant_is_paired((size_t)a) || !mha_variant_is_paired((size_t)b))
        return false;
    return mha__variants_apply(s->c, a, -1, &one) && mha__variants_apply(s->c, b, -1, &other) &&
           mha__variants_apply(s->c, a, b, &both) && mha__variants_apply(s->c, b, a, &reverse) &&
           mha__knobs_equal(&both, &reverse) && !mha__knobs_equal(&both, &one) && !mha__knobs_equal(&both, &other);
}

/* ---------------------------------------------------------------- many candidates */

typedef struct work {
    mha__search *s;
    const size_t *which; /* candidates, by number */
    const unsigned char *kept;
    bool complete;
} work;

static void fit_task(void *context, size_t task, int worker)
{
    const work *w = context;
    mha__search *s = w->s;
    mha__candidate *x = &s->candidates[w->which[task]];
    mha__search_fit(s, (size_t)worker, w->kept, x);
    x->complete = w->complete;
    const size_t done = __atomic_add_fetch(&s->done, 1, __ATOMIC_RELAXED);
    if (worker == 0 && s->progress && s->progress->report) /* only the calling thread reports */
        s->progress->report(s->progress->context, done < s->total ? done : s->total, s->total);
}

/* Fits n candidates on the rows of `kept`. */
static void fit_all(mha__search *s, const size_t *which, size_t n, const unsigned char *kept, bool complete)
{
    work w = {s, which, kept, complete};
    mha__parallel_for(n, (int)s->workers, fit_task, &w);
}

/* ---------------------------------------------------------------- which of them explain the tensor */

/* The least excess among the complete candidates with at most `order` variants. */
static double best_of(const mha__search *s, size_t order)
{
    double best = INFINITY;
    for (size_t i = 0; i < s->count; i++)
        if (s->candidates[i].complete && s->candidates[i].order <= order)
            best = fmin(best, s->candidates[i].excess);
    return best;
}

/* Whether rounding explains a candidate's excess: it is within the noise floor, which grows with the scale of the
 * scores, and, because the noise floor is generous, within 16 times the excess of the best candidate. */
static bool is_rounding(const mha__search *s, const mha__candidate *x, int wide, double best)
{
    const mha__target *t = &s->target;
    const double unit = wide ? 0x1p-53 : 0x1p-24;
    const double noise = fmax(x->louder * t->noise[wide], 64 * unit * t->largest);
    return x->excess <= noise + t->storage.absolute && x->excess <= 16 * fmax(best, 4 * unit * t->largest);
}

/* Whether a candidate reproduces the tensor. The unmodified case does if the judge would pass it. A variant must also
 * come nearer than the unmodified case, because the noise floor of a variant with a larger scale is larger. */
static bool is_exact(const mha__search *s, const mha__candidate *x, int wide, double best)
{
    const mha__target *t = &s->target;
    const mha__candidate *said = &s->candidates[0];
    if (!x->complete || !x->numbers)
        return false;
    const bool allowed = x->needed[wide] <= t->allowed[wide].atol;
    if (x->order == 0)
        return allowed;
    const bool nearer = !said->numbers || x->excess < 0.9 * said->excess;
    return !x->unchanged && nearer && (is_rounding(s, x, wide, best) || (t->states[wide] && allowed));
}

/* The least number of variants in an exact candidate; 3 when no candidate is exact. */
static size_t least_order(const mha__search *s, int wide, size_t most)
{
    const double best = best_of(s, most);
    size_t least = 3;
    for (size_t i = 0; i < s->count; i++)
        if (s->candidates[i].order < least && is_exact(s, &s->candidates[i], wide, best))
            least = s->candidates[i].order;
    return least;
}

/* ---------------------------------------------------------------- reporting */

static mha_explanation explain(const mha__search *s, const mha__candidate *x, bool exact, int wide)
{
    const mha__target *t = &s->target;
    const int which[] = {x->a, x->b};
    const mha_dtype rounding = wide ? MHA_F64 : t->storage.relative > 0 ? t->stored : MHA_F32;
    mha_explanation e = {.max_abs = x->max_abs, .relative = x->relative, .exact = exact, .rounding = rounding};
    e.stated = exact && !is_rounding(s, x, wide, INFINITY);
    for (int i = 0; i < 2; i++)
        if (which[i] >= 0)
            e.variants[e.count++] = mha__variant_entry_at((size_t)which[i])->shown.name;
    return e;
}

void mha_diagnosis_clear(mha_diagnosis *diagnosis)
{
    mha_allocator a = mha__allocator_default();
    mha__release(&a, diagnosis->matches, diagnosis->match_count * sizeof *diagnosis->matches);
    mha__release(&a, diagnosis->undecided, diagnosis->undecided_count * sizeof *diagnosis->undecided);
    diagnosis->matches = NULL;
    diagnosis->undecided = NULL;
    diagnosis->match_count = diagnosis->undecided_count = 0;
}

/* Makes the matches from the candidates with the given indices. */
static mha_status report_matches(const mha__search *s, const size_t *which, size_t n, bool exact, int wide,
                                 mha_diagnosis *d, mha_error *error)
{
    mha_allocator a = mha__allocator_default();
    if (n == 0)
        return MHA_OK;
    d->matches = mha__allocate(&a, n * sizeof *d->matches);
    if (!d->matches)
        return no_memory(s, error);
    for (d->match_count = 0; d->match_count < n; d->match_count++)
        d->matches[d->match_count] = explain(s, &s->candidates[which[d->match_count]], exact, wide);
    return MHA_OK;
}

/* Reports single variants that change nothing on the judged rows; with `too`, also those that pass the tolerance. */
static mha_status report_undecided(const mha__search *s, bool too, int wide, mha_diagnosis *d, mha_error *error)
{
    mha_allocator a = mha__allocator_default();
    const double atol = s->target.allowed[wide].atol;
    size_t n = 0;
    const char **names = mha__allocate(&a, (s->singles + 1) * sizeof *names);
    if (!names)
        return no_memory(s, error);
    for (size_t i = 1; i < s->singles; i++) {
        const mha__candidate *x = &s->candidates[i];
        if (x->unchanged || (too && x->numbers && x->needed[wide] <= atol))
            names[n++] = mha__variant_entry_at((size_t)x->a)->shown.name;
    }
    if (n > 0)
        d->undecided = mha__allocate(&a, n * sizeof *names);
    if (d->undecided) {
        memcpy(d->undecided, names, n * sizeof *names);
        d->undecided_count = n;
    }
    mha__release(&a, names, (s->singles + 1) * sizeof *names);
    return n == 0 || d->undecided ? MHA_OK : no_memory(s, error);
}

/* Reports all candidates of `order` that reproduce the tensor. */
static mha_status report_exact(mha__search *s, size_t order, int wide, size_t *which, mha_diagnosis *d,
                               mha_error *error)
{
    const double best = best_of(s, order);
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        if (s->candidates[i].order == order && is_exact(s, &s->candidates[i], wide, best))
            which[n++] = i;
    TRY(report_undecided(s, order == 0, wide, d, error));
    return report_matches(s, which, n, true, wide, d, error);
}

/* Reports another number of heads when it reproduces the tensor and no single variant does. */
static mha_status report_other_heads(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    const mha__candidate *said = &s->candidates[0];
    mha_allocator a = mha__allocator_default();
    mha__candidate x;
    size_t heads;
    TRY(mha__search_other_heads(s, &heads, &x, error));
    int wide = s->target.wide;
    if (wide && !is_rounding(s, &x, wide, best_of(s, 1)) && least_order(s, 0, 1) > 1)
        wide = 0; /* an explanation to float64 accuracy comes before one to float32 accuracy */
    const bool nearer = !said->numbers || x.excess < 0.9 * said->excess;
    if (heads == 0 || !nearer || !is_rounding(s, &x, wide, best_of(s, 1)))
        return MHA_OK;
    TRY(report_undecided(s, false, wide, d, error));
    d->matches = mha__allocate(&a, sizeof *d->matches);
    if (!d->matches)
        return no_memory(s, error);
    d->matches[d->match_count++] = explain(s, &x, true, wide);
    d->matches[0].heads = heads;
    return MHA_OK;
}

/* A total order, so that the result does not depend on the C library: qsort need not be stable. */
static int by_fit(const void *x, const void *y)
{
    const mha__candidate *a = x, *b = y;
    if (a->complete != b->complete)
        return a->complete ? -1 : 1;
    if (a->relative != b->relative)
        return a->relative < b->relative ? -1 : 1;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return a->a != b->a ? a->a - b->a : a->b - b->b;
}

/* Whether the rms of a candidate's difference is small, and at most twice that of the best candidate. A variant must
 * also be nearer than the unmodified case. */
static bool is_near(const mha__candidate *x, double best, double said)
{
    const double near = 0.02;
    return x->complete && x->numbers && !x->unchanged && x->relative <= near && x->relative <= 2 * best &&
           (x->order == 0 || x->relative < 0.9 * said);
}

/* Whether both variants of a pair bring it nearer: it is clearly nearer than each of them alone. */
static bool needs_both(const mha__search *s, const mha__candidate *x)
{
    const double clearly = 0.95;
    if (x->order < 2)
        return true;
    for (size_t i = 0; i < s->count; i++) {
        const mha__candidate *y = &s->candidates[i];
        if (y->order == 1 && (y->a == x->a || y->a == x->b) && !(x->relative < clearly * y->relative))
            return false;
    }
    return true;
}

/* Reports, when nothing is exact, the near candidates and the three closest ones that differ from each other. */
static mha_status report_closest(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error)
{
    enum { MOST_NEAR = 8 };
    const double said = s->candidates[0].relative;
    TRY(report_undecided(s, false, 0, d, error));
    qsort(s->candidates, s->count, sizeof *s->candidates, by_fit);
    double last = -1, best = s->candidates[0].relative;
    for (size_t i = 0; i < s->count && d->closest_count < 3; i++) {
        const mha__candidate *x = &s->candidates[i];
        if (!x->complete || x->unchanged || !(x->relative < 0.99 * said) ||
            (last >= 0 && x->relative <= last * (1 + 1e-9)) || !needs_both(s, x))
            continue;
        last = x->relative;
        d->closest[d->closest_count++] = explain(s, x, false, 0);
    }
    size_t least = 3, n = 0;
    for (size_t i = 0; i < s->count; i++)
        if (is_near(&s->candidates[i], best, said) && s->candidates[i].order < least)
            least = s->candidates[i].order;
    for (size_t order = least; order <= 2 && order <= least + (least == 0); order++)
        for (size_t i = 0; i < s->count && n < MOST_NEAR; i++)
            if (s->candidates[i].order == order && is_near(&s->candidates[i], best, said))
                which[n++] = i;
    return report_matches(s, which, n, false, 0, d, error);
}

/* ---------------------------------------------------------------- searching */

/* Lists the unmodified case, the single variants that apply to it, and their pairs. */
static mha_status list_candidates(mha__search *s, mha_error *error)
{
    const int n = (int)mha_variant_count();
    const size_t most = 1 + (size_t)n + (size_t)n * (size_t)n / 2;
    mha__knobs knobs;
    s->candidates = mha__arena_take(&s->pool, most * sizeof *s->candidates);
    if (!s->candidates)
        return no_memory(s, error);
    for (int a = -1; a < n; a++)
        if (mha__variants_apply(s->c, a, -1, &knobs))
            s->candidates[s->singles++] = (mha__candidate){.a = a, .b = -1, .order = a >= 0};
    s->total = s->singles;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (are_compatible(s, a, b))
                s->candidates[s->total++] = (mha__candidate){.a = a, .b = b, .order = 2};
    s->count = s->singles;
    return MHA_OK;
}

static void add_up(size_t *which, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        which[i - from] = i;
}

/* Whether a pair may explain the tensor, judging by the rows on which it was tried. */
static bool is_promising(const mha__search *s, const mha__candidate *x)
{
    const mha__target *t = &s->target;
    return x->numbers && (x->excess <= x->louder * t->noise[0] + t->storage.absolute ||
                          (t->states[0] && x->needed[0] <= t->allowed[0].atol));
}

/* Tries all pairs on some of the judged rows, then the pairs that fit there, and the best 16, on all judged rows. */
static void try_pairs(mha__search *s, size_t *which)
{
    enum { BEST = 16 };
    const size_t first = s->singles;
    size_t best[BEST], kept = 0, n = 0;
    mha__search_screen(s);
    add_up(which, first, s->total);
    fit_all(s, which, s->total - first, s->screened, false);
    for (size_t i = first; i < s->total; i++) {
        const mha__candidate *x = &s->candidates[i];
        size_t at = kept < BEST ? kept : BEST - 1;
        if (kept == BEST && !(x->relative < s->candidates[best[BEST - 1]].relative))
            continue;
        kept += kept < BEST;
        for (; at > 0 && s->candidates[best[at - 1]].relative > x->relative; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
    for (size_t i = first; i < s->total; i++) {
        bool chosen = is_promising(s, &s->candidates[i]);
        for (size_t k = 0; k < kept && !chosen; k++)
            chosen = best[k] == i;
        if (chosen)
            which[n++] = i;
    }
    fit_all(s, which, n, s->judged, true);
    s->count = s->total;
}

static mha_status find(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    TRY(list_candidates(s, error));
    size_t *which = mha__arena_take(&s->pool, (s->total + 1) * sizeof *which);
    if (!which)
        return no_memory(s, error);
    add_up(which, 0, s->singles);
    fit_all(s, which, s->singles, s->judged, true);
    d->tried = s->count;
    d->baseline = explain(s, &s->candidates[0], is_exact(s, &s->candidates[0], s->target.wide, 0), s->target.wide);
    /* A tensor recorded in float64 is explained to float64 accuracy; only if that fails is float32 accuracy tried. */
    for (size_t most = 1; most <= 2; most++) {
        if (most == 2) {
            TRY(report_other_heads(s, d, error));
            if (d->match_count > 0)
                return MHA_OK;
            try_pairs(s, which);
        }
        d->tried = s->count;
        const size_t order = least_order(s, s->target.wide, most);
        if (order <= 2)
            return report_exact(s, order, s->target.wide, which, d, error);
    }
    const size_t order = s->target.wide ? least_order(s, 0, 2) : 3;
    return order <= 2 ? report_exact(s, order, 0, which, d, error) : report_closest(s, which, d, error);
}

/* ---------------------------------------------------------------- the whole */

static mha_status make_benches(mha__search *s, int threads, mha_error *error)
{
    /* memory for cached rows, shared out among all threads */
    const size_t most = (size_t)1 << 30, quarter = mha__memory_at_hand() / 4, bytes = quarter < most ? quarter : most;
    const int wanted = threads > 0 ? threads : mha__parallel_default();
    s->workers = wanted < MHA_SEARCH_WORKERS ? (size_t)wanted : MHA_SEARCH_WORKERS;
    for (size_t w = 0; w < s->workers; w++) {
        s->bench[w] = mha__variant_bench_create(s->inputs, s->in_part ? s->judged : NULL, bytes / s->workers);
        s->computed[w] = mha__arena_take(&s->pool, s->c->B * s->target.row * sizeof(double));
        if (!s->bench[w] || !s->computed[w])
            return no_memory(s, error);
    }
    return MHA_OK;
}

static mha_status search(mha__search *s, const char *tensor, int threads, mha_diagnosis *d, mha_error *error)
{
    const size_t T = s->c->T_q;
    TRY(mha__variant_inputs_create(s->c, &s->inputs, error));
    s->said = mha__knobs_of(s->c);
    TRY(load(s, tensor, d, error));
    TRY(mha__search_prepare(s, error));
    for (size_t r = 0; r < s->c->B * T; r++)
        d->part.judged += s->judged[r];
    d->part.rows = s->c->B * T;
    TRY(make_benches(s, threads, error));
    return find(s, d, error);
}

mha_status mha_case_diagnose(const mha_case *c, const char *tensor, int threads, const mha_progress *progress,
                             mha_diagnosis *diagnosis, mha_error *error)
{
    *diagnosis = (mha_diagnosis){0};
    TRY(mha__parallel_check(threads, error));
    mha__search s = {.c = c, .progress = progress};
    s.pool.allocator = mha__allocator_default();
    const int openmp = mha__gemm_begin();
    mha_status status = search(&s, tensor, threads, diagnosis, error);
    mha__gemm_end(openmp);
    if (status == MHA_OK && progress && progress->report)
        progress->report(progress->context, s.total, s.total);
    for (size_t w = 0; w < s.workers; w++)
        mha__variant_bench_destroy(s.bench[w]);
    mha__variant_inputs_destroy(s.inputs);
    mha__arena_free(&s.pool);
    if (status != MHA_OK)
        mha_diagnosis_clear(diagnosis);
    return status;
}
