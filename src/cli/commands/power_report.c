/* The report of mha power, of a result and of gradients: which known bugs a test accepts. */
#include "cli/commands/commands.h"

/* ---------------------------------------------------------------- records */

static json_t *criterion_record(const mha_criterion *k)
{
    static const char *const kinds[] = {"bound", "close", "nmse", "cosine"};
    json_t *criterion = record_of("kind", J(kinds[k->kind]), NULL);
    if (k->kind == MHA_CRITERION_BOUND || k->kind == MHA_CRITERION_CLOSE)
        record_with(criterion, "rtol", J(k->rtol), "atol", J(k->atol), NULL);
    else
        record_with(criterion, "limit", J(k->limit), NULL);
    return criterion;
}

const char *criterion_text(const mha_criterion *k)
{
    if (k->kind == MHA_CRITERION_NMSE)
        return text_of("sum (x - y)^2 <= %g sum y^2", k->limit);
    if (k->kind == MHA_CRITERION_COSINE)
        return text_of("cosine(x, y) >= %.9g", k->limit);
    return text_of(k->rtol > 0 ? "|x - y| <= %.3g + %.3g |y|" : "|x - y| <= %.3g", k->atol, k->rtol);
}

/* Equal factors stay in the order of the list of bugs. */
static int by_factor(const void *a, const void *b)
{
    const mha_power_row *x = a, *y = b;
    return x->factor != y->factor ? (x->factor > y->factor ? 1 : -1) : (x->bug > y->bug) - (x->bug < y->bug);
}

static int by_factor_of_gradients(const void *a, const void *b)
{
    const mha_gradient_power_row *x = a, *y = b;
    return x->factor != y->factor ? (x->factor > y->factor ? 1 : -1) : (x->bug > y->bug) - (x->bug < y->bug);
}

/* Adds the lists of accepted, rejected and invisible bugs to the record, which owns them from then on. */
static json_t *with_lists(json_t *record, size_t tried, json_t *const lists[3])
{
    return record_with(record, "tried", J(tried), "same", lists[MHA_POWER_SAME], "accepted", lists[MHA_POWER_ACCEPTED],
                       "rejected", J(json_array_size(lists[MHA_POWER_REJECTED])), "rejections",
                       lists[MHA_POWER_REJECTED], NULL);
}

json_t *power_record(mha_power *p, const char *random)
{
    json_t *lists[3] = {json_array(), json_array(), json_array()};
    qsort(p->rows, p->count, sizeof *p->rows, by_factor);
    for (size_t i = 0; i < p->count; i++) {
        const mha_power_row *row = &p->rows[i];
        const char *name = row->bug->name;
        json_t *found = NULL;
        if (row->result == MHA_POWER_SAME)
            found = json_text(name);
        else
            found = record_of("bugs", json_pack("[o]", J(name)), "max_abs", J(row->max_abs), "factor", J(row->factor),
                              "faint", json_boolean(row->faint), "~name", J(name), "~help", J(row->bug->help), NULL);
        json_array_append_new(lists[row->result], found);
    }
    json_t *record = record_of("stage", J(mha_stage_at(p->stage)->name), "random", J(random), "criterion",
                               criterion_record(&p->criterion), "derived_rtol", J(p->derived_rtol), "derived_atol",
                               J(p->derived_atol), NULL);
    return with_lists(record, p->count, lists);
}

json_t *gradient_power_record(mha_gradient_power *p, const mha_criterion *criterion)
{
    json_t *lists[3] = {json_array(), json_array(), json_array()};
    qsort(p->rows, p->count, sizeof *p->rows, by_factor_of_gradients);
    for (size_t i = 0; i < p->count; i++) {
        const mha_gradient_power_row *row = &p->rows[i];
        const char *name = row->bug->name;
        json_t *found = NULL;
        if (row->result == MHA_POWER_SAME)
            found = json_text(name);
        else
            found = record_of("bug", J(name), "gradient", json_words("d_%s", mha_gradient_name(row->shown_by)),
                              "max_abs", J(row->max_abs), "factor", J(row->factor), "faint", json_boolean(row->faint),
                              "~name", J(name), "~help", J(row->bug->help), NULL);
        json_array_append_new(lists[row->result], found);
    }
    return with_lists(record_of("stage", J(criterion->stage), "criterion", criterion_record(criterion), NULL), p->count,
                      lists);
}

/* ---------------------------------------------------------------- text */

void print_accepted(const mha_case *c, const char *rule, const json_t *record)
{
    enum { NEAREST = 3 };
    static const char *const columns[] = {"bug: ~name", "what it is: ~help", "seen in: gradient",
                                          ">max |difference|: max_abs: %.2g", ">times what is allowed: factor: %.2g"};
    json_t *accepted = json_object_get(record, "accepted"), *rejected = json_object_get(record, "rejections"),
           *same = json_object_get(record, "same");
    const size_t n = json_array_size(accepted), shown = n + json_array_size(rejected);
    json_t *list = keep_json(json_copy(n ? accepted : rejected));
    say("%s%s%s of ", bold(), json_string_value(json_object_get(record, "stage")), plain());
    say_harmless("%s: x with a known bug against the right y\n", mha_case_name(c));
    say("accepted when %s\n\n", rule);
    if (n == 0)
        say("All %zu known bugs that this input shows are rejected. The nearest:\n", shown);
    else
        say("%zu of the %zu known bugs that this input shows are accepted:\n", n, shown);
    while (n == 0 && json_array_size(list) > NEAREST)
        json_array_remove(list, NEAREST);
    REPORT_TABLE(list, columns);
    if (json_array_size(same) == 0)
        return;
    say("\nThis input cannot show %zu more, which give the same result on it:\n", json_array_size(same));
    report_names(same);
}
