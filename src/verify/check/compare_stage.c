/* Compares one computed stage with the tensor recorded in a case: shapes, tolerances, the worst head. */
#include <math.h>
#include <string.h>

#include "attention/call/resolved.h"
#include "base/base.h"
#include "lab/lab.h"
#include "verify/check/check.h"
#include "verify/sample.h"

/* ---------------------------------------------------------------- shapes */

/* Returns the index of the axis of heads, after adding that axis to the view if needed; -1 without heads. */
static int head_axis(const mha_case *c, mha_view *v, mha_stage stage)
{
    const bool merged = stage == MHA_STAGE_OUTPUT && c->kind == CASE_MHA,
               of_keys = stage == MHA_STAGE_K || stage == MHA_STAGE_V || stage == MHA_STAGE_K_ROT;
    const size_t heads = of_keys ? c->H_kv : c->H;
    if (mha__stage_axis(stage, "h") == 1 || mha__stage_axis(stage, "h_kv") == 1)
        return v->rank - (stage == MHA_STAGE_LSE ? 2 : 3);
    if (stage == MHA_STAGE_WEIGHTS_MEAN || merged)
        return -1;
    if (stage == MHA_STAGE_OUTPUT && (c->layout == MHA_BHTD || c->layout == MHA_BTHD))
        return c->layout == MHA_BHTD ? 1 : 2;
    int last = v->rank - 1; /* heads are side by side in the last extent */
    v->shape[last + 1] = v->shape[last] / heads;
    v->stride[last + 1] = v->stride[last];
    v->shape[last] = heads;
    v->stride[last] *= (ptrdiff_t)v->shape[last + 1];
    v->rank++;
    return last;
}

static int find_worst_head(const mha_case *c, mha_stage stage, mha_view a, mha_view e, double rtol, double atol)
{
    mha_view copy = e;
    int axis = head_axis(c, &a, stage), worst = -1;
    head_axis(c, &copy, stage);
    if (axis < 0)
        return -1;
    mha_difference most = {0};
    for (size_t h = 0; h < a.shape[axis]; h++) {
        mha_view x = mha_view_slice(&a, axis, h, 1), y = mha_view_slice(&copy, axis, h, 1);
        mha_difference d;
        if (mha__compare_to_exact(&x, &y, rtol, atol, &d, NULL) != MHA_OK)
            return -1; /* unreachable: the whole was compared before */
        if (worst < 0 || d.mismatches > most.mismatches || (d.mismatches == most.mismatches && d.rms > most.rms)) {
            worst = (int)h;
            most = d;
        }
    }
    return worst;
}

/* ---------------------------------------------------------------- rows of the verdict */

mha_status mha__comparison_row(mha__comparison *j, const char *prefix, const char *name, const char *against,
                               mha_stage_verdict **row, mha_error *error)
{
    mha_allocator a = mha__allocator_default();
    mha_stage_verdict *rows = mha__array_grow(&a, j->rows, j->count, &j->room, sizeof *rows);
    if (!rows)
        return mha__check_no_memory(j->c, error);
    j->rows = rows;
    *row = &rows[j->count++];
    **row = (mha_stage_verdict){.checked = true, .worst_head = -1};
    mha__text_print((*row)->name, sizeof (*row)->name, "%s%s", prefix, name);
    mha__text_print((*row)->against, sizeof (*row)->against, "%s", against);
    return MHA_OK;
}

mha_status mha__comparison_show(const mha__comparison *j, const mha_stage_verdict *row, const mha_view *yours,
                                const mha_view *exact, mha_error *error)
{
    return j->watch ? j->watch->see(j->watch->context, row, yours, exact, error) : MHA_OK;
}

bool mha__comparison_wants(const mha__comparison *j, const char *name)
{
    return !j->only || strcmp(j->only, name) == 0;
}

const case_expected *mha__comparison_expected(const mha__comparison *j, int slot, bool cache_rounded, bool *wide)
{
    const case_expected *e32 = &j->c->expected[0][slot], *e64 = &j->c->expected[1][slot];
    const bool exact = j->path == MHA_PATH_EXACT && !cache_rounded;
    const case_expected *e = (exact && e64->name) || !e32->name ? e64 : e32;
    *wide = exact && e == e64;
    return e->name ? e : NULL;
}

/* ---------------------------------------------------------------- results recorded in another form */

/* Where float32 may give either recorded result, each element is compared with the nearer one. `merged` is the
 * float32 result at first. */
static void merge(const mha_view *computed, const mha_view *e64, double rtol, double atol, mha_view *merged)
{
    size_t index[MHA_MAX_RANK] = {0};
    double *e = merged->data;
    for (bool more = mha_view_elements(merged) > 0; more;
         more = mha__index_next(index, merged->shape, merged->rank), e++) {
        double x = mha_view_get(computed, index), wide = mha_view_get(e64, index);
        if (x == wide || (isfinite(wide) && fabs(x - wide) <= atol + rtol * fabs(x)))
            *e = wide;
    }
}

