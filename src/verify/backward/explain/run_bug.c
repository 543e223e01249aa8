/* Runs one backward with a bug, or two, everywhere or in some places, and compares it with the caller's gradients. */
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "attention/core/exact/exact_rows.h"
#include "verify/backward/explain/search.h"
#include "verify/thresholds/thresholds.h"

/* ---------------------------------------------------------------- the change of a map */

void mha__copy_query(const mha__backward *b, mha__map *to, size_t at, const mha__map *from, size_t i)
{
    const mha__sizes *p = &b->r->plan;
    const struct {
        double *to;
        const double *from;
        size_t width;
    } parts[] = {{to->Q, from->Q, p->d_k},
                 {to->dO, from->dO, p->d_v},
                 {to->dQ, from->dQ, p->d_k},
                 {to->weights, from->weights, from->n},
                 {to->kept, from->kept, from->n},
                 {to->slope, from->slope, from->n},
                 {to->d_weights, from->d_weights, from->n},
                 {to->d_masked, from->d_masked, from->n},
                 {to->d_scores, from->d_scores, from->n},
                 {to->lse, from->lse, 1},
                 {to->d_lse, from->d_lse, 1},
                 {to->sums, from->sums, 1}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        memcpy(parts[k].to + at * parts[k].width, parts[k].from + i * parts[k].width, parts[k].width * sizeof(double));
    memcpy(to->seen + at * from->n, from->seen + i * from->n, from->n);
}

void mha__make_own(const mha__backward *b, mha__map *map, unsigned form)
{
    const mha_view *sinks = &b->r->weight[MHA_SINKS];
    const bool one = mha__semantics_of(b->r)->softmax.softmax_plus_one;
    for (size_t i = 0; i < map->s.T_q; i++) {
        double *P = map->weights + i * map->n, sum = 0, D = 0;
        for (size_t j = 0; j < map->n; j++)
            sum += P[j];
        sum += sinks->data ? exp(mha_view_get(sinks, &map->head) - map->lse[i]) : one ? exp(-map->lse[i]) : 0;
        const bool divides = form & MHA__OWN_LSE && sum > 0 && isfinite(sum);
        for (size_t j = 0; j < map->n; j++) {
            P[j] /= divides ? sum : 1;
            D += map->seen[i * map->n + j] ? P[j] * map->d_weights[i * map->n + j] : 0;
        }
        map->lse[i] += divides ? log(sum) : 0;
        map->sums[i] = form & MHA__OWN_D ? D : map->sums[i];
    }
}

static bool makes(const mha__gradient_bug *bug, mha__backward_step step)
{
    return bug && mha__changes(bug) && bug->step == step;
}

/* Makes a bug in a map, or in all rows, where it is made. */
static void make(mha__gradient_search *s, const mha__gradient_bug *bug, mha__map *map)
{
    const mha__wrong_places *only = s->only;
    const size_t H = s->b.r->plan.h;
    if (only && map && !only->maps[map->b * H + map->head])
        return;
    const bool saves = only && map && only->queries;
    if (saves) {
        s->before.n = map->n, s->before.s = map->s;
        for (size_t i = 0; i < map->s.T_q; i++)
            mha__copy_query(&s->b, &s->before, i, map, i);
    }
    mha__change(&s->b, map, bug);
    if (bug == s->bug && s->form && bug->step == MHA__BACKWARD_SUMS && map)
        mha__make_own(&s->b, map, s->form);
    for (size_t i = 0; saves && i < map->s.T_q; i++)
        if (!only->of[MHA_D_QUERY].among[PLACES_ROWS][map->s.q_from + i])
            mha__copy_query(&s->b, map, i, &s->before, i);
}

static void watch(void *context, mha__backward *b, mha__backward_step step, mha__map *map)
{
    mha__gradient_search *s = context;
    const mha__gradient_bug *const bugs[] = {s->bug, s->also};
    if (step == MHA__BACKWARD_SUMS && s->bounds)
        mha__bound_sums(&s->e, b, map); /* of the sums of the right weights */
    for (int k = 0; k < 2; k++) {
        if (makes(bugs[k], step))
            make(s, bugs[k], map);
        if (step == MHA__BACKWARD_HEADS && bugs[k] && bugs[k]->leaves & MHA__ENDS_LATER)
            mha__change(b, NULL, bugs[k]);
    }
    if (step == MHA__BACKWARD_ADDED && s->bounds) {
        mha__bound_map(&s->e, b, map);
        for (int k = 0; k < 2; k++)
            if (makes(bugs[k], step))
                mha__change(&s->e.sizes, &s->e.sizes.map, bugs[k]);
        mha__map_gather(&s->e.sizes, &s->e.sizes.map);
    }
    if (s->bounds)
        mha__bound_step(&s->e, b, step);
}

void mha__search_watch(mha__gradient_search *s)
{
    s->b.watch = watch, s->b.context = s;
}

/* ---------------------------------------------------------------- comparison */

bool mha__is_near(const mha_view *theirs, const mha_view *made, const mha_view *errors, double times, double part,
                  const mha__places *in)
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
        if (isnan(E) || (in && !mha__places_have(in, index[0], index[2], index[1])))
            continue;
        if (!(fabs(x - y) <= E + part * largest) && !(isnan(x) && isnan(y)))
            return false;
        if (isnan(x) != isnan(y))
            return false;
    }
    return true;
}

