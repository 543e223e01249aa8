/* mha diagnose: finds the known bugs that produce a recorded output. */
#include <math.h>

#include "cli/commands/commands.h"
#include "picture/sheet.h"

/* The number that was found for a bug, in words; "": it has none. */
static const char *number_of(const mha_bug_match *e, size_t which)
{
    return strcmp(e->bugs[which], "unnamed") == 0 ? "" : e->found[which];
}

/* The help text of a bug of a match, or the parts of an unnamed change. */
static const char *help_of(const mha_bug_match *e, size_t which)
{
    for (size_t i = 0; i < mha_bug_count(); i++)
        if (strcmp(mha_bug_at(i)->name, e->bugs[which]) == 0)
            return mha_bug_at(i)->help;
    return e->found[which];
}

/* ---------------------------------------------------------------- one report */

/* The name of a bug with the number that was found for it, and what it is. */
static json_t *named_record(json_t *record, const char *before, const mha_bug_match *e, size_t which)
{
    const char *number = number_of(e, which);
    return record_with(record, "~bug", json_words("%s%s%s%s", before, e->bugs[which], *number ? " " : "", number),
                       "~help", J(help_of(e, which)), NULL);
}

static json_t *match_record(const mha_bug_match *e, bool found)
{
    json_t *bugs = json_array(), *numbers = json_array();
    for (size_t v = 0; v < e->count && found; v++) {
        json_array_append_new(bugs, json_text(e->bugs[v]));
        json_array_append_new(numbers, !*e->found[v]         ? json_null()
                                       : isnan(e->number[v]) ? json_text(e->found[v])
                                                             : json_number(e->number[v]));
    }
    json_t *record = record_of("bugs", bugs, "max_abs", J(e->max_abs), "relative", J(e->relative), "exact",
                               json_boolean(e->exact), NULL);
    if (e->heads)
        record_with(record, "num_heads", J(e->heads), NULL);
    if (e->exact)
        record_with(record, "within", J(e->stated ? "stated tolerance" : mha_dtype_name(e->rounding)), NULL);
    return record_with(record, found ? "found" : "~found", numbers, NULL);
}

static json_t *match_records(const mha_bug_match *list, size_t n)
{
    json_t *records = json_array();
    for (size_t i = 0; i < n; i++) {
        const mha_bug_match *e = &list[i];
        json_t *record = match_record(e, true);
        if (e->heads)
            record_with(record, "~bug", json_words("num_heads %zu", e->heads), "~help",
                        J("the case with so many heads"), NULL);
        else if (e->count)
            named_record(record, "", e, 0);
        else
            record_with(record, "~bug", J("(none)"), "~help", J("the case without a bug"), NULL);
        if (e->count == 2)
            record_with(record, "~then", named_record(json_object(), "  and ", e, 1), NULL);
        json_array_append_new(records, record);
    }
    return records;
}

static json_t *report_of(const mha_diagnosis *d)
{
    json_t *undecided = json_array(), *clues = json_array();
    char text[SHAPE_TEXT], sentence[MHA_DIAGNOSIS_TEXT];
    for (size_t i = 0; i < d->undecided_count; i++)
        json_array_append_new(undecided, json_text(d->undecided[i]));
    for (size_t i = 0; i < d->clue_count; i++) {
        const mha_clue *c = &d->clues[i];
        json_array_append_new(
            clues, record_of("kind", J(mha_clue_kind_name(c->kind)), "axis", J(mha_clue_axis_name(c->axis)), "first",
                             J(c->first), "last", J(c->last), "step", J(c->step), "extent", J(c->extent), "shift",
                             J(c->shift), "least", J(c->factor[0]), "most", J(c->factor[1]), "text",
                             J(mha_clue_text(c, text, sizeof text)), NULL));
    }
    return record_of("tensor", J(d->tensor), "stored", J(mha_dtype_name(d->stored)), "tried", J(d->tried),
                     "rows_checked", J(d->part.checked), "rows", J(d->part.rows), "slices", J(d->part.slices),
                     "sentence", J(mha_diagnosis_text(d, sentence, sizeof sentence)),
                     "matches", match_records(d->matches, d->match_count), "undecided", undecided, "baseline",
                     match_record(&d->baseline, false), "closest", match_records(d->closest, d->closest_count), "clues",
                     clues, "untried", J(d->limits.untried), "limit",
                     J(mha_diagnosis_limit_text(d, text, sizeof text)), NULL);
}

/* ---------------------------------------------------------------- text */

static void print_matches(const mha_bug_match *list, size_t n)
{
    static const char *const columns[] = {"bug: ~bug", "what it is: ~help", ">max |difference|: max_abs: %.2g",
                                          ">relative: relative: %.2g"};
    REPORT_TABLE(keep_json(match_records(list, n)), columns);
}

static bool is_exact(const mha_diagnosis *d)
{
    return d->match_count > 0 && d->matches[0].exact;
}

