/* Searches for explanations beyond the list: a bug with its own lse or D, a bug in some places, two bugs. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "base/base.h"
#include "verify/backward/explain/unnamed.h"
#include "verify/bugs/bugs.h"
#include "verify/thresholds/thresholds.h"

enum {
    LEAST_WRONG = 16, /* wrong numbers: fewer agree by chance */
    LEAVES_ROWS = MHA__LEAVES_Q | MHA__LEAVES_K | MHA__LEAVES_V,
    LEAST_BITS = 48, /* or their digits, in bits, where no number of a bug is free */
    MOST_PARTS = 24, /* bugs that give some of the wrong gradients; each is paired with all others */
};

static const unsigned forms[] = {MHA__OWN_LSE | MHA__OWN_D, MHA__OWN_D, MHA__OWN_LSE};
/* ---------------------------------------------------------------- forms of P */

/* P, or dP, is changed when D is made. */
static bool has_form(const mha__gradient_search *s, const mha__gradient_bug *row, unsigned form)
{
    if (row->leaves & MHA__LEAVES_V && form & MHA__OWN_LSE) /* P is right */
        return false;
    return mha__changes(row) && row->step == MHA__BACKWARD_SUMS && mha__is_softmax(&s->b) &&
           !s->found->whole.lse.data && !(row->leaves & MHA__ENDS_LATER);
}

/* Tries all rows but those whose numbers are found, in a form of P: wide ones, or the others. */
static mha_status try_rows(mha__gradient_search *s, unsigned form, bool wide, mha_error *error)
{
    const mha__gradient_bug *row, *unknowns = mha__gradient_bugs_of_unknowns().rows;
    for (size_t i = 0; (row = mha__gradient_bug_at(i)) != NULL && row != unknowns && !mha__is_over(s); i++) {
        mha__given gives = GIVES_NOTHING;
        if ((!mha__changes(row) && (!mha__has_result(row) || wide)) || !mha__gradient_bug_applies(&s->b, row) ||
            (form && !has_form(s, row, form)) || row->shown.wide != wide || (wide && s->count + s->partly > 0))
            continue;
        s->form = form;
        TRY(mha__row_gives(s, row, &gives, error));
        mha__search_tell_there(s, gives, row->shown.name, row->shown.help);
    }
    s->form = 0;
    return MHA_OK;
}

/* ---------------------------------------------------------------- places */

/* Counts the wrong numbers of a gradient, marks their batch rows, heads and rows (NULL: not), and adds up by how many
 * bits they are farther off than their errors. */
static size_t mark(const mha__gradient_search *s, int g, mha__places *p, double *bits)
{
    const mha_view *found = &s->found->of[g], *exact = &s->exact[g];
    size_t index[MHA_MAX_RANK] = {0}, wrong = 0;
    bool more = mha_view_elements(exact) > 0;
    for (size_t at = 0; more; at++, more = mha__index_next(index, found->shape, found->rank)) {
        const double x = ((const double *)exact->data)[at], y = mha_view_get(found, index),
                     E = ((const double *)s->right[g].data)[at];
        if (isnan(E) || fabs(x - y) <= E || (isnan(x) && isnan(y)))
            continue;
        wrong++, *bits += E > 0 && isfinite(y) ? log2(fabs(x - y) / E) : 0;
        for (int axis = 0; p && axis < PLACES_AXES; axis++)
            p->among[axis][index[axis == PLACES_BATCH ? 0 : axis == PLACES_ROWS ? 1 : 2]] = 1;
    }
    return wrong;
}

/* The maps of these places. */
static void mark_maps(const mha__gradient_search *s, mha__wrong_places *w)
{
    const mha__sizes *p = &s->b.r->plan;
    const int g = s->wrong[MHA_D_QUERY] ? MHA_D_QUERY : s->wrong[MHA_D_KEY] ? MHA_D_KEY : MHA_D_VALUE;
    const mha__places *in = &w->of[g];
    for (size_t at = 0; at < p->B * p->h; at++) {
        const size_t head = at % p->h;
        w->maps[at] = in->among[PLACES_BATCH][at / p->h] &&
                      in->among[PLACES_HEADS][g == MHA_D_QUERY ? head : head / (p->h / p->h_kv)];
    }
}

