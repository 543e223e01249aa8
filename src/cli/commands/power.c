/* mha power: which known bugs a test with these inputs and this tolerance would accept; and inputs for a better
 * one. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/commands/commands.h"
#include "cli/commands/criterion.h"
#include "cli/commands/power_gradients.h"
#include "cli/output/progress.h"
#include "cli/output/report.h"
#include "cli/setup/call.h"
#include "cli/setup/layer.h"
#include "mha/power.h"

/* ---------------------------------------------------------------- one report */

static json_t *row_record(const mha_power_row *row)
{
    return record_of("bugs", json_pack("[o]", J(row->bug->name)), "max_abs", J(row->max_abs), "factor", J(row->factor),
                     "faint", json_boolean(row->faint), "~name", J(row->bug->name), "~help", J(row->bug->help), NULL);
}

static json_t *report_of(const mha_power *p, const char *random)
{
    json_t *same = json_array(), *lists[2] = {json_array(), json_array()}; /* rejected, accepted */
    for (size_t i = 0; i < p->count; i++) {
        const mha_power_row *row = &p->rows[i];
        if (row->result == MHA_POWER_SAME)
            json_array_append_new(same, json_text(row->bug->name));
        else
            json_array_append_new(lists[row->result == MHA_POWER_ACCEPTED], row_record(row));
    }
    return record_of("stage", J(mha_stage_at(p->stage)->name), "random", J(random), "criterion",
                     criterion_record(&p->criterion), "derived_rtol", J(p->derived_rtol), "derived_atol",
                     J(p->derived_atol), "tried", J(p->count), "same", same, "accepted", lists[1], "rejected",
                     J(p->rejected), "rejections", lists[0], NULL);
}

/* ---------------------------------------------------------------- text */

static int by_factor(const void *a, const void *b)
{
    const mha_power_row *const *x = a, *const *y = b;
    if ((*x)->factor != (*y)->factor)
        return (*x)->factor < (*y)->factor ? -1 : 1;
    return *x < *y ? -1 : *x > *y; /* rows of one array */
}

/* The rows with this answer, the nearest to what is allowed first. Must be freed. */
static const mha_power_row **rows_with(const mha_power *p, mha_power_result result, size_t *n)
{
    const mha_power_row **rows = obtain(p->count + 1, sizeof *rows);
    *n = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->rows[i].result == result)
            rows[(*n)++] = &p->rows[i];
    qsort(rows, *n, sizeof *rows, by_factor);
    return rows;
}

static void print_rows(const mha_power *p, mha_power_result result, size_t most)
{
    static const char *const columns[] = {"bug: ~name", "what it is: ~help", ">max |difference|: max_abs: %.2g",
                                          ">times what is allowed: factor: %.2g"};
    size_t n;
    const mha_power_row **rows = rows_with(p, result, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < most; i++)
        json_array_append_new(list, row_record(rows[i]));
    REPORT_TABLE(TABLE_TEXT, list, columns);
    json_decref(list);
    free(rows);
}

static void print_power(const mha_case *c, const mha_power *p, const json_t *root, bool suggested)
{
    enum { NEAREST = 3 };
    const size_t shown = p->rejected + p->accepted;
    char *rule = criterion_text(&p->criterion);
    say("%s%s%s of ", bold(), mha_stage_at(p->stage)->name, plain());
    say_harmless("%s: known bugs x against the right result y\n", mha_case_name(c));
    say("accepted when %s\n\n", rule);
    free(rule);
    if (p->accepted == 0)
        say("All %zu known bugs that this input shows are rejected. The nearest:\n", shown);
    else
        say("%zu of the %zu known bugs that this input shows are accepted:\n", p->accepted, shown);
    print_rows(p, p->accepted ? MHA_POWER_ACCEPTED : MHA_POWER_REJECTED, p->accepted ? SIZE_MAX : NEAREST);
    if (p->same > 0) {
        say("\nThis input cannot show %zu more, which give the same result on it:\n", p->same);
        report_names(json_object_get(root, "same"));
    }
    if (p->accepted > p->faint)
        say("\nRounding in %s explains no more than atol %.2g, rtol %.2g here, which would reject %zu of them.\n",
               p->criterion.precision == MHA_TF32   ? "TF32"
               : p->criterion.precision == MHA_F16  ? "float16"
               : p->criterion.precision == MHA_BF16 ? "bfloat16"
                                                    : "float32",
               p->derived_atol, p->derived_rtol, p->accepted - p->faint);
    if (!suggested && p->faint + p->same > 0)
        say("\nOther inputs can show more: \"mha power --suggest FILE\" looks for them.\n");
}

