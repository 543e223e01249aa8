/* Compares the recorded stages and gradients of a case's backward with mha_backward, element by element, and
 * explains them. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "verify/check/check.h"

/* The results of a backward, in the order of its equations: the stages, and after them the gradients. */
enum { STAGES = MHA_BACKWARD_STAGE_COUNT, RESULTS = STAGES + MHA_GRADIENT_COUNT };

/* Memory in the shapes of the recorded tensors, F64, for one backward or for its error bounds. */
typedef struct results {
    mha_gradients gradients; /* the same memory, seen in the axes of the plan */
    mha_backward_keep keep[STAGES];
    mha_view memory[RESULTS];
} results;

/* The backward of a case, what is computed and what rounding may cost. */
typedef struct backward {
    mha__case_backward of_case;
    results exact, bound[2]; /* bounds of what is recorded in float32, in float64 */
    const case_expected *recorded[RESULTS];
    mha_view yours[STAGES]; /* recorded stages, but exact where they may be any number */
    bool wide[RESULTS];     /* recorded in float64 */
    mha__arena memory;
} backward;

/* "d_scores", "d_query" */
static const char *row_name(int result)
{
    return result < STAGES ? mha_backward_stage_at((mha_backward_stage)result)->name
                           : strchr(mha__case_gradient_name((mha_gradient)(result - STAGES)), '.') + 1;
}

bool mha__check_knows_gradient(const char *name)
{
    for (int i = 0; i < RESULTS; i++)
        if (strcmp(name, row_name(i)) == 0)
            return true;
    return false;
}

/* The tensor that is compared on this path: on the exact one that of float64, if there is one. */
static const case_expected *recorded(const mha__comparison *j, int i, bool *wide)
{
    const mha_case *c = j->c;
    const case_expected *narrow = &c->expected[0][CASE_BACKWARDS + i], *precise = &c->expected[1][CASE_BACKWARDS + i];
    *wide = precise->name && (j->path == MHA_PATH_EXACT || !narrow->name);
    const case_expected *e = *wide ? precise : narrow;
    return e->name && mha__comparison_wants(j, row_name(i)) ? e : NULL;
}

/* What the case states; without an rtol 0, without an atol infinite: it is derived. */
static mha__allowed stated(const mha_case *c, int i, bool wide)
{
    return mha__allowed_of(c, CASE_BACKWARDS + i, wide, MHA_STAGE_OUTPUT, MHA_F64, NULL);
}

/* Memory for one result. */
static mha_status lend(const mha_case *c, backward *b, int i, results *to, mha_error *error)
{
    const mha_view *shape = &b->recorded[i]->view, *memory = &to->memory[i];
    to->memory[i] = mha__arena_view(&b->memory, MHA_F64, shape->rank, shape->shape);
    if (!memory->data)
        return mha__check_no_memory(c, error);
    if (i < STAGES) {
        size_t planned[4];
        const int rank = mha_backward_stage_shape(&b->of_case.plan, (mha_backward_stage)i, planned);
        to->keep[to->gradients.keep_count++] = (mha_backward_keep){
            .stage = (mha_backward_stage)i, .view = mha_view_of(memory->data, MHA_F64, rank, planned)};
        to->gradients.keep = to->keep;
    } else {
        const mha_gradient g = (mha_gradient)(i - STAGES);
        to->gradients.of[g] = mha__case_gradient(c, &b->of_case.plan, g, memory);
    }
    return MHA_OK;
}

/* Copies a recorded stage, and takes the exact number where it may be any. */
static mha_status settle(const mha_case *c, backward *b, int i, mha_error *error)
{
    const mha_view *found = &b->recorded[i]->view, *exact = &b->exact.memory[i], *yours = &b->yours[i],
                   *bound = &b->bound[b->wide[i]].memory[i];
    size_t index[MHA_MAX_RANK] = {0};
    TRY(mha__arena_copy(&b->memory, found->dtype, found, c->name, &b->yours[i], error));
    for (bool more = mha_view_elements(found) > 0; more; more = mha__index_next(index, found->shape, found->rank))
        if (isnan(mha_view_get(bound, index)))
            mha_view_set(yours, index, mha_view_get(exact, index));
    return MHA_OK;
}