/* Finds the places where gradients are wrong. False: all of them, or the call has no such places. */
static bool find_places(mha__gradient_search *s, mha__wrong_places *w, bool *apart, bool *rows)
{
    const mha__resolved *r = s->b.r;
    size_t wrong = 0;
    *apart = *rows = false;
    if (r->layer || mha__semantics_of(r)->place.cu_seqlens_q || s->found->keep_count > 0 || mha__holds_keys(r) ||
        !(w->maps = mha__arena_take(&s->b.memory, r->plan.B * r->plan.h + 1)))
        return false;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const size_t *n = s->exact[g].shape;
        if (!s->wrong[g])
            continue;
        if (g > MHA_D_VALUE || s->exact[g].rank != 4 || !mha__places_begin(&w->of[g], n[0], n[2], n[1], &s->b.memory))
            return false;
        wrong += mark(s, g, &w->of[g], &(double){0});
        *apart |= mha__places_count(&w->of[g], PLACES_BATCH) < n[0];
        *apart |= mha__places_count(&w->of[g], PLACES_HEADS) < n[2];
        *rows |= mha__places_count(&w->of[g], PLACES_ROWS) + 1 < n[1];
    }
    return wrong >= LEAST_WRONG && (*apart || *rows);
}

/* Kinds of rows, tried everywhere and in places. */
typedef enum what { NARROW, WIDE, UNNAMED } what;

/* Rows that are rotated back by shifted positions. */
static mha_status try_turns(mha__gradient_search *s, mha_error *error)
{
    static const char *const of[] = {"", "dQ", "dK", "dQ and dK"};
    const mha__sizes *p = &s->b.r->plan;
    const long long most = (long long)p->T_q + (long long)p->S;
    const int sides = (s->wrong[MHA_D_QUERY] ? 1 : 0) + (s->wrong[MHA_D_KEY] ? 2 : 0);
    for (long long k = 2; k < 2 * most && sides > 0 && !s->wrong[MHA_D_VALUE] && s->count == 0 && !mha__is_over(s);
         k++) {
        const long long n = k % 2 ? -(k / 2) : k / 2;
        mha__given gives;
        mha__gradient_bug bug;
        char text[96];
        if (!mha__turns_shifted(&s->b, sides, n, &bug))
            break;
        TRY(mha__change_gives(s, &bug, &gives, error));
        mha__text_print(text, sizeof text, "%s turned back by positions that are %lld too %s", of[sides],
                        n < 0 ? -n : n, n < 0 ? "large" : "small");
        mha__search_tell_there(s, gives, MHA__UNNAMED, text);
    }
    return MHA_OK;
}

static mha_status try_unnamed(mha__gradient_search *s, mha_error *error)
{
    bool has;
    if (!s->wrong[MHA_D_QUERY] && !s->wrong[MHA_D_KEY] && !s->wrong[MHA_D_VALUE])
        return MHA_OK;
    TRY(try_turns(s, error));
    if (!s->whole && s->count == 0) {
        if (!(s->whole = mha__arena_take(&s->b.memory, sizeof *s->whole)))
            return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the maps of a backward");
        TRY(mha__whole_begin(s, s->whole, &has, error));
        s->has_whole = has;
    }
    if (s->has_whole && s->count == 0)
        TRY(mha__unnamed_products(s, s->whole, false, error));
    if (s->has_whole && s->count == 0)
        TRY(mha__unnamed_results(s, s->whole, error));
    if (s->has_whole && s->count == 0)
        TRY(mha__unnamed_products(s, s->whole, true, error));
    return s->has_whole && s->count == 0 ? mha__unnamed_steps(s, s->whole, error) : MHA_OK;
}

static mha_status try_all(mha__gradient_search *s, what kind, mha_error *error)
{
    if (kind == UNNAMED)
        return try_unnamed(s, error);
    if (s->only)
        TRY(try_rows(s, 0, kind == WIDE, error)); /* everywhere they were tried first */
    for (size_t k = 0; k < sizeof forms / sizeof *forms && s->count + s->partly == 0; k++)
        TRY(try_rows(s, forms[k], kind == WIDE, error));
    return MHA_OK;
}

static mha_status try_places(mha__gradient_search *s, what kind, mha_error *error)
{
    mha__wrong_places w = {.queries = false}, all;
    bool apart, rows;
    if (!find_places(s, &w, &apart, &rows))
        return MHA_OK;
    all = w;
    for (int g = 0; g <= MHA_D_VALUE; g++) { /* rows that a bug does not change are right, too */
        const size_t n = w.of[g].n[PLACES_ROWS];
        if (s->wrong[g] && (all.of[g].among[PLACES_ROWS] = mha__arena_take(&s->b.memory, n + 1)))
            memset(all.of[g].among[PLACES_ROWS], 1, n);
        else if (s->wrong[g])
            return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the places of a bug");
    }
    mark_maps(s, &w);
    w.queries = s->wrong[MHA_D_QUERY] && rows;
    s->only = &all;
    if (apart)
        TRY(try_all(s, kind, error));
    s->only = &w;
    if (rows && s->count + s->partly == 0)
        TRY(try_all(s, kind, error));
    s->only = NULL;
    return MHA_OK;
}

/* ---------------------------------------------------------------- two bugs */

/* A bug that gives some of the gradients that are wrong. */
typedef struct some {
    const mha__gradient_bug *bug;
    unsigned form;
} some;

