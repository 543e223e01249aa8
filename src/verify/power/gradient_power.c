/* The power of a test of gradients: computes a backward with each bug, and asks whether the test accepts it. */
#include <math.h>
#include <string.h>

#include "attention/core/exact/rounding.h"
#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/case/record.h"
#include "verify/power/criterion.h"
#include "verify/engine/runner.h"

/* State of one mha_examine_gradients call. Views are F64 and contiguous, by gradient; no data: not compared. */
typedef struct examination {
    const mha_layer *layer;
    const mha_call *call;
    const mha_criterion *criterion;
    mha_gradients given; /* what comes in */
    mha__backward b;
    mha__arena pool;
    const mha__gradient_bug *bug;
    mha_view right[MHA_GRADIENT_COUNT], bound[MHA_GRADIENT_COUNT];
    double largest[MHA_GRADIENT_COUNT], square[MHA_GRADIENT_COUNT];
    mha_power *result;
} examination;

static void watch(void *context, mha__backward *b, mha__backward_step step, mha__map *map)
{
    const examination *x = context;
    if (x->bug && mha__changes(x->bug) && x->bug->step == step)
        mha__change(b, map, x->bug);
}

/* Memory of the shapes of the gradients that are compared. */
static mha_status lend(examination *x, const mha_gradients *like, mha_view to[MHA_GRADIENT_COUNT], mha_error *error)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        to[g] = (mha_view){0};
        if (!like->of[g].data)
            continue;
        to[g] = mha__arena_view(&x->pool, MHA_F64, like->of[g].rank, like->of[g].shape);
        if (!to[g].data)
            return mha__fail(error, MHA_NO_MEMORY, "gradients", "no memory for the gradients of this call");
    }
    return MHA_OK;
}

/* The right gradients, and what a right backward of the type under test may be off by. */
static mha_status compute(examination *x, mha_error *error)
{
    mha_gradients right = x->given, bound = x->given;
    memcpy(right.of, x->right, sizeof x->right), memcpy(bound.of, x->bound, sizeof x->bound);
    bound.precision = mha_backward_precision_of(x->criterion->precision);
    TRY(mha_backward(x->layer, x->call, &right, error));
    TRY(mha_gradient_bound(x->layer, x->call, &bound, 0x1p-24, error));
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        for (size_t e = 0; x->right[g].data && e < mha_view_elements(&x->right[g]); e++) {
            const double y = ((const double *)x->right[g].data)[e];
            x->largest[g] = isfinite(y) ? fmax(x->largest[g], fabs(y)) : x->largest[g];
            x->square[g] += isfinite(y) ? y * y : 0;
        }
    return MHA_OK;
}

/* The largest error of the gradient that was made as a part of its own bound. */
static double part_of_bound(const examination *x, int g, const double *made)
{
    const double *right = x->right[g].data, *bound = x->bound[g].data;
    const size_t n = mha_view_elements(&x->right[g]);
    double most = 0;
    for (size_t e = 0; e < n; e++) {
        const double off = made[e] == right[e] || (isnan(made[e]) && isnan(right[e])) ? 0 : fabs(made[e] - right[e]);
        most = off > 0 ? fmax(most, off / bound[e]) : isnan(off) ? INFINITY : most;
    }
    return most;
}

/* Compares the backward that was run with the right one. */
static void compare(const examination *x, mha_power_row *row)
{
    bool same = true;
    row->factor = -1;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *right = &x->right[g];
        if (!right->data)
            continue;
        const mha_view made = mha_view_of(mha__backward_result(&x->b, g)->data, MHA_F64, right->rank, right->shape);
        const double part = part_of_bound(x, g, made.data);
        double max_abs, factor = mha__criterion_factor(x->criterion, &made, right, x->square[g], &max_abs);
        if (x->criterion->kind == MHA_CRITERION_BOUND)
            factor = part;
        same &= mha__is_nothing(max_abs, x->largest[g]);
        row->excess = fmax(row->excess, part);
        if (!(factor <= row->factor))
            row->factor = factor, row->max_abs = max_abs, row->seen_in = mha_gradient_name((mha_gradient)g);
    }
    row->result = same ? MHA_POWER_SAME : row->factor <= 1 ? MHA_POWER_ACCEPTED : MHA_POWER_REJECTED;
}

/* Whether a row is a bug of the call: one that it has what it takes for, or a rounding that the type under test
 * does not make. */
static bool applies(const examination *x, const mha__gradient_bug *bug)
{
    const mha_dtype type = x->criterion->precision;
    if (mha__has_result(bug) || (mha__changes(bug) && bug->shown.wide))
        return false; /* of a gradient that is known to be wrong */
    if (mha__changes(bug))
        return mha__gradient_bug_applies(&x->b, bug);
    const bool same = (mha_dtype)bug->mutation.arg == type, finer = type == MHA_BF16;
    return !x->layer && !same && !finer;
}

