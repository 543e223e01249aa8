/* The backward of a case: what comes in, and the gradients that somebody recorded, in the axes of the plan. */
#include <string.h>

#include "base/base.h"
#include "verify/case/record.h"

bool mha__case_has_gradients(const mha_case *c)
{
    for (int g = 0; g < MHA_GRADIENT_COUNT; g++)
        if (c->gradients[0][g].name || c->gradients[1][g].name)
            return true;
    return false;
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

/* The call with inputs left out that the file leaves out: their gradients are part of that of the input they follow. */
static mha_status read_call(const mha_case *c, mha_call *call, mha_error *error)
{
    const bool key_follows = c->tensors[CASE_KEY].data == c->tensors[CASE_QUERY].data,
               value_follows = c->tensors[CASE_VALUE].data == c->tensors[CASE_KEY].data;
    *call = mha_case_call(c);
    call->path = MHA_PATH_EXACT;
    if (c->tensors[CASE_PAST_KEY].data)
        return mha__fail(error, MHA_UNSUPPORTED, "past_key", "gradients are not computed with rows of earlier calls");
    if (!c->layer && (key_follows || value_follows))
        return mha__fail(error, MHA_UNSUPPORTED, key_follows ? "key" : "value",
                         "is missing: gradients of kind %s are those of three inputs", mha_case_kind(c));
    if (key_follows)
        call->key = (mha_view){0};
    if (value_follows)
        call->value = (mha_view){0};
    return MHA_OK;
}

mha_status mha__case_backward(const mha_case *c, mha_call *call, mha_plan *plan, mha_gradients *gradients,
                              mha_error *error)
{
    const mha_dtype type = c->precision.inputs;
    const mha_view *d_lse = &c->tensors[CASE_D_LSE];
    size_t shape[4];
    TRY(read_call(c, call, error));
    TRY(mha_plan_call(c->layer, call, plan, error));
    *gradients = (mha_gradients){.d_output = mha__case_as(c, CASE_D_OUTPUT, &c->tensors[CASE_D_OUTPUT]),
                                 .precision = mha_backward_precision_of(type)};
    if (type != MHA_F32 && (c->layer || gradients->precision.output != type))
        return mha__fail(error, MHA_UNSUPPORTED, "precision", "expected F32, or of kind sdpa F16 or BF16, beside "
                         "gradients, found %s", mha_dtype_name(type));
    if (d_lse->data)
        gradients->d_lse = mha_view_of(d_lse->data, d_lse->dtype, mha_plan_stage(plan, MHA_STAGE_LSE, shape), shape);
    return MHA_OK;
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
        return mha__fail(error, MHA_INVALID, name, "is there, but the call has no %s", mha_stage_name(stage));
    const mha_view stored = mha_view_of(NULL, MHA_F32, rank, shape),
                   shaped = mha__case_shape(c, &stored, stage, false, plan->S, v->rank);
    return mha__expect_shape(error, name, v, shaped.rank, shaped.shape);
}

static mha_status check_gradient(const mha_case *c, const mha_plan *plan, mha_gradient gradient,
                                 const case_expected *e, mha_error *error)
{
    size_t shape[4];
    if (!e->name)
        return MHA_OK;
    const int rank = mha_gradient_shape(plan, gradient, shape);
    const mha_view *input = gradient <= MHA_D_VALUE ? &c->tensors[inputs[gradient]] : NULL;
    if (rank == 0)
        return mha__fail(error, MHA_INVALID, e->name, "is there, but the call has no %s",
                         mha_gradient_name(gradient));
    return mha__expect_shape(error, e->name, &e->view, input ? input->rank : rank, input ? input->shape : shape);
}

mha_status mha__case_check_gradients(const mha_case *c, mha_error *error)
{
    mha_call call;
    mha_plan plan;
    if (!mha__case_has_gradients(c))
        return MHA_OK;
    if (!c->tensors[CASE_D_OUTPUT].data)
        return mha__fail(error, MHA_INVALID, "d_output", "is missing: gradients are computed from that of the output");
    mha_error unplanned; /* the judge skips the gradients, and says why */
    if (read_call(c, &call, &unplanned) != MHA_OK || mha_plan_call(c->layer, &call, &plan, &unplanned) != MHA_OK)
        return MHA_OK;
    TRY(check_stage(c, &plan, MHA_STAGE_OUTPUT, CASE_D_OUTPUT, error));
    TRY(check_stage(c, &plan, MHA_STAGE_LSE, CASE_D_LSE, error));
    for (int i = 0; i < 2 * MHA_GRADIENT_COUNT; i++)
        TRY(check_gradient(c, &plan, (mha_gradient)(i / 2), &c->gradients[i % 2][i / 2], error));
    return MHA_OK;
}
