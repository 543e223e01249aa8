/* A call whose numbers are all float64 and may be moved, and differences of what it computes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/cache.h"
#include "support/gradient.h"
#include "support/unit.h"

static mha_view zeros(int rank, const size_t *shape)
{
    size_t n = 1;
    for (int k = 0; k < rank; k++)
        n *= shape[k];
    void *data = calloc(n ? n : 1, sizeof(double));
    if (!data)
        abort();
    return mha_view_of(data, MHA_F64, rank, shape);
}

/* Replaces a view by a contiguous copy in F64. */
static mha_view widen(mha_view *view)
{
    const mha_view copy = zeros(view->rank, view->shape);
    if (mha_view_copy(&copy, view, NULL) != MHA_OK)
        abort();
    return *view = copy;
}

bool graded_adapt(trial *t)
{
    if (!t->bare || t->config.kv_rank)
        return false;
    t->poison &= t->semantics.softmax.hidden_values != MHA_HIDDEN_PROPAGATE;
    return true;
}

/* Latents in place of projections of keys and values. */
static void take_latents(trial *t)
{
    const mha_config *c = &t->config;
    const mha_qkv given = t->semantics.qkv;
    const size_t d_k = c->d_k < 2 ? 2 : c->d_k, n = (size_t)t->seed,
                 d_rope = n / 10 % 3 ? n / 5 % ((d_k + 1) / 2) * 2 : 0;
    t->config = (mha_config){.d_model = c->d_model, .n_heads = c->n_heads, .d_k = d_k, .d_v = c->d_v, .d_q = c->d_q,
                             .d_kin = c->d_kin, .d_vin = c->d_kin, .d_out = c->d_out, .kv_rank = 1 + n % 9,
                             .q_rank = n % 2 ? 1 + n % 7 : 0, .d_rope = d_rope, .bias_latent = n / 2 % 2,
                             .bias_o = c->bias_o, .sinks = c->sinks, .bias_rows = c->bias_rows, .gate = c->gate,
                             .bias_gate = c->bias_gate};
    t->inputs = t->inputs == TRIAL_CROSS ? TRIAL_KEY_VALUE : t->inputs;
    t->semantics.qkv = (mha_qkv){.rope = given.rope, .norm_eps = given.norm_eps, .query_scale = given.query_scale};
    t->semantics.qkv.rope.dim = d_rope;
    t->semantics.qkv.rope.last = true;
    t->semantics.added.relative = (mha_relative){.rule = MHA_RELATIVE_NONE};
    t->rope_axes = false;
    if (d_rope == 0)
        t->semantics.qkv.rope = (mha_rope){.kind = MHA_ROPE_NONE};
}

bool graded_adapt_layer(trial *t)
{
    if (t->bare)
        return false;
    if (t->seed % 5 == 0)
        take_latents(t);
    t->config.dtype = MHA_F64;
    t->poison &= t->semantics.softmax.hidden_values != MHA_HIDDEN_PROPAGATE;
    t->semantics.softmax.empty_rows = MHA_EMPTY_ZERO;
    return true;
}

/* Takes copies of all that the call has gradients of; the weights of a layer are moved where they lie. */
static void take(graded *g)
{
    mha_call *call = &g->r.call;
    mha_visible *visible = &call->semantics.visible;
    g->of[MHA_D_QUERY] = widen(&call->query);
    if (call->key.data)
        g->of[MHA_D_KEY] = widen(&call->key);
    if (call->value.data)
        g->of[MHA_D_VALUE] = widen(&call->value);
    if (g->r.past.keys.data) {
        g->of[MHA_D_PAST_KEY] = widen(&g->r.past.keys);
        g->of[MHA_D_PAST_VALUE] = widen(&g->r.past.values);
    }
    if (visible->mask.kind == MHA_MASK_ADDITIVE)
        g->of[MHA_D_MASK] = widen(&visible->mask.values);
    if (visible->key_padding.kind == MHA_MASK_ADDITIVE)
        g->of[MHA_D_KEY_PADDING] = widen(&visible->key_padding.values);
    if (call->semantics.added.alibi_slopes) {
        const size_t h = g->r.t.config.n_heads;
        g->of[MHA_D_ALIBI_SLOPES] = zeros(1, &h);
        memcpy(g->of[MHA_D_ALIBI_SLOPES].data, call->semantics.added.alibi_slopes, h * sizeof(double));
        call->semantics.added.alibi_slopes = g->of[MHA_D_ALIBI_SLOPES].data;
    }
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight tied = w == MHA_BIAS_K || w == MHA_BIAS_V || w == MHA_SINKS ? (mha_weight)w : MHA_W_Q;
        const bool left_out = tied != MHA_W_Q && call->semantics.place.keys_only;
        if (g->r.layer)
            g->of[MHA_D_WEIGHTS + w] = g->r.weights[w];
        else if (g->r.weights[w].data && !left_out)
            g->of[MHA_D_WEIGHTS + w] = widen(&g->r.weights[w]);
    }
}

