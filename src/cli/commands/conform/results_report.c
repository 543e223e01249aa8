/* The report of mha conform --check on a kernel: text, JSON, and JUnit's XML for continuous integration. */
#include "cli/commands/conform/asking.h"
#include "picture/markup.h"

/* ---------------------------------------------------------------- one report */

static json_t *row_record(const tested *row)
{
    const mha_verdict *v = &row->verdict;
    json_t *record = record_of(
        "name", J(row->row.name), "family", J(row->row.family), "regime", J(row->row.regime), "needs", J(row->row.has),
        "status",
        J(row->outcome == MHA_OUTCOME_SKIPPED && !row->checked ? "no result" : mha_outcome_name(row->outcome)),
        "reason", J(row->reason), NULL);
    if (!row->checked || v->stage_count == 0) /* no result that could be compared */
        return record_with(record, "~diagnosis", J(row->reason), NULL);
    const mha_stage_verdict *s = &v->stages[v->culprit < v->stage_count ? v->culprit : 0];
    return record_with(record, "stage", J(s->name), "mismatches", J(s->difference.mismatches), "elements",
                       J(s->difference.elements), "max_abs", J(s->difference.max_abs), "rtol", J(s->rtol), "atol",
                       J(s->atol), "worst_index", json_shape(s->difference.rank, s->difference.worst_index), "yours",
                       J(s->yours), "exact", J(s->exact), "bugs", json_incref(row->bugs), "clue",
                       J(json_array_size(row->bugs) ? NULL : row->diagnosis), "~diagnosis",
                       J(row->diagnosis ? row->diagnosis : row->reason), NULL);
}

static json_t *report_of(const results *a)
{
    json_t *conventions = json_array(), *test_cases = json_array();
    for (size_t i = 0; i < MHA_CONFORM_CONVENTIONS; i++) {
        const mha_conform_convention *d = mha_conform_convention_at(i);
        const mha_conform_word *choice = &d->choices[a->asked.choices.of[i]];
        if (a->found[i] || a->asked.declared[i])
            json_array_append_new(conventions,
                                  record_of("convention", J(d->name), "choice", J(choice->name), "meaning",
                                            J(choice->meaning), "how", J(a->asked.declared[i] ? "declared" : "found"),
                                            "~about", J(d->meaning), NULL));
    }
    for (size_t i = 0; i < a->n; i++)
        json_array_append_new(test_cases, row_record(&a->rows[i]));
    return record_of("suite", J(MHA_CONFORM_VERSION), "dtype", J(mha_dtype_name(a->asked.dtype)), "passed",
                     J(a->count[MHA_OUTCOME_PASSED]), "failed", J(a->count[MHA_OUTCOME_FAILED]), "skipped",
                     J(a->count[MHA_OUTCOME_SKIPPED]), "conventions", conventions, "cases", test_cases, NULL);
}

/* ---------------------------------------------------------------- text */

static void print_failures(const json_t *test_cases)
{
    static const char *const columns[] = {"case: name", ">max abs: max_abs: %.2g", ">allowed: atol: %.2g",
                                          "?>differ: mismatches elements: %d of %d", "because: ~diagnosis"};
    const json_t *shown = records_where(test_cases, "status", "failed");
    if (json_array_size(shown) > 0) {
        say("%sfailed%s\n", bold(), plain());
        REPORT_TABLE(shown, columns);
        say("\n");
    }
}

static void print_results(const results *a, const json_t *root)
{
    static const char *const conventions[] = {"convention: convention", "choice: choice", "meaning: meaning",
                                              "?how: how"};
    print_failures(json_object_get(root, "cases"));
    if (json_array_size(json_object_get(root, "conventions")) > 0) {
        REPORT_TABLE(json_object_get(root, "conventions"), conventions);
        say("\n");
    }
    say("%s, %s: %s%zu passed, %zu failed%s, %zu without a result\n", MHA_CONFORM_VERSION,
        mha_dtype_name(a->asked.dtype), bold(), a->count[MHA_OUTCOME_PASSED], a->count[MHA_OUTCOME_FAILED], plain(),
        a->count[MHA_OUTCOME_SKIPPED]);
}

/* ---------------------------------------------------------------- JUnit */

static void write_case(mha__markup *m, const tested *row)
{
    mha__markup_print(m, "<testcase classname=\"");
    mha__markup_text(m, row->row.family);
    mha__markup_print(m, "\" name=\"");
    mha__markup_text(m, row->row.name);
    mha__markup_print(m, "\"");
    if (row->outcome == MHA_OUTCOME_PASSED) {
        mha__markup_print(m, "/>\n");
        return;
    }
    mha__markup_print(m, ">%s message=\"", row->outcome == MHA_OUTCOME_FAILED ? "<failure" : "<skipped");
    mha__markup_text(m, row->reason ? row->reason : "no result");
    if (row->diagnosis)
        mha__markup_print(m, "&#10;"), mha__markup_text(m, row->diagnosis);
    mha__markup_print(m, "\"/></testcase>\n");
}

static int write_junit(const results *a, const char *path)
{
    const mha_allocator allocator = mha__allocator_default();
    mha__markup *m = keep(obtain(1, sizeof *m));
    mha_error error = {0};
    TRY(done_or_refuse(mha__markup_open(m, &allocator, path, &error), path, &error));
    mha__markup_print(m,
                      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"%s, %s\" tests=\"%zu\" "
                      "failures=\"%zu\" skipped=\"%zu\">\n",
                      MHA_CONFORM_VERSION, mha_dtype_name(a->asked.dtype), a->n, a->count[MHA_OUTCOME_FAILED],
                      a->count[MHA_OUTCOME_SKIPPED]);
    for (size_t i = 0; i < a->n; i++)
        write_case(m, &a->rows[i]);
    mha__markup_print(m, "</testsuite>\n");
    return done_or_refuse(mha__markup_close(m), path, &error);
}

int results_report(const results *a, const arguments *args)
{
    if (given(args, OPT_JUNIT))
        TRY(write_junit(a, text_for(args, OPT_JUNIT)));
    json_t *root = keep_json(report_of(a));
    if (report_is_text(args, root))
        print_results(a, root);
    return a->count[MHA_OUTCOME_FAILED] ? EXIT_NO : a->count[MHA_OUTCOME_PASSED] ? EXIT_DONE : EXIT_UNCHECKED;
}
