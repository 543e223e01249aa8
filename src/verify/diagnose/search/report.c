/* Chooses the candidates that explain the tensor, and reports them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/core/exact/rounding.h"
#include "base/base.h"
#include "verify/diagnose/search/search.h"
#include "verify/places.h"
#include "verify/thresholds/thresholds.h"

/* ---------------------------------------------------------------- which of them explain the tensor */

/* The least excess among the complete candidates with at most `order` bugs. */
static double best_of(const mha__search *s, size_t order)
{
    double best = INFINITY;
    for (size_t i = 0; i < s->candidates.count; i++)
        if (s->candidates.all[i].complete && s->candidates.all[i].order <= order)
            best = fmin(best, s->candidates.all[i].excess);
    return best;
}

/* The rounding of an element that is summed over the keys and then over the heads, for a bug whose numbers are so
 * much larger than those of the case that its noise floor says nothing: at most 64 roundings of the largest number. */
static double least_noise(const mha__search *s, double unit)
{
    const double roundings = (double)(2 * s->inputs->S + s->c->H * s->c->d_v + 11);
    return fmin(roundings, MHA__MOST_ROUNDINGS) * unit * s->target.largest;
}

/* Whether rounding explains a candidate's excess: it is within the noise floor, which grows with the scale of the
 * scores, and, because the noise floor is generous, within 16 times the excess of the best candidate. */
static bool is_rounding(const mha__search *s, const mha__candidate *x, int wide, double best)
{
    const mha__target *t = &s->target;
    const double unit = wide ? 0x1p-53 : 0x1p-24;
    const double noise = fmax(x->louder * t->noise[wide], least_noise(s, unit));
    return x->excess <= noise + t->storage.absolute && x->excess <= MHA__AS_GOOD * fmax(best, 4 * unit * t->largest);
}

/* Whether the tensor has numbers, other than those of the unmodified case, that tell whether a match is right
 * which was free to fit: NaN agrees with NaN, whatever made it, and underflow makes zeros of anything. */
static bool has_numbers(const mha__search *s, int wide)
{
    return !s->target.is_zero && (!s->target.has_nan || s->candidates.all[0].apart[wide] > 1);
}

/* Whether a bug gives zeros for every score below 0, or far below it, of whatever kernel they are. */
static bool counts_none(const mha__search *s, const mha__candidate *x)
{
    mha__program program;
    return mha__bugs_apply(s->c, x->a, -1, &program) &&
           (mha__has(&program, AT_E, OP_FN) || mha__has(&program, AT_E, OP_DO));
}

/* Whether a candidate reproduces the tensor. The unmodified case does if the checker would pass it. A bug must also
 * come nearer than the unmodified case, because the noise floor of a bug with a larger scale is larger. */
bool mha__search_is_exact(const mha__search *s, const mha__candidate *x, int wide, double best)
{
    const mha__target *t = &s->target;
    const mha__candidate *said = &s->candidates.all[0];
    const bool free_to_fit = x->order > 1 || x->numbers || x->unnamed || x->heads,
               small_for_zero = x->order > 0 && t->is_zero && (x->max_abs > 0 || counts_none(s, x));
    if (!x->complete || !x->finite || (free_to_fit && !has_numbers(s, wide) && (x->unnamed == 0 || said->finite)) ||
        small_for_zero)
        return false;
    const bool allowed = x->needed[wide] <= t->allowed[wide].atol;
    if (x->order == 0)
        return allowed;
    /* A number that is free, or one of many changes, can make a little noise less. */
    const double clearly = x->numbers || x->unnamed || x->heads ? MHA__NEARER_FREE : MHA__NEARER;
    const bool nearer = !said->finite || x->excess < clearly * said->excess;
    return !x->unchanged && nearer && (is_rounding(s, x, wide, best) || (t->states[wide] && allowed));
}

/* The noise floor is that of float32, the larger one. One whose excess is a sixteenth of that of the unmodified case is
 * not refuted, because others are compared with it. */
