/* mha power: which known bugs a test with these inputs and this tolerance would accept; and inputs for a better
 * one. */
#include "cli/commands/commands.h"

/* ---------------------------------------------------------------- answers */

/* "gradients": all that a case has. */
static const char all_gradients[] = "gradients";

static void print_sources(const json_t *file)
{
    static const char *const texts[][2] = {{"reduced", "Reduced "}, {"left_out", "Left out: "}};
    const json_t *sources = json_object_get(file, "source");
    say("\n");
    for (int i = 0; i < 2; i++)
        if (json_object_get(file, texts[i][0]))
            say("%s%s.\n", texts[i][1], json_string_value(json_object_get(file, texts[i][0])));
    for (size_t i = 0; i < json_array_size(sources); i++)
        say("Source: %s\n", json_string_value(json_array_get(sources, i)));
    say("\nWith --suggest FILE mha writes inputs that show more, and applies the same criterion to them.\n");
}

/* Reports the bugs of a case, of its gradients, or of a published test. `file`: that of the last; else NULL. */
static int answer(const arguments *args, mha_power *p, const char *what, json_t *record, const json_t *file)
{
    static const char *const types[MHA_TF32 + 1] = {
        [MHA_F32] = "float32", [MHA_TF32] = "TF32", [MHA_F16] = "float16", [MHA_BF16] = "bfloat16"};
    const bool gradients = p->count > 0 && p->rows[0].seen_in != NULL;
    const bool bound = gradients && p->criterion.kind == MHA_CRITERION_BOUND;
    record = keep_json(power_record(p, record, file != NULL));
    if (report_is_text(args, record)) {
        print_accepted(what, bound ? "each element is within its own error bound" : criterion_text(&p->criterion),
                       record);
        if (p->accepted > p->faint && gradients)
            say("\nThe error bound of each element would reject %zu of them.\n", p->accepted - p->faint);
        else if (p->accepted > p->faint)
            say("\nRounding in %s explains no more than atol %.2g, rtol %.2g here, which would reject %zu of them.\n",
                types[p->criterion.precision], p->derived_atol, p->derived_rtol, p->accepted - p->faint);
        if (file)
            print_sources(file);
        else if (!gradients && !given(args, OPT_SUGGEST) && p->faint + p->same > 0)
            say("\nOther inputs can show more: \"mha power --suggest FILE\" looks for them.\n");
    }
    return p->accepted ? EXIT_NO : EXIT_DONE;
}

static int measure(const mha_case *c, const char *random, const arguments *args, const mha_criterion *criterion,
                   const mha_progress *progress)
{
    const bool gradients = criterion->stage && (strcmp(criterion->stage, all_gradients) == 0 ||
                                                gradients_named(criterion->stage));
    mha_criterion asked = *criterion;
    mha_power *p = keep(obtain(1, sizeof *p));
    mha_error error = {0};
    if (gradients && strcmp(criterion->stage, all_gradients) == 0)
        asked.stage = NULL;
    progress_begin(args, "bugs");
    const mha_status status =
        gradients ? mha_case_examine_gradients(c, &asked, p, &error)
                  : mha_case_power(c, &asked, (int)count_of(args, OPT_THREADS), progress, p, &error);
    progress_end();
    TRY(done_or_refuse_field(status, mha_case_name(c), &error));
    json_t *record = record_of("stage", J(gradients ? criterion->stage : mha_stage_at(p->stage)->name), NULL);
    return answer(args, p, mha_case_name(c), gradients ? record : record_with(record, "random", J(random), NULL), NULL);
}

/* ---------------------------------------------------------------- published tests */

/* The file of a published test, with its name. */
static json_t *benchmark_record(size_t index)
{
    const char *text, *name = mha_benchmark_at(index, &text);
    return record_with(json_loads(text, 0, NULL), "name", J(name), NULL);
}

static int list_benchmarks(const arguments *args)
{
    static const char *const columns[] = {"name: name", "test: title"};
    json_t *list = json_array(), *root = keep_json(record_of("benchmarks", list, NULL));
    for (size_t i = 0; mha_benchmark_at(i, NULL); i++)
        json_array_append_new(list, benchmark_record(i));
    if (report_is_text(args, root))
        REPORT_TABLE(list, columns);
    return EXIT_DONE;
}

static int open_case(const char *path, mha_case **c)
{
    mha_error error = {0};
    return done_or_refuse(mha_case_open(path, NULL, c, &error), path, &error);
}

