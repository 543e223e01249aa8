/* The error bound of the gradients of a call: a backward whose steps are watched, and what rounding costs each. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "attention/call/definition.h"
#include "mha/compare.h"
#include "mha/gradients.h"
#include "verify/backward/bound.h"
#include "verify/tolerance/tolerance.h"

/* Whether rows of queries (0), keys (1) or values (2) are attended to as something else than they are given. */
static bool changes(const mha__resolved *r, int input)
{
    static const mha_weight biases[] = {MHA_B_Q, MHA_B_K, MHA_B_V};
    const mha_semantics *s = mha__semantics_of(r);
    const bool turned = s->qkv.rope.kind != MHA_ROPE_NONE || (input == 0 && mha__scales_queries(&r->qkv));
    const bool made = r->layer || r->weight[biases[input]].data || r->qkv.clip_qkv > 0;
    return made || (input < 2 && (turned || r->norm[input] != MHA_NORM_NONE));
}

/* What the arithmetic does to the stages of the forward. */
static mha_status bound_forward(mha__gradient_errors *e, const mha__backward *b, mha_error *error)
{
    static const mha_stage rows[3] = {MHA_STAGE_Q_ROT, MHA_STAGE_K_ROT, MHA_STAGE_V},
                           projected[3] = {MHA_STAGE_Q, MHA_STAGE_K, MHA_STAGE_V};
    const mha_backward_precision *p = e->precision;
    double bound[MHA_STAGE_COUNT] = {0};
    mha_call call = b->call;
    call.keep_count = 0;
    call.precision = (mha_precision){.scores = p->scores, .sums = p->sums};
    TRY(mha_error_bound(b->r->layer, &call, e->unit, bound, MHA_STAGE_COUNT, error));
    e->score = bound[MHA_STAGE_SCORES], e->lse = bound[MHA_STAGE_LSE], e->weight = bound[MHA_STAGE_WEIGHTS];
    e->added = bound[MHA_STAGE_MASKED] > e->score ? bound[MHA_STAGE_MASKED] - e->score : 0;
    if (b->given->whole.lse.data)
        e->lse = b->given->whole.lse_error;
    e->under = p->sums == MHA_F32 ? 0 : mha__storage_of(p->sums).absolute;
    e->sums = fmax(e->unit, p->sums == MHA_F32 ? 0 : mha__storage_of(p->sums).relative);
    for (int i = 0; i < 3; i++)
        e->rows[i] = changes(b->r, i) ? bound[rows[i]] : 0, e->projected[i] = bound[projected[i]];
    for (int v = 0; v < 2 && mha__holds_keys(b->r); v++) /* new rows are stored, old ones were */
        e->rows[1 + v] = bound[v ? MHA_STAGE_PRESENT_VALUE : MHA_STAGE_PRESENT_KEY];
    e->latents[0] = bound[MHA_STAGE_Q_LATENT], e->latents[1] = bound[MHA_STAGE_KV_LATENT];
    e->heads = bound[MHA_STAGE_HEADS], e->gated = bound[MHA_STAGE_GATED];
    const mha_backward_precision none = {.scores = MHA_F32};
    e->independent = memcmp(p, &none, sizeof none) == 0 && !b->r->layer && e->added == 0 && e->rows[0] == 0 &&
                     !mha__semantics_of(b->r)->softmax.dropout_keep.data &&
                     e->rows[1] == 0 && e->rows[2] == 0 && mha__semantics_of(b->r)->softmax.normaliser == MHA_SOFTMAX;
    return MHA_OK;
}

/* Memory for errors of the shapes of what they are errors of. */
static bool take_all(mha__gradient_errors *e, const mha__backward *b)
{
    mha__backward *s = &e->sizes;
    const mha__latent_rows *x = &b->latents;
    mha__latent_rows *y = &s->latents;
    const mha__sizes *p = &b->r->plan;
    const struct {
        mha_view *to;
        const mha_view *like;
    } all[] = {{&s->d_heads, &b->d_heads},     {&s->gated, &b->d_heads},         {&s->d_gated, &b->d_gated},
               {&s->gates, &b->gates},         {&s->d_gates, &b->d_gates},       {&y->q, &x->q},
               {&y->q_normed, &x->q_normed},   {&y->d_q, &x->d_q},               {&y->kv, &x->kv},
               {&y->kv_normed, &x->kv_normed}, {&y->d_kv, &x->d_kv},             {&y->d_wide, &x->d_wide},
               {&s->d_x[0], &b->d_x[0]},       {&s->d_x[1], &b->d_x[1]},         {&s->d_x[2], &b->d_x[2]}};
    bool room = true;
    for (size_t i = 0; i < sizeof all / sizeof *all && room; i++)
        if (all[i].like->data)
            room = mha__backward_take(s, all[i].to, all[i].like->shape[0], all[i].like->shape[1]);
    for (int i = 1; i < 3; i++)
        if (b->d_x[i].data == b->d_x[i - 1].data)
            s->d_x[i] = s->d_x[i - 1];
    size_t width = p->h * p->d_k + p->h_kv * (p->d_k + p->d_v) + b->r->latent.q_rank + b->r->latent.kv_rank;
    for (int i = 0; i < 3 && room; i++)
        room = (e->room[i] = mha__arena_take(&s->memory, width * sizeof(double))) != NULL;
    const size_t T = p->T_q, n = p->S + p->S_extra, rows = T + n, d = p->d_k + p->d_v;
    double **const to[] = {&e->spare,    &e->repeats[0], &e->repeats[1], &e->repeats[2], &e->repeats[3], &e->alike[0],
                           &e->alike[1], &e->scores,     &e->own[0],     &e->own[1],     &e->own[2],     &e->products};
    const size_t sizes[] = {rows * p->d_k, T, n, T, n, T, n, T * n, T * n, T * n, T * n, (3 * rows + 3) * d};
    for (size_t i = 0; i < sizeof to / sizeof *to && room; i++)
        room = (*to[i] = mha__arena_take(&s->memory, sizes[i] * sizeof(double))) != NULL;
    return room;
}

