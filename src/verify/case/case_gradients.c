/* The backward of a case: what comes in, and the gradients that somebody recorded, in the axes of the plan. */
#include <string.h>

#include "base/base.h"
#include "mha/cache.h"
#include "verify/case/record.h"

bool mha__case_records(const mha_case *c, int slot)
{
    return c->expected[0][slot].name || c->expected[1][slot].name;
}

static bool has_results(const mha_case *c, int slot, int end)
{
    while (slot < end && !mha__case_records(c, slot))
        slot++;
    return slot < end;
}

bool mha__case_has_gradients(const mha_case *c)
{
    return has_results(c, CASE_GRADIENTS, CASE_RESULT_COUNT);
}

bool mha__case_has_backwards(const mha_case *c)
{
    return has_results(c, CASE_BACKWARDS, CASE_GRADIENTS);
}

static const case_tensor inputs[] = {[MHA_D_QUERY] = CASE_QUERY, [MHA_D_KEY] = CASE_KEY, [MHA_D_VALUE] = CASE_VALUE};

mha_view mha__case_gradient(const mha_case *c, const mha_plan *plan, mha_gradient gradient, const mha_view *recorded)
{
    size_t shape[4];
    if (gradient <= MHA_D_VALUE)
        return mha__case_as(c, inputs[gradient], recorded);
    const int rank = mha_gradient_shape(plan, gradient, shape);
    return mha_view_of(recorded->data, recorded->dtype, rank, shape);
}

/* A cache with the rows from before the call. */
static mha_status fill_cache(const mha_case *c, mha__case_backward *b, mha_error *error)
{
    const mha_view *keys = &c->tensors[CASE_PAST_KEY], *values = &c->tensors[CASE_PAST_VALUE];
    const mha_cache_spec spec = {.batch = keys->shape[0], .kv_heads = keys->shape[1], .d_k = keys->shape[3],
                                 .d_v = values->shape[3], .capacity = keys->shape[2] + c->T_k,
                                 .dtype = c->cache_rounds ? c->cache : MHA_F64};
    TRY(mha_cache_create(&spec, &c->pool.allocator, &b->cache, error));
    b->call.cache = b->cache;
    return mha_cache_load(b->cache, keys, values, error);
}

/* The call with inputs left out that the file leaves out: their gradients are part of that of the input they follow. */
static mha_status read_call(const mha_case *c, mha__case_backward *b, mha_error *error)
{
    const bool key_follows = c->tensors[CASE_KEY].data == c->tensors[CASE_QUERY].data,
               value_follows = c->tensors[CASE_VALUE].data == c->tensors[CASE_KEY].data,
               paged = c->pages.keys.data != NULL;
    *b = (mha__case_backward){.call = mha_case_call(c)};
    b->call.path = MHA_PATH_EXACT;
    if (!c->layer && (key_follows || value_follows))
        return mha__fail(error, MHA_UNSUPPORTED, key_follows ? "key" : "value",
                         "expected one for gradients of kind %s, which have three inputs, found none",
                         mha_case_kind(c));
    if (c->absorbed && c->tensors[CASE_PAST_KEY].data)
        return mha__fail(error, MHA_UNSUPPORTED, "absorbed", "expected none with gradients");
    if (key_follows || paged)
        b->call.key = (mha_view){0};
    if (value_follows || paged)
        b->call.value = (mha_view){0};
    if (paged)
        b->call.pages = c->pages;
    else if (c->tensors[CASE_PAST_KEY].data)
        TRY(fill_cache(c, b, error));
    return mha_plan_call(c->layer, &b->call, &b->plan, error);
}

