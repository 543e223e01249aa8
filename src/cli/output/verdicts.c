/* Shows the checker's verdicts case by case, as text or JSON. */
#include "cli/output/report.h"

#include <math.h>

/* ---------------------------------------------------------------- one report of all cases */

/* `first`: this is the first stage that diverges; later stages depend on it. */
static json_t *stage_record(const mha_stage_verdict *s, bool first)
{
    const mha_difference *d = &s->difference;
    json_t *record = record_of(
        "name", J(s->name), "against", J(s->against), "ok", s->checked ? json_boolean(s->ok) : json_null(), "max_abs",
        J(d->max_abs), "max_rel", J(d->max_rel), "max_ulp", J(d->max_ulp), "rms", J(d->rms), "cosine", J(d->cosine),
        "elements", J(d->elements), "mismatches", J(d->mismatches), "worst_index", json_shape(d->rank, d->worst_index),
        "worst_actual", J(d->worst_actual), "worst_expected", J(d->worst_expected), "nan_actual", J(d->nan_actual),
        "nan_expected", J(d->nan_expected), "inf_actual", J(d->inf_actual), "inf_expected", J(d->inf_expected), "rtol",
        J(s->rtol), "atol", J(s->atol), "tolerance_needed", J(d->tolerance_needed), "tolerance_derived",
        json_boolean(s->derived), "worst_head", s->worst_head < 0 ? json_null() : J(s->worst_head), NULL);
    return record_with(record, "~verdict",
                       J(!s->checked ? "not checked"
                         : s->ok     ? "ok"
                         : first     ? "FIRST"
                                     : "differs"),
                       "~allowed",
                       s->rtol > 0 ? json_words("%.2g + %.2g |exact|", s->atol, s->rtol) : json_words("%.2g", s->atol),
                       NULL);
}

static json_t *case_record(const checked_case *c)
{
    const mha_verdict *v = &c->verdict;
    const char *reason = c->obstacle ? c->obstacle : v->reason;
    json_t *stages = json_array();
    double used = 0; /* of the tolerance, at most */
    for (size_t s = 0; s < v->stage_count; s++) {
        json_array_append_new(stages, stage_record(&v->stages[s], s == v->culprit));
        used = fmax(used, v->stages[s].difference.tolerance_factor);
    }
    return record_of("name", J(c->name), "file", J(c->path), "status", J(mha_outcome_name(v->outcome)), "path",
                     J(mha_path_name(v->path)), "reason", J(*reason ? reason : NULL), "culprit",
                     v->culprit < v->stage_count ? J(v->stages[v->culprit].name) : json_null(), "stages", stages,
                     "rows_checked", J(c->rows_checked), "rows", J(c->rows), "~stages", J(v->stage_count), "~used",
                     J(100 * used), NULL);
}

json_t *verdicts_report(const checked_case *cases, size_t n, const size_t count[3])
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, case_record(&cases[i]));
    return record_of("passed", J(count[MHA_OUTCOME_PASSED]), "failed", J(count[MHA_OUTCOME_FAILED]), "skipped",
                     J(count[MHA_OUTCOME_SKIPPED]), "cases", list, NULL);
}

/* ---------------------------------------------------------------- text */

/* Prints every stage of one case in the order of the data flow. */
static void print_stages(const checked_case *c, const json_t *record)
{
    const mha_verdict *v = &c->verdict;
    const bool part = c->rows_checked < c->rows;
    static const char *const columns[] = {
        "stage: name", ": ~verdict", ">max abs: max_abs: %.2g", "?>allowed: ~allowed",
        "?>differ: mismatches elements: %d of %d", "worst at: worst_index", ">yours: worst_expected: %.7g",
        ">exact: worst_actual: %.7g", ">??head: worst_head", ">???max ULP: max_ulp: %.3g"};
    if (v->stage_count == 0)
        return;
    table_name(c->name);
    REPORT_TABLE(json_object_get(record, "stages"), columns);
    if (v->culprit < v->stage_count)
        say("  FIRST: the first stage that diverges; what comes after it follows from it\n");
    if (v->path != MHA_PATH_EXACT)
        say("  exact: by the %s path, in float32; --path exact computes in float64\n",
            mha_path_name(v->path));
    if (c->rows_exact < c->rows) /* a sample leaves something open */
        say("  %s %s of %s query rows (--sample)%s\n",
            part ? "checked on" : "all rows are checked, with the error of", count_text(c->rows_exact),
            count_text(c->rows), part ? "; errors confined to the others are not detected" : "");
}

static void print_failure(const checked_case *c, const json_t *record)
{
    const mha_verdict *v = &c->verdict;
    say("%sfailed  %s%s: %s\n", bold(), harmless(c->name), plain(), harmless(c->obstacle ? c->obstacle : v->reason));
    print_stages(c, record);
    for (size_t i = 0; i < v->stage_count; i++) {
        const mha_difference *d = &v->stages[i].difference;
        if (d->nan_actual != d->nan_expected || d->inf_actual != d->inf_expected)
            say("  %s: yours has %zu NaN and %zu infinities, the exact one %zu and %zu\n", v->stages[i].name,
                d->nan_expected, d->inf_expected, d->nan_actual, d->inf_actual);
    }
    say("\n");
}

static void print_rest(const json_t *list, mha_outcome outcome)
{
    static const char *const passed[] = {
        "case: name", "path: path", ">stages: ~stages", ">of the tolerance used: ~used: %.2g %%"};
    static const char *const skipped[] = {"case: name", "skipped because: reason"};
    const json_t *shown = records_where(list, "status", mha_outcome_name(outcome));
    if (outcome == MHA_OUTCOME_PASSED)
        REPORT_TABLE(shown, passed);
    else
        REPORT_TABLE(shown, skipped);
    say("\n");
}

/* Suggests what to do about the first failed case. A case from standard input cannot be read again. */
static void advise(const checked_case *cases, size_t n)
{
    size_t i = 0;
    while (i < n && !(cases[i].verdict.outcome == MHA_OUTCOME_FAILED && cases[i].verdict.stage_count > 0))
        i++;
    if (i == n || (cases[i].path && strcmp(cases[i].path, "-") == 0))
        return;
    say("\"mha diagnose %s\"%s looks for the known bug that explains it.\n",
        harmless(shell_word(cases[i].path ? cases[i].path : "...")), cases[i].path ? "" : " with the same options");
}

void verdicts_print(const json_t *root, const checked_case *cases, size_t n, const size_t count[3])
{
    const json_t *list = json_object_get(root, "cases");
    bool unchecked = false; /* a stage was compared, and nothing can be said of it */
    for (size_t i = 0; n == 1 && i < cases->verdict.stage_count; i++)
        unchecked |= !cases->verdict.stages[i].checked;
    for (size_t i = 0; i < n; i++)
        if (cases[i].verdict.outcome == MHA_OUTCOME_FAILED)
            print_failure(&cases[i], json_array_get(list, i));
    if (count[MHA_OUTCOME_SKIPPED])
        print_rest(list, MHA_OUTCOME_SKIPPED);
    if (n == 1 && (count[MHA_OUTCOME_PASSED] || (count[MHA_OUTCOME_SKIPPED] && unchecked)))
        print_stages(&cases[0], json_array_get(list, 0));
    else if (count[MHA_OUTCOME_PASSED])
        print_rest(list, MHA_OUTCOME_PASSED);
    advise(cases, n);
    say("%s%zu passed, %zu failed, %zu skipped%s\n", bold(), count[MHA_OUTCOME_PASSED], count[MHA_OUTCOME_FAILED],
           count[MHA_OUTCOME_SKIPPED], plain());
}