bool mha__search_is_refuted(const mha__search *s, const mha__candidate *x)
{
    const mha__target *t = &s->target;
    const double noise = fmax(x->louder * t->noise[0], least_noise(s, 0x1p-24)) + t->storage.absolute;
    bool stated = false;
    for (int wide = 0; wide < 2; wide++)
        stated |= t->states[wide] && x->needed[wide] <= t->allowed[wide].atol;
    return !x->finite || (x->excess > noise && !stated && x->excess >= s->candidates.all[0].excess / MHA__AS_GOOD);
}

size_t mha__search_least_order(const mha__search *s, int wide, size_t most)
{
    const double best = best_of(s, most);
    size_t least = 3;
    for (size_t i = 0; i < s->candidates.count; i++)
        if (s->candidates.all[i].order < least && mha__search_is_exact(s, &s->candidates.all[i], wide, best))
            least = s->candidates.all[i].order;
    return least;
}

/* ---------------------------------------------------------------- reporting */

mha_bug_match mha__search_explain(const mha__search *s, const mha__candidate *x, bool exact, int wide)
{
    const mha__target *t = &s->target;
    const int which[] = {x->a, x->b};
    const mha_dtype kernel = mha__case_rounding(s->c);
    const mha_dtype rounding = kernel ? kernel : wide ? MHA_F64 : t->storage.relative > 0 ? t->stored : MHA_F32;
    mha_bug_match e = {.max_abs = x->max_abs, .relative = x->relative, .exact = exact, .rounding = rounding};
    e.stated = exact && !is_rounding(s, x, wide, INFINITY);
    for (int i = 0; i < 2; i++) {
        const double *numbers = i == 0 ? x->numbers : x->numbers_b;
        e.number[i] = NAN;
        if (which[i] < 0)
            continue;
        const mha__bug_entry *solved = mha__solved_entry_at((size_t)which[i]);
        e.bugs[e.count] = mha_bug_at((size_t)which[i])->name;
        if (numbers && (mha__solved_count(s->c, solved) == 1 || solved->how == SOLVE_DROPPED))
            e.number[e.count] = numbers[0];
        if (numbers)
            mha__numbers_say(s->c, solved, numbers, e.found[e.count], MHA_SEARCH_TEXT);
        e.count++;
    }
    if (x->unnamed > 0) {
        mha__program program = s->unmodified.program;
        e.bugs[e.count] = MHA__UNNAMED;
        (void)mha__unnamed_apply(s->c, x->unnamed - 1, s->workers.table[0], &program, e.found[e.count],
                                 sizeof e.found[0]);
        e.count++;
    }
    return e;
}

void mha_diagnosis_clear(mha_diagnosis *diagnosis)
{
    mha_allocator a = mha__allocator_default();
    mha__release(&a, diagnosis->matches, diagnosis->match_count * sizeof *diagnosis->matches);
    mha__release(&a, diagnosis->undecided, diagnosis->undecided_count * sizeof *diagnosis->undecided);
    mha__release(&a, diagnosis->clues, diagnosis->clue_count * sizeof *diagnosis->clues);
    diagnosis->clues = NULL;
    diagnosis->clue_count = 0;
    diagnosis->matches = NULL;
    diagnosis->undecided = NULL;
    diagnosis->match_count = diagnosis->undecided_count = 0;
}

mha_status mha__report_add(const mha__search *s, const mha_bug_match *found, size_t n, mha_diagnosis *d,
                           mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    const size_t before = d->match_count * sizeof *found;
    mha_bug_match *all = n > 0 ? mha__allocate(&a, before + n * sizeof *all) : NULL;
    if (n == 0 || !all)
        return n == 0 ? MHA_OK : mha__search_no_memory(s, error);
    if (before > 0)
        memcpy(all, d->matches, before);
    memcpy(all + d->match_count, found, n * sizeof *all);
    mha__release(&a, d->matches, before);
    d->matches = all, d->match_count += n;
    return MHA_OK;
}

