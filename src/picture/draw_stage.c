/* A picture of one stage: of a call, of a case, or of a trace, which has it under its name. */
#include <stdio.h>
#include <string.h>

#include "mha/file.h"
#include "picture/sheet.h"

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
    mha_status status = mha__attempt_begin(&attempt, &picture->memory.allocator, &exact, error);
    if (status == MHA_OK)
        status = mha__attempt_run(&attempt, MHA_BTE, wanted, error);
    if (status == MHA_OK)
        status = mha__sheet_add(picture, name, &attempt.stages[stage], NULL, NULL, MHA__SHEET_CELLS, &sheet, error);
    mha__attempt_free(&attempt);
    return status;
}

/* ---------------------------------------------------------------- files */

/* Whether a tensor is called `stage` or "NAME.STAGE". */
static bool is_stage(const char *name, const char *stage)
{
    const size_t length = strlen(name), tail = strlen(stage);
    return length >= tail && strcmp(name + length - tail, stage) == 0 &&
           (length == tail || name[length - tail - 1] == '.');
}

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
        if (is_stage(tensor->name, stage))
            TRY(add_tensor(picture, file, tensor, error));
    }
    if (picture->sheet_count == before)
        return mha__fail(error, MHA_NOT_FOUND, "stage", "expected one of %s, found \"%s\"", known, stage);
    return MHA_OK;
}

static mha_status add_case(mha__picture *picture, const char *path, const char *name, mha_error *error)
{
    mha_case *c = NULL;
    mha_stage stage;
    if (!mha_stage_find(name, &stage))
        return mha__fail(error, MHA_NOT_FOUND, "stage",
                         "expected a stage (\"mha help stage\" lists them), found \"%s\"", name);
    TRY(mha_case_open(path, NULL, &c, error));
    mha_status status = MHA_OK;
    if (mha_case_skip_reason(c))
        status = mha__fail(error, MHA_UNSUPPORTED, path, "%s", mha_case_skip_reason(c));
    else if (strcmp(mha_case_kind(c), "rope") == 0)
        status = mha__fail(error, MHA_UNSUPPORTED, path, "a case of rotation alone has no stages to show");
    if (status == MHA_OK) {
        const mha_call call = mha_case_call(c);
        mha__request request = {.layer = mha_case_layer(c), .call = &call};
        mha_case_past(c, &request.past_key, &request.past_value);
        status = mha__picture_add_stage(picture, name, &request, stage, error);
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