/* Computes what is recorded, and for stages and what has no tolerance what rounding may cost. */
static mha_status compute(const mha_case *c, backward *b, mha_error *error)
{
    bool derives[2] = {false, false};
    b->exact.gradients = b->bound[0].gradients = b->bound[1].gradients = b->of_case.gradients;
    b->exact.gradients.precision = b->bound[1].gradients.precision = (mha_backward_precision){.scores = MHA_F32};
    for (int i = 0; i < RESULTS; i++) {
        const bool wide = b->wide[i];
        if (!b->recorded[i])
            continue;
        TRY(lend(c, b, i, &b->exact, error));
        TRY(lend(c, b, i, &b->bound[wide], error));
        derives[wide] |= i < STAGES || isinf(stated(c, i, wide).atol);
    }
    TRY(mha_backward(c->layer, &b->of_case.call, &b->exact.gradients, error));
    for (int wide = 0; wide < 2; wide++) {
        const double unit = wide ? 0x1p-53 : 0x1p-24;
        if (derives[wide])
            TRY(mha_gradient_bound(c->layer, &b->of_case.call, &b->bound[wide].gradients, unit, error));
    }
    for (int i = 0; i < STAGES; i++)
        if (b->recorded[i])
            TRY(settle(c, b, i, error));
    return MHA_OK;
}

/* Each element beyond its own bound, where the case states no tolerance; the worst is that which is farthest beyond. */
static void compare_each(const mha_case *c, const backward *b, int i, const mha_view *yours, mha_stage_verdict *row)
{
    const mha_view *exact = &b->exact.memory[i];
    const double *bound = b->bound[b->wide[i]].memory[i].data;
    const bool counted = c->precision.inputs != MHA_F32 && i >= STAGES; /* in the bound: gradients are rounded there */
    mha__storage s = {0};
    if (!counted)
        s = mha__storage_of(b->recorded[i]->stored);
    mha_difference *d = &row->difference;
    size_t index[MHA_MAX_RANK] = {0};
    double worst = -1;
    d->mismatches = 0;
    bool more = mha_view_elements(exact) > 0;
    for (size_t at = 0; more; at++, more = mha__index_next(index, exact->shape, exact->rank)) {
        const double x = mha_view_get(exact, index), y = mha_view_get(yours, index), size = isfinite(x) ? fabs(x) : 0,
                     allowed = (1 + s.relative) * bound[at] + (row->rtol + s.relative) * size + s.absolute,
                     off = isnan(x) && isnan(y) ? 0 : fabs(x - y),
                     part = isnan(off) ? INFINITY : off / fmax(allowed, 1e-300);
        if (isnan(allowed)) /* any number is allowed */
            continue;
        row->checked &= isfinite(allowed);
        d->mismatches += !(off <= allowed);
        if (part > worst) {
            worst = part;
            memcpy(d->worst_index, index, sizeof index);
            d->worst_actual = x, d->worst_expected = y;
            row->atol = allowed - row->rtol * size;
        }
    }
}

static mha_status compare(mha__comparison *j, const backward *b, int i, mha_error *error)
{
    const case_expected *e = b->recorded[i];
    const mha_view *yours = i < STAGES ? &b->yours[i] : &e->view;
    mha_stage_verdict *row;
    TRY(mha__comparison_row(j, "", row_name(i), e->name, &row, error));
    const mha__allowed allowed = stated(j->c, i, b->wide[i]);
    row->rtol = allowed.rtol;
    row->derived = isinf(allowed.atol);
    row->atol = row->derived ? 0 : allowed.atol;
    row->stored = e->stored;
    TRY(mha__compare_to_exact(&b->exact.memory[i], yours, row->rtol, row->atol, &row->difference, error));
    if (row->derived)
        compare_each(j->c, b, i, yours, row);
    row->exact = row->difference.worst_actual;
    row->yours = row->difference.worst_expected;
    row->ok = row->checked && row->difference.mismatches == 0;
    return mha__comparison_show(j, row, yours, &b->exact.memory[i], error);
}