mha_status mha__bound_begin(mha__gradient_errors *e, const mha__backward *b, const mha_backward_precision *precision,
                            double unit, mha_error *error)
{
    mha__backward *s = &e->sizes;
    *e = (mha__gradient_errors){.precision = precision, .unit = unit, .tiny = unit > 0x1p-30 ? 0x1p-126 : 0x1p-1022};
    s->memory.allocator = mha__allocator_default(), s->r = b->r, s->given = &e->none;
    if (b->given->whole.lse.data && !b->given->whole.sizes.data)
        return mha__fail(error, MHA_INVALID, "whole sizes", "expected sum_j P_ij |V_jc|, which the bound needs");
    TRY(bound_forward(e, b, error));
    bool full = !take_all(e, b) || !mha__bound_begin_stages(e, b) || !mha__bound_forward(e, b);
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        if (!b->d[g].data)
            continue;
        s->d[g] = mha__arena_view(&s->memory, MHA_F64, b->d[g].rank, b->d[g].shape);
        full |= !s->d[g].data;
    }
    full |= !mha__backward_begin_keys(s);
    char *map = mha__arena_take(&s->memory, mha__map_lay_out(b->r, NULL, &s->map));
    if (full || !map)
        return mha__fail(error, MHA_NO_MEMORY, "bound", "no memory for the errors of this backward");
    (void)mha__map_lay_out(b->r, map, &s->map);
    return MHA_OK;
}

mha_status mha__bound_restart(mha__gradient_errors *e, const mha__backward *b, const mha_backward_precision *precision,
                              mha_error *error)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *errors[2] = {&e->sizes.d[g], mha__backward_result(&e->sizes, g)};
        for (int i = 0; i < 2; i++)
            if (errors[i]->data)
                memset(errors[i]->data, 0, mha_view_elements(errors[i]) * sizeof(double));
    }
    mha__backward_clear_keys(&e->sizes);
    if (precision == e->precision)
        return MHA_OK;
    e->precision = precision;
    return bound_forward(e, b, error);
}

void mha__bound_end(mha__gradient_errors *e, const mha__backward *b)
{
    const double largest = mha__gradient_largest(e);
    const mha_dtype type = e->precision->gradients;
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++) {
        const mha_view *d = mha__backward_result(b, g), *errors = mha__backward_result(&e->sizes, g);
        for (size_t at = 0; d->data && at < mha_view_elements(d); at++) {
            const double x = fabs(((const double *)d->data)[at]);
            double *E = (double *)errors->data + at;
            *E += (type != MHA_F32 ? mha__lost(type, x + *E, 1) : 0) + 2 * e->unit * (x + *E) + e->tiny;
            if (!(x + *E < largest)) /* NaN, too */
                *E = INFINITY;
        }
    }
}

void mha__bound_step(mha__gradient_errors *e, const mha__backward *b, mha__backward_step step)
{
    if (step == MHA__BACKWARD_OUTPUT) {
        mha__bound_output(e, b);
        mha__bound_keep_rows(e, b, step);
    }
    if (step == MHA__BACKWARD_HEADS) {
        mha__backward_deal_keys(&e->sizes);
        mha__bound_keep_rows(e, b, step);
        mha__bound_rows(e, b);
    }
    if (step == MHA__BACKWARD_INPUTS)
        mha__bound_inputs(e, b);
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
    mha__bound_step(e, b, step);
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
        if (given->of[g].data) {
            const mha_view *to = &given->of[g], errors = mha_view_of(mha__backward_result(&e.sizes, g)->data, MHA_F64,
                                                                     to->rank, to->shape);
            (void)mha_view_copy(to, &errors, NULL);
        }
    if (status == MHA_OK)
        mha__backward_hand_stages(&e.sizes, MHA_F32, given);
    mha__bound_free(&e);
    return status;
}

mha_status mha_gradient_bound(const mha_layer *layer, const mha_call *call, const mha_gradients *gradients, double unit,
                              mha_error *error)
{
    if (!(unit > 0 && unit < 1))
        return mha__fail(error, MHA_INVALID, "unit", "expected a roundoff between 0 and 1, found %g", unit);
    TRY(mha__backward_precision_check(layer, &gradients->precision, error));
    mha__backward b;
    mha_gradients exact = *gradients;
    exact.precision = (mha_backward_precision){.scores = MHA_F32};
    mha_status status = mha__backward_begin(&b, layer, call, &exact, NULL, error);
    if (status == MHA_OK)
        status = bound_all(&b, gradients, unit, error);
    mha__backward_free(&b);
    return status;
}
