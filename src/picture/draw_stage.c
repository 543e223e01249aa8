/* A picture of one stage: of a call, of a case, whose backward has some, too, or of a trace, which has it under its
 * name. */
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "mha/file.h"
#include "picture/head.h"
#include "picture/sheet.h"
#include "verify/case/record.h"

mha_status mha__picture_add_stage(mha__picture *picture, const char *name, const mha__request *request, mha_stage stage,
                                  mha_error *error)
{
    mha_call call = *request->call;
    mha__request exact = *request;
    bool wanted[MHA_STAGE_COUNT] = {false};
    mha__attempt attempt;
    mha__sheet *sheet;
    call.path = MHA_PATH_EXACT;
    call.output = (mha_view){0};
    call.keep = NULL;
    call.keep_count = 0;
    exact.call = &call;
    wanted[stage] = true;
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    mha_status status = mha__attempt_make(&attempt, &picture->memory.allocator, &exact, MHA_BTE, wanted, error);
    if (status == MHA_OK)
        status = mha__sheet_add(picture, name, &attempt.stages[stage], NULL, NULL, MHA__SHEET_CELLS, &sheet, error);
    mha__attempt_free(&attempt);
    return status;
}

/* ---------------------------------------------------------------- files */

static mha_status add_tensor(mha__picture *picture, const mha_file *file, const mha_file_tensor *tensor,
                             mha_error *error)
{
    if (!mha__dtype_is_float(tensor->dtype))
        return mha__fail_inside(error, MHA_UNSUPPORTED, mha_file_path(file), tensor->name, 0,
                                "expected floating-point numbers, found %s", mha_dtype_name(tensor->dtype));
    if (tensor->bytes > mha__memory_at_hand())
        return mha__fail_inside(error, MHA_NO_MEMORY, mha_file_path(file), tensor->name, 0,
                                "not enough memory to read its %zu bytes", tensor->bytes);
    mha__arena memory = {.allocator = picture->memory.allocator};
    const mha_view view = mha__arena_view(&memory, tensor->dtype, tensor->rank, tensor->shape);
    mha__sheet *sheet;
    mha_status status = view.data ? mha_file_read(file, tensor, &view, error)
                                  : mha__fail_inside(error, MHA_NO_MEMORY, mha_file_path(file), tensor->name, 0,
                                                     "no memory to read its %zu bytes", tensor->bytes);
    if (status == MHA_OK)
        status = mha__sheet_add(picture, tensor->name, &view, NULL, NULL, MHA__SHEET_CELLS, &sheet, error);
    mha__arena_free(&memory);
    return status;
}

static mha_status add_trace(mha__picture *picture, const mha_file *file, const char *stage, mha_error *error)
{
    char known[300] = "";
    const size_t before = picture->sheet_count;
    for (size_t i = 0; i < mha_file_count(file); i++) {
        const mha_file_tensor *tensor = mha_file_at(file, i);
        const size_t used = strlen(known);
        mha__text_print(known + used, sizeof known - used, "%s%s", i ? ", " : "", tensor->name);
        if (mha__stage_prefix(tensor->name, stage) != SIZE_MAX)
            TRY(add_tensor(picture, file, tensor, error));
    }
    if (picture->sheet_count == before)
        return mha__fail(error, MHA_NOT_FOUND, "stage", "expected one of %s, found \"%s\"", known, stage);
    return MHA_OK;
}

