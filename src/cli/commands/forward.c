/* mha forward: runs a layer, shows what cli/output/run_report.c says of it, and writes files. */
#include <math.h>

#include "cli/commands/commands.h"

/* ---------------------------------------------------------------- timing */

/* Times the fastest of a few runs, because the first run starts threads and fills caches. A run that takes long is
 * not repeated. */
static int run_best(request *r, const arguments *args, run_times *best)
{
    enum { MOST_RUNS = 20 };
    const double patience = 300;
    double total = 0;
    *best = (run_times){.ms = INFINITY};
    int code = EXIT_DONE;
    progress_begin(args, "runs");
    for (; best->runs < MOST_RUNS && total < patience && code == EXIT_DONE; best->runs++) {
        double ms = 0;
        progress_show(best->runs, MOST_RUNS);
        code = request_run(r, &ms);
        total += ms;
        if (ms < best->ms) {
            best->ms = ms;
            for (int s = 0; s < MHA_STAGE_COUNT; s++)
                best->stage_ms[s] = r->keep[s].ms;
        }
    }
    progress_end();
    return code;
}

/* ---------------------------------------------------------------- files */

static bool is_npy(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".npy") == 0;
}

static int write_output(const request *r, mha_writer *writer)
{
    mha_error error = {0};
    mha_view view = r->call.output;
    if (r->unbatched)
        view = mha_view_of(view.data, view.dtype, 2, view.shape + 1);
    TRY(done_or_refuse(mha_writer_add(writer, "output", &view, &error), "--output", &error));
    return done_or_refuse(mha_writer_commit(writer, &error), "--output", &error);
}

/* Writes every kept stage and the output, or `only` one of them, under the names of the stages. */
static int write_trace(const request *r, const char *path, const char *only)
{
    mha_error error = {0};
    mha_writer *writer;
    mha_status status = MHA_OK;
    TRY(done_or_refuse(mha_writer_create(path, &writer, &error), "--trace", &error));
    for (size_t i = 0; i < r->call.keep_count && status == MHA_OK; i++) {
        const mha_keep *kept = &r->call.keep[i];
        const mha_view *view = kept->stage == MHA_STAGE_OUTPUT ? &r->call.output : &kept->view;
        if (view->data && (!only || strcmp(only, mha_stage_at(kept->stage)->name) == 0))
            status = mha_writer_add(writer, mha_stage_at(kept->stage)->name, view, &error);
    }
    if (status == MHA_OK && r->random && !is_npy(path)) /* which has no metadata */
        status = mha_writer_add_metadata(writer, "random", r->random, &error);
    if (status == MHA_OK)
        status = mha_writer_commit(writer, &error);
    mha_writer_destroy(writer);
    return done_or_refuse(status, "--trace", &error);
}

/* ---------------------------------------------------------------- the command */

/* Whether an array of up to three axes has numbers that are not finite. */
static bool is_broken(mha_view values, summary *s)
{
    while (values.data && values.rank < 3)
        values.shape[values.rank] = 1, values.stride[values.rank++] = 0;
    *s = values.data ? summarise(&values) : (summary){0};
    return s->non_finite > 0;
}

/* Says in which stage the first number that is not finite appeared. Returns EXIT_NO. */
static int blame_non_finite(const request *r, const summary *output)
{
    const struct {
        const char *name;
        const mha_view *view;
    } inputs[] = {{"--input", &r->call.query}, {"--key-input", &r->call.key}, {"--value-input", &r->call.value}};
    summary s;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (is_broken(*inputs[i].view, &s)) {
            refuse(inputs[i].name,
                   "expected finite numbers, found %zu NaN or infinite, the first at %s; so are %zu of the output",
                   s.non_finite, shape_text(3, s.first_non_finite), output->non_finite);
            return EXIT_NO;
        }
    for (size_t i = 0; i < mha_params_count(r->table); i++)
        if (is_broken(mha_tensor_view(mha_params_at(r->table, i)), &s)) {
            refuse(mha_tensor_info_of(mha_params_at(r->table, i)).name,
                   "expected finite weights, found %zu NaN or infinite; so are %zu of the output", s.non_finite,
                   output->non_finite);
            return EXIT_NO;
        }
    refuse("output", "expected finite numbers, found %zu NaN or infinite, the first at %s", output->non_finite,
           shape_text(3, output->first_non_finite));
    return EXIT_NO;
}

