/* The gradients that a case records: compared with those of mha_backward, element by element, and explained. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/judge/judge.h"

/* The backward of a case, and memory for what is computed and for its error bounds. */
typedef struct backward {
    mha__case_backward of_case;
    mha_gradients exact, bound; /* F64, in the shapes of the recorded tensors, seen in the axes of the plan */
    mha_view computed[MHA_GRADIENT_COUNT], errors[MHA_GRADIENT_COUNT]; /* the same memory in these shapes */
    const case_expected *recorded[MHA_GRADIENT_COUNT];
    bool wide[MHA_GRADIENT_COUNT]; /* recorded in float64 */
    mha__arena memory;
} backward;

/* "d_query" */
static const char *row_name(mha_gradient gradient)
{
    return strchr(mha__case_gradient_name(gradient), '.') + 1;
}

bool mha__judge_knows_gradient(const char *name)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (strcmp(name, row_name((mha_gradient)g)) == 0)
            return true;
    return false;
}

/* The tensor that is compared on this path: on the exact one that of float64, if there is one. */
static const case_expected *recorded(const mha__judgement *j, int g, bool *wide)
{
    const case_expected *narrow = &j->c->gradients[0][g], *precise = &j->c->gradients[1][g];
    *wide = precise->name && (j->path == MHA_PATH_EXACT || !narrow->name);
    const case_expected *e = *wide ? precise : narrow;
    return e->name && mha__judgement_wants(j, row_name((mha_gradient)g)) ? e : NULL;
}

static mha__allowed stated(const mha_case *c, const case_expected *e, bool wide)
{
    const double common = wide ? c->atol64 : c->atol;
    mha__allowed a = {.rtol = wide ? c->rtol64 : c->rtol, .atol = isnan(e->atol) ? common : e->atol};
    a.derived = isnan(a.atol);
    a.rtol = isnan(a.rtol) ? 0 : a.rtol;
    return a;
}

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "gradients", "no memory for the gradients of the case");
}

/* Memory for one gradient, and its exact numbers. */
static mha_status lend(const mha_case *c, backward *b, const mha_view *shape, int g, mha_view *memory,
                       mha_gradients *to, mha_error *error)
{
    *memory = mha__arena_view(&b->memory, MHA_F64, shape->rank, shape->shape);
    if (!memory->data)
        return no_memory(error);
    to->of[g] = mha__case_gradient(c, &b->of_case.plan, (mha_gradient)g, memory);
    return MHA_OK;
}

/* Computes the gradients that are recorded, and for those without a tolerance what rounding may cost. */
static mha_status compute(const mha_case *c, backward *b, mha_error *error)
{
    bool derives[2] = {false, false};
    b->exact.precision = (mha_backward_precision){.scores = MHA_F32};
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const case_expected *e = b->recorded[g];
        if (!e)
            continue;
        TRY(lend(c, b, &e->view, g, &b->computed[g], &b->exact, error));
        if (stated(c, e, b->wide[g]).derived)
            derives[b->wide[g]] = true;
    }
    TRY(mha_backward(c->layer, &b->of_case.call, &b->exact, error));
    for (int wide = 0; wide < 2; wide++) {
        mha_gradients errors = b->bound;
        if (!derives[wide])
            continue;
        for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
            if (b->recorded[g] && b->wide[g] == wide)
                TRY(lend(c, b, &b->recorded[g]->view, g, &b->errors[g], &errors, error));
        if (wide)
            errors.precision = (mha_backward_precision){.scores = MHA_F32};
        TRY(mha_gradient_bound(c->layer, &b->of_case.call, &errors, wide ? 0x1p-53 : 0x1p-24, error));
    }
    return MHA_OK;
}

/* What an element may be off by where no tolerance is stated. */
static double allowed_at(const mha_case *c, const backward *b, int g, size_t at, double yours, double rtol)
{
    const double rounding = ((const double *)b->errors[g].data)[at], size = isfinite(yours) ? fabs(yours) : 0;
    const mha__storage s = mha__storage_of(b->recorded[g]->stored); /* of a precision it is part of the bound */
    const bool counted = c->precision.inputs != MHA_F32;
    return rounding + rtol * size + (counted ? 0 : s.relative * size + s.absolute);
}