bool mha__is_stage_near(const mha__gradient_search *s, const mha_backward_keep *keep, bool of_right, double times,
                        double part)
{
    const mha_backward_stage stage = keep->stage;
    return !keep->view.data || mha__is_near(&keep->view, &s->b.kept[stage],
                                            of_right ? &s->kept[stage] : &s->e.sizes.kept[stage], times, part, NULL);
}

bool mha__gives_gradient(const mha__gradient_search *s, int g, bool of_right, double times, double part)
{
    return mha__is_near(&s->found->of[g], mha__backward_result(&s->b, g),
                        of_right ? &s->right[g] : mha__backward_result(&s->e.sizes, g), times, part,
                        mha__places_of(s, g));
}

bool mha__are_near(const mha__gradient_search *s, mha__given what, bool of_right, double times, double part)
{
    bool near = true;
    for (int g = 0; g < MHA_GRADIENT_COUNT && near; g++)
        near = !s->found->of[g].data || (what == GIVES_WRONG && !s->wrong[g]) ||
               mha__gives_gradient(s, g, of_right, times, part);
    for (size_t i = 0; i < s->found->keep_count && near; i++)
        near = s->fits[s->found->keep[i].stage] || mha__is_stage_near(s, &s->found->keep[i], of_right, times, part);
    return near;
}

/* Whether the backward that was run gives what a right one does, number by number: of what is wrong it explains
 * nothing. */
static bool is_same(const mha__gradient_search *s)
{
    bool same = s->found->keep_count == 0;
    for (int g = 0; g < MHA_GRADIENT_COUNT && same; g++)
        same = !s->found->of[g].data || memcmp(mha__backward_result(&s->b, g)->data, s->exact[g].data,
                                               mha_view_elements(&s->exact[g]) * sizeof(double)) == 0;
    return same;
}

bool mha__changes_gradient(const mha__gradient_search *s, int g, double part)
{
    return !mha__is_near(&s->exact[g], mha__backward_result(&s->b, g), &s->right[g], 1, part, NULL);
}

/* Whether the backward that was run changes gradients that are wrong by more than is allowed: one of them, where it
 * gives all that was found, or each. What changes less explains nothing. */
static bool changes_wrong(const mha__gradient_search *s, mha__given what, double part)
{
    bool any = false, each = true, some = false;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        if (!s->wrong[g])
            continue;
        const bool changes = mha__changes_gradient(s, g, part);
        any = true, each &= changes, some |= changes;
    }
    return what == GIVES_WRONG ? each : some || !any; /* only stages may be wrong */
}

