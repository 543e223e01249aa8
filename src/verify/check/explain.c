/* Says in a sentence why a case failed, could not be checked, or that nothing in it could fail. */
#include <string.h>

#include "base/base.h"
#include "verify/check/check.h"

/* Adds that an input or a weight holds NaN or infinity, if `view` does; false if not. */
static bool tell_special(mha_verdict *v, const char *name, const mha_view *view)
{
    mha_difference itself;
    const size_t used = strlen(v->reason);
    if (!view->data || mha_compare(view, view, 0, 0, &itself, NULL) != MHA_OK ||
        itself.nan_actual + itself.inf_actual == 0)
        return false;
    mha__text_print(v->reason + used, sizeof v->reason - used, "; %s holds %zu NaN and %zu infinities", name,
                    itself.nan_actual, itself.inf_actual);
    return true;
}

/* Adds where NaN and infinities of the exact result come from: the first input or weight that holds some. */
static void tell_source(const mha_case *c, mha_verdict *v)
{
    static const case_tensor inputs[] = {CASE_QUERY, CASE_KEY, CASE_VALUE, CASE_PAST_KEY, CASE_PAST_VALUE};
    bool told = false;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs && !told; i++)
        told = tell_special(v, mha__case_tensor_name(inputs[i]), &c->tensors[inputs[i]]);
    for (int w = 0; w < MHA_WEIGHT_COUNT && !told; w++)
        told = tell_special(v, mha_weight_at((mha_weight)w)->name, &c->weights[CASE_RECORDED][w]);
}

static void tell_culprit(mha_verdict *v)
{
    const mha_stage_verdict *s = &v->stages[v->culprit];
    const mha_difference *d = &s->difference;
    char index[128];
    mha__text_print(v->reason, sizeof v->reason,
                    "%s diverges first: %zu of %zu elements beyond %g + %g |exact|, worst at %s: yours %.9g, "
                    "exact %.9g",
                    s->name, d->mismatches, d->elements, s->atol, s->rtol,
                    mha__shape_text(index, sizeof index, d->worst_index, d->rank), s->yours, s->exact);
}

/* Whether everything that was compared is empty: such a result cannot be wrong. */
static bool compared_nothing(const mha_verdict *v)
{
    for (size_t i = 0; i < v->stage_count; i++)
        if (v->stages[i].difference.elements > 0)
            return false;
    return v->stage_count > 0;
}

/* The first stage that is not checked; stage_count when all are. */
static size_t first_unchecked(const mha_verdict *v)
{
    size_t i = 0;
    while (i < v->stage_count && v->stages[i].checked)
        i++;
    return i;
}

static void tell_unchecked(mha_verdict *v)
{
    v->outcome = MHA_OUTCOME_SKIPPED;
    mha__text_print(
        v->reason, sizeof v->reason,
        "%s is not checked: numbers may leave the range of float32 on the way, so that no tolerance follows "
        "from the call: expected one in the case (atol, rtol), or smaller inputs",
        v->stages[first_unchecked(v)].name);
}

void mha__comparison_explain(const mha__comparison *j, mha_verdict *v)
{
    v->culprit = 0;
    while (v->culprit < v->stage_count && (v->stages[v->culprit].ok || !v->stages[v->culprit].checked))
        v->culprit++;
    if (first_unchecked(v) < v->stage_count)
        tell_unchecked(v);
    if (compared_nothing(v)) {
        v->outcome = MHA_OUTCOME_SKIPPED;
        mha__text_print(v->reason, sizeof v->reason, "expected elements to compare, found none in %s",
                        v->stages[0].name);
    }
    if (v->culprit == v->stage_count)
        return;
    v->outcome = MHA_OUTCOME_FAILED;
    tell_culprit(v);
    if (v->stages[v->culprit].difference.nan_actual + v->stages[v->culprit].difference.inf_actual > 0)
        tell_source(j->c, v);
}
