/* The error bound of the gradients of a call: a backward whose steps are watched, and what rounding costs each. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "mha/compare.h"
#include "verify/backward/bound.h"
#include "verify/tolerance/tolerance.h"

/* Whether rows of queries (0), keys (1) or values (2) are attended to as something else than they are given. */
static bool changes(const mha__resolved *r, int input)
{
    static const mha_weight biases[] = {MHA_B_Q, MHA_B_K, MHA_B_V};
    const mha_semantics *s = &r->semantics;
    const bool turned = s->qkv.rope.kind != MHA_ROPE_NONE || (input == 0 && mha__scales_queries(s));
    return r->weight[biases[input]].data || mha__clips(s) || (input < 2 && turned);
}

static mha_status check(const mha__resolved *r, mha_error *error)
{
    if (r->norm[0] != MHA_NORM_NONE || r->norm[1] != MHA_NORM_NONE)
        return mha__fail(error, MHA_UNSUPPORTED, "norm", "there is no bound of gradients behind a norm");
    if (r->semantics.added.relative.rule != MHA_RELATIVE_NONE && (changes(r, 0) || changes(r, 1)))
        return mha__fail(error, MHA_UNSUPPORTED, "relative",
                         "there is no bound of gradients of relative terms whose rows are rotated or changed");
    return MHA_OK;
}

/* What the arithmetic does to the stages of the forward. */
static mha_status bound_forward(mha__gradient_errors *e, const mha__backward *b, mha_error *error)
{
    static const mha_stage rows[3] = {MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT, MHA_STAGE_V};
    const mha_backward_precision *p = e->precision;
    double bound[MHA_STAGE_COUNT] = {0};
    mha_call call = b->call;
    call.keep_count = 0;
    call.precision = (mha_precision){.scores = p->scores, .sums = p->sums};
    TRY(mha_error_bound(NULL, &call, e->unit, bound, MHA_STAGE_COUNT, error));
    e->score = bound[MHA_STAGE_SCORES], e->lse = bound[MHA_STAGE_LSE], e->weight = bound[MHA_STAGE_WEIGHTS];
    e->sums = fmax(e->unit, p->sums == MHA_F32 ? 0 : mha__storage_of(p->sums).relative);
    for (int i = 0; i < 3; i++)
        e->rows[i] = changes(b->r, i) ? bound[rows[i]] : 0;
    return MHA_OK;
}

mha_status mha__bound_begin(mha__gradient_errors *e, const mha__backward *b, const mha_backward_precision *precision,
                            double unit, mha_error *error)
{
    mha__backward *s = &e->sizes;
    bool full = false;
    *e = (mha__gradient_errors){.precision = precision, .unit = unit, .tiny = unit > 0x1p-30 ? 0x1p-126 : 0x1p-1022};
    s->memory.allocator = mha__allocator_default(), s->r = b->r, s->given = &e->none;
    TRY(check(b->r, error));
    TRY(bound_forward(e, b, error));
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        if (!b->d[g].data)
            continue;
        s->d[g] = mha__arena_view(&s->memory, MHA_F64, b->d[g].rank, b->d[g].shape);
        full |= !s->d[g].data;
    }
    char *map = mha__arena_take(&s->memory, mha__map_lay_out(b->r, NULL, &s->map));
    if (full || !map)
        return mha__fail(error, MHA_NO_MEMORY, "bound", "no memory for the errors of this backward");
    (void)mha__map_lay_out(b->r, map, &s->map);
    return MHA_OK;
}

mha_status mha__bound_restart(mha__gradient_errors *e, const mha__backward *b, const mha_backward_precision *precision,
                              mha_error *error)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (e->sizes.d[g].data)
            memset(e->sizes.d[g].data, 0, mha_view_elements(&e->sizes.d[g]) * sizeof(double));
    if (precision == e->precision)
        return MHA_OK;
    e->precision = precision;
    return bound_forward(e, b, error);
}

void mha__bound_end(mha__gradient_errors *e, const mha__backward *b)
{
    const double largest = e->unit > 0x1p-30 ? FLT_MAX : DBL_MAX;
    const mha_dtype type = e->precision->gradients;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        for (size_t at = 0; b->d[g].data && at < mha_view_elements(&b->d[g]); at++) {
            const double x = fabs(((const double *)b->d[g].data)[at]);
            double *E = (double *)e->sizes.d[g].data + at;
            *E += (type != MHA_F32 ? mha__lost(type, x + *E, 1) : 0) + 2 * e->unit * (x + *E) + e->tiny;
            if (!(x + *E < largest)) /* NaN, too */
                *E = INFINITY;
        }
}

void mha__bound_free(mha__gradient_errors *e)
{
    mha__arena_free(&e->sizes.memory);
}

static void watch(void *context, mha__backward *b, mha__backward_step step, mha__map *map)
{
    mha__gradient_errors *e = context;
    if (step == MHA__BACKWARD_SUMS)
        mha__bound_sums(e, b, map);
    if (step == MHA__BACKWARD_ADDED) {
        mha__bound_map(e, b, map);
        mha__map_gather(&e->sizes, &e->sizes.map);
    }
    if (step == MHA__BACKWARD_HEADS)
        mha__bound_rows(e, b);
}

/* The errors of the gradients of a call, in place of these. */
static mha_status bound_all(mha__backward *b, const mha_gradients *given, double unit, mha_error *error)
{
    mha__gradient_errors e;
    const mha_status status = mha__bound_begin(&e, b, &given->precision, unit, error);
    if (status == MHA_OK) {
        b->watch = watch, b->context = &e;
        mha__backward_run(b);
        mha__bound_end(&e, b);
    }
    for (int g = 0; g < MHA_GRADIENT_COUNT && status == MHA_OK; g++)
        if (given->of[g].data)
            (void)mha_view_copy(&given->of[g], &e.sizes.d[g]);
    mha__bound_free(&e);
    return status;
}

mha_status mha_gradient_bound(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients, double unit,
                              mha_error *error)
{
    if (!(unit > 0 && unit < 1))
        return mha__fail(error, MHA_INVALID, "unit", "expected a roundoff between 0 and 1, found %g", unit);
    TRY(mha__backward_precision_check(&gradients->precision, error));
    mha__backward b;
    mha_gradients exact = *gradients;
    exact.precision = (mha_backward_precision){.scores = MHA_F32};
    mha_status status = mha__backward_begin(&b, layer, call, &exact, NULL, error);
    if (status == MHA_OK)
        status = bound_all(&b, gradients, unit, error);
    mha__backward_free(&b);
    return status;
}
