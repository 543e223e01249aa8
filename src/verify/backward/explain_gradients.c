/* Which known bug gives somebody's gradients: each that can matter is made, and held against them. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/core/exact/exact_rows.h"
#include "verify/backward/bound.h"
#include "verify/backward/bugs/gradient_bugs.h"

/* Of so many queries a bug must give dQ before all are computed. Where dQ is right all are, so that bugs in the
 * kernel of dK and dV alone are looked for up to so many pairs of queries and keys. */
enum { FEW_QUERIES = 64, ALONE_PAIRS = 1 << 17 };

/* What a bug gives: of gradients that are wrong all, and those that are right, or others in place of the latter, as
 * a bug does that is made in one of two kernels. */
typedef enum given { GIVES_NOTHING, GIVES_WRONG, GIVES_ALL } given;

/* A backward that is run once for each bug, and the errors that its rounding may have. */
typedef struct search {
    mha__backward b;
    mha__gradient_errors e;
    mha_gradients asked; /* what the backward is to make, in which precision */
    const mha_gradients *found;
    const mha__gradient_bug *bug;            /* NULL: none is made */
    bool bounds;                             /* the errors are followed */
    mha_view right[MHA_GRADIENT_COUNT];      /* the errors of the right gradients */
    mha_view exact[MHA_GRADIENT_COUNT];      /* these, and */
    bool wrong[MHA_GRADIENT_COUNT];          /* which of them somebody has wrong */
    double *made[2];                         /* room for one gradient and its errors */
    mha_view kept[MHA_BACKWARD_STAGE_COUNT]; /* and those of the right stages */
    bool fits[MHA_BACKWARD_STAGE_COUNT];     /* a stage is right: it tells bugs behind it from none */
    bool by_map;                             /* a row of dQ is made of one map, */
    size_t sequence, head;                   /* and this one is farthest off */
    double largest;                          /* number that somebody has in dQ */
    bool alone;                              /* bugs in one of two kernels are looked for */
} search;

static bool makes(const search *s, mha__backward_step step)
{
    return s->bug && s->bug->change && s->bug->step == step;
}

static void watch(void *context, mha__backward *b, mha__backward_step step, mha__map *map)
{
    search *s = context;
    if (step == MHA__BACKWARD_SUMS && s->bounds)
        mha__bound_sums(&s->e, b, map); /* of the sums of the right weights */
    if (makes(s, step))
        s->bug->change(b, map, s->bug);
    if (step == MHA__BACKWARD_HEADS && s->bug && s->bug->leaves & MHA__ENDS_LATER)
        s->bug->change(b, NULL, s->bug);
    if (step == MHA__BACKWARD_ADDED && s->bounds) {
        mha__bound_map(&s->e, b, map);
        if (makes(s, step))
            s->bug->change(&s->e.sizes, &s->e.sizes.map, s->bug);
        mha__map_gather(&s->e.sizes, &s->e.sizes.map);
    }
    if (s->bounds)
        mha__bound_step(&s->e, b, step);
}

/* Whether somebody's gradient, or stage, is the one that was made: each element within `times` its error and a part of
 * the largest one; where the error is NaN it may be any number. */
static bool is_near(const mha_view *theirs, const mha_view *made, const mha_view *errors, double times, double part)
{
    size_t index[MHA_MAX_RANK] = {0};
    double largest = 0;
    for (size_t at = 0; at < mha_view_elements(made); at++) {
        const double x = fabs(((const double *)made->data)[at]);
        largest = isfinite(x) ? fmax(largest, x) : largest;
    }
    bool more = mha_view_elements(made) > 0;
    for (size_t at = 0; more; at++, more = mha__index_next(index, theirs->shape, theirs->rank)) {
        const double x = ((const double *)made->data)[at], y = mha_view_get(theirs, index),
                     E = times * ((const double *)errors->data)[at];
        if (isnan(E))
            continue;
        if (!(fabs(x - y) <= E + part * largest) && !(isnan(x) && isnan(y)))
            return false;
        if (isnan(x) != isnan(y))
            return false;
    }
    return true;
}

