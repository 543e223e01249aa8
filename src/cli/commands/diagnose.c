/* mha diagnose: finds the named variants of attention that produce a recorded output. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/output/picture_file.h"
#include "cli/output/print.h"
#include "cli/setup/call.h"
#include "cli/setup/recorded.h"
#include "picture/sheet.h"

static const char *help_of(const char *variant)
{
    for (size_t i = 0; i < mha_variant_count(); i++)
        if (strcmp(mha_variant_at(i)->name, variant) == 0)
            return mha_variant_at(i)->help;
    return "";
}

/* ---------------------------------------------------------------- text */

/* A cell with the name of a variant and the number that was found for it. */
static void print_variant(table *t, const char *indent, const mha_explanation *e, size_t which)
{
    table_format(t, "%s%s%s%s", indent, e->variants[which], *e->found[which] ? " " : "", e->found[which]);
}

static void print_explanations(const mha_explanation *list, size_t n)
{
    static const char *const titles[] = {"variant", "what it is", ">max |difference|", ">relative"};
    table *t = table_create(TABLE_TEXT, sizeof titles / sizeof *titles, titles);
    for (size_t i = 0; i < n; i++) {
        const mha_explanation *e = &list[i];
        if (e->heads) {
            table_format(t, "num_heads %zu", e->heads);
            table_cell(t, "the case as it says, but with so many heads");
        } else {
            if (e->count)
                print_variant(t, "", e, 0);
            else
                table_cell(t, "(none)");
            table_cell(t, e->count ? help_of(e->variants[0]) : "the case as it says");
        }
        table_format(t, "%.2g", e->max_abs);
        table_format(t, "%.2g", e->relative);
        if (e->count == 2) {
            print_variant(t, "  and ", e, 1);
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

/* Prints the variants that this input cannot tell apart from the case. */
static void print_undecided(const mha_diagnosis *d)
{
    char *names = text_of("%s", "");
    for (size_t i = 0; i < d->undecided_count; i++) {
        char *longer = text_of("%s%s%s", names, *names ? ", " : "", d->undecided[i]);
        free(names);
        names = longer;
    }
    if (*names) {
        printf("\nThis input would not show the difference to:\n");
        write_prose(names);
    }
    free(names);
}

static void print_clues(const mha_diagnosis *d)
{
    char sentence[SHAPE_TEXT];
    if (d->clue_count > 0)
        printf("\nHeld against the case as it says:\n");
    for (size_t i = 0; i < d->clue_count; i++)
        printf("  %s\n", mha_clue_text(&d->clues[i], sentence, sizeof sentence));
}

/* The accuracy of an explanation: "within float16 rounding". */
static const char *within(const mha_explanation *e)
{
    if (e->stated)
        return "within the case's own tolerance";
    switch (e->rounding) {
    case MHA_F64: return "within float64 rounding";
    case MHA_TF32: return "within TF32 rounding";
    case MHA_F16: return "within float16 rounding";
    case MHA_BF16: return "within bfloat16 rounding";
    case MHA_F8_E4M3:
    case MHA_F8_E5M2: return "within float8 rounding";
    case MHA_I8: return "within int8 rounding";
    default: return "within float32 rounding";
    }
}

static void print_diagnosis(const mha_case *c, const mha_diagnosis *d)
{
    char tried[SHORT_TEXT], judged[SHORT_TEXT], rows[SHORT_TEXT];
    char *name = harmless(text_of("%s", mha_case_name(c)));
    printf("%s%s%s of %s, against %s explanations\n", bold(), d->tensor, plain(), name, count_text(tried, d->tried));
    free(name);
    if (d->part.judged < d->part.rows)
        printf("judged on %s of %s query rows, with all keys\n", count_text(judged, d->part.judged),
               count_text(rows, d->part.rows));
    putchar('\n');
    if (is_exact(d) && d->matches[0].count == 0 && d->matches[0].heads == 0) {
        printf("It is what the case says it should be, %s%s.\n", within(&d->matches[0]),
               d->baseline.exact ? "" : ", which `mha check` allows only if the case says that precision");
        print_undecided(d);
        return;
    }
    if (is_exact(d)) {
        printf("Reproduced, %s, by\n", within(&d->matches[0]));
        print_explanations(d->matches, d->match_count);
        if (d->match_count > 1)
            printf("\nOn this input they give the same numbers, so they are one answer.\n");
        return;
    }
    if (d->match_count > 0) {
        printf("Nothing reproduces it; these come near:\n");
        print_explanations(d->matches, d->match_count);
    } else if (d->closest_count > 0) {
        printf("No variant or pair of variants reproduces it. The closest:\n");
        print_explanations(d->closest, d->closest_count);
    } else
        printf("No variant or pair of variants reproduces it or explains most of what differs.\n");
    if (isinf(d->baseline.max_abs))
        printf("\nThe case as it says has other elements that are NaN or infinite.\n");
    else
        printf("\nThe case as it says is off by %.2g (relative %.2g).\n", d->baseline.max_abs, d->baseline.relative);
    print_clues(d);
}

/* ---------------------------------------------------------------- the picture */

/* The sentence about an explanation: "Reproduced, within float32 rounding, by a variant: what it is". */
static char *sentence_of(const mha_diagnosis *d, const mha_explanation *e)
{
    const char *how = e->exact ? "Reproduced, " : d->match_count > 0 ? "Comes near: " : "The closest: ";
    char *by = text_of("%s", e->heads || e->count ? "" : "the case as it says");
    for (size_t i = 0; i < e->count && !e->heads; i++) {
        char *more = text_of("%s%s%s%s%s: %s", by, i ? "; and " : "", e->variants[i], *e->found[i] ? " " : "",
                             e->found[i], help_of(e->variants[i]));
        free(by);
        by = more;
    }
    char *text = e->heads ? text_of("%s%s%sthe case with %zu heads", how, e->exact ? within(e) : "",
                                    e->exact ? ", by " : "", e->heads)
                          : text_of("%s%s%s%s", how, e->exact ? within(e) : "", e->exact ? ", by " : "", by);
    free(by);
    return text;
}

/* Draws the stages beside the exact ones, and the diagnosed tensor beside what the explanations give. */
static int draw(const mha_case *c, const mha_diagnosis *d, const arguments *args)
{
    mha__picture picture = {0};
    mha_error error = {0};
    mha_verdict verdict = {0};
    char *title = text_of("%s of %s, diagnosed", d->tensor, mha_case_name(c));
    const mha__picture_choice choice = {.path = MHA_PATH_EXACT, .threads = (int)count_of(args, OPT_THREADS)};
    const mha_explanation *list = d->match_count > 0 ? d->matches : d->closest;
    const size_t most = 3, count = d->match_count > 0 ? d->match_count : d->closest_count;
    picture.title = title;
    mha_status status = mha__picture_judge(&picture, c, &choice, NULL, &verdict, &error);
    for (size_t i = 0; i < count && i < most && status == MHA_OK; i++) {
        char *sentence = sentence_of(d, &list[i]);
        status = mha__picture_note(&picture, sentence, &error);
        free(sentence);
        if (status == MHA_OK)
            status = mha__picture_add_variant(&picture, c, d->tensor, &list[i], &error);
    }
    if (status == MHA_OK && count == 0)
        status = mha__picture_note(&picture, "No variant or pair of variants reproduces it.", &error);
    for (size_t i = 0; i < d->clue_count && status == MHA_OK; i++) {
        char sentence[SHAPE_TEXT];
        status = mha__picture_note(&picture, mha_clue_text(&d->clues[i], sentence, sizeof sentence), &error);
    }
    const int code = status == MHA_OK ? picture_file_write(&picture, args) : refuse_error("--picture", &error);
    mha_verdict_clear(&verdict);
    mha__picture_free(&picture);
    free(title);
    return code;
}

/* ---------------------------------------------------------------- JSON */

/* The ownership of `variants` passes to the result. */
static json_t *json_explanation(const mha_explanation *e, json_t *variants)
{
    json_t *object = json_pack("{so so so sb}", "variants", variants, "max_abs", json_number(e->max_abs), "relative",
                               json_number(e->relative), "exact", (int)e->exact);
    if (e->heads)
        json_object_set_new(object, "num_heads", json_count(e->heads));
    if (e->exact)
        json_object_set_new(object, "within", json_text(e->stated ? "stated tolerance" : mha_dtype_name(e->rounding)));
    return object;
}

static json_t *json_explanations(const mha_explanation *list, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *variants = json_array();
        json_t *found = json_array();
        for (size_t v = 0; v < list[i].count; v++) {
            const char *words = list[i].found[v];
            const double number = list[i].number[v];
            json_array_append_new(variants, json_text(list[i].variants[v]));
            json_array_append_new(found, !*words         ? json_null()
                                         : isnan(number) ? json_text(words)
                                                         : json_number(number));
        }
        json_t *one = json_explanation(&list[i], variants);
        json_object_set_new(one, "found", found);
        json_array_append_new(array, one);
    }
    return array;
}

static json_t *json_clues(const mha_diagnosis *d)
{
    char sentence[SHAPE_TEXT];
    json_t *array = json_array();
    for (size_t i = 0; i < d->clue_count; i++) {
        const mha_clue *c = &d->clues[i];
        json_array_append_new(
            array, json_pack("{so so so so so so sI so so so}", "kind", json_text(mha_clue_kind_name(c->kind)), "axis",
                             json_text(mha_clue_axis_name(c->axis)), "first", json_count(c->first), "last",
                             json_count(c->last), "step", json_count(c->step), "extent", json_count(c->extent),
                             "shift", (json_int_t)c->shift, "least", json_number(c->factor[0]), "most",
                             json_number(c->factor[1]), "text",
                             json_text(mha_clue_text(c, sentence, sizeof sentence))));
    }
    return array;
}

static void print_json(const mha_diagnosis *d)
{
    json_t *undecided = json_array();
    for (size_t i = 0; i < d->undecided_count; i++)
        json_array_append_new(undecided, json_text(d->undecided[i]));
    json_print(json_pack(
        "{so so so so so so so so so so}", "tensor", json_text(d->tensor), "stored",
        json_text(mha_dtype_name(d->stored)),
        "tried", json_count(d->tried), "rows_judged", json_count(d->part.judged), "rows", json_count(d->part.rows),
        "matches", json_explanations(d->matches, d->match_count), "undecided", undecided, "baseline",
        json_explanation(&d->baseline, json_array()), "closest", json_explanations(d->closest, d->closest_count),
        "clues", json_clues(d)));
}

/* ---------------------------------------------------------------- the command */

/* Shows on a terminal how many of at most `total` explanations were tried. */
static void show_progress(void *context, size_t done, size_t total)
{
    (void)context;
    if (done % 16 == 0 || done == total) /* the calling thread tells of its own alone, and of the end */
        fprintf(stderr, "\r  %zu of %zu explanations ", done, total);
}

static int diagnose(const mha_case *c, const arguments *args)
{
    mha_error error = {0};
    mha_diagnosis d = {0};
    const char *tensor = text_for(args, given(args, OPT_TENSOR) ? OPT_TENSOR : OPT_STAGE);
    const bool shown = isatty(STDERR_FILENO) && !given(args, OPT_QUIET);
    const mha_progress progress = {show_progress, NULL};
    const mha_status status =
        mha_case_diagnose(c, tensor, (int)count_of(args, OPT_THREADS), shown ? &progress : NULL, &d, &error);
    if (shown)
        fprintf(stderr, "\r%40s\r", "");
    if (status != MHA_OK)
        return tensor && error.status == MHA_NOT_FOUND ? refuse_field("--tensor", &error)
                                                       : refuse_error(mha_case_name(c), &error);
    int code = given(args, OPT_PICTURE) ? draw(c, &d, args) : EXIT_DONE;
    if (code == EXIT_DONE) {
        if (given(args, OPT_JSON))
            print_json(&d);
        else if (!given(args, OPT_QUIET))
            print_diagnosis(c, &d);
        code = is_exact(&d) ? EXIT_DONE : EXIT_NO;
    }
    mha_diagnosis_clear(&d);
    return code;
}

int run_diagnose(const arguments *args)
{
    request r = {0};
    mha_case *c = NULL;
    mha_error error = {0};
    int code = recorded_check(args);
    if (code == EXIT_DONE)
        code = picture_file_check(args);
    if (code == EXIT_DONE && given(args, OPT_EXPECTED))
        code = recorded_open(&r, args, &c);
    else if (code == EXIT_DONE && mha_case_open(args->operands[0], NULL, &c, &error) != MHA_OK)
        code = refuse_error(args->operands[0], &error);
    if (code == EXIT_DONE)
        code = diagnose(c, args);
    mha_case_close(c);
    request_free(&r);
    return code;
}