/* Adds matches of the candidates with the given indices. */
static mha_status report_matches(const mha__search *s, const size_t *which, size_t n, bool exact, int wide,
                                 mha_diagnosis *d, mha_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const mha_bug_match match = mha__search_explain(s, &s->candidates.all[which[i]], exact, wide);
        TRY(mha__report_add(s, &match, 1, d, error));
    }
    return MHA_OK;
}

/* Adds to the last bug of a match the places in which it is made. */
static void say_places(const mha__places *p, mha_bug_match *match)
{
    const int last = (int)match->count - 1;
    char *text = match->found[last];
    const bool unnamed = strcmp(match->bugs[last], MHA__UNNAMED) == 0;
    const size_t length = strlen(text), room = sizeof match->found[0] - length;
    mha__text_print(text + length, room, "%s", unnamed ? ", " : *text ? " " : "");
    const size_t end = strlen(text);
    mha__places_say(p, text + end, unnamed ? room - (end - length) : MHA_SEARCH_TEXT);
}

size_t mha__report_found(const mha__search *s, const mha__candidate *all, size_t n, const mha__places *p,
                         mha_bug_match *found)
{
    double best = INFINITY;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        best = all[i].complete ? fmin(best, all[i].excess) : best;
    for (size_t i = 0; i < n && count < MHA_SEARCH_MATCHES; i++) {
        if (!mha__search_is_exact(s, &all[i], 0, best))
            continue;
        found[count] = mha__search_explain(s, &all[i], true, 0);
        unsigned char all_of[2] = {1, 1}, heads[64];
        const mha__places in_heads = {{1, s->c->H, 1}, {all_of, heads, all_of}};
        for (size_t h = 0; all[i].heads && h < s->c->H; h++)
            heads[h] = all[i].heads >> h & 1;
        if (p || all[i].heads)
            say_places(p ? p : &in_heads, &found[count]);
        count++;
    }
    return count;
}

/* Reports single bugs that change nothing on the checked rows; with `too`, also those that pass the tolerance. */
static mha_status report_undecided(const mha__search *s, bool too, int wide, mha_diagnosis *d, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    const double atol = s->target.allowed[wide].atol;
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (size_t i = 1; i < s->candidates.singles; i++) {
            const mha__candidate *x = &s->candidates.all[i];
            if (!x->unchanged && !(too && x->finite && x->needed[wide] <= atol))
                continue;
            if (pass > 0)
                d->undecided[n] = mha_bug_at((size_t)x->a)->name;
            n++;
        }
        if (n == 0)
            return MHA_OK;
        if (pass == 0 && !(d->undecided = mha__allocate(&a, n * sizeof *d->undecided)))
            return mha__search_no_memory(s, error);
        d->undecided_count = n;
    }
    return MHA_OK;
}

/* How free a candidate is to fit: without numbers, with one of a list, with any one, with several. */
enum { MOST_FREE = 3 };

static int freedom_of(const mha__search *s, const mha__candidate *x)
{
    const mha__bug_entry *e = x->numbers ? mha__solved_entry_at((size_t)x->a) : NULL;
    return !e ? 0 : e->how == SOLVE_LISTED ? 1 : mha__solved_count(s->c, e) == 1 ? 2 : MOST_FREE;
}

mha_status mha__report_exact(mha__search *s, size_t order, int wide, size_t *which, mha_diagnosis *d, mha_error *error)
{
    const double best = best_of(s, order);
    size_t n = 0;
    for (int freedom = 0; freedom <= MOST_FREE; freedom++)
        for (size_t i = 0; i < s->candidates.count; i++)
            if (s->candidates.all[i].order == order && freedom_of(s, &s->candidates.all[i]) == freedom &&
                mha__search_is_exact(s, &s->candidates.all[i], wide, best))
                which[n++] = i;
    TRY(report_undecided(s, order == 0, wide, d, error));
    return report_matches(s, which, n, true, wide, d, error);
}