static bool is_stage_near(const search *s, const mha_backward_keep *keep, bool of_right, double times, double part)
{
    const mha_backward_stage stage = keep->stage;
    return !keep->view.data ||
           is_near(&keep->view, &s->b.kept[stage], of_right ? &s->kept[stage] : &s->e.sizes.kept[stage], times, part);
}

/* Whether the backward that was run gives what was found, `what` of it, but stages that are right; `of_right`: by the
 * errors of what is right, not by those of that backward. */
static bool are_near(const search *s, given what, bool of_right, double times, double part)
{
    bool near = true;
    for (int g = 0; g < MHA_GRADIENT_COUNT && near; g++)
        near = !s->found->of[g].data || (what == GIVES_WRONG && !s->wrong[g]) ||
               is_near(&s->found->of[g], mha__backward_result(&s->b, g),
                       of_right ? &s->right[g] : mha__backward_result(&s->e.sizes, g), times, part);
    for (size_t i = 0; i < s->found->keep_count && near; i++)
        near = s->fits[s->found->keep[i].stage] || is_stage_near(s, &s->found->keep[i], of_right, times, part);
    return near;
}

/* Whether the backward that was run gives what a right one does, number by number: of what is wrong it explains
 * nothing. */
static bool is_same(const search *s)
{
    bool same = s->found->keep_count == 0;
    for (int g = 0; g < MHA_GRADIENT_COUNT && same; g++)
        same = !s->found->of[g].data || memcmp(mha__backward_result(&s->b, g)->data, s->exact[g].data,
                                               mha_view_elements(&s->exact[g]) * sizeof(double)) == 0;
    return same;
}

/* Whether the backward that was run changes gradients that are wrong by more than is allowed: one of them, where it
 * gives all that was found, or each. What changes less explains nothing. */
static bool changes_wrong(const search *s, given what, double part)
{
    bool any = false, each = true, some = false;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        if (!s->wrong[g])
            continue;
        const bool changes = !is_near(&s->exact[g], mha__backward_result(&s->b, g), &s->right[g], 1, part);
        any = true, each &= changes, some |= changes;
    }
    return what == GIVES_WRONG ? each : some || !any; /* stages alone may be wrong */
}

/* What of that which was found the backward that was run gives. */
static given given_by(const search *s, bool of_right, double times, double part)
{
    if (are_near(s, GIVES_ALL, of_right, times, part))
        return GIVES_ALL;
    return s->alone && are_near(s, GIVES_WRONG, of_right, times, part) ? GIVES_WRONG : GIVES_NOTHING;
}

/* Runs the backward with a bug, or with none, and its errors. */
static mha_status run(search *s, const mha__gradient_bug *bug, const mha_backward_precision *precision,
                      mha_error *error)
{
    s->bug = bug;
    s->bounds = true;
    TRY(mha__bound_restart(&s->e, &s->b, precision, error));
    mha__backward_run(&s->b);
    mha__bound_end(&s->e, &s->b);
    return MHA_OK;
}

/* Whether the one map that was run has its rows of dQ as they were found, within what are_near allows at first. */
static bool is_map_near(const search *s)
{
    const mha__sequence q = mha__resolved_sequence(s->b.r, s->sequence);
    const size_t d_k = s->b.r->plan.d_k, count = q.T_q < s->b.alone_queries ? q.T_q : s->b.alone_queries;
    for (size_t e = 0; e < count * d_k; e++) {
        const size_t at[4] = {q.batch, q.q_from + e / d_k, s->head, e % d_k};
        const double x = mha_view_get(mha__backward_result(&s->b, MHA_D_QUERY), at),
                     y = mha_view_get(&s->found->of[MHA_D_QUERY], at), E = mha_view_get(&s->right[MHA_D_QUERY], at);
        if (!isnan(E) && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= 16 * E + 0x1p-3 * s->largest))
            return false;
    }
    return true;
}