/* ---------------------------------------------------------------- the request */

/* Reads how the test compares. */
static int read_criterion(const arguments *args, mha_criterion *k)
{
    const bool close = given(args, OPT_RTOL) || given(args, OPT_ATOL);
    if (close + given(args, OPT_NMSE) + given(args, OPT_COSINE) > 1)
        return refuse_option(given(args, OPT_COSINE) ? OPT_COSINE : OPT_NMSE,
                             "expected one of --rtol with --atol, --nmse and --cosine, found two");
    *k = (mha_criterion){.kind = close                     ? MHA_CRITERION_CLOSE
                                 : given(args, OPT_NMSE)   ? MHA_CRITERION_NMSE
                                 : given(args, OPT_COSINE) ? MHA_CRITERION_COSINE
                                                           : MHA_CRITERION_BOUND,
                         .rtol = args->option[OPT_RTOL].real,
                         .atol = args->option[OPT_ATOL].real,
                         .limit = args->option[given(args, OPT_NMSE) ? OPT_NMSE : OPT_COSINE].real,
                         .stage = text_for(args, OPT_STAGE),
                         .precision = dtype_of(args, OPT_PRECISION)};
    return EXIT_DONE;
}

/* A case file decides everything but the comparison. */
static int refuse_beside_file(const arguments *args)
{
    const option_code o = given(args, OPT_SUGGEST) ? OPT_SUGGEST : given_of(args, SECTIONS_OF_CALL);
    return o == option_count() ? EXIT_DONE
                               : refuse_option(o, "expected nothing beside a case file, which decides it");
}

static int open_case(const char *path, mha_case **c)
{
    mha_error error = {0};
    return mha_case_open(path, NULL, c, &error) == MHA_OK ? EXIT_DONE : refuse_error(path, &error);
}

/* ---------------------------------------------------------------- suggested inputs */

/* The words of --with; bits 0: past, alibi, sinks and norms, which other fields of a suggestion hold. */
static const struct {
    const char *word;
    unsigned bits;
} parts[] = {{"mask", MHA_WITH_MASK},
             {"keeps", MHA_WITH_KEEPS},
             {"padding", MHA_WITH_PADDING},
             {"lengths", MHA_WITH_LENGTHS},
             {"empty", MHA_WITH_EMPTY},
             {"poison", MHA_WITH_POISON},
             {"past", 0},
             {"sinks", 0},
             {"norms", 0}};
enum { N_PARTS = sizeof parts / sizeof *parts };

static int read_parts(const char *text, mha_suggestion *wish)
{
    enum { PAST = 3 };
    for (const char *from = text; from && *from;) {
        const size_t length = strcspn(from, ",");
        size_t i = 0;
        while (i < N_PARTS && (strlen(parts[i].word) != length || strncmp(parts[i].word, from, length) != 0))
            i++;
        if (i == N_PARTS)
            return refuse_option(OPT_WITH, "expected %s, found \"%.*s\"", option_at(OPT_WITH)->form, (int)length,
                                 from);
        wish->with |= parts[i].bits;
        if (strcmp(parts[i].word, "past") == 0)
            wish->past_len = PAST;
        if (strcmp(parts[i].word, "sinks") == 0)
            wish->config.sinks = true;
        if (strcmp(parts[i].word, "norms") == 0)
            wish->config.q_norm = wish->config.k_norm = MHA_NORM_HEAD;
        from += length + (from[length] == ',');
    }
    return EXIT_DONE;
}

/* The shape of the options, but narrow where they leave it open. */
static mha_config small_config(const arguments *args)
{
    mha_config c = request_config(args);
    const size_t heads = given(args, OPT_HEADS) ? c.n_heads : 4, width = c.d_k ? c.d_k : 8;
    if (!given(args, OPT_HEADS) && !given(args, OPT_D_MODEL))
        c.n_heads = heads;
    if (!given(args, OPT_D_MODEL))
        c.d_model = heads * width;
    return c;
}

/* Whether a setting has a number for each batch row, as many as the call has. */
static bool settles_batch(const mha_semantics *semantics)
{
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++)
        if (s->shape && strcmp(s->shape, "(B)") == 0 && mha_setting_given(s, semantics))
            return true;
    return false;
}