mha_status mha__check_gradients(mha__comparison *j, mha_error *error)
{
    const mha_case *c = j->c;
    backward b = {.memory.allocator = c->pool.allocator};
    bool any = false;
    for (int i = 0; i < RESULTS; i++) {
        b.recorded[i] = recorded(j, i, &b.wide[i]);
        any |= b.recorded[i] != NULL;
    }
    if (!any)
        return MHA_OK;
    mha_status status = mha__case_backward_begin(c, &b.of_case, error);
    b.of_case.call.threads = j->threads;
    if (status == MHA_OK)
        status = compute(c, &b, error);
    for (int i = 0; i < RESULTS && status == MHA_OK; i++)
        if (b.recorded[i])
            status = compare(j, &b, i, error);
    mha__arena_free(&b.memory);
    mha__case_backward_free(&b.of_case);
    return status;
}

/* The recorded result of a slot, that of float32 if there is one; then `wide` becomes false. */
static const case_expected *recorded_in(const mha_case *c, int slot, bool *wide)
{
    *wide &= !c->expected[0][slot].name;
    return c->expected[0][slot].name ? &c->expected[0][slot] : &c->expected[1][slot];
}

/* Explains all gradients that a case records, or its stages. */
static mha_status explain(const mha_case *c, mha__case_backward *b, mha_gradient_match *list, size_t room,
                          size_t *count, bool *right, mha_error *error)
{
    mha_gradients *found = &b->gradients;
    mha_backward_keep keep[STAGES];
    bool wide = true;
    found->keep = keep;
    for (int s = 0; s < STAGES && !mha__case_has_gradients(c); s++) {
        const case_expected *e = recorded_in(c, CASE_BACKWARDS + s, &wide);
        size_t shape[4];
        if (!e->name)
            continue;
        const int rank = mha_backward_stage_shape(&b->plan, (mha_backward_stage)s, shape);
        keep[found->keep_count++] = (mha_backward_keep){.stage = (mha_backward_stage)s,
                                                        .view = mha_view_of(e->view.data, e->view.dtype, rank, shape)};
    }
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const case_expected *e = recorded_in(c, CASE_GRADIENTS + g, &wide);
        if (!e->name)
            continue;
        found->of[g] = mha__case_gradient(c, &b->plan, (mha_gradient)g, &e->view);
    }
    if (wide)
        found->precision = (mha_backward_precision){.scores = MHA_F32};
    return mha_gradient_explain(c->layer, &b->call, found, wide ? 0x1p-53 : 0x1p-24, list, room, count, right, error);
}

mha_status mha_case_explain_gradients(const mha_case *c, mha_gradient_match *list, size_t room, size_t *count,
                                      bool *right, mha_error *error)
{
    *count = 0, *right = false;
    if (*c->skip)
        return mha__fail(error, MHA_UNSUPPORTED, c->name, "%s", c->skip);
    if (!mha__case_has_gradients(c) && !mha__case_has_backwards(c))
        return mha__fail(error, MHA_NOT_FOUND, "gradients", "expected recorded gradients, found none");
    mha__case_backward b;
    size_t pairs;
    mha_status status = mha__case_backward_begin(c, &b, error);
    if (status == MHA_OK && !(mha__mul(b.plan.B * b.plan.h, b.plan.T_q, &pairs) && mha__mul(pairs, b.plan.S, &pairs) &&
                              pairs <= MHA_EXPLAINED_PAIRS)) /* the search runs a backward for each bug */
        status = mha__fail(
            error, MHA_UNSUPPORTED, "gradients",
            "expected at most %d pairs of queries and keys, found more; give a shorter case that fails likewise",
            MHA_EXPLAINED_PAIRS);
    if (status == MHA_OK)
        status = explain(c, &b, list, room, count, right, error);
    mha__case_backward_free(&b);
    return status;
}