/* A stage of the backward of a case that was begun. */
static mha_status add_sheet(mha__picture *picture, const mha_case *c, mha_backward_stage stage, mha__case_backward *b,
                            mha_error *error)
{
    const char *name = mha_backward_stage_at(stage)->name;
    size_t shape[4];
    const int rank = mha_backward_stage_shape(&b->plan, stage, shape);
    if (rank == 0)
        return mha__fail(error, MHA_NOT_FOUND, name, "expected a stage that the backward of this call has");
    mha__arena memory = {.allocator = picture->memory.allocator};
    mha__sheet *sheet;
    const mha_backward_keep keep = {.stage = stage, .view = mha__arena_view(&memory, MHA_F64, rank, shape)};
    b->gradients.precision = (mha_backward_precision){.scores = MHA_F32};
    b->gradients.keep = &keep, b->gradients.keep_count = 1;
    mha_status status = keep.view.data ? mha_backward(mha_case_layer(c), &b->call, &b->gradients, error)
                                       : mha__fail(error, MHA_NO_MEMORY, name, "no memory for this stage");
    b->gradients.keep = NULL, b->gradients.keep_count = 0;
    if (status == MHA_OK)
        status = mha__sheet_add(picture, name, &keep.view, NULL, NULL, MHA__SHEET_CELLS, &sheet, error);
    mha__arena_free(&memory);
    return status;
}

/* A stage of the backward of a case, beside the weights where it has a number for each of them. */
static mha_status add_backward(mha__picture *picture, const mha_case *c, mha_backward_stage stage,
                               const mha__request *request, mha_error *error)
{
    const mha_backward_stage_info *info = mha_backward_stage_at(stage);
    mha__case_backward b;
    if (!c->tensors[CASE_D_OUTPUT].data)
        return mha__fail(error, MHA_NOT_FOUND, "d_output", "expected one for %s, a stage of the backward, found none",
                         info->name);
    if (strchr(mha_stage_at(info->like)->shape, '\''))
        TRY(mha__picture_add_stage(picture, mha_stage_at(MHA_STAGE_WEIGHTS)->name, request, MHA_STAGE_WEIGHTS, error));
    mha_status status = mha__case_backward_begin(c, &b, error);
    if (status == MHA_OK)
        status = add_sheet(picture, c, stage, &b, error);
    mha__case_backward_free(&b);
    return status;
}

static mha_status add_case(mha__picture *picture, const char *path, const char *name, mha_error *error)
{
    mha_case *c = NULL;
    mha_stage stage;
    int backward = 0;
    const bool forward = mha_stage_find(name, &stage);
    while (!forward && backward < MHA_BACKWARD_STAGE_COUNT &&
           strcmp(mha_backward_stage_at((mha_backward_stage)backward)->name, name) != 0)
        backward++;
    if (backward == MHA_BACKWARD_STAGE_COUNT)
        return mha__fail(error, MHA_NOT_FOUND, "stage",
                         "expected a stage (\"mha help stage\" lists them), found \"%s\"", name);
    TRY(mha_case_open(path, NULL, &c, error));
    mha_status status = MHA_OK;
    if (mha_case_skip_reason(c))
        status = mha__fail(error, MHA_UNSUPPORTED, path, "%s", mha_case_skip_reason(c));
    else if (strcmp(mha_case_kind(c), "rope") == 0)
        status = mha__fail(error, MHA_UNSUPPORTED, path, "expected stages to show, found a case of rotation only");
    if (status == MHA_OK) {
        const mha_call call = mha_case_call(c);
        mha__request request = {.layer = mha_case_layer(c), .call = &call};
        mha_case_past(c, &request.past_key, &request.past_value);
        status = forward ? mha__picture_add_stage(picture, name, &request, stage, error)
                         : add_backward(picture, c, (mha_backward_stage)backward, &request, error);
    }
    mha_case_close(c);
    return status;
}

mha_status mha__picture_add_file_stage(mha__picture *picture, const char *path, const char *stage, mha_error *error)
{
    mha_file *file;
    picture->memory.allocator = mha__allocator_or_default(&picture->memory.allocator);
    TRY(mha_file_open(path, &file, error));
    const bool is_case = mha_file_find(file, "query");
    mha_status status = mha__picture_random_of(picture, file, error);
    if (status == MHA_OK && !is_case)
        status = add_trace(picture, file, stage, error);
    mha_file_close(file);
    return status == MHA_OK && is_case ? add_case(picture, path, stage, error) : status;
}