/* Gives the call a cache of F64 with the past rows as they now are, and room for its own. */
static void fill_cache(graded *g)
{
    const mha_view *keys = &g->of[MHA_D_PAST_KEY], *values = &g->of[MHA_D_PAST_VALUE];
    const mha_view *new_keys = g->r.call.key.rank ? &g->r.call.key : &g->r.call.query;
    mha_error error;
    if (!keys->data)
        return;
    const mha_cache_spec spec = {.batch = keys->shape[0], .kv_heads = keys->shape[1], .d_k = keys->shape[3],
                                 .d_v = values->shape[3], .capacity = keys->shape[2] + new_keys->shape[1],
                                 .dtype = MHA_F64};
    mha_cache_destroy(g->r.cache);
    assert_ok(mha_cache_create(&spec, NULL, &g->r.cache, &error), error);
    assert_ok(mha_cache_load(g->r.cache, keys, values, &error), error);
    g->r.call.cache = g->r.cache;
}

/* Moves numbers away from the limits where derivatives jump; after a norm they seldom are near. */
static void leave_limits(graded *g, mha_gradient input, mha_weight bias)
{
    const double most = g->r.call.semantics.qkv.clip_qkv;
    const mha_view *x = &g->of[input], *b = &g->of[MHA_D_WEIGHTS + bias];
    const size_t width = x->shape[2] * x->shape[3];
    for (size_t e = 0; most > 0 && !g->r.layer && e < mha_view_elements(x); e++) {
        double *at = (double *)x->data + e;
        const double sum = *at + (b->data ? ((double *)b->data)[e % width] : 0);
        if (fabs(fabs(sum) - most) < 1e-4)
            *at += 2e-4;
    }
}

static void fill(uint64_t seed, const mha_view *view)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 77;
    for (size_t e = 0; e < mha_view_elements(view); e++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ((double *)view->data)[e] = (double)(state >> 11) * 0x1p-52 - 1;
    }
}

void graded_build(const trial *t, graded *g)
{
    mha_plan plan;
    mha_error error;
    size_t shape[4];
    memset(g, 0, sizeof *g);
    trial_build(t, &g->r);
    take(g);
    fill_cache(g);
    leave_limits(g, MHA_D_QUERY, MHA_B_Q);
    leave_limits(g, MHA_D_KEY, MHA_B_K);
    leave_limits(g, MHA_D_VALUE, MHA_B_V);
    g->r.call.path = MHA_PATH_EXACT;
    assert_ok(mha_plan_call(g->r.layer, &g->r.call, &plan, &error), error);
    const mha_view *q = &g->r.call.query;
    const size_t by_head[4] = {q->shape[0], q->shape[1], plan.h, plan.d_v},
                 by_row[3] = {q->shape[0], q->shape[1], plan.d_out};
    g->gradients.d_output = g->r.layer ? zeros(3, by_row) : zeros(4, by_head);
    fill(t->seed, &g->gradients.d_output);
    const int rank = mha_plan_stage(&plan, MHA_STAGE_LSE, shape);
    if (rank && t->seed % 2) {
        g->gradients.d_lse = zeros(rank, shape);
        fill(t->seed + 1, &g->gradients.d_lse);
    }
    if (g->r.layer) {
        assert_ok(mha_layer_add_gradients(g->r.layer, MHA_F64, &error), error);
        mha_layer_lend_gradients(g->r.layer, &g->gradients);
    }
    for (int i = 0; i < MHA_GRADIENT_COUNT; i++)
        if (g->of[i].data && !g->gradients.of[i].data)
            g->gradients.of[i] = zeros(g->of[i].rank, g->of[i].shape);
}