/* The rows of a recorded tensor that were computed: all of it without a sample. */
static mha_status computed_rows(const mha__comparison *j, const mha__stage_result *result, const mha_view *recorded,
                                mha__arena *pool, mha_view *rows, int *axis, mha_error *error)
{
    *rows = *recorded;
    *axis = result->sample ? mha__sample_axis_of(j->c, result->stage, recorded->rank) : -1;
    if (*axis < 0)
        return MHA_OK;
    mha_view shape = *recorded;
    shape.shape[*axis] = result->sample->count;
    *rows = mha__arena_view(pool, recorded->dtype, recorded->rank, shape.shape);
    if (!rows->data)
        return mha__check_no_memory(j->c, error);
    mha__sample_copy(result->sample, *axis, recorded, rows);
    return MHA_OK;
}

/* ---------------------------------------------------------------- the comparison */

static mha_status compare(const mha__comparison *j, const mha__stage_result *result, const case_expected *e,
                          mha__arena *pool, mha_stage_verdict *row, mha_error *error)
{
    const mha_case *c = j->c;
    mha_view x = *result->computed, copy, recorded[2] = {{0}}; /* expected.*, expected64.* */
    int axis = -1;
    for (int wide = 0; wide < 2; wide++)
        if (c->expected[wide][result->slot].name)
            TRY(computed_rows(j, result, &c->expected[wide][result->slot].view, pool, &recorded[wide], &axis, error));
    const mha_view *own = &recorded[e == &c->expected[1][result->slot]];
    copy = *own;
    if (result->slot != CASE_PREFILL_OUTPUT) /* prefill_output is (B, T, E) in every layout */
        x = mha__case_shape(c, &x, result->stage, result->slot == CASE_QK, result->S, e->view.rank);
    const bool either = c->overflow && j->path != MHA_PATH_EXACT && c->expected[0][result->slot].name &&
                        c->expected[1][result->slot].name;
    const bool hides = result->stage == MHA_STAGE_MASKED, overflows = mha__storage_of(e->stored).relative > 0;
    if (either || hides || overflows) /* equivalent values are replaced before the comparison */
        TRY(mha__arena_copy(pool, MHA_F64, either ? &recorded[0] : own, c->name, &copy, error));
    if (either)
        merge(&x, &recorded[1], row->rtol, row->atol, &copy);
    if (hides || overflows)
        row->overflowed = mha_replace_equivalent(
            &x, &(mha_allowance){.stage = result->stage, .stored = e->stored, .atol = row->atol}, &copy);
    const bool narrows = !either && row->overflowed == 0 && copy.dtype == MHA_F64 && e->view.dtype == MHA_F32;
    if (narrows) /* ULPs are counted between float32 numbers */
        TRY(mha__arena_copy(pool, MHA_F32, &copy, c->name, &copy, error));
    TRY(mha__compare_to_exact(&x, &copy, row->rtol, row->atol, &row->difference, error));
    row->exact = row->difference.worst_actual;
    row->yours = row->difference.worst_expected;
    row->ok = row->checked && row->difference.mismatches == 0;
    if (axis >= 0 && row->difference.elements > 0)
        row->difference.worst_index[axis] = mha__sample_row(result->sample, row->difference.worst_index[axis]);
    if (row->checked && !row->ok)
        row->worst_head = find_worst_head(c, result->stage, x, copy, row->rtol, row->atol);
    return mha__comparison_show(j, row, &copy, &x, error);
}

mha_status mha__comparison_compare(mha__comparison *j, const mha__stage_result *result, mha_error *error)
{
    const char *name = result->slot == CASE_PREFILL_OUTPUT ? "prefill_output" : mha_stage_at(result->stage)->name;
    bool wide;
    const case_expected *e = mha__comparison_expected(j, result->slot, result->cache_rounded, &wide);
    if (!e || !mha__comparison_wants(j, name))
        return MHA_OK;
    mha_stage_verdict *row;
    TRY(mha__comparison_row(j, result->prefix, name, e->name, &row, error));
    const mha__allowed allowed = mha__allowed_of(j->c, result->slot, wide, result->stage, e->stored, &j->derived);
    row->rtol = allowed.rtol;
    row->atol = allowed.atol;
    row->derived = allowed.derived;
    row->checked = !allowed.derived || isfinite(allowed.atol);
    row->stored = e->stored;
    mha__arena pool = {.allocator = j->c->pool.allocator};
    mha_status status = compare(j, result, e, &pool, row, error);
    mha__arena_free(&pool);
    return status;
}
