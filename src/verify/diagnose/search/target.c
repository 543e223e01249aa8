/* The recorded tensor that is to be explained. */
#include <math.h>
#include <string.h>

#include "verify/diagnose/search/search.h"

mha_view mha__target_view(const mha_case *c, const case_expected *e, mha_stage stage)
{
    const mha_view *v = &e->view;
    return stage == MHA_STAGE_OUTPUT ? mha__case_as(c, c->kind == CASE_ROPE ? CASE_QUERY : CASE_D_OUTPUT, v) : *v;
}

bool mha__target_find(const mha_case *c, const char *name, int *wide, int *slot)
{
    static const char *const prefix[] = {"expected.", "expected64."};
    /* Without a name, the output is taken; without an output, the last stage that is recorded. */
    for (int s = name ? CASE_BACKWARDS - 1 : CASE_BACKWARDS; s >= 0; s--) {
        int candidate_slot = s == CASE_BACKWARDS ? (int)MHA_STAGE_OUTPUT : s;
        for (int w = 0; w < 2; w++) {
            const char *full = c->expected[w][candidate_slot].name;
            bool skip = !full || candidate_slot == CASE_PREFILL_OUTPUT;
            if (!skip && (!name || strcmp(name, full) == 0 || strcmp(name, full + strlen(prefix[w])) == 0)) {
                *wide = w;
                *slot = candidate_slot;
                return true;
            }
        }
    }
    return false;
}

static void measure_size(mha__target *t, const double *values, size_t elements)
{
    double sum = 0;
    size_t finite = 0;
    t->is_zero = true;
    for (size_t i = 0; i < elements; i++) {
        t->has_nan |= isnan(values[i]);
        t->is_zero &= values[i] == 0;
        if (!isfinite(values[i]))
            continue;
        t->largest = fmax(t->largest, fabs(values[i]));
        sum += values[i] * values[i];
        finite++;
    }
    t->rms = finite > 0 ? sqrt(sum / (double)finite) : 0;
}

mha_status mha__target_load(mha__search *s, const char *name, mha_diagnosis *d, mha_error *error)
{
    const mha_case *c = s->c;
    mha__target *t = &s->target;
    int wide;
    if (!mha__target_find(c, name, &wide, &t->slot))
        return name ? mha__fail(error, MHA_NOT_FOUND, "tensor", "expected a recorded stage, found none named %s", name)
                    : mha__fail(error, MHA_NOT_FOUND, NULL, "expected a recorded stage, found none");
    const case_expected *e = &c->expected[wide][t->slot];
    mha__text_print(d->tensor, sizeof d->tensor, "%s", e->name);
    t->stage = t->slot == CASE_QK ? c->qk_stage : (mha_stage)t->slot;
    t->stored = d->stored = e->stored;
    t->storage = mha__storage_of(e->stored);
    t->wide = e->view.dtype == MHA_F64;
    t->by_query = mha__stage_by_query(c, t->stage);
    size_t shape[4];
    const int rank = mha__run_shape(s->inputs, t->stage, shape);
    if (rank == 0)
        return mha__fail(error, MHA_UNSUPPORTED, e->name,
                         "expected a stage of the stored form of latent attention, such as scores, heads "
                         "or output, found one of the absorbed form");
    t->row = 1;
    for (int k = 1; k < rank; k++)
        t->row *= shape[k];
    t->columns = shape[rank - 1];
    const mha_view v = mha__target_view(s->asked, e, t->stage);
    t->recorded_columns = t->slot == CASE_QK ? v.shape[v.rank - 1] : t->columns;
    const size_t elements = mha_view_elements(&v), rows = c->B * c->T_q;
    if (elements == 0)
        return mha__fail(error, MHA_UNSUPPORTED, e->name, "expected elements, found none");
    t->values = mha__arena_take(&s->pool, c->B * (t->row / t->columns) * t->recorded_columns * sizeof *t->values);
    double *recorded = s->inputs->sequences ? mha__arena_take(&s->pool, elements * sizeof *recorded) : t->values;
    s->rows_present = mha__arena_take(&s->pool, rows);
    s->unmodified.stage = mha__arena_take(&s->pool, c->B * t->row * sizeof *s->unmodified.stage);
    s->rows_checked = mha__arena_take(&s->pool, rows);
    s->region_second.rows = mha__arena_take(&s->pool, rows);
    s->region_first.rows = mha__arena_take(&s->pool, rows);
    s->unmodified.distance = mha__arena_take(&s->pool, rows * sizeof *s->unmodified.distance);
    if (!recorded || !t->values || !s->unmodified.stage || !s->rows_present || !s->rows_checked ||
        !s->region_second.rows || !s->region_first.rows || !s->unmodified.distance)
        return mha__search_no_memory(s, error);
    const mha_view copy = mha_view_of(recorded, MHA_F64, v.rank, v.shape);
    (void)mha_view_copy(&copy, &v, NULL); /* cannot fail: both are floats */
    measure_size(t, recorded, elements);
    if (s->inputs->sequences)
        mha__stage_spread(s->inputs, t->stage, elements, recorded, t->values);
    t->rows_present = t->by_query ? s->rows_present : NULL;
    for (size_t r = 0; r < rows; r++)
        s->rows_present[r] = !s->inputs->sequences || r % c->T_q < s->inputs->sequences[r / c->T_q].T[PROJECTION_Q];
    return MHA_OK;
}
