/* mha power of gradients: which bugs of a backward a test with these inputs and this tolerance would accept. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/criterion.h"
#include "cli/commands/gradients.h"
#include "cli/commands/power_gradients.h"

static const char all[] = "gradients";

bool is_of_gradients(const char *stage)
{
    return strcmp(stage, all) == 0 || gradients_named(stage);
}

static json_t *row_record(const mha_gradient_power_row *row)
{
    char *shown_by = text_of("d_%s", mha_gradient_name(row->shown_by));
    json_t *record =
        record_of("bug", J(row->bug->name), "gradient", J((const char *)shown_by), "max_abs", J(row->max_abs), "factor",
                  J(row->factor), "faint", json_boolean(row->faint), "~help", J(row->bug->help), NULL);
    free(shown_by);
    return record;
}

static int by_factor(const void *a, const void *b)
{
    const mha_gradient_power_row *x = a, *y = b;
    return x->factor < y->factor ? -1 : x->factor > y->factor;
}

/* The bugs with each answer; of those that are rejected and accepted the nearest to what is allowed first. */
static json_t *report_of(mha_gradient_power *p, const mha_criterion *criterion, const char *stage)
{
    json_t *lists[3] = {json_array(), json_array(), json_array()}; /* rejected, accepted, same */
    qsort(p->rows, p->count, sizeof *p->rows, by_factor);
    for (size_t i = 0; i < p->count; i++) {
        const mha_gradient_power_row *row = &p->rows[i];
        json_array_append_new(lists[row->result],
                              row->result == MHA_POWER_SAME ? json_text(row->bug->name) : row_record(row));
    }
    return record_of("stage", J(stage), "criterion", criterion_record(criterion), "tried", J(p->count), "same",
                     lists[MHA_POWER_SAME], "accepted", lists[MHA_POWER_ACCEPTED], "rejected", J(p->rejected),
                     "rejections", lists[MHA_POWER_REJECTED], NULL);
}

static void print(const mha_case *c, const mha_gradient_power *p, const mha_criterion *criterion, const json_t *root)
{
    enum { NEAREST = 3 };
    static const char *const columns[] = {"bug: bug", "what it is: ~help", "seen in: gradient",
                                          ">max |difference|: max_abs: %.2g", ">times what is allowed: factor: %.2g"};
    char *rule = criterion->kind == MHA_CRITERION_BOUND ? text_of("each element is within its own error bound")
                                                        : criterion_text(criterion);
    json_t *shown = json_copy(json_object_get(root, p->accepted ? "accepted" : "rejections"));
    say("%s%s%s of ", bold(), json_string_value(json_object_get(root, "stage")), plain());
    say_harmless("%s: x with a bug of a backward against the right y\n", mha_case_name(c));
    say("accepted when %s\n\n", rule);
    free(rule);
    if (p->accepted == 0)
        say("All %zu bugs that this input shows are rejected. The nearest:\n", p->rejected);
    else
        say("%zu of the %zu bugs that this input shows are accepted:\n", p->accepted, p->rejected + p->accepted);
    while (!p->accepted && json_array_size(shown) > NEAREST)
        json_array_remove(shown, NEAREST);
    REPORT_TABLE(TABLE_TEXT, shown, columns);
    json_decref(shown);
    if (p->same) {
        say("\nThis input cannot show %zu more, which give the same gradients on it:\n", p->same);
        report_names(json_object_get(root, "same"));
    }
    if (p->accepted > p->faint)
        say("\nThe error bound of each element would reject %zu of them.\n", p->accepted - p->faint);
}

int measure_gradients(const mha_case *c, const arguments *args, const mha_criterion *criterion)
{
    const char *stage = criterion->stage;
    mha_criterion asked = *criterion;
    mha_gradient_power p = {.count = 0};
    mha_error error = {0};
    if (strcmp(stage, all) == 0)
        asked.stage = NULL;
    if (mha_case_examine_gradients(c, &asked, &p, &error) != MHA_OK)
        return refuse_field(mha_case_name(c), &error);
    json_t *root = report_of(&p, criterion, stage);
    if (report_is_text(args, root))
        print(c, &p, criterion, root);
    json_decref(root);
    const int code = p.accepted ? EXIT_NO : EXIT_DONE;
    mha_gradient_power_clear(&p);
    return code;
}