/* A published test, or suggested inputs for it, with its criterion. */
static int power_of_benchmark(const arguments *args, const mha_progress *progress)
{
    const char *name = text_for(args, OPT_BENCHMARK), *path = text_for(args, OPT_SUGGEST), *names = "list", *one;
    const int threads = (int)count_of(args, OPT_THREADS);
    mha_case **c = keep(obtain(1, sizeof *c));
    mha_power *p = keep(obtain(1, sizeof *p));
    mha_criterion criterion;
    mha_error error = {0};
    size_t found = SIZE_MAX;
    for (option_code o = 0; o < option_count(); o++)
        if (given(args, o) && o != OPT_BENCHMARK && o != OPT_SUGGEST && o != OPT_THREADS && o != OPT_JSON &&
            o != OPT_QUIET)
            return refuse_option(o, "expected nothing with --benchmark, which decides it");
    if (args->n_operands > 0)
        return refuse_option(OPT_BENCHMARK, "expected no case file with it");
    if (strcmp(name, "list") == 0)
        return list_benchmarks(args);
    for (size_t i = 0; (one = mha_benchmark_at(i, NULL)) != NULL; i++) {
        names = text_of("%s, %s", names, one);
        found = strcmp(one, name) == 0 ? i : found;
    }
    if (found == SIZE_MAX)
        return refuse_option(OPT_BENCHMARK, "expected one of %s; found \"%s\"", names, name);
    progress_begin(args, "bugs");
    const mha_status status = path ? mha_benchmark_suggest(name, path, threads, progress, &criterion, &error)
                                   : mha_benchmark_power(name, threads, progress, p, &error);
    progress_end();
    TRY(done_or_refuse(status, "", &error));
    if (path) {
        TRY(open_case(path, c));
        return measure(*c, NULL, args, &criterion, progress);
    }
    json_t *file = benchmark_record(found);
    const char *what = text_of("%s, cases: %zu", json_string_value(json_object_get(file, "title")),
                               json_array_size(json_object_get(file, "cases")));
    json_t *record = record_of("stage", J(mha_stage_at(p->stage)->name), "benchmark", file, NULL);
    return answer(args, p, what, record, file);
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
    if (given(args, OPT_D_MODEL))
        return c;
    if (!given(args, OPT_HEADS))
        c.n_heads = 4;
    c.d_model = c.n_heads * (c.d_k ? c.d_k : 8);
    return c;
}

/* Whether a setting has a number for each batch row, as many as the call has. */
static bool settles_batch(const mha_semantics *semantics)
{
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)) != NULL; i++)
        if (s->per == MHA_PER_ROW && mha_setting_given(s, semantics))
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
    TRY(refuse_each(args, read, "nothing with --suggest, which makes up the inputs"));
    TRY(request_call(r, args, &config)); /* for its semantics */
    mha_suggestion wish = {.config = *mha_layer_config(r->layer),
                           .by_head = args->option[OPT_KIND].choice == 1,
                           .batch = given(args, OPT_BATCH) || settles_batch(&r->call.semantics)
                                        ? count_of(args, OPT_BATCH)
                                        : 0,
                           .q_len = given(args, OPT_SEQ) ? count_of(args, OPT_SEQ) : 0,
                           .kv_len = count_of(args, OPT_KV_SEQ),
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
    mha_error error = {0};
    TRY(request_call(r, args, NULL));
    const bool both = r->random && given(args, OPT_INPUT);
    const char *name = text_of("%s%s%s", given(args, OPT_INPUT) ? text_for(args, OPT_INPUT) : "", both ? " and " : "",
                               r->random ? r->random : "");
    const mha_case_notes notes = {.name = name};
    const mha_status made = mha_case_of_call(r->layer, &r->call, NULL, 0, &notes, c, &error);
    return done_or_refuse_field(made, "", &error);
}

int run_power(const arguments *args)
{
    request *r = keep(obtain(1, sizeof *r));
    mha_case **c = keep(obtain(1, sizeof *c));
    mha_criterion criterion = {0};
    const mha_progress progress = {progress_report, NULL};
    if (given(args, OPT_BENCHMARK))
        return power_of_benchmark(args, &progress);
    TRY(read_criterion(args, &criterion));
    const char *stage = criterion.stage;
    if (stage && args->n_operands == 0 && (strcmp(stage, all_gradients) == 0 || gradients_named(stage)))
        return refuse_option(OPT_STAGE, "expected a case file with d_output for \"%s\"", stage);
    TRY(refuse_alone(args, OPT_WITH, OPT_SUGGEST));
    TRY(refuse_alone(args, OPT_KIND, OPT_SUGGEST));
    if (args->n_operands > 0) {
        const option_code o = given(args, OPT_SUGGEST) ? OPT_SUGGEST : given_of(args, SECTIONS_OF_CALL);
        if (o != option_count())
            return refuse_option(o, "expected nothing with a case file, which decides it");
        TRY(open_case(args->operands[0], c));
    } else
        TRY(given(args, OPT_SUGGEST) ? suggest(r, args, &progress, c) : case_of_options(r, args, c));
    return measure(*c, r->random, args, &criterion, &progress);
}