/* What of that which was found the backward that was run gives. */
static mha__given given_by(const mha__gradient_search *s, bool of_right, double times, double part)
{
    if (mha__are_near(s, GIVES_ALL, of_right, times, part))
        return GIVES_ALL;
    return s->alone && mha__are_near(s, GIVES_WRONG, of_right, times, part) ? GIVES_WRONG : GIVES_NOTHING;
}

mha_status mha__run_bug(mha__gradient_search *s, const mha__gradient_bug *bug, const mha_backward_precision *precision,
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
static bool is_map_near(const mha__gradient_search *s)
{
    const mha__sequence q = mha__resolved_sequence(s->b.r, s->sequence);
    const size_t d_k = s->b.r->plan.d_k, count = q.T_q < s->b.alone_queries ? q.T_q : s->b.alone_queries;
    for (size_t e = 0; e < count * d_k; e++) {
        const size_t at[4] = {q.batch, q.q_from + e / d_k, s->head, e % d_k};
        const double x = mha_view_get(mha__backward_result(&s->b, MHA_D_QUERY), at),
                     y = mha_view_get(&s->found->of[MHA_D_QUERY], at), E = mha_view_get(&s->right[MHA_D_QUERY], at);
        if (s->only && !mha__places_have(&s->only->of[MHA_D_QUERY], at[0], at[2], at[1]))
            continue;
        if (!isnan(E) && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= MHA__LOOSE * E + MHA__MAP_PART * s->largest))
            return false;
    }
    return true;
}

/* Whether a bug may give the rows of dQ of the map that is farthest off, as far as these tell. */
static bool map_may_give(mha__gradient_search *s, const mha__gradient_bug *bug)
{
    s->bug = bug, s->bounds = false;
    if (!s->by_map || (s->alone && !s->wrong[MHA_D_QUERY]))
        return true;
    s->b.alone = true, s->b.alone_sequence = s->sequence, s->b.alone_head = s->head;
    s->b.alone_queries = (bug->leaves | (s->also ? s->also->leaves : 0)) & MHA__READS_ALL_QUERIES ? SIZE_MAX : s->few;
    mha__backward_run(&s->b);
    s->b.alone = false;
    return is_map_near(s);
}

/* First of some rows of one map, then without following its errors, which takes several times as long. What a bug does
 * to errors that the bound does not follow is allowed 1,024 roundoffs of the largest number. */
mha_status mha__change_gives(mha__gradient_search *s, const mha__gradient_bug *bug, mha__given *gives, mha_error *error)
{
    const double part = MHA__PART * s->e.unit;
    *gives = GIVES_NOTHING;
    for (int g = 0; g <= MHA_D_VALUE && !s->b.r->layer; g++)
        if (s->wrong[g] && bug->leaves >> g & 1 && (!s->also || s->also->leaves >> g & 1))
            return MHA_OK;
    if (!map_may_give(s, bug))
        return MHA_OK;
    mha__backward_run(&s->b);
    if (is_same(s) || given_by(s, true, MHA__LOOSE, MHA__LOOSE_PART) == GIVES_NOTHING)
        return MHA_OK;
    TRY(mha__run_bug(s, bug, &s->found->precision, error));
    *gives = given_by(s, false, 1, part);
    if (*gives != GIVES_NOTHING && !changes_wrong(s, *gives, part))
        *gives = GIVES_NOTHING;
    bool others = !s->each || s->narrow;
    for (int g = 0; g <= MHA_D_VALUE; g++)
        others |= !s->wrong[g] && mha__changes_gradient(s, g, part);
    if (*gives != GIVES_NOTHING && !others) /* says more than what changes others, too */
        s->narrow = true, s->count = 0;
    return MHA_OK;
}
