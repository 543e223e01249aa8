/* Compares the gradients of a row of the list with the caller's, and adds explanations. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/backward/explain/search.h"
#include "verify/thresholds/thresholds.h"

static const char *const of_forms[] = {[0] = "",
                                       [MHA__OWN_LSE] = "; P is normalised by its own lse, and D is right",
                                       [MHA__OWN_D] = "; D is that of these P and dP",
                                       [MHA__OWN_LSE | MHA__OWN_D] =
                                           "; lse and D are those of this P: the gradient of a forward with the bug"};

/* The sum of the squares by which a backward of a precision differs from the gradients that are wrong. */
static double distance(mha__gradient_search *s, const mha_backward_precision *precision)
{
    double sum = 0;
    s->bug = NULL, s->bounds = false;
    s->asked.precision = *precision;
    mha__backward_run(&s->b);
    s->asked.precision = (mha_backward_precision){.scores = MHA_F32};
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
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

/* Whether rounding at a point gives it: of the gradients of rows that it reaches one is wrong, but what goes out may be
 * only one gradient. */
static mha_status rounding_gives(mha__gradient_search *s, const mha__gradient_bug *bug, bool *gives, mha_error *error)
{
    const mha_backward_precision precision = mha__gradient_bug_rounds(bug, &s->found->precision);
    bool reaches = false, shows = precision.gradients != s->found->precision.gradients;
    for (int g = 0; g <= MHA_D_VALUE; g++)
        if (s->found->of[g].data && !(bug->leaves >> g & 1))
            reaches = true, shows |= s->wrong[g];
    *gives = false;
    if (reaches && !shows)
        return MHA_OK;
    TRY(mha__run_bug(s, NULL, &precision, error));
    *gives = mha__are_near(s, GIVES_ALL, false, 1, 0);
    if (*gives) /* the bound covers roundings at most other points, too: it must come nearer. Both are squares */
        *gives = distance(s, &precision) < MHA__MOST_LEFT * MHA__MOST_LEFT * distance(s, &s->found->precision);
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
        known += ((const double *)errors->data)[e] <= largest / MHA__TELLS;
    return known > 1;
}

/* Makes the backward right again. */
static void make_right(mha__gradient_search *s)
{
    if (s->bug)
        s->bug = NULL, s->bounds = false, mha__backward_run(&s->b);
}

bool mha__result_gives(mha__gradient_search *s, const mha__gradient_bug *bug)
{
    bool gives = true, any = false;
    for (size_t i = 0; i < s->found->keep_count; i++)
        gives &= s->fits[s->found->keep[i].stage];
    for (int g = 0; g < MHA_GRADIENT_COUNT && gives; g++) {
        mha_view made[2] = {s->from[g], s->errors[g]};
        if (!s->wrong[g] || s->given[g])
            continue;
        for (int sizes = 0; sizes < 2 && gives; sizes++) {
            const mha__wrong_gradient x = {&s->b, (mha_gradient)g, s->from[g], made[sizes], s->made[sizes], sizes > 0};
            memset(x.to, 0, mha_view_elements(&x.from) * sizeof *x.to);
            gives = mha__change_result(&x, bug);
            made[sizes].data = x.to;
        }
        any = true;
        const double part = MHA__PART * s->e.unit; /* what changes less explains nothing */
        gives = gives && (!bug->shown.wide || tells(&made[0], &made[1])) &&
                mha__is_near(&s->found->of[g], &made[0], &made[1], 1, part, mha__places_of(s, g)) &&
                !mha__is_near(&made[0], &s->from[g], &s->errors[g], 1, part, NULL);
    }
    return gives && any;
}

mha_status mha__row_gives(mha__gradient_search *s, const mha__gradient_bug *row, mha__given *gives, mha_error *error)
{
    bool all = false;
    if (mha__changes(row))
        return mha__change_gives(s, row, gives, error);
    if (mha__has_result(row))
        make_right(s), all = mha__result_gives(s, row);
    else
        TRY(rounding_gives(s, row, &all, error));
    *gives = all ? GIVES_ALL : GIVES_NOTHING;
    return MHA_OK;
}

void mha__search_tell(mha__gradient_search *s, mha__given gives, const char *name, const char *help)
{
    size_t *const number = gives == GIVES_ALL ? &s->count : &s->partly;
    if (gives == GIVES_NOTHING || (gives == GIVES_WRONG && s->count > 0))
        return;
    if (*number < s->room) { /* until a bug gives all, the list has those that give the wrong ones */
        mha_gradient_match *to = &s->list[*number];
        mha__text_print(to->name, sizeof to->name, "%s", name);
        mha__text_print(to->help, sizeof to->help, "%s", help);
    }
    ++*number;
}

const char *mha__form_text(const mha__gradient_search *s)
{
    return of_forms[s->form];
}

bool mha__is_over(const mha__gradient_search *s)
{
    return s->until > 0 && mha__clock_seconds() >= s->until;
}

void mha__search_tell_there(mha__gradient_search *s, mha__given gives, const char *name, const char *help)
{
    static const char *const of[] = {"dQ", "dK", "dV"};
    char text[sizeof s->list->help], *end = text + sizeof text, *at = text;
    const bool shows_d = s->wrong[MHA_D_QUERY] || s->wrong[MHA_D_KEY];
    int first = MHA_D_VALUE;
    for (int g = MHA_D_VALUE; g >= 0; g--)
        first = s->wrong[g] ? g : first;
    mha__text_print(at, (size_t)(end - at), "%s%s", help, shows_d ? mha__form_text(s) : "");
    at += strlen(at);
    if (s->only) {
        char places[160];
        mha__places_say(&s->only->of[first], places, sizeof places);
        mha__text_print(at, (size_t)(end - at), ", %s of %s", places, of[first]);
        at += strlen(at);
    }
    for (int g = 0; g <= MHA_D_VALUE && gives == GIVES_WRONG; g++)
        if (s->wrong[g]) {
            mha__text_print(at, (size_t)(end - at), "%s%s", g == first ? ", in " : " and ", of[g]);
            at += strlen(at);
        }
    mha__text_print(at, (size_t)(end - at), "%s", gives == GIVES_WRONG ? " alone" : "");
    mha__search_tell(s, gives, name, text);
}
