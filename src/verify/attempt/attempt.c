/* One forward with everything it needs around it: converted inputs, cache, stages, workspace. */
#include "attention/cache/cache.h"
#include "attention/call/resolved.h"
#include "base/base.h"
#include "verify/attempt/attempt.h"

static mha_status no_memory(const char *what, mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, what, "no memory for this part of a call");
}

/* Converts an input to F32, which the float paths need. The plan refuses an input that is not a float. */
static mha_status narrow(mha__attempt *attempt, mha_view *view, const char *name, mha_error *error)
{
    const bool other = view->dtype == MHA_F64 || view->dtype == MHA_F16 || view->dtype == MHA_BF16;
    if (!view->data || !other || attempt->call.path == MHA_PATH_EXACT)
        return MHA_OK;
    mha_view copy = mha__arena_view(&attempt->pool, MHA_F32, view->rank, view->shape);
    if (!copy.data)
        return no_memory(name, error);
    (void)mha_view_copy(&copy, view, NULL);
    *view = copy;
    return MHA_OK;
}

/* A cache for rows of the call's heads and widths. */
static mha_cache_spec empty_cache(const mha__attempt *attempt)
{
    const mha_call *call = &attempt->call;
    const size_t B = call->query.shape[0];
    if (!attempt->layer)
        return (mha_cache_spec){B, call->key.shape[2], call->key.shape[3], call->value.shape[3], .capacity = 0};
    const mha_config *c = mha_layer_config(attempt->layer);
    return call->absorbed ? (mha_cache_spec){B, 1, c->kv_rank + c->d_rope, 0, .capacity = 0}
                          : (mha_cache_spec){B, c->kv_heads, c->d_k, c->d_v, .capacity = 0};
}

static mha_status fill_cache(mha__attempt *attempt, const mha__request *request, mha_error *error)
{
    const mha_call *call = &attempt->call;
    const mha_view *k = &request->past_key, *v = &request->past_value;
    mha_cache_spec spec = empty_cache(attempt);
    if (k->data)
        spec = (mha_cache_spec){.batch = k->shape[0],
                                .kv_heads = k->shape[1],
                                .d_k = k->shape[3],
                                .d_v = call->absorbed ? 0 : v->shape[3],
                                .capacity = k->shape[2]};
    spec.capacity += call->key.data ? call->key.shape[1] : call->query.shape[1];
    spec.dtype = request->cache_rounds ? request->cache : call->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    TRY(mha_cache_create(&spec, &attempt->pool.allocator, &attempt->cache, error));
    attempt->call.cache = attempt->cache;
    const mha_view none = mha_view_slice(k, 3, 0, 0);
    if (k->data)
        TRY(mha_cache_load(attempt->cache, k, call->absorbed ? &none : v, error));
    mha__cache_count_evicted(attempt->cache, request->evicted);
    return MHA_OK;
}

mha_status mha__attempt_begin(mha__attempt *attempt, const mha_allocator *allocator, const mha__request *request,
                              mha_error *error)
{
    const mha_call *call = request->call;
    *attempt = (mha__attempt){
        .pool.allocator = mha__allocator_or_default(allocator), .layer = request->layer, .call = *call,
        .base_2 = request->base_2, .sample = request->sample};
    attempt->call.output = attempt->call.partial = (mha_view){0};
    attempt->call.precision = request->precision;
    attempt->call.keep = attempt->keep;
    attempt->call.keep_count = 0;
    const size_t small = (size_t)1 << 14;
    if (call->threads == 0 && mha_view_elements(&call->query) < small && mha_view_elements(&call->key) < small)
        attempt->call.threads = 1; /* waking the pool's threads would take longer */
    const struct {
        mha_view *view;
        const char *name;
    } inputs[] = {{&attempt->call.query, "query"}, {&attempt->call.key, "key"}, {&attempt->call.value, "value"}};
    for (size_t i = 0; i < 3; i++)
        TRY(narrow(attempt, inputs[i].view, inputs[i].name, error));
    if (!call->cache && (request->past_key.data || request->cache_rounds))
        TRY(fill_cache(attempt, request, error));
    return mha_plan_call(request->layer, &attempt->call, &attempt->plan, error);
}

/* Allocates the output in the memory order of `layout`, with all rows or those of the sample, and returns it seen in
 * the order of the call. */
static mha_view output_view(mha__attempt *attempt, mha__arena *pool, mha_dtype dtype, mha_layout layout, bool sampled)
{
    const mha_plan *plan = &attempt->plan;
    size_t s[4];
    const int rank = mha_plan_stage(plan, MHA_STAGE_OUTPUT, s);
    s[1] = sampled ? attempt->sample->count : s[1];
    attempt->stages[MHA_STAGE_OUTPUT] = mha__arena_view(pool, dtype, rank, s);
    void *data = attempt->stages[MHA_STAGE_OUTPUT].data;
    if (layout == MHA_BHTD || layout == MHA_BTHD)
        return mha_view_heads(data, dtype, layout, s[0], s[1], plan->h, plan->d_v);
    return mha_view_rows(data, dtype, layout, s[0], s[1], plan->d_out);
}

