/* Shows the judge's verdicts case by case, as text or JSON. */
#include "cli/output/verdicts.h"

#include <stdlib.h>
#include <string.h>

static const char *reason_of(const judged_case *c)
{
    return c->obstacle ? c->obstacle : c->verdict.reason;
}

/* ---------------------------------------------------------------- text */

/* `first`: this is the first stage that diverges; later stages depend on it. */
static void stage_row(table *t, const mha_stage_verdict *s, bool first)
{
    const mha_difference *d = &s->difference;
    table_cell(t, s->name);
    table_cell(t, s->ok ? "ok" : first ? "FIRST" : "differs");
    table_format(t, "%.2g", d->max_abs);
    if (s->rtol > 0)
        table_format(t, "%.2g + %.2g |yours|", s->atol, s->rtol);
    else
        table_format(t, "%.2g", s->atol);
    table_format(t, "%zu of %zu", d->mismatches, d->elements);
    table_shape(t, d->rank, d->worst_index);
    table_format(t, "%.7g", d->worst_expected);
    table_format(t, "%.7g", d->worst_actual);
    if (s->worst_head < 0)
        table_cell(t, "");
    else
        table_format(t, "%d", s->worst_head);
    table_format(t, "%.3g", d->max_ulp);
}

/* Prints every stage of one case in the order of the data flow. */
static void print_stages(const mha_verdict *v)
{
    static const char *const titles[] = {"stage",    "",       ">max abs", "?>allowed", "?>differ",
                                         "worst at", ">yours", ">exact",   "?>head",   "?>max ULP"};
    if (v->stage_count == 0)
        return;
    table *t = table_create(TABLE_TEXT, sizeof titles / sizeof *titles, titles);
    for (size_t i = 0; i < v->stage_count; i++)
        stage_row(t, &v->stages[i], i == v->culprit);
    table_print(t);
    if (v->culprit < v->stage_count)
        printf("  FIRST: the first stage that diverges; what comes after it follows from it\n");
    if (v->path != MHA_PATH_EXACT)
        printf("  exact: by the %s path, in float32; --path exact computes in float64\n",
               mha_path_name(v->path));
}

static void print_census(const mha_verdict *v)
{
    for (size_t i = 0; i < v->stage_count; i++) {
        const mha_difference *d = &v->stages[i].difference;
        if (d->nan_actual != d->nan_expected || d->inf_actual != d->inf_expected)
            printf("  %s: yours has %zu NaN and %zu infinities, the exact one %zu and %zu\n", v->stages[i].name,
                   d->nan_expected, d->inf_expected, d->nan_actual, d->inf_actual);
    }
}

static void print_failure(const judged_case *c)
{
    const mha_verdict *v = &c->verdict;
    char *name = harmless(text_of("%s", c->name)), *reason = harmless(text_of("%s", reason_of(c)));
    printf("%sfailed  %s%s: %s\n", bold(), name, plain(), reason);
    free(name);
    free(reason);
    print_stages(v);
    print_census(v);
    putchar('\n');
}

/* The largest error of any stage divided by its tolerance. */
static double used(const mha_verdict *v)
{
    double most = 0;
    for (size_t i = 0; i < v->stage_count; i++)
        if (v->stages[i].difference.tolerance_factor > most)
            most = v->stages[i].difference.tolerance_factor;
    return most;
}

static void print_rest(const judged_case *cases, size_t n, mha_outcome outcome)
{
    static const char *const skipped[] = {"case", "skipped because"};
    static const char *const passed[] = {"case", "path", ">stages", ">of the tolerance used"};
    table *t =
        outcome == MHA_OUTCOME_PASSED ? table_create(TABLE_TEXT, 4, passed) : table_create(TABLE_TEXT, 2, skipped);
    for (size_t i = 0; i < n; i++) {
        const mha_verdict *v = &cases[i].verdict;
        if (v->outcome != outcome)
            continue;
        table_cell(t, cases[i].name);
        if (outcome == MHA_OUTCOME_PASSED) {
            table_cell(t, mha_path_name(v->path));
            table_format(t, "%zu", v->stage_count);
            table_format(t, "%.2g %%", 100 * used(v));
        } else
            table_cell(t, reason_of(&cases[i]));
    }
    table_print(t);
    putchar('\n');
}