mha_status mha__report_other_heads(mha__search *s, mha_diagnosis *d, mha_error *error)
{
    const mha__candidate *said = &s->candidates.all[0];
    mha__candidate x;
    size_t heads;
    TRY(mha__search_other_heads(s, &heads, &x, error));
    int wide = s->target.wide;
    if (wide && !is_rounding(s, &x, wide, best_of(s, 1)) && mha__search_least_order(s, 0, 1) > 1)
        wide = 0; /* a match to float64 accuracy comes before one to float32 accuracy */
    const bool nearer = !said->finite || x.excess < MHA__NEARER * said->excess;
    if (heads == 0 || !nearer || !is_rounding(s, &x, wide, best_of(s, 1)))
        return MHA_OK;
    TRY(report_undecided(s, false, wide, d, error));
    mha_bug_match match = mha__search_explain(s, &x, true, wide);
    match.heads = heads;
    return mha__report_add(s, &match, 1, d, error);
}

/* ---------------------------------------------------------------- a kernel of low precision */

/* True if a candidate leaves what rounding to a lower precision leaves, whose size is `by`: at
 * most what the checker would allow (tolerance.c), in the rms neither much less nor much more, and without a side that
 * it prefers: what rounding leaves is as often above as below. */
static bool is_low_rounding(const mha__search *s, const mha__candidate *x, const mha__moved *by)
{
    const mha__target *t = &s->target;
    const double rms = x->relative * (t->rms > 0 ? t->rms : 1);
    return x->complete && x->finite && !x->unchanged && x->lean <= MHA__LOW_LEAN * x->relative &&
           rms >= MHA__LOW_LEAST * by->rms && rms <= MHA__LOW_MOST * x->louder * by->rms &&
           x->excess <= x->louder * (t->noise[0] + MHA__LOW_LARGEST * by->most) + t->storage.absolute;
}

/* The candidates with one bug that rounding to a type explains: those that come about as near as the best. */
static size_t list_low(const mha__search *s, const mha__moved *by, size_t *which)
{
    double best = INFINITY;
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 1; i < s->candidates.singles; i++) {
            const mha__candidate *x = &s->candidates.all[i];
            if (x->numbers || x->relative > MHA__MOST_LEFT * s->candidates.all[0].relative ||
                !is_low_rounding(s, x, by))
                continue;
            if (pass == 0)
                best = fmin(best, x->relative);
            else if (x->relative <= MHA__LOW_ALIKE * best)
                which[n++] = i;
        }
    return n;
}

/* The case as a kernel of a type rounds it. */
typedef struct low {
    mha_dtype type;
    double most;     /* relative rms of what it may leave */
    double relative; /* of the tensor's difference from the case so rounded */
    mha__moved by;
} low;

static bool is_coarse(mha_dtype type)
{
    return type != MHA_TF32 && type != MHA_F16 && type != MHA_BF16;
}

/* Lists the case, or what differs from it by one bug, if the tensor is that as a kernel of a type may round it.
 * Eight bits leave room for much: there it can only be the case, which must be nearer to the tensor when it is rounded
 * alike. */
static size_t fit_low(const mha__search *s, const low *x, size_t *which)
{
    const bool coarse = is_coarse(x->type);
    if (!(x->by.rms > 0) || !isfinite(x->by.most))
        return 0;
    if (!is_low_rounding(s, &s->candidates.all[0], &x->by))
        return coarse ? 0 : list_low(s, &x->by, which);
    which[0] = 0;
    return !coarse || x->relative < MHA__NEARER * s->candidates.all[0].relative;
}

/* Whether every number of the tensor is one of a type of 16 bits: no kernel of TF32, which stores floats, wrote it. */
static bool is_stored_in(const mha__search *s, mha_dtype type)
{
    const mha__target *t = &s->target;
    const size_t n = s->c->B * (t->row / t->columns) * t->recorded_columns;
    for (size_t i = 0; i < n; i++)
        if (isfinite(t->values[i]) && mha__round_to(type, t->values[i]) != t->values[i])
            return false;
    return true;
}

/* Computes the case as kernels of some types round it, and finds the one whose rounding is nearest in size to what is
 * left; NULL: none explains the tensor. */
