/* The diagnosis: searches a case, or one slice of a large one, whose answer is then held against all other slices. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "compute/thread_pool.h"
#include "verify/diagnose/search_case.h"
#include "verify/diagnose/slice.h"
#include "verify/diagnose/target.h"

/* A case in slices, with what is asked. */
typedef struct sliced {
    const mha_case *c;
    const mha__search_wish *wish;
    int wide, slot;
    size_t count;
    size_t judged, rows; /* of the slices that the answer was held against */
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

static bool is_undecided(const mha_diagnosis *d, const char *variant)
{
    for (size_t i = 0; i < d->undecided_count; i++)
        if (d->undecided[i] == variant)
            return true;
    return false;
}

/* Whether two explanations say the same: the same variants, with the same numbers but for how well a slice tells
 * them, within the same rounding. */
static bool say_the_same(const mha_explanation *a, const mha_explanation *b)
{
    const double alike = 1e-3;
    bool same = a->count == b->count && a->exact == b->exact && a->rounding == b->rounding;
    for (size_t i = 0; i < a->count && same; i++) {
        const double x = a->number[i], y = b->number[i];
        same = a->variants[i] == b->variants[i] &&
               (isnan(x) || isnan(y) ? isnan(x) && isnan(y) && strcmp(a->found[i], b->found[i]) == 0
                                     : fabs(x - y) <= alike * fabs(x));
    }
    return same;
}

static void add_difference(mha_explanation *to, const mha_explanation *e)
{
    to->max_abs = fmax(to->max_abs, e->max_abs);
    to->relative = fmax(to->relative, e->relative);
    to->stated |= e->stated;
}

/* Leaves of an answer what another slice says, too: a variant that changes nothing there does not contradict it where
 * the case is right. */
static void leave_common(mha_diagnosis *d, const mha_diagnosis *other)
{
    size_t matches = 0, undecided = 0;
    for (size_t i = 0; i < d->match_count; i++) {
        mha_explanation *e = &d->matches[i];
        bool left = is_right(other) && e->count == 1 && is_undecided(other, e->variants[0]);
        for (size_t k = 0; k < other->match_count; k++)
            if (say_the_same(e, &other->matches[k])) {
                left = true;
                add_difference(e, &other->matches[k]);
            }
        if (left)
            d->matches[matches++] = *e;
    }
    for (size_t i = 0; i < d->undecided_count; i++)
        if (is_undecided(other, d->undecided[i]))
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

/* Searches slice n; `only`: NULL, or the answer of slice `from`, beside which nothing is tried. */
static mha_status look(sliced *s, size_t n, size_t from, const mha_diagnosis *only, mha_diagnosis *d, mha_error *error)
{
    mha__search_wish wish = *s->wish;
    mha_case *slice;
    wish.tensor = mha_stage_name((mha_stage)s->slot);
    wish.progress = only ? NULL : wish.progress;
    wish.whole = s->c;
    wish.only = only;
    wish.known_sight = only && n / s->c->H_kv == from / s->c->H_kv;
    TRY(mha__slice_of(s->c, s->wide, s->slot, n, &slice, error));
    const mha_status status = mha__search_case(slice, &wish, d, error);
    mha_case_close(slice);
    s->judged += d->part.judged;
    s->rows += d->part.rows;
    return status;
}

/* Holds the answer of one slice against all others, as long as something of it is left. *differs: the first slice that
 * is not what the case says, where the answer says that it is. */
static mha_status hold(sliced *s, size_t from, mha_diagnosis *d, size_t *differs, mha_error *error)
{
    const bool right = is_right(d);
    *differs = s->count;
    s->judged = d->part.judged, s->rows = d->part.rows;
    for (size_t n = 0; n < s->count && is_found(d); n++) {
        mha_diagnosis other;
        if (n == from)
            continue;
        TRY(look(s, n, from, d, &other, error));
        if (right && !is_right(&other))
            *differs = n;
        leave_common(d, &other);
        mha_diagnosis_clear(&other);
    }
    return MHA_OK;
}

/* Searches the first slice and, if that is right, the first that is not. */
static mha_status search_slices(sliced *s, mha_diagnosis *d, mha_error *error)
{
    size_t differs, unused;
    TRY(look(s, 0, 0, NULL, d, error));
    TRY(hold(s, 0, d, &differs, error));
    if (differs == s->count)
        return MHA_OK;
    mha_diagnosis_clear(d);
    TRY(look(s, differs, differs, NULL, d, error));
    return hold(s, differs, d, &unused, error);
}

/* Answers by slices; nothing is found when no answer holds for all of them. */
static mha_status diagnose_slices(sliced *s, mha_diagnosis *d, mha_error *error)
{
    *d = (mha_diagnosis){0};
    const mha_status status = search_slices(s, d, error);
    if (status != MHA_OK || !is_found(d)) {
        mha_diagnosis_clear(d);
        return status;
    }
    mha__text_print(d->tensor, sizeof d->tensor, "%s", s->c->expected[s->wide][s->slot].name);
    d->part.judged = s->judged;
    d->part.rows = s->rows;
    d->part.slices = s->count;
    return MHA_OK;
}

mha_status mha__case_diagnose(const mha_case *c, const mha__search_wish *wish, double many, mha_diagnosis *diagnosis,
                              mha_error *error)
{
    *diagnosis = (mha_diagnosis){0};
    TRY(mha__parallel_check(wish->threads, error));
    sliced s = {.c = c, .wish = wish};
    if (mha__target_find(c, wish->tensor, &s.wide, &s.slot) && mha__case_work(c) > many)
        s.count = mha__slice_count(c, s.slot);
    if (s.count > 1)
        TRY(diagnose_slices(&s, diagnosis, error));
    return is_found(diagnosis) ? MHA_OK : mha__search_case(c, wish, diagnosis, error);
}

mha_status mha_case_diagnose(const mha_case *c, const char *tensor, int threads, const mha_progress *progress,
                             mha_diagnosis *diagnosis, mha_error *error)
{
    const mha__search_wish wish = {.tensor = tensor, .threads = threads, .progress = progress};
    return mha__case_diagnose(c, &wish, 2e9, diagnosis, error);
}