mha_status mha__case_backward_begin(const mha_case *c, mha__case_backward *b, mha_error *error)
{
    const mha_dtype type = c->precision.inputs;
    const mha_view *d_lse = &c->tensors[CASE_D_LSE];
    size_t shape[4];
    TRY(read_call(c, b, error));
    b->gradients = (mha_gradients){.d_output = mha__case_as(c, CASE_D_OUTPUT, &c->tensors[CASE_D_OUTPUT]),
                                   .precision = mha_backward_precision_of(type)};
    if (type != MHA_F32 && (c->layer || b->gradients.precision.output != type))
        return mha__fail(error, MHA_UNSUPPORTED, "precision", "expected F32, or of kind sdpa F16 or BF16, with "
                         "gradients, found %s", mha_dtype_name(type));
    if (d_lse->data)
        b->gradients.d_lse =
            mha_view_of(d_lse->data, d_lse->dtype, mha_plan_stage(&b->plan, MHA_STAGE_LSE, shape), shape);
    return MHA_OK;
}

void mha__case_backward_free(mha__case_backward *b)
{
    mha_cache_destroy(b->cache);
}

/* Checks a tensor of a stage's shape, as the file shapes it. */
static mha_status check_stage(const mha_case *c, const mha_plan *plan, mha_stage stage, case_tensor tensor,
                              mha_error *error)
{
    const mha_view *v = &c->tensors[tensor];
    const char *name = mha__case_tensor_name(tensor);
    size_t shape[4];
    if (!v->data)
        return MHA_OK;
    const int rank = mha_plan_stage(plan, stage, shape);
    if (rank == 0)
        return mha__fail(error, MHA_INVALID, name, "expected %s in the call, found none", mha_stage_at(stage)->name);
    const mha_view stored = mha_view_of(NULL, MHA_F32, rank, shape),
                   shaped = mha__case_shape(c, &stored, stage, false, plan->S, v->rank);
    return mha__expect_shape(error, name, v, shaped.rank, shaped.shape);
}

/* Checks a recorded stage or gradient of the backward, as the file shapes it. */
static mha_status check_result(const mha_case *c, const mha_plan *plan, int slot, const case_expected *e,
                               mha_error *error)
{
    const bool is_gradient = slot >= CASE_GRADIENTS;
    const mha_gradient gradient = (mha_gradient)(slot - CASE_GRADIENTS);
    const mha_backward_stage stage = (mha_backward_stage)(slot - CASE_BACKWARDS);
    size_t shape[4];
    if (!e->name)
        return MHA_OK;
    const int rank =
        is_gradient ? mha_gradient_shape(plan, gradient, shape) : mha_backward_stage_shape(plan, stage, shape);
    if (rank == 0 && is_gradient)
        return mha__fail(error, MHA_INVALID, e->name, "expected %s in the call, found none",
                         mha_gradient_name(gradient));
    if (rank == 0)
        return mha__fail(error, MHA_INVALID, e->name, "expected none: the backward of the call has no such stage");
    mha_view shaped = mha_view_of(NULL, MHA_F32, rank, shape);
    if (!is_gradient)
        shaped = mha__case_shape(c, &shaped, mha_backward_stage_at(stage)->like, false, plan->S, e->view.rank);
    else if (gradient <= MHA_D_VALUE)
        shaped = c->tensors[inputs[gradient]];
    return mha__expect_shape(error, e->name, &e->view, shaped.rank, shaped.shape);
}

mha_status mha__case_check_gradients(const mha_case *c, mha_error *error)
{
    mha__case_backward b;
    if (!mha__case_has_gradients(c) && !mha__case_has_backwards(c))
        return MHA_OK;
    if (!c->tensors[CASE_D_OUTPUT].data)
        return mha__fail(error, MHA_INVALID, "d_output", "expected the gradient of the output, found none");
    mha_error unplanned; /* the checker skips the gradients, and says why */
    const bool is_planned = read_call(c, &b, &unplanned) == MHA_OK;
    mha_status status = MHA_OK;
    if (is_planned)
        status = check_stage(c, &b.plan, MHA_STAGE_OUTPUT, CASE_D_OUTPUT, error);
    if (is_planned && status == MHA_OK)
        status = check_stage(c, &b.plan, MHA_STAGE_LSE, CASE_D_LSE, error);
    for (int i = 2 * CASE_BACKWARDS; i < 2 * CASE_RESULT_COUNT && is_planned && status == MHA_OK; i++)
        status = check_result(c, &b.plan, i / 2, &c->expected[i % 2][i / 2], error);
    mha__case_backward_free(&b);
    return status;
}