/* Bytes that packing takes at most beyond the weights: of panels beside their numbers, or of one matrix at a time. */
static size_t packing_bytes(const request *r)
{
    size_t all = 0, largest = 0;
    for (size_t i = 0; i < mha_params_count(r->table); i++) {
        const mha_tensor_info info = mha_tensor_info_of(mha_params_at(r->table, i));
        const bool alone = info.dtype == MHA_F32 || info.dtype == MHA_F16 || info.dtype == MHA_BF16;
        all += alone ? 0 : info.bytes;
        largest = alone && info.bytes > largest ? info.bytes : largest;
    }
    return all + largest;
}

static int pack(const request *r)
{
    mha_error error = {.status = MHA_NO_MEMORY};
    TRY(expect_memory(packing_bytes(r), "packed weights (--no-pack does without)"));
    return done_or_refuse(mha_layer_pack(r->layer, &error), "", &error);
}

static const option_code written[] = {OPT_OUTPUT, OPT_TRACE, OPT_SAVE_CASE};
enum { N_WRITTEN = sizeof written / sizeof *written };

static const char *destination(const arguments *args, int i)
{
    return given(args, written[i]) ? text_for(args, written[i]) : "";
}

/* Whether a path is "-" or the system's own name of standard output. */
static bool is_standard_output(const char *path)
{
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0;
}

static bool writes_to_standard_output(const arguments *args)
{
    for (int i = 0; i < N_WRITTEN; i++)
        if (is_standard_output(destination(args, i)))
            return true;
    return false;
}

/* Refuses npy for more than one tensor: a case is many tensors, and so is a trace without --stage. */
static int refuse_npy_for_many(const arguments *args)
{
    mha_stage stage;
    for (int i = 0; i < N_WRITTEN; i++) {
        const char *path = destination(args, i);
        const bool one = written[i] == OPT_OUTPUT || (written[i] == OPT_TRACE && given(args, OPT_STAGE));
        if (!one && is_npy(path))
            return refuse_option(written[i], "expected a name that ends in .safetensors%s, found %s",
                                 written[i] == OPT_TRACE ? ", or --stage with it" : "", path);
    }
    if (given(args, OPT_STAGE) && !mha_stage_find(text_for(args, OPT_STAGE), &stage))
        return refuse_option(OPT_STAGE, "expected a stage of the forward (\"mha help stage\" lists them), found \"%s\"",
                             text_for(args, OPT_STAGE));
    return refuse_alone(args, OPT_STAGE, OPT_TRACE);
}

/* Refuses one name for two files: the second would replace the first, or both would be mixed on standard output. */
static int refuse_one_name_for_two(const arguments *args)
{
    for (int i = 0; i < N_WRITTEN; i++)
        for (int j = 0; j < i; j++) {
            const char *a = destination(args, i), *b = destination(args, j);
            if (*a && (strcmp(a, b) == 0 || (is_standard_output(a) && is_standard_output(b))))
                return refuse_option(written[i], "expected another name than that of --%s, found \"%s\" for both",
                                     option_at(written[j])->name, a);
        }
    if (given(args, OPT_JSON) && writes_to_standard_output(args))
        return refuse("--json", "expected standard output for it alone, found \"-\" as a file to write");
    return EXIT_DONE;
}

/* Tries before the run whether all files can be written. The writer of --output is kept in *output. */
static int try_destinations(const arguments *args, mha_writer **output)
{
    mha_error error = {0};
    for (int i = 0; i < N_WRITTEN; i++) {
        mha_writer *writer = NULL;
        if (*destination(args, i) && mha_writer_create(destination(args, i), &writer, &error) != MHA_OK)
            return refuse_error(text_of("--%s", option_at(written[i])->name), &error);
        if (written[i] == OPT_OUTPUT)
            *output = writer;
        else
            mha_writer_destroy(writer);
    }
    return EXIT_DONE;
}