/* Whether the backward that was run gives a gradient that is wrong, and leaves right what is right. */
static bool gives_part(mha__gradient_search *s, bool of_right, double times, double part)
{
    bool any = false;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        if (!s->found->of[g].data)
            continue;
        const bool near = mha__gives_gradient(s, g, of_right, times, part);
        if (!near && !s->wrong[g])
            return false;
        s->given[g] = near && s->wrong[g];
        any |= s->given[g] && mha__changes_gradient(s, g, part);
    }
    return any;
}

/* Finds the bugs that give some of the gradients that are wrong. */
static mha_status find_parts(mha__gradient_search *s, some *parts, size_t *count, mha_error *error)
{
    const mha__gradient_bug *row, *unknowns = mha__gradient_bugs_of_unknowns().rows;
    *count = 0;
    for (unsigned form = 0; form < 4; form++)
        for (size_t i = 0; (row = mha__gradient_bug_at(i)) != NULL && row != unknowns && *count < MOST_PARTS; i++) {
            if (!mha__changes(row) || (form && !has_form(s, row, form)) || mha__is_over(s) ||
                !mha__gradient_bug_applies(&s->b, row))
                continue;
            s->bug = row, s->form = form, s->bounds = false;
            mha__backward_run(&s->b);
            if (!gives_part(s, true, MHA__LOOSE, MHA__LOOSE_PART))
                continue;
            TRY(mha__run_bug(s, row, &s->found->precision, error));
            if (gives_part(s, false, 1, MHA__PART * s->e.unit))
                parts[(*count)++] = (some){row, form};
        }
    s->form = 0;
    memset(s->given, 0, sizeof s->given);
    return MHA_OK;
}

static void tell_pair(mha__gradient_search *s, const mha__gradient_bug *one, const mha__gradient_bug *other)
{
    char name[sizeof s->list->name], help[sizeof s->list->help];
    mha__text_print(name, sizeof name, "%s and %s", one->shown.name, other->shown.name);
    mha__text_print(help, sizeof help, "%s%s; and %s", one->shown.help, mha__form_text(s), other->shown.help);
    mha__search_tell(s, GIVES_ALL, name, help);
}

/* Lets bugs of results change the gradients that another bug made. */
static mha_status keep_made(mha__gradient_search *s, mha_view kept[2][MHA_GRADIENT_COUNT], mha_error *error)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        if (!s->wrong[g])
            continue;
        TRY(mha_view_copy(&kept[0][g], mha__backward_result(&s->b, g), error));
        TRY(mha_view_copy(&kept[1][g], mha__backward_result(&s->e.sizes, g), error));
        s->from[g] = kept[0][g], s->errors[g] = kept[1][g];
    }
    return MHA_OK;
}

/* Tries all rows together with one bug. */
static mha_status pair_with(mha__gradient_search *s, const some *one, mha_view kept[2][MHA_GRADIENT_COUNT],
                            mha_error *error)
{
    const mha__gradient_bug *row, *unknowns = mha__gradient_bugs_of_unknowns().rows;
    s->form = one->form;
    TRY(mha__run_bug(s, one->bug, &s->found->precision, error));
    (void)gives_part(s, false, 1, MHA__PART * s->e.unit);
    TRY(keep_made(s, kept, error));
    for (size_t i = 0; (row = mha__gradient_bug_at(i)) != NULL && row != unknowns && !mha__is_over(s); i++) {
        mha__given gives = GIVES_NOTHING;
        if ((!(mha__changes(row) && one->bug->leaves != LEAVES_ROWS) && !mha__has_result(row)) || row == one->bug ||
            row->forward || row->shown.wide || !mha__gradient_bug_applies(&s->b, row))
            continue;
        s->also = mha__changes(row) ? row : NULL;
        if (mha__changes(row))
            TRY(mha__change_gives(s, one->bug, &gives, error));
        if (gives == GIVES_ALL || (mha__has_result(row) && mha__result_gives(s, row)))
            tell_pair(s, one->bug, row);
    }
    s->also = NULL, s->form = 0;
    memset(s->given, 0, sizeof s->given);
    memcpy(s->from, s->exact, sizeof s->from), memcpy(s->errors, s->right, sizeof s->errors);
    return MHA_OK;
}