/* The map whose rows of dQ are farthest off: where a bug does not give these, it gives nothing. */
static void choose_map(search *s)
{
    const mha__resolved *r = s->b.r;
    const mha_view *theirs = &s->found->of[MHA_D_QUERY];
    double most = -1;
    s->by_map = theirs->data && !r->layer && r->norm[MHA_QUERIES] != MHA_NORM_ROW &&
                (r->plan.B * r->plan.h > 1 || r->plan.T_q > FEW_QUERIES);
    for (size_t sequence = 0; s->by_map && sequence < r->plan.B; sequence++) {
        const mha__sequence q = mha__resolved_sequence(r, sequence);
        for (size_t e = 0; e < r->plan.h * q.T_q * r->plan.d_k; e++) {
            const size_t row = e / r->plan.d_k, at[4] = {q.batch, q.q_from + row / r->plan.h, row % r->plan.h,
                                                         e % r->plan.d_k};
            const double y = mha_view_get(theirs, at), off = fabs(y - mha_view_get(&s->exact[MHA_D_QUERY], at));
            s->largest = isfinite(y) ? fmax(s->largest, fabs(y)) : s->largest;
            if (off > most)
                most = off, s->sequence = sequence, s->head = row % r->plan.h;
        }
    }
}

/* Given heads have two kernels, one of dQ and one of dK and dV, that compute P and dS each for itself. */
static void choose_kernels(search *s)
{
    const mha__sizes *p = &s->b.r->plan;
    bool right = false, wrong = false;
    for (int g = 0; g <= MHA_D_VALUE; g++)
        right |= s->found->of[g].data && !s->wrong[g], wrong |= s->wrong[g];
    s->alone = right && wrong && !s->b.r->layer && s->found->keep_count == 0 &&
               (s->wrong[MHA_D_QUERY] || p->B * p->h * p->T_q * p->S <= ALONE_PAIRS);
}

/* What a change of the backward gives of that which was found: first of some rows of one map, then without following
 * its errors, which takes several times as long. What it does to errors that the bound does not follow is allowed 1,024
 * roundoffs of the largest number. */
static mha_status change_gives(search *s, const mha__gradient_bug *bug, given *gives, mha_error *error)
{
    const double part = 0x1p10 * s->e.unit;
    s->bug = bug;
    s->bounds = false;
    *gives = GIVES_NOTHING;
    for (int g = 0; g <= MHA_D_VALUE && !s->b.r->layer; g++)
        if (s->wrong[g] && bug->leaves >> g & 1)
            return MHA_OK;
    if (s->by_map) {
        s->b.alone = true, s->b.alone_sequence = s->sequence, s->b.alone_head = s->head;
        s->b.alone_queries = bug->leaves & MHA__READS_ALL_QUERIES ? SIZE_MAX : FEW_QUERIES;
        mha__backward_run(&s->b);
        s->b.alone = false;
        if (!is_map_near(s) && (!s->alone || s->wrong[MHA_D_QUERY]))
            return MHA_OK;
    }
    mha__backward_run(&s->b);
    if (is_same(s) || given_by(s, true, 16, 0x1p-4) == GIVES_NOTHING)
        return MHA_OK;
    TRY(run(s, bug, &s->found->precision, error));
    *gives = given_by(s, false, 1, part);
    if (*gives != GIVES_NOTHING && !changes_wrong(s, *gives, part))
        *gives = GIVES_NOTHING;
    return MHA_OK;
}

/* The sum of the squares by which a backward of a precision differs from the gradients of query, key and value that are
 * wrong. */
static double distance(search *s, const mha_backward_precision *precision)
{
    double sum = 0;
    s->bug = NULL, s->bounds = false;
    s->asked.precision = *precision;
    mha__backward_run(&s->b);
    s->asked.precision = (mha_backward_precision){.scores = MHA_F32};
    for (int g = 0; g <= MHA_D_VALUE; g++) {
        const mha_view *theirs = &s->found->of[g], *made = mha__backward_result(&s->b, g);
        size_t index[MHA_MAX_RANK] = {0};
        bool more = s->wrong[g] && mha_view_elements(theirs) > 0;
        for (size_t at = 0; more; at++, more = mha__index_next(index, theirs->shape, theirs->rank)) {
            const double x = mha_view_get(theirs, index) - ((const double *)made->data)[at];
            sum += isfinite(x) ? x * x : 0;
        }
    }
    return sum;
}

/* A modelled rounding must halve the distance to what was found, of which these are squares: its error bound holds for
 * roundings at most other points, too. */
static const double nearer = 0.25;