/* Whether the tensor is what the case says. */
static bool is_right(const mha_diagnosis *d)
{
    return is_exact(d) && d->matches[0].count == 0 && d->matches[0].heads == 0;
}

/* Whether rounding to a precision that the case does not state explains the tensor: mha_case_check fails it. */
static bool is_coarser(const mha_diagnosis *d)
{
    return is_right(d) && !d->baseline.exact;
}

/* The accuracy of a match: "within float16 rounding". */
static const char *within(const mha_bug_match *e)
{
    static const char *const words[] = {[MHA_F64] = "float64", [MHA_TF32] = "TF32", [MHA_F16] = "float16",
                                        [MHA_BF16] = "bfloat16", [MHA_F8_E4M3] = "float8", [MHA_F8_E5M2] = "float8",
                                        [MHA_I8] = "int8"};
    const bool named = e->rounding < sizeof words / sizeof *words && words[e->rounding];
    return e->stated ? "within the case's own tolerance"
                     : text_of("within %s rounding", named ? words[e->rounding] : "float32");
}

static void print_diagnosis(const mha_case *c, const mha_diagnosis *d, const json_t *root)
{
    char text[SHAPE_TEXT];
    const char *tried = d->limits.untried > 0 ? " that was tried" : ""; /* where a limit left some */
    say("%s%s%s of ", bold(), d->tensor, plain());
    say_harmless("%s, %s candidates tried\n", mha_case_name(c), count_text(d->tried));
    if (d->part.slices > 0)
        say("searched in one of %zu slices (a batch row and a key/value head); the others agree\n", d->part.slices);
    if (d->part.checked < d->part.rows)
        say("checked on %s of %s query rows, with all keys; errors confined to the others are not detected\n",
            count_text(d->part.checked), count_text(d->part.rows));
    say("\n");
    if (is_right(d)) {
        if (is_coarser(d))
            say("It is off by %.2g (relative %.2g), %s: a kernel of that precision, or quantised weights, may "
                "explain it. `mha check` fails it unless the case states the precision.\n",
                d->baseline.max_abs, d->baseline.relative, within(&d->matches[0]));
        else
            say("%s is correct, %s.\n", d->tensor, within(&d->matches[0]));
        if (d->closest_count > 0) {
            say("One bug explains all but %.2g %% of the remaining difference:\n",
                100 * d->closest[0].relative / d->baseline.relative);
            print_matches(d->closest, d->closest_count);
        }
        if (d->undecided_count > 0) {
            say("\nThis input would not show the difference to:\n");
            report_names(json_object_get(root, "undecided"));
        }
        return;
    }
    if (is_exact(d)) {
        say("Reproduced, %s, by\n", within(&d->matches[0]));
        print_matches(d->matches, d->match_count);
        if (d->match_count > 1)
            say("\nOn this input they give the same numbers, so they are one answer.\n");
        return;
    }
    if (d->match_count > 0) {
        say("Nothing reproduces it; these come near:\n");
        print_matches(d->matches, d->match_count);
    } else if (d->closest_count > 0) {
        say("No bug or pair of bugs%s reproduces it. The closest:\n", tried);
        print_matches(d->closest, d->closest_count);
    } else
        say("No bug or pair of bugs%s reproduces it or explains most of what differs.\n", tried);
    if (isinf(d->baseline.max_abs))
        say("\nThe case without a bug has other elements that are NaN or infinite.\n");
    else
        say("\nThe case without a bug is off by %.2g (relative %.2g).\n", d->baseline.max_abs, d->baseline.relative);
    if (d->clue_count > 0)
        say("\nDifferences from the case without a bug:\n");
    for (size_t i = 0; i < d->clue_count; i++)
        say("  %s\n", mha_clue_text(&d->clues[i], text, sizeof text));
    if (*mha_diagnosis_limit_text(d, text, sizeof text))
        say("\nStopped at a limit: %s.\n", text);
}

/* ---------------------------------------------------------------- the picture */

/* The sentence about a match: "Reproduced, within float32 rounding, by a bug: what it is". */
static const char *sentence_of(const mha_diagnosis *d, const mha_bug_match *e)
{
    const char *how = is_coarser(d)        ? "Off, "
                      : e->exact           ? "Reproduced, "
                      : d->match_count > 0 ? "Comes near: "
                                           : "The closest: ";
    const char *link = is_coarser(d) ? ", from " : e->exact ? ", by " : "";
    const char *by = e->heads || e->count ? "" : "the case without a bug";
    for (size_t i = 0; i < e->count && !e->heads; i++)
        by = text_more(by, "%s%s%s%s: %s", i ? "; and " : "", e->bugs[i], *number_of(e, i) ? " " : "", number_of(e, i),
                       help_of(e, i));
    return e->heads ? text_of("%s%s%sthe case with %zu heads", how, e->exact ? within(e) : "", link, e->heads)
                    : text_of("%s%s%s%s", how, e->exact ? within(e) : "", link, by);
}