/* Tries two bugs of dS; neither gives dQ or dK by itself. */
static mha_status pair_all(mha__gradient_search *s, mha_error *error)
{
    const mha__gradient_bug *one, *other, *unknowns = mha__gradient_bugs_of_unknowns().rows;
    if (s->wrong[MHA_D_VALUE] || !s->wrong[MHA_D_QUERY] || s->b.r->layer)
        return MHA_OK;
    for (size_t i = 0; (one = mha__gradient_bug_at(i)) != NULL && one != unknowns; i++) {
        if (!mha__changes(one) || !(one->leaves & MHA__LEAVES_V) || one->leaves & MHA__LEAVES_Q || one->shown.wide ||
            !mha__gradient_bug_applies(&s->b, one))
            continue;
        for (size_t j = i + 1; (other = mha__gradient_bug_at(j)) != NULL && other != unknowns && !mha__is_over(s);
             j++) {
            mha__given gives = GIVES_NOTHING;
            if (!mha__changes(other) || !(other->leaves & MHA__LEAVES_V) || other->shown.wide ||
                !mha__gradient_bug_applies(&s->b, other))
                continue;
            s->also = other;
            TRY(mha__change_gives(s, one, &gives, error));
            if (gives == GIVES_ALL)
                tell_pair(s, one, other);
        }
    }
    s->also = NULL;
    return MHA_OK;
}

static mha_status try_pairs(mha__gradient_search *s, what kind, mha_error *error)
{
    mha_view kept[2][MHA_GRADIENT_COUNT];
    some parts[MOST_PARTS];
    const mha__gradient_bug_list added = mha__gradient_bugs_of_added(); /* of sinks and masks: with those of results */
    size_t count = 0, wrong = 0;
    (void)kind;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        wrong += s->wrong[g];
    for (int k = 0; k < 2; k++)
        for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
            if (s->wrong[g]) {
                kept[k][g] = mha__arena_view(&s->b.memory, MHA_F64, s->exact[g].rank, s->exact[g].shape);
                if (!kept[k][g].data)
                    return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the gradients of two bugs");
            }
    if (wrong > 1) /* of one there are no parts */
        TRY(find_parts(s, parts, &count, error));
    for (size_t k = 0; k < count && s->count == 0; k++)
        TRY(pair_with(s, &parts[k], kept, error));
    for (size_t i = 0; i < added.count && s->count == 0 && !mha__is_over(s); i++)
        if (added.rows[i].leaves == LEAVES_ROWS && mha__gradient_bug_applies(&s->b, &added.rows[i]))
            TRY(pair_with(s, &(some){&added.rows[i], 0}, kept, error));
    return s->count == 0 ? pair_all(s, error) : MHA_OK;
}

/* ---------------------------------------------------------------- numbers that are found */

/* Only what gives all gradients: some numbers for each query agree with dQ in other ways, too. Queries that count
 * nowhere first: changes without a name are more than these. */
static mha_status try_unknowns(mha__gradient_search *s, what kind, mha_error *error)
{
    const mha__gradient_bug_list lists[] = {mha__gradient_bugs_of_results(), mha__gradient_bugs_of_unknowns()};
    for (size_t k = kind == WIDE ? 0 : 1; k < 2u - s->each; k++)
        for (size_t i = 0; i < (kind == WIDE ? lists[k].count : 1) && s->count == 0; i++) {
            const mha__gradient_bug *row = &lists[k].rows[i];
            mha__given gives = GIVES_NOTHING;
            if (!row->shown.wide || !mha__gradient_bug_applies(&s->b, row))
                continue;
            TRY(mha__row_gives(s, row, &gives, error));
            if (gives == GIVES_ALL)
                mha__search_tell_there(s, gives, row->shown.name, row->shown.help);
        }
    return MHA_OK;
}

static size_t wrong_numbers(const mha__gradient_search *s, double *bits)
{
    size_t wrong = 0;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        wrong += s->wrong[g] ? mark(s, g, NULL, bits) : 0;
    return wrong;
}

/* Room for a map before its change. */
static bool take_map(mha__gradient_search *s)
{
    char *data = mha__arena_scratch(&s->b.memory, mha__map_lay_out(s->b.r, NULL, &s->before));
    if (data)
        (void)mha__map_lay_out(s->b.r, data, &s->before);
    return data;
}

mha_status mha__explain_further(mha__gradient_search *s, mha_error *error)
{
    static const struct {
        mha_status (*try)(mha__gradient_search *s, what kind, mha_error *error);
        what kind;
    } steps[] = {{try_all, NARROW},     {try_places, NARROW},   {try_all, WIDE},
                 {try_places, WIDE},    {try_unknowns, NARROW}, {try_all, UNNAMED},
                 {try_places, UNNAMED}, {try_unknowns, WIDE},   {try_pairs, NARROW}};
    double bits = 0;
    const bool few = wrong_numbers(s, &bits) < LEAST_WRONG;
    if (few && bits < LEAST_BITS)
        return MHA_OK;
    if (!take_map(s))
        return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for the rows of a bug");
    for (size_t k = 0; k < sizeof steps / sizeof *steps - s->each && s->count + s->partly == 0; k++)
        if (!few || steps[k].kind == NARROW)
            TRY(steps[k].try(s, steps[k].kind, error));
    return MHA_OK;
}
