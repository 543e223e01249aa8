/* The report of mha power, of a result and of gradients: which known bugs a test accepts. */
#include "cli/commands/commands.h"

/* ---------------------------------------------------------------- records */

static json_t *criterion_record(const mha_criterion *k)
{
    const bool limit = k->kind >= MHA_CRITERION_NMSE && k->kind != MHA_CRITERION_EITHER;
    json_t *criterion = record_of("kind", J(mha_criterion_name(k->kind)), NULL);
    if (k->kind != MHA_CRITERION_NMSE && k->kind != MHA_CRITERION_COSINE)
        record_with(criterion, "rtol", J(k->rtol), "atol", J(k->atol), NULL);
    return limit ? record_with(criterion, "limit", J(k->limit), NULL) : criterion;
}

const char *criterion_text(const mha_criterion *k)
{
    switch (k->kind) {
    case MHA_CRITERION_NMSE: return text_of("sum (x - y)^2 <= %g sum y^2", k->limit);
    case MHA_CRITERION_COSINE: return text_of("cosine(x, y) >= %.9g", k->limit);
    case MHA_CRITERION_EITHER: return text_of("|x - y| <= %.3g or |x - y| <= %.3g |y|", k->atol, k->rtol);
    case MHA_CRITERION_ERRORS:
        return text_of("|x - y| <= %.3g, %g times a %s kernel's error", k->atol, k->limit,
                       mha_dtype_name(k->precision));
    default: break;
    }
    const char *close = text_of(k->rtol > 0 ? "|x - y| <= %.3g + %.3g |y|" : "|x - y| <= %.3g", k->atol, k->rtol);
    return k->kind == MHA_CRITERION_SHARE ? text_of("%s for %g %% of the elements", close, 100 * k->limit) : close;
}

/* Equal factors stay in the order of the list of bugs. */
static int by_factor(const void *a, const void *b)
{
    const mha_power_row *x = a, *y = b;
    return x->factor != y->factor ? (x->factor > y->factor ? 1 : -1) : (x > y) - (x < y);
}

static int by_excess(const void *a, const void *b)
{
    const mha_power_row *x = a, *y = b;
    return x->excess != y->excess ? (x->excess < y->excess ? 1 : -1) : by_factor(a, b);
}

json_t *power_record(mha_power *p, json_t *record, bool worst_first)
{
    json_t *lists[3] = {json_array(), json_array(), json_array()};
    qsort(p->rows, p->count, sizeof *p->rows, worst_first ? by_excess : by_factor);
    for (size_t i = 0; i < p->count; i++) {
        const mha_power_row *row = &p->rows[i];
        json_t *found = json_text(row->bug);
        if (row->result != MHA_POWER_SAME) {
            found = row->seen_in ? record_of("bug", found, "gradient", json_words("d_%s", row->seen_in), NULL)
                                 : record_of("bugs", json_pack("[o]", found), NULL);
            record_with(found, "max_abs", J(row->max_abs), "factor", J(row->factor), "excess", J(row->excess), "faint",
                        json_boolean(row->excess <= 1), "~name", J(row->bug), "~help", J(row->help), NULL);
        }
        json_array_append_new(lists[row->result], found);
    }
    return record_with(record, "criterion", criterion_record(&p->criterion), "derived_rtol", J(p->derived_rtol),
                       "derived_atol", J(p->derived_atol), "tried", J(p->count), "same", lists[MHA_POWER_SAME],
                       "accepted", lists[MHA_POWER_ACCEPTED], "rejected",
                       J(json_array_size(lists[MHA_POWER_REJECTED])), "rejections", lists[MHA_POWER_REJECTED], NULL);
}

/* ---------------------------------------------------------------- text */

void print_accepted(const char *what, const char *rule, const json_t *record)
{
    enum { NEAREST = 3 };
    static const char *const columns[] = {"bug: ~name", "what it is: ~help", "seen in: gradient",
                                          ">max |difference|: max_abs: %.2g", ">times what is allowed: factor: %.2g",
                                          ">times rounding: excess: %.2g"};
    json_t *accepted = json_object_get(record, "accepted"), *rejected = json_object_get(record, "rejections"),
           *same = json_object_get(record, "same");
    const size_t n = json_array_size(accepted), shown = n + json_array_size(rejected);
    json_t *list = keep_json(json_copy(n ? accepted : rejected));
    say("%s%s%s of ", bold(), json_string_value(json_object_get(record, "stage")), plain());
    say_harmless("%s: x with a known bug against the right y\n", what);
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