static mha_status find_low(mha__search *s, low *types, size_t count, size_t *which, const low **found, mha_error *error)
{
    mha__candidate model = {.a = -1, .b = -1};
    double best = INFINITY, nearest = INFINITY;
    double *modelled = mha__arena_take(&s->pool, s->c->B * s->target.row * sizeof *modelled);
    if (!modelled)
        return mha__search_no_memory(s, error);
    for (size_t i = 0; i < s->candidates.singles; i++)
        best = s->candidates.all[i].complete ? fmin(best, s->candidates.all[i].relative) : best;
    for (low *x = types; x < types + count; x++) {
        const bool coarse = is_coarse(x->type);
        /* eight bits would take seconds for each type of a large case */
        if (mha__search_is_over(s) || best > x->most || (coarse && s->in_part))
            continue;
        if (x->type == MHA_TF32 && (is_stored_in(s, MHA_F16) || is_stored_in(s, MHA_BF16)))
            continue;
        TRY(mha__search_model(s, x->type, modelled, error));
        mha__search_hold(s, &s->region_full, modelled, &model, &x->by);
        x->relative = model.relative;
        const bool fits = fit_low(s, x, which) > 0;
        const double apart =
            fits ? fabs(log(s->candidates.all[which[0]].relative * s->target.rms / x->by.rms)) : INFINITY;
        const bool twins = *found && (*found)->type == MHA_TF32 && x->type == MHA_F16; /* of as many bits */
        if (twins && isfinite(apart) ? x->relative < (*found)->relative : apart < nearest) {
            nearest = apart;
            *found = x;
        }
    }
    return MHA_OK;
}