/* Whether rounding at a point gives it: of the gradients of rows that it reaches one is wrong, but what goes out may be
 * one gradient alone. */
static mha_status rounding_gives(search *s, const mha__gradient_bug *bug, bool *gives, mha_error *error)
{
    const mha_backward_precision precision = mha__gradient_bug_rounds(bug, &s->found->precision);
    bool reaches = false, shows = precision.gradients != s->found->precision.gradients;
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->found->of[g].data && !(bug->leaves >> g & 1))
            reaches = true, shows |= s->wrong[g];
    *gives = false;
    if (reaches && !shows)
        return MHA_OK;
    TRY(run(s, NULL, &precision, error));
    *gives = are_near(s, GIVES_ALL, false, 1, 0);
    if (*gives)
        *gives = distance(s, &precision) <= nearer * distance(s, &s->found->precision);
    return mha__bound_restart(&s->e, &s->b, &s->found->precision, error);
}

/* Whether more than one number is known well enough to tell another factor from that which was found. */
static bool tells(const mha_view *made, const mha_view *errors)
{
    const size_t n = mha_view_elements(made);
    double largest = 0;
    size_t known = 0;
    for (size_t e = 0; e < n; e++)
        largest = fmax(largest, fabs(((const double *)made->data)[e]));
    for (size_t e = 0; e < n; e++)
        known += ((const double *)errors->data)[e] <= largest / 16;
    return known > 1;
}

/* Whether a change of the gradients that are wrong gives them, where all else is right. */
static bool result_gives(search *s, const mha__gradient_bug *bug)
{
    bool gives = true, any = false;
    if (s->bug) { /* behind the changes all is made right once more */
        s->bug = NULL, s->bounds = false;
        mha__backward_run(&s->b);
    }
    for (size_t i = 0; i < s->found->keep_count; i++)
        gives &= s->fits[s->found->keep[i].stage];
    for (int g = 0; g < MHA_GRADIENT_COUNT && gives; g++) {
        mha_view made[2] = {s->exact[g], s->right[g]};
        if (!s->wrong[g])
            continue;
        for (int sizes = 0; sizes < 2 && gives; sizes++) {
            const mha__wrong_gradient x = {&s->b,       (mha_gradient)g, s->exact[g],
                                           made[sizes], s->made[sizes],  sizes > 0};
            memset(x.to, 0, mha_view_elements(&x.from) * sizeof *x.to);
            gives = bug->result(&x, bug);
            made[sizes].data = x.to;
        }
        any = true;
        const double part = 0x1p10 * s->e.unit; /* what changes less explains nothing */
        gives = gives && (!bug->shown.wide || tells(&made[0], &made[1])) &&
                is_near(&s->found->of[g], &made[0], &made[1], 1, part) &&
                !is_near(&made[0], &s->exact[g], &s->right[g], 1, part);
    }
    return gives && any;
}

/* A copy of errors; those that there are not have none. */
static mha_status keep_errors(search *s, const mha_view *errors, mha_view *copy, mha_error *error)
{
    if (!errors->data)
        return MHA_OK;
    *copy = mha__arena_view(&s->b.memory, MHA_F64, errors->rank, errors->shape);
    if (!copy->data)
        return mha__fail(error, MHA_NO_MEMORY, "bound", "no memory for the errors of this backward");
    return mha_view_copy(copy, errors, error);
}

/* Room for the largest gradient. */
static mha_status take_room(search *s, double **room, mha_error *error)
{
    size_t most = 1;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (s->exact[g].data && mha_view_elements(&s->exact[g]) > most)
            most = mha_view_elements(&s->exact[g]);
    *room = mha__arena_scratch(&s->b.memory, most * sizeof **room);
    return *room ? MHA_OK : mha__fail(error, MHA_NO_MEMORY, "bound", "no memory for the gradients of a bug");
}

