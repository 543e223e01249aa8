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

void mha__comparison_explain(const mha__comparison *j, mha_verdict *v)
{
    const size_t n = v->stage_count;
    size_t unchecked = n, elements = 0;
    v->culprit = n;
    for (size_t i = n; i-- > 0;) {
        const mha_stage_verdict *s = &v->stages[i];
        unchecked = s->checked ? unchecked : i;
        v->culprit = s->checked && !s->ok ? i : v->culprit;
        elements += s->difference.elements;
    }
    if (unchecked < n || (n > 0 && elements == 0))
        v->outcome = MHA_OUTCOME_SKIPPED;
    if (n > 0 && elements == 0) /* such a result cannot be wrong */
        mha__text_print(v->reason, sizeof v->reason, "expected elements to compare, found none in %s",
                        v->stages[0].name);
    else if (unchecked < n)
        mha__text_print(
            v->reason, sizeof v->reason,
            "%s is not checked: numbers may leave the range of float32 on the way, so that no tolerance follows "
            "from the call: expected one in the case (atol, rtol), or smaller inputs",
            v->stages[unchecked].name);
    if (v->culprit == n)
        return;
    const mha_stage_verdict *s = &v->stages[v->culprit];
    const mha_difference *d = &s->difference;
    char index[128];
    v->outcome = MHA_OUTCOME_FAILED;
    mha__text_print(v->reason, sizeof v->reason,
                    "%s diverges first: %zu of %zu elements beyond %g + %g |exact|, worst at %s: yours %.9g, "
                    "exact %.9g",
                    s->name, d->mismatches, d->elements, s->atol, s->rtol,
                    mha__shape_text(index, sizeof index, d->worst_index, d->rank), s->yours, s->exact);
    if (d->nan_actual + d->inf_actual > 0)
        tell_source(j->c, v);
}