static mha_status examine(examination *x, mha_error *error)
{
    const mha_allocator a = mha__allocator_default();
    const mha__gradient_bug *bug;
    mha_power *p = x->result;
    size_t count = 0;
    for (size_t i = 0; (bug = mha__gradient_bug_at(i)) != NULL; i++)
        count += applies(x, bug);
    if (count > 0 && !(p->rows = mha__allocate(&a, count * sizeof *p->rows)))
        return mha__fail(error, MHA_NO_MEMORY, "bugs", "no memory for %zu rows", count);
    p->count = count;
    mha_power_row *row = p->rows;
    x->b.watch = watch, x->b.context = x;
    for (size_t i = 0; (bug = mha__gradient_bug_at(i)) != NULL; i++) {
        const mha_backward_precision none = {.scores = MHA_F32};
        if (!applies(x, bug))
            continue;
        *row = (mha_power_row){.bug = bug->shown.name, .help = bug->shown.help};
        x->bug = bug;
        x->given.precision = mha__changes(bug) ? none : mha__gradient_bug_rounds(bug, &none);
        mha__backward_run(&x->b);
        compare(x, row);
        mha__power_count(p, row++);
    }
    return MHA_OK;
}

static mha_status run(examination *x, const mha_gradients *gradients, mha_error *error)
{
    bool any = false;
    TRY(mha__criterion_check(x->criterion, error));
    if (x->criterion->kind == MHA_CRITERION_ERRORS)
        return mha__fail(error, MHA_UNSUPPORTED, "errors", "expected another criterion for gradients");
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        any |= gradients->of[g].data != NULL;
    if (!any)
        return mha__fail(error, MHA_INVALID, "gradients", "expected memory for those that the test compares");
    TRY(lend(x, gradients, x->right, error));
    TRY(lend(x, gradients, x->bound, error));
    memcpy(x->given.of, x->right, sizeof x->right);
    TRY(compute(x, error));
    TRY(mha__backward_begin(&x->b, x->layer, x->call, &x->given, NULL, error));
    TRY(mha__again_begin(&x->b, error));
    TRY(examine(x, error));
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (gradients->of[g].data)
            (void)mha_view_copy(&gradients->of[g], &x->right[g], NULL);
    return MHA_OK;
}

mha_status mha_examine_gradients(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients,
                                 const mha_criterion *criterion, mha_power *result, mha_error *error)
{
    examination x = {.layer = layer,
                     .call = call,
                     .criterion = criterion,
                     .given = *gradients,
                     .result = result,
                     .pool.allocator = mha__allocator_default()};
    *result = (mha_power){.criterion = *criterion};
    x.given.precision = (mha_backward_precision){.scores = MHA_F32};
    const mha_status status = run(&x, gradients, error);
    mha__again_end(&x.b);
    mha__backward_free(&x.b);
    mha__arena_free(&x.pool);
    if (status != MHA_OK)
        mha_power_clear(result);
    return status;
}

/* ---------------------------------------------------------------- of a case */

/* Whether a test of a case compares a gradient: `which`, or MHA_GRADIENT_COUNT for those that it records; of inputs
 * where it records none. */
static bool compares(const mha_case *c, int which, int g)
{
    if (which != MHA_GRADIENT_COUNT)
        return g == which;
    return mha__case_has_gradients(c) ? mha__case_records(c, CASE_GRADIENTS + g) : g <= MHA_D_VALUE;
}

static mha_status examine_case(const mha_case *c, mha__case_backward *b, int which, const mha_criterion *criterion,
                               mha__arena *pool, mha_power *result, mha_error *error)
{
    TRY(mha__case_backward_begin(c, b, error));
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        size_t shape[4];
        const int rank = compares(c, which, g) ? mha_gradient_shape(&b->plan, (mha_gradient)g, shape) : 0;
        if (rank == 0 && g == which)
            return mha__fail(error, MHA_NOT_FOUND, "stage", "expected a gradient in the case, found no %s",
                             mha__case_gradient_name(which));
        if (rank == 0)
            continue;
        b->gradients.of[g] = mha__arena_view(pool, MHA_F64, rank, shape);
        if (!b->gradients.of[g].data)
            return mha__fail(error, MHA_NO_MEMORY, "gradients", "no memory for the gradients of the case");
    }
    return mha_examine_gradients(c->layer, &b->call, &b->gradients, criterion, result, error);
}

mha_status mha_case_examine_gradients(const mha_case *c, const mha_criterion *criterion, mha_power *result,
                                      mha_error *error)
{
    int which = MHA_GRADIENT_COUNT;
    *result = (mha_power){.criterion = *criterion};
    if (*c->skip)
        return mha__fail(error, MHA_UNSUPPORTED, c->name, "%s", c->skip);
    if (!c->tensors[CASE_D_OUTPUT].data)
        return mha__fail(error, MHA_NOT_FOUND, "d_output",
                         "expected the gradient of the output, found none");
    for (int g = 0; criterion->stage && g < MHA_GRADIENT_COUNT; g++)
        if (strcmp(criterion->stage, strchr(mha__case_gradient_name((mha_gradient)g), '.') + 1) == 0)
            which = g;
    if (criterion->stage && which == MHA_GRADIENT_COUNT)
        return mha__fail(error, MHA_NOT_FOUND, "stage", "expected the name of a gradient, found %s", criterion->stage);
    mha__arena pool = {.allocator = mha__allocator_default()};
    mha__case_backward b = {.cache = NULL};
    const mha_status status = examine_case(c, &b, which, criterion, &pool, result, error);
    mha__case_backward_free(&b);
    mha__arena_free(&pool);
    return status;
}