void graded_release(graded *g)
{
    for (int i = 0; i < (g->r.layer ? MHA_D_WEIGHTS : MHA_GRADIENT_COUNT); i++) {
        free(g->of[i].data);
        free(g->gradients.of[i].data);
        if (i >= MHA_D_WEIGHTS && g->of[i].data)
            g->r.weights[i - MHA_D_WEIGHTS] = (mha_view){0};
    }
    free(g->gradients.d_output.data);
    free(g->gradients.d_lse.data);
    trial_release(&g->r);
}

void graded_keep(graded *g, graded_stages *stages, mha_gradients *to)
{
    mha_plan plan;
    mha_error error;
    mha_call call = g->r.call;
    call.keep_count = 0;
    assert_ok(mha_plan_call(g->r.layer, &call, &plan, &error), error);
    stages->count = 0;
    for (int s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++) {
        size_t shape[4];
        const int rank = mha_backward_stage_shape(&plan, (mha_backward_stage)s, shape);
        if (rank)
            stages->keep[stages->count++] = (mha_backward_keep){(mha_backward_stage)s, zeros(rank, shape)};
    }
    to->keep = stages->keep, to->keep_count = stages->count;
}

void graded_drop(graded_stages *stages)
{
    for (size_t i = 0; i < stages->count; i++)
        free(stages->keep[i].view.data);
}

double *graded_stage(const graded_stages *stages, mha_backward_stage stage)
{
    for (size_t i = 0; i < stages->count; i++)
        if (stages->keep[i].stage == stage)
            return stages->keep[i].view.data;
    return NULL;
}

static double products(const mha_view *d, const mha_view *y, double *size)
{
    double sum = 0;
    for (size_t e = 0; d->data && e < mha_view_elements(d); e++) {
        const double x = ((const double *)y->data)[e] * ((const double *)d->data)[e];
        sum += isfinite(x) ? x : 0;
        *size += isfinite(x) ? fabs(x) : 0;
    }
    return sum;
}

double graded_loss(graded *g, double *size)
{
    fill_cache(g);
    mha_call call = g->r.call;
    mha_error error;
    mha_keep keep = {.stage = MHA_STAGE_LSE};
    *size = 0;
    call.output = zeros(g->gradients.d_output.rank, g->gradients.d_output.shape);
    if (g->gradients.d_lse.data) {
        keep.view = zeros(3, g->gradients.d_lse.shape);
        call.keep = &keep, call.keep_count = 1;
    } else {
        call.keep_count = 0;
    }
    assert_ok(mha_run(g->r.layer, &call, &error), error);
    const double sum = products(&g->gradients.d_output, &call.output, size) +
                       products(&g->gradients.d_lse, &keep.view, size);
    free(call.output.data);
    free(keep.view.data);
    return sum;
}

double graded_difference(graded *g, int which, const double *direction, double h)
{
    static const double steps[] = {-2, -1, 1, 2}, factors[] = {1, -8, 8, -1};
    double *x = g->of[which].data, sum = 0, size;
    const size_t n = mha_view_elements(&g->of[which]);
    double *kept = malloc((n ? n : 1) * sizeof *kept);
    if (!kept)
        abort();
    memcpy(kept, x, n * sizeof *x);
    for (int k = 0; k < 4; k++) {
        for (size_t e = 0; e < n; e++)
            x[e] = isfinite(kept[e]) ? kept[e] + steps[k] * h * direction[e] : kept[e];
        sum += factors[k] * graded_loss(g, &size) / (12 * h);
    }
    memcpy(x, kept, n * sizeof *x);
    free(kept);
    return sum;
}