/* Each element beyond its own bound; the worst is that which is farthest beyond. */
static void compare_each(const mha_case *c, const backward *b, int g, mha_stage_verdict *row)
{
    const mha_view *yours = &b->recorded[g]->view, *exact = &b->computed[g];
    mha_difference *d = &row->difference;
    size_t index[MHA_MAX_RANK] = {0};
    double worst = -1;
    d->mismatches = 0;
    bool more = mha_view_elements(exact) > 0;
    for (size_t at = 0; more; at++, more = mha__index_next(index, exact->shape, exact->rank)) {
        const double x = mha_view_get(exact, index), y = mha_view_get(yours, index),
                     allowed = allowed_at(c, b, g, at, y, row->rtol), off = isnan(x) && isnan(y) ? 0 : fabs(x - y),
                     part = isnan(off) ? INFINITY : off / fmax(allowed, 1e-300);
        row->judged &= isfinite(allowed);
        d->mismatches += !(off <= allowed);
        if (part > worst) {
            worst = part;
            memcpy(d->worst_index, index, sizeof index);
            d->worst_actual = x, d->worst_expected = y;
            row->atol = allowed - (isfinite(y) ? row->rtol * fabs(y) : 0);
        }
    }
}

static mha_status compare(mha__judgement *j, const backward *b, int g, mha_error *error)
{
    const case_expected *e = b->recorded[g];
    mha_stage_verdict *row = mha__judgement_row(j, "", row_name((mha_gradient)g), e->name);
    if (!row)
        return no_memory(error);
    const mha__allowed allowed = stated(j->c, e, b->wide[g]);
    row->rtol = allowed.rtol;
    row->atol = allowed.derived ? 0 : allowed.atol;
    row->derived = allowed.derived;
    row->stored = e->stored;
    TRY(mha_compare(&b->computed[g], &e->view, row->rtol, row->atol, &row->difference, error));
    if (allowed.derived)
        compare_each(j->c, b, g, row);
    row->exact = row->difference.worst_actual;
    row->yours = row->difference.worst_expected;
    row->ok = row->judged && row->difference.mismatches == 0;
    return mha__judgement_show(j, row, &e->view, &b->computed[g], error);
}

mha_status mha__judge_gradients(mha__judgement *j, mha_error *error)
{
    const mha_case *c = j->c;
    backward b = {.memory.allocator = c->pool.allocator};
    mha_error inner = {0};
    bool any = false;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        b.recorded[g] = recorded(j, g, &b.wide[g]);
        any |= b.recorded[g] != NULL;
    }
    if (!any)
        return MHA_OK;
    mha_status status = mha__case_backward_begin(c, &b.of_case, &inner);
    b.exact = b.bound = b.of_case.gradients;
    b.of_case.call.threads = j->threads;
    if (status == MHA_OK)
        status = compute(c, &b, &inner);
    for (int g = 0; g < MHA_GRADIENT_COUNT && status == MHA_OK; g++)
        if (b.recorded[g])
            status = compare(j, &b, g, &inner);
    mha__arena_free(&b.memory);
    mha__case_backward_free(&b.of_case);
    if (status != MHA_OK && error)
        *error = inner;
    return status;
}

/* The search for mistakes runs a backward for each of them. */
static mha_status check_size(const mha_plan *plan, mha_error *error)
{
    size_t pairs;
    if (mha__mul(plan->B * plan->h, plan->T_q, &pairs) && mha__mul(pairs, plan->S, &pairs) &&
        pairs <= MHA_EXPLAINED_PAIRS)
        return MHA_OK;
    return mha__fail(error, MHA_UNSUPPORTED, "gradients", "the case has more than %d pairs of queries and keys, in "
                     "which no mistake is looked for: give a shorter one that fails likewise", MHA_EXPLAINED_PAIRS);
}

/* Explains all gradients that a case records. */
static mha_status explain(const mha_case *c, mha__case_backward *b, const mha_gradient_mistake **list, size_t room,
                          size_t *count, bool *right, mha_error *error)
{
    mha_gradients *found = &b->gradients;
    bool wide = true;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const case_expected *narrow = &c->gradients[0][g], *e = narrow->name ? narrow : &c->gradients[1][g];
        if (!e->name)
            continue;
        found->of[g] = mha__case_gradient(c, &b->plan, (mha_gradient)g, &e->view);
        wide &= !narrow->name;
    }
    if (wide)
        found->precision = (mha_backward_precision){.scores = MHA_F32};
    return mha_gradient_explain(c->layer, &b->call, found, wide ? 0x1p-53 : 0x1p-24, list, room, count, right, error);
}

mha_status mha_case_explain_gradients(const mha_case *c, const mha_gradient_mistake **list, size_t room, size_t *count,
                                      bool *right, mha_error *error)
{
    *count = 0, *right = false;
    if (*c->skip)
        return mha__fail(error, MHA_UNSUPPORTED, c->name, "%s", c->skip);
    if (!mha__case_has_gradients(c))
        return mha__fail(error, MHA_NOT_FOUND, "gradients", "expected recorded gradients, found none");
    mha__case_backward b;
    mha_status status = mha__case_backward_begin(c, &b, error);
    if (status == MHA_OK)
        status = check_size(&b.plan, error);
    if (status == MHA_OK)
        status = explain(c, &b, list, room, count, right, error);
    mha__case_backward_free(&b);
    return status;
}