mha_status mha__report_low_precision(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error)
{
    low types[] = {{.type = MHA_TF32, .most = 0.02},   {.type = MHA_F16, .most = 0.02},
                   {.type = MHA_BF16, .most = 0.1},    {.type = MHA_I8, .most = 0.2},
                   {.type = MHA_F8_E4M3, .most = 0.4}, {.type = MHA_F8_E5M2, .most = 0.6}};
    const low *found = NULL;
    if (s->c->kind == CASE_ROPE || mha__case_rounds(s->c) || mha__search_elements(s, &s->region_full) < MHA__FEW)
        return MHA_OK;
    TRY(find_low(s, types, sizeof types / sizeof *types, which, &found, error));
    if (!found)
        return MHA_OK;
    TRY(report_undecided(s, false, 0, d, error));
    TRY(report_matches(s, which, fit_low(s, found, which), true, 0, d, error));
    for (size_t i = 0; i < d->match_count; i++) {
        d->matches[i].rounding = found->type;
        d->matches[i].stated = false;
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- one rounding */

bool mha__search_only_rounds(const mha__search *s, const mha__candidate *x)
{
    mha__program program;
    bool only = x->order == 1 && mha__search_program(s, 0, x, &program);
    for (size_t i = 0; only && i < program.n; i++) {
        const mha__mutation *m = &program.m[i];
        only = m->op == OP_ROUND || m->op == OP_BITS || m->op == OP_QUANT || (m->site == AT_E && m->op == OP_POWER);
    }
    return only && program.n > 0;
}

/* A rounding says what each number is off by. Noise of another source leaves part r of its rms after one of them with a
 * probability of about r^(n - 2) for n numbers; a row of a head counts as one, because they may share an error. */
mha_status mha__report_rounding(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error)
{
    const double said = s->candidates.all[0].relative;
    const bool merged = s->target.stage == MHA_STAGE_OUTPUT && s->c->kind == CASE_MHA;
    size_t best = 0, rows = 0;
    for (size_t r = 0; r < s->c->B * s->c->T_q; r++)
        rows += s->rows_checked[r] && s->rows_present[r];
    const double n = (double)(rows * (merged ? 1 : s->c->H));
    for (size_t i = 1; i < s->candidates.count; i++) {
        const mha__candidate *x = &s->candidates.all[i];
        if (x->complete && x->finite && mha__search_only_rounds(s, x) &&
            x->relative < (best ? s->candidates.all[best].relative : MHA__MOST_LEFT * said))
            best = i;
    }
    if (!best || !s->candidates.all[0].finite || (d->match_count > 0 && d->matches[0].count > 0) ||
        pow(s->candidates.all[best].relative / said, n - 2) > MHA__CHANCE)
        return MHA_OK;
    if (d->match_count > 0) {
        d->closest[d->closest_count++] = mha__search_explain(s, &s->candidates.all[best], false, 0);
        return MHA_OK;
    }
    *which = best;
    TRY(report_undecided(s, false, 0, d, error));
    return report_matches(s, which, 1, false, 0, d, error);
}

/* ---------------------------------------------------------------- what comes near */

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

/* A near or closest match explains most of the difference, and of the tensor. Some of many candidates come a little
 * nearer by chance. */
bool mha__search_is_close(const mha__search *s, double relative)
{
    return relative < MHA__MOST_LEFT * fmin(s->candidates.all[0].relative, 1);
}

/* Whether the tensor has at least twice as many numbers as a candidate is free to choose. */
static bool has_data(const mha__search *s, const mha__candidate *x)
{
    size_t chosen = 0;
    if (x->numbers)
        chosen += mha__solved_count(s->c, mha__solved_entry_at((size_t)x->a));
    if (x->numbers_b)
        chosen += mha__solved_count(s->c, mha__solved_entry_at((size_t)x->b));
    return chosen == 0 || mha__search_elements(s, &s->region_full) >= MHA__DATA * chosen;
}

/* Whether the rms of a candidate's difference is small, and at most twice that of the best candidate. A bug must
 * also be clearly nearer than the unmodified case. */
static bool is_near(const mha__search *s, const mha__candidate *x, double best, double said)
{
    return x->complete && x->finite && !x->unchanged && x->relative <= MHA__NEAR &&
           x->relative <= MHA__NEAR_BEST * best && (x->order == 0 || x->relative < MHA__MOST_LEFT * said) &&
           has_data(s, x);
}

/* Whether both bugs of a pair bring it nearer: the pair is clearly nearer than each single one. */
static bool needs_both(const mha__search *s, const mha__candidate *x)
{
    if (x->order < 2)
        return true;
    for (size_t i = 0; i < s->candidates.count; i++) {
        const mha__candidate *y = &s->candidates.all[i];
        if (y->complete && y->order == 1 && (y->a == x->a || y->a == x->b) &&
            !(x->relative < MHA__CLEARLY * y->relative))
            return false;
    }
    return true;
}

mha_status mha__report_closest(mha__search *s, size_t *which, mha_diagnosis *d, mha_error *error)
{
    enum { MOST_NEAR = 8 };
    const double said = s->candidates.all[0].relative;
    TRY(report_undecided(s, false, 0, d, error));
    if (!has_numbers(s, 0))
        return MHA_OK;
    qsort(s->candidates.all, s->candidates.count, sizeof *s->candidates.all, by_fit);
    double last = -1, best = s->candidates.all[0].relative;
    for (size_t i = 0; i < s->candidates.count && d->closest_count < 3; i++) {
        const mha__candidate *x = &s->candidates.all[i];
        if (!x->complete || x->unchanged || !has_data(s, x) || !(x->relative < MHA__MOST_LEFT * fmin(said, 1)) ||
            (last >= 0 && x->relative <= last * (1 + 1e-9)) || !needs_both(s, x))
            continue;
        last = x->relative;
        d->closest[d->closest_count++] = mha__search_explain(s, x, false, 0);
    }
    size_t least = 3, n = 0;
    for (size_t i = 0; i < s->candidates.count; i++)
        if (is_near(s, &s->candidates.all[i], best, said) && s->candidates.all[i].order < least)
            least = s->candidates.all[i].order;
    for (size_t order = least; order <= 2 && order <= least + (least == 0); order++)
        for (size_t i = 0; i < s->candidates.count && n < MOST_NEAR; i++)
            if (s->candidates.all[i].order == order && is_near(s, &s->candidates.all[i], best, said))
                which[n++] = i;
    return report_matches(s, which, n, false, 0, d, error);
}
