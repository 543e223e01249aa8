/* Holding one computed stage against what a case expects: shapes, tolerances, the worst head. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "verify/judge/judge.h"

/* ---------------------------------------------------------------- shapes */

/* The view with an axis that counts heads, and which axis that is; -1 where there is none. */
static int head_axis(const mha_case *c, mha_view *v, mha_stage stage)
{
    size_t heads = c->H;
    switch (stage) {
    case MHA_STAGE_SCORES:
    case MHA_STAGE_CAPPED:
    case MHA_STAGE_MASKED:
    case MHA_STAGE_WEIGHTS:
    case MHA_STAGE_PRESENT_KEY:
    case MHA_STAGE_PRESENT_VALUE: return v->rank - 3;
    case MHA_STAGE_LSE: return v->rank - 2;
    case MHA_STAGE_WEIGHTS_MEAN: return -1;
    case MHA_STAGE_K:
    case MHA_STAGE_V:
    case MHA_STAGE_K_ROT: heads = c->H_kv; break;
    case MHA_STAGE_OUTPUT:
        if (c->kind == CASE_MHA)
            return -1;
        if (c->layout == MHA_BHTD || c->layout == MHA_BTHD)
            return c->layout == MHA_BHTD ? 1 : 2;
        break;
    default: break;
    }
    int last = v->rank - 1; /* heads lie side by side in the last extent */
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
        if (mha_compare(&x, &y, rtol, atol, &d, NULL)) /* unreachable: the whole was compared before */
            return -1; /* unreachable: so */
        if (worst < 0 || d.mismatches > most.mismatches || (d.mismatches == most.mismatches && d.rms > most.rms)) {
            worst = (int)h;
            most = d;
        }
    }
    return worst;
}

/* ---------------------------------------------------------------- verdicts */

static mha_status no_memory(mha_error *error)
{
    return mha__fail(error, MHA_NO_MEMORY, "verdict", "no memory to judge the case");
}

mha_stage_verdict *mha__judgement_row(mha__judgement *j, const char *prefix, const char *name, const char *against)
{
    mha_verdict *v = j->verdict;
    mha_allocator a = mha__allocator_default();
    mha_stage_verdict *rows = mha__array_grow(&a, v->stages, v->stage_count, &v->capacity, sizeof *rows);
    if (!rows)
        return NULL;
    v->stages = rows;
    mha_stage_verdict *row = &v->stages[v->stage_count++];
    *row = (mha_stage_verdict){.worst_head = -1};
    mha__text_print(row->name, sizeof row->name, "%s%s", prefix, name);
    mha__text_print(row->against, sizeof row->against, "%s", against);
    return row;
}

bool mha__judgement_wants(const mha__judgement *j, const char *name)
{
    return !j->only || strcmp(j->only, name) == 0;
}

bool mha__case_records(const mha_case *c, int stage)
{
    bool qk = stage == (int)c->qk_stage && (c->expected[0][CASE_QK].name || c->expected[1][CASE_QK].name);
    bool prefill = stage == MHA_STAGE_OUTPUT &&
                   (c->expected[0][CASE_PREFILL_OUTPUT].name || c->expected[1][CASE_PREFILL_OUTPUT].name);
    return c->expected[0][stage].name || c->expected[1][stage].name || qk || prefill;
}

/* The tolerance of a comparison. What the file leaves open is derived. */
static mha_status tolerance(mha__judgement *j, int slot, bool wide, mha_stage stage,
                            mha_stage_verdict *row, mha_error *error)
{
    const mha_case *c = j->c;
    const double common = wide ? c->atol64 : c->atol;
    mha_status status = MHA_OK;
    row->rtol = wide ? c->rtol64 : c->rtol;
    row->atol = isnan(c->expected[wide][slot].atol) ? common : c->expected[wide][slot].atol;
    if (!isnan(row->rtol) && !isnan(row->atol))
        return MHA_OK;
    row->derived = true;
    if (isnan(row->rtol))
        row->rtol = 0;
    if (!isnan(row->atol))
        return MHA_OK;
    if (!j->measured) {
        bool wanted[MHA_STAGE_COUNT];
        for (int s = 0; s < MHA_STAGE_COUNT; s++)
            wanted[s] = mha__case_records(c, s);
        status = mha__tolerance_of_case(c, wanted, &j->derived, error);
        const mha_error why = *error;
        if (status == MHA_UNSUPPORTED)
            status = mha__fail(error, status, why.name, "no tolerance is given, and none is derived where float32 cannot run it: %s", why.message);
    }
    j->measured = !status;
    row->atol = j->derived.atol[wide][stage];
    return status;
}

