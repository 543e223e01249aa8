/* The diagnosis: searches a case, or one slice of a large one and compares the answer with all other slices. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/search_case.h"
#include "verify/engine/case_inputs.h"
#include "verify/sample.h"
#include "verify/thresholds/thresholds.h"

#define MANY 2e9 /* multiply-adds of a case that is searched in slices */

/* A case in slices, with what is asked. */
typedef struct sliced {
    const mha_case *c;
    const mha__search_wish *wish;
    int wide, slot;
    size_t count;
    size_t checked, rows; /* of the slices that were compared with the answer */
    size_t compared;      /* slices, these and the one that was searched */
    double half;          /* when the search of a slice ends, so that time is left for the whole */
    mha_case *slice;      /* the one that was searched and for which nothing was found */
    mha_diagnosis refuted;
} sliced;

/* ---------------------------------------------------------------- answers */

/* Whether an answer reproduces the tensor. */
static bool is_found(const mha_diagnosis *d)
{
    return d->match_count > 0 && d->matches[0].exact;
}

/* Whether it is what the case says. */
static bool is_right(const mha_diagnosis *d)
{
    return is_found(d) && d->matches[0].count == 0;
}

/* Whether two matches say the same: the same bugs, with the same numbers but for how well a slice tells
 * them, within the same rounding. */
static bool say_the_same(const mha_bug_match *a, const mha_bug_match *b)
{
    bool same = a->count == b->count && a->exact == b->exact && a->rounding == b->rounding;
    for (size_t i = 0; i < a->count && same; i++) {
        const double x = a->number[i], y = b->number[i];
        same = a->bugs[i] == b->bugs[i] &&
               (isnan(x) || isnan(y) ? isnan(x) && isnan(y) && strcmp(a->found[i], b->found[i]) == 0
                                     : fabs(x - y) <= MHA__SAME_NUMBER * fabs(x));
    }
    return same;
}

static void add_difference(mha_bug_match *to, const mha_bug_match *e)
{
    to->max_abs = fmax(to->max_abs, e->max_abs);
    to->relative = fmax(to->relative, e->relative);
    to->stated |= e->stated;
}

/* Leaves of an answer what another slice says, too: a bug that changes nothing there does not contradict it where
 * the case is right. */
static void leave_common(mha_diagnosis *d, const mha_diagnosis *other)
{
    size_t matches = 0, undecided = 0;
    for (size_t i = 0; i < d->match_count; i++) {
        mha_bug_match *e = &d->matches[i];
        bool left = is_right(other) && e->count == 1 && mha__leaves_undecided(other, e->bugs[0]);
        for (size_t k = 0; k < other->match_count; k++)
            if (say_the_same(e, &other->matches[k])) {
                left = true;
                add_difference(e, &other->matches[k]);
            }
        if (left)
            d->matches[matches++] = *e;
    }
    for (size_t i = 0; i < d->undecided_count; i++)
        if (mha__leaves_undecided(other, d->undecided[i]))
            d->undecided[undecided++] = d->undecided[i];
    mha_allocator a = mha__allocator_default();
    if (matches == 0)
        mha__release(&a, d->matches, d->match_count * sizeof *d->matches), d->matches = NULL;
    d->match_count = matches;
    d->undecided_count = undecided;
    add_difference(&d->baseline, &other->baseline);
    d->baseline.exact &= other->baseline.exact;
}

/* ---------------------------------------------------------------- slices */

/* Searches slice n; `only`: NULL, or the answer of slice `from`: nothing else is tried. */
static mha_status look(sliced *s, size_t n, size_t from, const mha_diagnosis *only, mha_diagnosis *d, mha_error *error)
{
    mha__search_wish wish = *s->wish;
    mha_case *slice;
    wish.tensor = mha_stage_at((mha_stage)s->slot)->name;
    wish.progress = only ? NULL : wish.progress;
    wish.whole = s->c;
    wish.only = only;
    wish.until = only ? wish.until : s->half;
    wish.known_visibility = only && n / s->c->H_kv == from / s->c->H_kv;
    TRY(mha__slice_of(s->c, s->wide, s->slot, n, &slice, error));
    const mha_status status = mha__search_case(slice, &wish, d, error);
    mha_case_close(slice);
    s->checked += d->part.checked;
    s->rows += d->part.rows;
    return status;
}

/* Compares the answer of one slice with all others, as long as something of it is left. *differs: the first slice that
 * is not what the case says, where the answer says that it is. */