/* Writes suggested inputs, and opens the written file. */
static int suggest(request *r, const arguments *args, const mha_progress *progress, mha_case **c)
{
    static const option_code read[] = {OPT_WEIGHTS, OPT_INPUT, OPT_KEY_INPUT, OPT_VALUE_INPUT, OPTION_COUNT};
    const char *path = text_for(args, OPT_SUGGEST);
    mha_error error = {0};
    const mha_config config = small_config(args);
    TRY(refuse_each(args, read, "nothing beside --suggest, which makes up the inputs"));
    TRY(request_layer(r, args, &config));
    TRY(request_call(r, args)); /* for its semantics */
    mha_suggestion wish = {.config = *mha_layer_config(r->layer),
                           .by_head = args->option[OPT_KIND].choice == 1,
                           .batch = given(args, OPT_BATCH) || settles_batch(&r->call.semantics)
                                        ? count_of(args, OPT_BATCH)
                                        : 0,
                           .q_len = given(args, OPT_SEQ) ? count_of(args, OPT_SEQ) : 0,
                           .kv_len = given(args, OPT_KV_SEQ) ? count_of(args, OPT_KV_SEQ) : 0,
                           .semantics = r->call.semantics,
                           .seed = count_of(args, OPT_SEED)};
    TRY(read_parts(text_for(args, OPT_WITH), &wish));
    progress_begin(args, "bugs");
    const mha_status made = mha_case_suggest(path, &wish, (int)count_of(args, OPT_THREADS), progress, &error);
    progress_end();
    if (made != MHA_OK)
        return error.status != MHA_INVALID || strcmp(error.name, path) == 0 ? refuse_error("", &error)
                                                                            : refuse_field("--with", &error);
    return open_case(path, c);
}

/* ---------------------------------------------------------------- the command */

/* Makes a case of the options of mha forward: given or random weights and inputs. */
static int case_of_options(request *r, const arguments *args, mha_case **c)
{
    const mha_config config = request_config(args);
    mha_error error = {0};
    TRY(request_layer(r, args, &config));
    TRY(request_call(r, args));
    const bool both = r->random && given(args, OPT_INPUT);
    char *name = text_of("%s%s%s", given(args, OPT_INPUT) ? text_for(args, OPT_INPUT) : "", both ? " and " : "",
                         r->random ? r->random : "");
    const mha_case_notes notes = {.name = name};
    const mha_status made = mha_case_of_call(r->layer, &r->call, NULL, 0, &notes, c, &error);
    free(name);
    return made == MHA_OK ? EXIT_DONE : refuse_field("", &error);
}

static int measure(const mha_case *c, const char *random, const arguments *args, const mha_criterion *criterion,
                   const mha_progress *progress)
{
    mha_power power = {.count = 0};
    mha_error error = {0};
    progress_begin(args, "bugs");
    const mha_status status =
        mha_case_power(c, criterion, (int)count_of(args, OPT_THREADS), progress, &power, &error);
    progress_end();
    if (status != MHA_OK)
        return refuse_field(mha_case_name(c), &error);
    json_t *root = report_of(&power, random);
    if (report_is_text(args, root))
        print_power(c, &power, root, given(args, OPT_SUGGEST));
    json_decref(root);
    const int code = power.accepted ? EXIT_NO : EXIT_DONE;
    mha_power_clear(&power);
    return code;
}

static int answer(request *r, const arguments *args, mha_case **c)
{
    mha_criterion criterion = {0};
    const mha_progress progress = {progress_report, NULL};
    TRY(read_criterion(args, &criterion));
    const bool of_gradients = criterion.stage && is_of_gradients(criterion.stage);
    if (of_gradients && args->n_operands == 0)
        return refuse_option(OPT_STAGE, "expected a case file with d_output beside \"%s\"", criterion.stage);
    TRY(refuse_alone(args, OPT_WITH, OPT_SUGGEST));
    TRY(refuse_alone(args, OPT_KIND, OPT_SUGGEST));
    if (args->n_operands > 0) {
        TRY(refuse_beside_file(args));
        TRY(open_case(args->operands[0], c));
    } else
        TRY(given(args, OPT_SUGGEST) ? suggest(r, args, &progress, c) : case_of_options(r, args, c));
    return of_gradients ? measure_gradients(*c, args, &criterion)
                        : measure(*c, r->random, args, &criterion, &progress);
}

int run_power(const arguments *args)
{
    request r = {0};
    mha_case *c = NULL;
    const int code = answer(&r, args, &c);
    mha_case_close(c);
    request_free(&r);
    return code;
}