/* A source may write a hidden key's masked score as the lowest finite float (ONNX Runtime's ai.onnx
 * Attention does). Where ours is -inf such an entry means the same; anything else stays as it is. */
static mha_status hide_lowest(mha__arena *pool, const mha_view *a, mha_view *expected, mha_error *error)
{
    mha_view copy = mha__arena_view(pool, MHA_F64, expected->rank, expected->shape);
    if (!copy.data)
        return no_memory(error);
    size_t n = mha_view_elements(&copy), index[MHA_MAX_RANK] = {0};
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        double e = mha_view_get(expected, index);
        bool lowest = (e == -(double)FLT_MAX || e == -DBL_MAX) && mha_view_get(a, index) == -INFINITY;
        ((double *)copy.data)[i] = lowest ? -INFINITY : e;
        found |= lowest;
        for (int k = copy.rank - 1; k >= 0 && ++index[k] == copy.shape[k]; k--)
            index[k] = 0;
    }
    if (found)
        *expected = copy;
    return MHA_OK;
}

/* Where float32 may give either recorded result, each element is held against the nearer one. */
static mha_status merge(mha__arena *pool, const mha_view *a, const mha_view *e32, const mha_view *e64, double rtol,
                        double atol, mha_view *merged, mha_error *error)
{
    mha_view m = mha__arena_view(pool, MHA_F64, e32->rank, e32->shape);
    if (!m.data)
        return no_memory(error);
    size_t n = mha_view_elements(&m), index[MHA_MAX_RANK] = {0};
    for (size_t i = 0; i < n; i++) {
        double x = mha_view_get(a, index), narrow = mha_view_get(e32, index), wide = mha_view_get(e64, index);
        bool fits_wide = x == wide || (isfinite(wide) && fabs(x - wide) <= atol + rtol * fabs(wide));
        ((double *)m.data)[i] = fits_wide ? wide : narrow;
        for (int k = m.rank - 1; k >= 0 && ++index[k] == m.shape[k]; k--)
            index[k] = 0;
    }
    *merged = m;
    return MHA_OK;
}

mha_status mha__judgement_hold(mha__judgement *j, const char *prefix, mha__attempt *attempt, const mha_view *computed,
                              mha_stage stage, int slot, bool loose, mha_error *error)
{
    const mha_case *c = j->c;
    const case_expected *e32 = &c->expected[0][slot], *e64 = &c->expected[1][slot];
    bool exact = j->path == MHA_PATH_EXACT;
    bool wide = (exact && !loose && e64->name) || !e32->name;
    const case_expected *e = wide ? e64 : e32;
    const char *name = slot == CASE_PREFILL_OUTPUT ? "prefill_output" : mha_stage_name(stage);
    if (!e->name || !mha__judgement_wants(j, name))
        return MHA_OK;
    mha_stage_verdict *row = mha__judgement_row(j, prefix, name, e->name);
    if (!row)
        return no_memory(error);
    mha_status status = tolerance(j, slot, wide && exact && !loose, stage, row, error);
    if (status) {
        j->verdict->stage_count--; /* nothing was compared: the reason is what counts */
        return status;
    }
    mha_view a = *computed, expected = e->view;
    if (slot != CASE_PREFILL_OUTPUT) /* which is (B, T, E) whatever the layout */
        a = mha__case_shape(c, computed, stage, slot == CASE_QK, attempt->plan.S, e->view.rank);
    if (c->overflow && !exact && e32->name && e64->name)
        status = merge(&attempt->pool, &a, &e32->view, &e64->view, row->rtol, row->atol, &expected, error);
    if (!status && stage == MHA_STAGE_MASKED)
        status = hide_lowest(&attempt->pool, &a, &expected, error);
    if (!status)
        status = mha_compare(&a, &expected, row->rtol, row->atol, &row->difference, error);
    if (status)
        return status;
    row->ok = row->difference.mismatches == 0;
    if (!row->ok)
        row->worst_head = find_worst_head(c, stage, a, expected, row->rtol, row->atol);
    return MHA_OK;
}