/* Whether all NaN in the output come from --empty-rows nan: runs the call again with zeros for empty rows. */
static int only_empty_rows(const request *r, bool *only)
{
    double ms;
    *only = false;
    if (r->call.semantics.softmax.empty_rows != MHA_EMPTY_NAN)
        return EXIT_DONE;
    request *other = keep(obtain(1, sizeof *other));
    *other = (request){.layer = r->layer, .call = r->call, .plan = r->plan};
    other->call.semantics.softmax.empty_rows = MHA_EMPTY_ZERO;
    other->call.output = (mha_view){0};
    other->call.keep = NULL;
    other->call.keep_count = 0;
    TRY(request_keep(other, MHA_STAGE_OUTPUT));
    TRY(request_run(other, &ms));
    *only = summarise(&other->call.output).non_finite == 0;
    return EXIT_DONE;
}

/* Writes what the heads look at, for --picture. */
static int write_picture(const request *r, const arguments *args)
{
    if (!given(args, OPT_PICTURE))
        return EXIT_DONE;
    mha__picture *picture = keep(obtain(1, sizeof *picture));
    mha_error error = {0};
    const mha__picture_choice choice = {.one_head = given(args, OPT_HEAD), .head = count_of(args, OPT_HEAD)};
    mha_call call = r->call;
    call.keep_count = 0;
    call.cache = NULL;
    picture->title = r->random;
    TRY(done_or_refuse_field(
        mha__picture_add_call(picture, r->loaded.layer.prefix, r->layer, &call, NULL, &choice, &error), "", &error));
    return picture_file_write(picture, NULL, args);
}

/* Writes what --output, --trace, --save-case and --picture ask for. */
static int write_files(const request *r, const arguments *args, mha_writer *writer)
{
    mha_error error = {0};
    if (writer)
        TRY(write_output(r, writer));
    if (given(args, OPT_TRACE))
        TRY(write_trace(r, text_for(args, OPT_TRACE), text_for(args, OPT_STAGE)));
    if (given(args, OPT_SAVE_CASE) &&
        mha_case_save(text_for(args, OPT_SAVE_CASE), r->layer, &r->call, NULL, &error) != MHA_OK)
        return refuse_error("--save-case", &error);
    return write_picture(r, args);
}

/* Runs the request, prints the results and writes the files. */
static int perform(request *r, const arguments *args, mha_writer *writer)
{
    const bool text = !given(args, OPT_JSON) && !given(args, OPT_QUIET) && !writes_to_standard_output(args);
    if (text)
        run_report_begin(r, args);
    run_times time;
    TRY(run_best(r, args, &time));
    summary s = summarise(&r->call.output);
    bool as_asked = true;
    int code = EXIT_DONE;
    if (s.non_finite)
        TRY(only_empty_rows(r, &as_asked));
    TRY(write_files(r, args, writer));
    json_t *root = keep_json(run_report_of(r, args, &s, &time));
    if (report_is_text(args, root) && text) {
        run_report_end(r, root, &time, &s, as_asked);
        code = attention_map_print(r, args);
    }
    return code == EXIT_DONE && !as_asked ? blame_non_finite(r, &s) : code;
}

static int forward(request *r, const arguments *args, mha_writer **writer)
{
    size_t shape[4];
    TRY(refuse_one_name_for_two(args));
    TRY(refuse_npy_for_many(args));
    TRY(picture_file_check(args, OPT_PICTURE));
    TRY(try_destinations(args, writer));
    TRY(request_call(r, args, NULL));
    TRY(attention_map_check(r, args));
    if (r->plan.path == MHA_PATH_FAST && !given(args, OPT_NO_PACK))
        TRY(pack(r));
    for (mha_stage s = 0; s < MHA_STAGE_COUNT; s++)
        if (mha_plan_stage(&r->plan, s, shape) > 0 &&
            (s == MHA_STAGE_OUTPUT || given(args, OPT_TRACE) || given(args, OPT_SAVE_CASE)))
            TRY(request_keep(r, s));
    return perform(r, args, *writer);
}

int run_forward(const arguments *args)
{
    mha_writer *writer = NULL;
    request r = {0};
    if (presets_asked(args))
        return list_presets(args);
    const int code = forward(&r, args, &writer);
    mha_writer_destroy(writer);
    request_free(&r);
    return code;
}