static mha_status hold(sliced *s, size_t from, mha_diagnosis *d, size_t *differs, mha_error *error)
{
    const bool right = is_right(d);
    *differs = s->count;
    s->checked = d->part.checked, s->rows = d->part.rows;
    s->compared = 1;
    for (size_t n = 0; n < s->count && is_found(d) && mha__clock_seconds() < s->wish->until; n++) {
        mha_diagnosis other;
        if (n == from)
            continue;
        s->compared++;
        TRY(look(s, n, from, d, &other, error));
        if (right && !is_right(&other))
            *differs = n;
        leave_common(d, &other);
        mha_diagnosis_clear(&other);
    }
    return MHA_OK;
}

/* Keeps the answer of slice n if it explains nothing there, for the search of the whole. */
static mha_status keep_refuted(sliced *s, size_t n, mha_diagnosis *d, mha_error *error)
{
    if (is_found(d))
        return MHA_OK;
    TRY(mha__slice_of(s->c, s->wide, s->slot, n, &s->slice, error));
    s->refuted = *d;
    *d = (mha_diagnosis){0};
    return MHA_OK;
}

/* Searches the first slice and, if that is right, the first that is not. */
static mha_status search_slices(sliced *s, mha_diagnosis *d, mha_error *error)
{
    size_t differs, unused;
    TRY(look(s, 0, 0, NULL, d, error));
    TRY(keep_refuted(s, 0, d, error));
    TRY(hold(s, 0, d, &differs, error));
    if (differs == s->count)
        return MHA_OK;
    mha_diagnosis_clear(d);
    TRY(look(s, differs, differs, NULL, d, error));
    TRY(keep_refuted(s, differs, d, error));
    return hold(s, differs, d, &unused, error);
}

/* Says of an answer that not all slices were compared with it. */
static void leave_open(mha_diagnosis *d, size_t slices)
{
    d->limits.reached = MHA_LIMIT_TIME;
    d->limits.slices = slices;
    d->baseline.exact = false;
    for (size_t i = 0; i < d->match_count; i++)
        d->matches[i].exact = false;
}

/* Answers by slices; nothing is found when no answer fits all of them. */
static mha_status diagnose_slices(sliced *s, mha_diagnosis *d, mha_error *error)
{
    *d = (mha_diagnosis){0};
    const mha_status status = search_slices(s, d, error);
    if (status != MHA_OK || !is_found(d)) {
        mha_diagnosis_clear(d);
        *d = (mha_diagnosis){0};
        return status;
    }
    mha__text_print(d->tensor, sizeof d->tensor, "%s", s->c->expected[s->wide][s->slot].name);
    d->part.checked = s->checked;
    d->part.rows = s->rows;
    d->part.slices = s->compared;
    if (s->compared < s->count)
        leave_open(d, s->count - s->compared);
    return MHA_OK;
}

/* Searches a ragged batch that nothing explains as one row of segments. */
static mha_status diagnose_joined(const sliced *s, mha_diagnosis *d, mha_error *error)
{
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha_case joined;
    mha_diagnosis found = {0};
    mha__search_wish wish = *s->wish;
    wish.progress = NULL;
    mha_status status = MHA_OK;
    const bool packed = s->slot == (int)MHA_STAGE_OUTPUT || s->slot == (int)MHA_STAGE_HEADS;
    if (packed && mha__case_join(s->c, &pool, &joined))
        status = mha__search_case(&joined, &wish, &found, error);
    const double apart = fabs(found.baseline.relative - d->baseline.relative); /* 0 where it is the same call */
    if (status == MHA_OK && is_found(&found) && apart <= 1e-6 * d->baseline.relative) {
        const mha_diagnosis before = *d;
        *d = found, found = before;
    }
    mha_diagnosis_clear(&found);
    mha__arena_free(&pool);
    return status == MHA_NO_MEMORY ? status : MHA_OK; /* a call that is refused is not looked into */
}

/* Searches the whole case. A bug of single heads that did not explain a slice is not tried again. */
static mha_status diagnose_whole(const sliced *s, mha_diagnosis *d, mha_error *error)
{
    mha__search_wish wish = *s->wish;
    wish.slice = s->slice;
    wish.refuted = &s->refuted;
    TRY(mha__search_case(s->c, &wish, d, error));
    d->tried += s->refuted.tried;
    d->limits.untried += s->refuted.limits.untried;
    if (d->limits.reached == MHA_LIMIT_NONE)
        d->limits.reached = s->refuted.limits.reached;
    return MHA_OK;
}