/* Draws the stages beside the exact ones, and the diagnosed tensor beside what the matches give. */
static int draw(const mha_case *c, const mha_diagnosis *d, const arguments *args)
{
    mha__picture *picture = keep(obtain(1, sizeof *picture));
    mha_error error = {0};
    mha_verdict *verdict = keep(obtain(1, sizeof *verdict));
    const mha__picture_choice choice = {.path = MHA_PATH_EXACT, .threads = (int)count_of(args, OPT_THREADS)};
    const mha_bug_match *list = d->match_count > 0 ? d->matches : d->closest;
    const size_t most = 3, count = d->match_count > 0 ? d->match_count : d->closest_count;
    picture->title = text_of("%s of %s, diagnosed", d->tensor, mha_case_name(c));
    mha_status status = mha__picture_check(picture, c, &choice, NULL, verdict, &error);
    for (size_t i = 0; i < count && i < most && status == MHA_OK; i++) {
        status = mha__picture_note(picture, sentence_of(d, &list[i]), &error);
        if (status == MHA_OK)
            status = mha__picture_add_bug(picture, c, d->tensor, &list[i], &error);
    }
    if (status == MHA_OK && count == 0)
        status = mha__picture_note(picture, "No bug or pair of bugs reproduces it.", &error);
    for (size_t i = 0; i < d->clue_count && status == MHA_OK; i++) {
        char sentence[SHAPE_TEXT];
        status = mha__picture_note(picture, mha_clue_text(&d->clues[i], sentence, sizeof sentence), &error);
    }
    TRY(done_or_refuse(status, "--picture", &error));
    return picture_file_write(picture, NULL, args);
}

/* ---------------------------------------------------------------- the command */

/* A case whose gradients alone are to be explained. */
static int diagnose_gradients(const mha_case *c, const arguments *args)
{
    explained_gradients g;
    mha_error error = {0};
    TRY(done_or_refuse(gradients_explain(c, &g, &error), mha_case_name(c), &error));
    json_t *root = keep_json(json_object());
    gradients_report(&g, &error, root);
    if (report_is_text(args, root))
        gradients_print(&g, &error);
    return g.right || g.count > 0 ? EXIT_DONE : EXIT_NO;
}

static int diagnose(const mha_case *c, const arguments *args)
{
    explained_gradients gradients = {.status = MHA_NOT_FOUND};
    mha_error unexplained = {0};
    mha_error error = {0};
    mha_diagnosis *d = keep(obtain(1, sizeof *d));
    const char *tensor = text_for(args, given(args, OPT_TENSOR) ? OPT_TENSOR : OPT_STAGE);
    const mha_progress progress = {progress_report, NULL};
    if (tensor && gradients_named(tensor))
        return diagnose_gradients(c, args);
    progress_begin(args, "candidates");
    const mha_status status = mha_case_diagnose(c, tensor, (int)count_of(args, OPT_THREADS), &progress, d, &error);
    progress_end();
    if (!tensor && (status == MHA_OK || error.status == MHA_NOT_FOUND))
        (void)gradients_explain(c, &gradients, &unexplained);
    if (error.status == MHA_NOT_FOUND && !tensor && gradients.status != MHA_NOT_FOUND)
        return diagnose_gradients(c, args);
    if (status != MHA_OK)
        return tensor && error.status == MHA_NOT_FOUND ? refuse_field("--tensor", &error)
                                                       : refuse_error(mha_case_name(c), &error);
    if (given(args, OPT_PICTURE))
        TRY(draw(c, d, args));
    json_t *root = keep_json(report_of(d));
    gradients_report(&gradients, &unexplained, root);
    if (report_is_text(args, root)) {
        print_diagnosis(c, d, root);
        if (gradients.status != MHA_NOT_FOUND)
            say("\n");
        gradients_print(&gradients, &unexplained);
    }
    const bool explained = gradients.status != MHA_OK || gradients.right || gradients.count > 0;
    return is_exact(d) && !is_coarser(d) && explained ? EXIT_DONE : EXIT_NO;
}

int run_diagnose(const arguments *args)
{
    request *r = keep(obtain(1, sizeof *r));
    mha_case **c = keep(obtain(1, sizeof *c));
    mha_error error = {0};
    TRY(recorded_check(args));
    TRY(picture_file_check(args, OPT_PICTURE));
    if (given(args, OPT_EXPECTED))
        TRY(recorded_open(r, args, c));
    else if (mha_case_open(args->operands[0], NULL, c, &error) != MHA_OK)
        return refuse_error(args->operands[0], &error);
    mha_case_sample(*c, count_of(args, OPT_SAMPLE));
    mha_case_limit(*c, args->option[OPT_TIME_LIMIT].real, args->option[OPT_MEMORY_LIMIT].real);
    return diagnose(*c, args);
}