/* Replaces the stages that are attended for by their rows of the sample. */
static mha_status take_sample(mha__attempt *attempt, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                              mha_error *error)
{
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        const int axis = mha__sample_axis((mha_stage)s);
        if (!wanted[s] || axis < 0)
            continue;
        const mha_view all = s == MHA_STAGE_OUTPUT ? attempt->call.output : attempt->stages[s];
        mha_view part;
        if (s == MHA_STAGE_OUTPUT)
            part = output_view(attempt, &attempt->pool, all.dtype, layout, true);
        else {
            mha_view shape = all;
            shape.shape[axis] = attempt->sample->count;
            part = attempt->stages[s] = mha__arena_view(&attempt->pool, all.dtype, all.rank, shape.shape);
        }
        if (!part.data)
            return no_memory(mha_stage_at((mha_stage)s)->name, error);
        mha__sample_copy(attempt->sample, axis, &all, &part);
    }
    return MHA_OK;
}

/* Takes memory for the stages to keep and for a workspace, and runs `forward`. `passing`: memory that is given back
 * when the rows of a sample have been taken. */
static mha_status run_in(mha__attempt *attempt, mha__arena *passing, mha_layout layout,
                         const bool wanted[MHA_STAGE_COUNT],
                         mha_status (*forward)(const mha_plan *, void *, size_t, mha_error *), mha_error *error)
{
    mha_call *call = &attempt->call;
    mha_dtype dtype = call->path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    for (int s = 0; s < MHA_STAGE_COUNT; s++) {
        mha__arena *pool = mha__sample_axis((mha_stage)s) >= 0 ? passing : &attempt->pool;
        if (!wanted[s])
            continue;
        if (s == MHA_STAGE_OUTPUT) {
            call->output = output_view(attempt, pool, dtype, layout, false);
        } else {
            size_t shape[4];
            const int rank = mha_plan_stage(&attempt->plan, (mha_stage)s, shape);
            attempt->stages[s] = mha__arena_view(pool, dtype, rank, shape);
            attempt->keep[call->keep_count++] = (mha_keep){.stage = (mha_stage)s, .view = attempt->stages[s]};
        }
        if (!attempt->stages[s].data)
            return no_memory(mha_stage_at((mha_stage)s)->name, error);
    }
    /* The plan is made again with the stages to keep: they may change the path and the size of the workspace. */
    TRY(mha_plan_call(attempt->layer, call, &attempt->plan, error));
    void *workspace = mha__arena_take(passing, attempt->plan.workspace_bytes);
    if (!workspace)
        return no_memory("workspace", error);
    if (attempt->base_2 && call->path == MHA_PATH_BLAS)
        mha__plan_inside(&attempt->plan)->base_2 = true;
    if (attempt->sample && call->path == MHA_PATH_EXACT)
        mha__plan_inside(&attempt->plan)->rows = attempt->sample->rows;
    TRY(forward(&attempt->plan, workspace, attempt->plan.workspace_bytes, error));
    return attempt->sample ? take_sample(attempt, layout, wanted, error) : MHA_OK;
}

static mha_status run(mha__attempt *attempt, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                      mha_status (*forward)(const mha_plan *, void *, size_t, mha_error *), mha_error *error)
{
    mha__arena passing = {.allocator = attempt->pool.allocator};
    const mha_status status =
        run_in(attempt, attempt->sample ? &passing : &attempt->pool, layout, wanted, forward, error);
    mha__arena_free(&passing);
    return status;
}

mha_status mha__attempt_run(mha__attempt *attempt, mha_layout layout, const bool wanted[MHA_STAGE_COUNT],
                            mha_error *error)
{
    return run(attempt, layout, wanted, mha_forward, error);
}

mha_status mha__attempt_make(mha__attempt *attempt, const mha_allocator *allocator, const mha__request *request,
                             mha_layout layout, const bool wanted[MHA_STAGE_COUNT], mha_error *error)
{
    TRY(mha__attempt_begin(attempt, allocator, request, error));
    return mha__attempt_run(attempt, layout, wanted, error);
}

mha_status mha__attempt_run_inputs(mha__attempt *attempt, const bool wanted[MHA_STAGE_COUNT], mha_error *error)
{
    return run(attempt, MHA_BTE, wanted, mha_forward_inputs, error);
}

void mha__attempt_free(mha__attempt *attempt)
{
    mha_cache_destroy(attempt->cache);
    attempt->cache = NULL;
    mha__arena_free(&attempt->pool);
}

/* ---------------------------------------------------------------- rows of a sample */

int mha__sample_axis(mha_stage stage)
{
    const bool attended = mha__stage_is_of_scores(stage) || stage == MHA_STAGE_HEADS || stage == MHA_STAGE_GATED ||
                          stage == MHA_STAGE_OUTPUT;
    return attended ? mha__stage_axis(stage, "T_q") : -1;
}

void mha__sample_copy(const mha__sample *sample, int axis, const mha_view *from, const mha_view *to)
{
    for (size_t row = 0, n = 0; n < sample->count; row++) {
        if (!sample->rows[row])
            continue;
        const mha_view x = mha_view_slice(from, axis, row, 1), y = mha_view_slice(to, axis, n++, 1);
        (void)mha_view_copy(&y, &x, NULL); /* cannot fail: both are floats */
    }
}

size_t mha__sample_row(const mha__sample *sample, size_t index)
{
    size_t row = 0;
    while (!sample->rows[row] || index-- > 0)
        row++;
    return row;
}