/* Whether what was found is right, and which stages are; keeps the errors of what is. */
static mha_status is_right(search *s, bool *right, mha_error *error)
{
    TRY(run(s, NULL, &s->found->precision, error));
    *right = are_near(s, GIVES_ALL, false, 1, 0);
    for (size_t i = 0; i < s->found->keep_count; i++)
        s->fits[s->found->keep[i].stage] = is_stage_near(s, &s->found->keep[i], false, 1, 0);
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *made = mha__backward_result(&s->b, g), *errors = mha__backward_result(&s->e.sizes, g);
        TRY(keep_errors(s, errors, &s->right[g], error));
        TRY(keep_errors(s, made, &s->exact[g], error));
        s->wrong[g] = s->found->of[g].data && !is_near(&s->found->of[g], made, errors, 1, 0);
    }
    for (int sizes = 0; sizes < 2; sizes++)
        TRY(take_room(s, &s->made[sizes], error));
    for (int i = 0; i < MHA_BACKWARD_STAGE_COUNT; i++)
        TRY(keep_errors(s, &s->e.sizes.kept[i], &s->kept[i], error));
    choose_map(s);
    choose_kernels(s);
    return MHA_OK;
}

/* What a row of the list gives. */
static mha_status row_gives(search *s, const mha__gradient_bug *row, given *gives, mha_error *error)
{
    bool all = false;
    if (row->change)
        return change_gives(s, row, gives, error);
    if (row->result)
        all = result_gives(s, row);
    else
        TRY(rounding_gives(s, row, &all, error));
    *gives = all ? GIVES_ALL : GIVES_NOTHING;
    return MHA_OK;
}

/* Whether at least half of the elements of the gradients that were found are finite: NaN agrees with NaN, whatever made
 * it. */
static bool has_numbers(const mha_gradients *found)
{
    size_t all = 0, finite = 0;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *v = &found->of[g];
        size_t index[MHA_MAX_RANK] = {0};
        for (bool more = v->data && mha_view_elements(v) > 0; more; more = mha__index_next(index, v->shape, v->rank)) {
            finite += isfinite(mha_view_get(v, index)) != 0;
            all++;
        }
    }
    return 2 * finite >= all;
}

/* Until a bug gives all, those that give what is wrong stand in the list; they count where none gives all. */
static mha_status look(search *s, const mha_gradient_bug **list, size_t room, size_t *count, bool *right,
                       mha_error *error)
{
    const mha__gradient_bug *row;
    size_t all = 0, alone = 0, changes = 0;
    *count = 0;
    TRY(is_right(s, right, error));
    const bool may_be_named = !*right && has_numbers(s->found);
    if (may_be_named)
        TRY(mha__again_begin(&s->b, error));
    for (size_t i = 0; may_be_named && (row = mha__gradient_bug_at(i)) != NULL; i++) {
        given gives = GIVES_NOTHING;
        changes = row->result ? changes : all; /* rows of results are behind these */
        if (!mha__gradient_bug_applies(&s->b, row) || (row->shown.wide && all + alone > 0) ||
            (row->result && changes > 0))
            continue;
        TRY(row_gives(s, row, &gives, error));
        size_t *const number = gives == GIVES_ALL ? &all : &alone;
        if (gives == GIVES_NOTHING || (gives == GIVES_WRONG && all > 0))
            continue;
        if (*number < room)
            list[*number] = &row->shown;
        ++*number;
    }
    *count = all > 0 ? all : alone;
    return MHA_OK;
}

mha_status mha_gradient_explain(const mha_layer *layer, const mha_call *call, const mha_gradients *found, double unit,
                                const mha_gradient_bug **list, size_t room, size_t *count, bool *right,
                                mha_error *error)
{
    if (!(unit > 0 && unit < 1))
        return mha__fail(error, MHA_INVALID, "unit", "expected a roundoff between 0 and 1, found %g", unit);
    TRY(mha__backward_precision_check(layer, &found->precision, error));
    search s = {.found = found, .asked = *found};
    s.asked.precision = (mha_backward_precision){.scores = MHA_F32};
    mha_status status = mha__backward_begin(&s.b, layer, call, &s.asked, NULL, error);
    if (status == MHA_OK) {
        status = mha__bound_begin(&s.e, &s.b, &found->precision, unit, error);
        s.b.watch = watch, s.b.context = &s;
        if (status == MHA_OK)
            status = look(&s, list, room, count, right, error);
        mha__bound_free(&s.e);
    }
    mha__again_end(&s.b);
    mha__backward_free(&s.b);
    return status;
}