/* A path as a shell reads it as one word; it must be freed. */
static char *shell_word(const char *path)
{
    if (!path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%")])
        return text_of("%s", path);
    char *word = obtain(4 * strlen(path) + 3, 1), *to = word;
    *to++ = '\'';
    for (; *path; path++)
        if (*path == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *path;
    *to = '\'';
    return harmless(word);
}

/* Suggests what to do about the first failed case. A case from standard input cannot be read again. */
static void advise(const judged_case *cases, size_t n)
{
    size_t i = 0;
    while (i < n && !(cases[i].verdict.outcome == MHA_OUTCOME_FAILED && cases[i].verdict.stage_count > 0))
        i++;
    if (i == n || (cases[i].path && strcmp(cases[i].path, "-") == 0))
        return;
    char *path = shell_word(cases[i].path ? cases[i].path : "...");
    printf("\"mha diagnose %s\"%s looks for the variant of attention that explains it.\n", path,
           cases[i].path ? "" : " with the same options");
    free(path);
}

void verdicts_print(const judged_case *cases, size_t n, const size_t count[3])
{
    for (size_t i = 0; i < n; i++)
        if (cases[i].verdict.outcome == MHA_OUTCOME_FAILED)
            print_failure(&cases[i]);
    if (count[MHA_OUTCOME_SKIPPED])
        print_rest(cases, n, MHA_OUTCOME_SKIPPED);
    if (n == 1 && count[MHA_OUTCOME_PASSED])
        print_stages(&cases[0].verdict);
    else if (count[MHA_OUTCOME_PASSED])
        print_rest(cases, n, MHA_OUTCOME_PASSED);
    advise(cases, n);
    printf("%s%zu passed, %zu failed, %zu skipped%s\n", bold(), count[MHA_OUTCOME_PASSED], count[MHA_OUTCOME_FAILED],
           count[MHA_OUTCOME_SKIPPED], plain());
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_stage(const mha_stage_verdict *s)
{
    const mha_difference *d = &s->difference;
    return json_pack("{so so sb so so so so so so so so so so so so so so so so so sb so}", "name", json_text(s->name),
                     "against", json_text(s->against), "ok", (int)s->ok, "max_abs", json_number(d->max_abs), "max_rel",
                     json_number(d->max_rel), "max_ulp", json_number(d->max_ulp), "rms", json_number(d->rms), "cosine",
                     json_number(d->cosine), "elements", json_count(d->elements), "mismatches",
                     json_count(d->mismatches), "worst_index", json_shape(d->rank, d->worst_index), "worst_actual",
                     json_number(d->worst_actual), "worst_expected", json_number(d->worst_expected), "nan_actual",
                     json_count(d->nan_actual), "nan_expected", json_count(d->nan_expected), "inf_actual",
                     json_count(d->inf_actual), "inf_expected", json_count(d->inf_expected), "rtol",
                     json_number(s->rtol), "atol", json_number(s->atol), "tolerance_needed",
                     json_number(d->tolerance_needed), "tolerance_derived", (int)s->derived, "worst_head",
                     s->worst_head < 0 ? json_null() : json_integer(s->worst_head));
}

void verdicts_json(const judged_case *cases, size_t n, const size_t count[3])
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const mha_verdict *v = &cases[i].verdict;
        json_t *stages = json_array();
        for (size_t s = 0; s < v->stage_count; s++)
            json_array_append_new(stages, json_stage(&v->stages[s]));
        json_array_append_new(
            list,
            json_pack("{so so so so so so so}", "name", json_text(cases[i].name), "file", json_text(cases[i].path),
                      "status", json_text(mha_outcome_name(v->outcome)), "path", json_text(mha_path_name(v->path)),
                      "reason", json_text(*reason_of(&cases[i]) ? reason_of(&cases[i]) : NULL), "culprit",
                      v->culprit < v->stage_count ? json_text(v->stages[v->culprit].name) : json_null(), "stages",
                      stages));
    }
    json_print(json_pack("{so so so so}", "passed", json_count(count[MHA_OUTCOME_PASSED]), "failed",
                         json_count(count[MHA_OUTCOME_FAILED]), "skipped", json_count(count[MHA_OUTCOME_SKIPPED]),
                         "cases", list));
}