mha_status mha__case_diagnose(const mha_case *c, const mha__search_wish *wish, double many, mha_diagnosis *diagnosis,
                              mha_error *error)
{
    *diagnosis = (mha_diagnosis){0};
    TRY(mha__parallel_check(wish->threads, error));
    sliced s = {.c = c, .wish = wish};
    const double now = mha__clock_seconds();
    s.half = wish->until > now ? now + (wish->until - now) / 2 : wish->until;
    if (mha__target_find(c, wish->tensor, &s.wide, &s.slot) && mha__case_work(c) > many)
        s.count = mha__slice_count(c, s.slot);
    mha_status status = s.count > 1 ? diagnose_slices(&s, diagnosis, error) : MHA_OK;
    if (status == MHA_OK && diagnosis->match_count == 0)
        status = diagnose_whole(&s, diagnosis, error);
    if (status == MHA_OK && diagnosis->match_count == 0 && c->semantics.place.n_sequences > 0)
        status = diagnose_joined(&s, diagnosis, error);
    mha_case_close(s.slice);
    mha_diagnosis_clear(&s.refuted);
    return status;
}

/* The first recorded tensor that is wrong; NULL where a check fails none. */
static mha_status find_wrong(const mha_case *c, int threads, mha_verdict *verdict, const char **tensor,
                             mha_error *error)
{
    int wide, slot;
    *tensor = NULL;
    TRY(mha_case_check(c, MHA_PATH_AUTO, NULL, threads, verdict, error));
    if (verdict->outcome == MHA_OUTCOME_FAILED && verdict->culprit < verdict->stage_count &&
        mha__target_find(c, verdict->stages[verdict->culprit].against, &wide, &slot))
        *tensor = verdict->stages[verdict->culprit].against;
    return MHA_OK;
}

/* Diagnoses what a check of the case fails, in place of an output that is right. */
static mha_status diagnose_wrong(const mha_case *c, mha__search_wish wish, mha_diagnosis *d, mha_error *error)
{
    mha_verdict verdict;
    mha_status status = find_wrong(c, wish.threads, &verdict, &wish.tensor, error);
    if (status == MHA_OK && wish.tensor && strcmp(wish.tensor, d->tensor) != 0) {
        mha_diagnosis_clear(d);
        status = mha__case_diagnose(c, &wish, MANY, d, error);
    }
    mha_verdict_clear(&verdict);
    return status;
}

/* Accepts a tensor that is NaN or infinite where float64 has numbers, if the fast path overflows as well and a check of
 * the tensor passes. */
static mha_status accept_overflow(const mha_case *c, int threads, mha_diagnosis *d, mha_error *error)
{
    mha_allocator a = mha__allocator_default();
    mha_verdict verdict;
    TRY(mha_case_check(c, MHA_PATH_AUTO, NULL, threads, &verdict, error));
    for (size_t i = 0; i < verdict.stage_count && d->match_count == 0; i++)
        if (strcmp(verdict.stages[i].against, d->tensor) == 0 && verdict.stages[i].ok) {
            mha_diagnosis_clear(d);
            d->closest_count = 0;
            d->matches = mha__allocate(&a, sizeof *d->matches);
            if (!d->matches)
                break;
            d->baseline = (mha_bug_match){.number = {NAN, NAN}, .exact = true, .rounding = MHA_F32};
            d->matches[d->match_count++] = d->baseline;
        }
    mha_verdict_clear(&verdict);
    return MHA_OK;
}

mha_status mha_case_diagnose(const mha_case *c, const char *tensor, int threads, const mha_progress *progress,
                             mha_diagnosis *diagnosis, mha_error *error)
{
    const double for_search = 0.9; /* of the time: the rest is left for the report */
    const double seconds = c->limited ? c->time_limit : MHA_TIME_LIMIT,
                 gigabytes = c->limited ? c->memory_limit : MHA_MEMORY_LIMIT;
    const mha__search_wish wish = {.tensor = tensor,
                                   .threads = threads,
                                   .progress = progress,
                                   .until = mha__clock_seconds() + for_search * seconds,
                                   .memory = 1e9 * gigabytes};
    mha_status status = mha__case_diagnose(c, &wish, MANY, diagnosis, error);
    if (status == MHA_OK && diagnosis->match_count == 0 && isinf(diagnosis->baseline.max_abs))
        status = accept_overflow(c, threads, diagnosis, error);
    if (status == MHA_OK && !tensor && is_right(diagnosis) && diagnosis->baseline.exact)
        status = diagnose_wrong(c, wish, diagnosis, error);
    if (status != MHA_OK)
        mha_diagnosis_clear(diagnosis);
    diagnosis->limits.seconds = seconds;
    diagnosis->limits.gigabytes = gigabytes;
    return status;
}

/* ---------------------------------------------------------------- limits */

void mha_case_limit(mha_case *c, double seconds, double gigabytes)
{
    c->limited = true;
    c->time_limit = seconds > 0 ? seconds : 0;
    c->memory_limit = gigabytes > 0 ? gigabytes : 0;
}
