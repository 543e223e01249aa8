/* A checked case as sheets: what it records beside what is exact, and beside what a bug gives. */
#include <stdio.h>
#include <string.h>

#include "picture/sheet.h"
#include "verify/check/check.h"

static mha_status see(void *context, const mha_stage_verdict *row, const mha_view *yours, const mha_view *exact,
                      mha_error *error)
{
    mha__sheet *sheet;
    TRY(mha__sheet_add(context, row->name, yours, exact, &row->difference, MHA__SHEET_CELLS, &sheet, error));
    sheet->mark = row->ok ? "ok" : "differs";
    sheet->rtol = row->rtol;
    sheet->atol = row->atol;
    sheet->worst_head = row->worst_head;
    return MHA_OK;
}

mha_status mha__picture_check(mha__picture *picture, const mha_case *c, const mha__picture_choice *choice,
                              const char *stage, mha_verdict *verdict, mha_error *error)
{
    const mha__check_watch watch = {see, picture};
    const size_t first = picture->sheet_count;
    picture->sides[0] = "yours";
    picture->sides[1] = "exact";
    TRY(mha__case_check(c, choice->path, stage, choice->threads, &watch, verdict, error));
    if (first + verdict->culprit < picture->sheet_count)
        picture->sheets[first + verdict->culprit].mark = "FIRST";
    if (verdict->stage_count == 0 || strcmp(mha_case_kind(c), "rope") == 0)
        return MHA_OK;
    return mha__picture_add_case(picture, c, choice, error);
}

/* The recorded tensor of this name, and which stage it is; NULL for one that is no stage, and for rotation alone. */
static const case_expected *find(const mha_case *c, const char *tensor, mha_stage *stage)
{
    for (int wide = 0; wide < 2 && c->kind != CASE_ROPE; wide++)
        for (int slot = 0; slot < MHA_STAGE_COUNT; slot++)
            if (c->expected[wide][slot].name && strcmp(c->expected[wide][slot].name, tensor) == 0) {
                *stage = (mha_stage)slot;
                return &c->expected[wide][slot];
            }
    return NULL;
}

/* Computes what the bugs give in the shape of the recorded tensor. */
static mha_status compute(const mha_case *c, const mha_bug_match *e, mha_stage stage, const mha_view *recorded,
                          mha__arena *memory, mha_view *result, mha_error *error)
{
    char names[2][256];
    const char *bugs[2] = {names[0], names[1]};
    for (size_t i = 0; i < e->count; i++)
        snprintf(names[i], sizeof names[i], "%s%s%s", e->bugs[i], *e->found[i] ? " " : "", e->found[i]);
    mha_call call = mha_case_call(c);
    call.path = MHA_PATH_EXACT;
    const mha__request request = mha__case_request(c, c->layer, &call);
    mha__attempt attempt;
    mha_status status = mha__attempt_begin(&attempt, &c->pool.allocator, &request, error);
    size_t shape[4];
    const int rank = status == MHA_OK ? mha_plan_stage(&attempt.plan, stage, shape) : 0;
    const size_t S = attempt.plan.S, B = attempt.plan.B, T_q = attempt.plan.T_q;
    mha__attempt_free(&attempt);
    TRY(status);
    mha_view stored = mha__arena_view(memory, MHA_F64, rank, shape), ordered = stored;
    if (!stored.data)
        return mha__fail(error, MHA_NO_MEMORY, c->name, "no memory for a bug");
    if (stage == MHA_STAGE_OUTPUT && (c->layout == MHA_BHTD || c->layout == MHA_BTHD))
        ordered = mha_view_heads(stored.data, MHA_F64, c->layout, B, T_q, c->H, c->d_v);
    else if (stage == MHA_STAGE_OUTPUT)
        ordered = mha_view_rows(stored.data, MHA_F64, c->layout, B, T_q, shape[rank - 1]);
    TRY(mha_case_with_bugs(c, bugs, e->count, stage, &ordered, error));
    *result = mha__case_shape(c, &stored, stage, false, S, recorded->rank);
    return MHA_OK;
}

mha_status mha__picture_add_bug(mha__picture *picture, const mha_case *c, const char *tensor,
                                const mha_bug_match *match, mha_error *error)
{
    mha_stage stage;
    const case_expected *recorded = find(c, tensor, &stage);
    if (!recorded || match->count == 0)
        return MHA_OK;
    mha__arena memory = {.allocator = c->pool.allocator};
    mha_view result;
    mha_difference difference;
    mha__sheet *sheet;
    const double allowed = match->exact ? match->max_abs : 0; /* which rounding explains */
    char name[300];
    mha__text_print(name, sizeof name, "%s by %s%s%s", mha_stage_at(stage)->name, match->bugs[0],
                    match->count > 1 ? " and " : "", match->count > 1 ? match->bugs[1] : "");
    mha_status status = compute(c, match, stage, &recorded->view, &memory, &result, error);
    if (status == MHA_OK)
        status = mha_compare(&recorded->view, &result, 0, allowed, &difference, error);
    if (status == MHA_OK)
        status = mha__sheet_add(picture, name, &recorded->view, &result, &difference, MHA__SHEET_CELLS, &sheet, error);
    if (status == MHA_OK) {
        sheet->mark = match->exact ? "ok" : "differs";
        sheet->beside = "bug";
        sheet->atol = allowed;
    }
    mha__arena_free(&memory);
    return status;
}
