/* mha diagnose: which named variant of attention produces somebody's output. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/output/print.h"
#include "cli/setup/call.h"
#include "cli/setup/recorded.h"

static const char *help_of(const char *variant)
{
    for (size_t i = 0; i < mha_variant_count(); i++)
        if (strcmp(mha_variant_at(i)->name, variant) == 0)
            return mha_variant_at(i)->help;
    return "";
}

/* ---------------------------------------------------------------- text */

static void print_explanations(const mha_explanation *list, size_t n)
{
    static const char *const titles[] = {"variant", "what it is", ">max |difference|", ">relative"};
    table *t = table_create(TABLE_TEXT, sizeof titles / sizeof *titles, titles);
    for (size_t i = 0; i < n; i++) {
        const mha_explanation *e = &list[i];
        table_cell(t, e->count ? e->variants[0] : "(none)");
        table_cell(t, e->count ? help_of(e->variants[0]) : "the case as it says");
        table_format(t, "%.2g", e->max_abs);
        table_format(t, "%.2g", e->relative);
        if (e->count == 2) {
            table_format(t, "  and %s", e->variants[1]);
            table_cell(t, help_of(e->variants[1]));
            table_cell(t, "");
            table_cell(t, "");
        }
    }
    table_print(t);
}

static bool is_exact(const mha_diagnosis *d)
{
    return d->match_count > 0 && d->matches[0].exact;
}

/* Singles that give the same numbers: what this input cannot decide. */
static void print_undecided(const mha_explanation *list, size_t n)
{
    char *names = text_of("%s", "");
    for (size_t i = 0; i < n; i++) {
        if (list[i].count != 1)
            continue;
        char *longer = text_of("%s%s%s", names, *names ? ", " : "", list[i].variants[0]);
        free(names);
        names = longer;
    }
    if (*names) {
        printf("\nThis input would not show the difference to:\n");
        write_prose(names);
    }
    free(names);
}

static void print_diagnosis(const mha_case *c, const mha_diagnosis *d)
{
    char tried[SHORT_TEXT];
    char *name = harmless(text_of("%s", mha_case_name(c)));
    printf("%s%s%s of %s, against %s explanations\n\n", bold(), d->tensor, plain(), name, count_text(tried, d->tried));
    free(name);
    if (is_exact(d) && d->matches[0].count == 0) {
        printf("It is what the case says it should be, within rounding.\n");
        print_undecided(d->matches, d->match_count);
    } else if (d->match_count > 0) {
        printf("%s\n", is_exact(d) ? "Reproduced, within rounding, by" : "Nothing reproduces it; these come near:");
        print_explanations(d->matches, d->match_count);
        if (is_exact(d) && d->match_count > 1)
            printf("\nOn this input they give the same numbers, so they are one answer.\n");
    } else {
        printf("No variant or pair of variants reproduces it. The closest:\n");
        print_explanations(d->closest, d->closest_count);
    }
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_explanations(const mha_explanation *list, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *variants = json_array();
        for (size_t v = 0; v < list[i].count; v++)
            json_array_append_new(variants, json_text(list[i].variants[v]));
        json_array_append_new(array, json_pack("{so so so sb}", "variants", variants, "max_abs", json_number(list[i].max_abs),
                                               "relative", json_number(list[i].relative), "exact", (int)list[i].exact));
    }
    return array;
}

/* ---------------------------------------------------------------- the command */

static int diagnose(const mha_case *c, const arguments *args)
{
    mha_error error = {0};
    mha_diagnosis d = {0};
    const char *tensor = text_for(args, given(args, OPT_TENSOR) ? OPT_TENSOR : OPT_STAGE);
    if (mha_case_diagnose(c, tensor, &d, &error) != MHA_OK)
        return tensor && error.status == MHA_NOT_FOUND ? refuse_field("--tensor", &error)
                                                       : refuse_file(mha_case_name(c), &error);
    if (given(args, OPT_JSON))
        json_print(json_pack("{so so so so}", "tensor", json_text(d.tensor), "tried", json_count(d.tried), "matches",
                             json_explanations(d.matches, d.match_count), "closest",
                             json_explanations(d.closest, d.closest_count)));
    else if (!given(args, OPT_QUIET))
        print_diagnosis(c, &d);
    int code = is_exact(&d) ? EXIT_DONE : EXIT_NO;
    mha_diagnosis_clear(&d);
    return code;
}

int run_diagnose(const arguments *args)
{
    request r = {0};
    mha_case *c = NULL;
    mha_error error = {0};
    int code = recorded_check(args);
    if (code == EXIT_DONE && given(args, OPT_EXPECTED))
        code = recorded_open(&r, args, &c);
    else if (code == EXIT_DONE && mha_case_open(args->operands[0], NULL, &c, &error) != MHA_OK)
        code = refuse_file(args->operands[0], &error);
    if (code == EXIT_DONE)
        code = diagnose(c, args);
    mha_case_close(c);
    request_free(&r);
    return code;
}
