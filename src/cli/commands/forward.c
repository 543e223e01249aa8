/* mha forward: runs a layer and shows configuration, parameters, stages and output. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/attention_map.h"
#include "cli/commands/commands.h"
#include "cli/output/parameters.h"
#include "cli/output/presets.h"
#include "cli/setup/call.h"
#include "cli/setup/layer.h"
#include "cli/output/summary.h"

/* ---------------------------------------------------------------- timing */

typedef struct timing {
    double ms, stage_ms[MHA_STAGE_COUNT]; /* times of the fastest run */
    size_t runs;
} timing;

/* Times the fastest of a few runs, because the first run starts threads and fills caches. A run that takes long is
 * not repeated. */
static int run_best(request *r, timing *best)
{
    const double patience = 300;
    double total = 0;
    *best = (timing){.ms = INFINITY};
    int code = EXIT_DONE;
    for (; best->runs < 20 && total < patience && code == EXIT_DONE; best->runs++) {
        double ms = 0;
        code = request_run(r, &ms);
        total += ms;
        if (ms < best->ms) {
            best->ms = ms;
            for (int s = 0; s < MHA_STAGE_COUNT; s++)
                best->stage_ms[s] = r->keep[s].ms;
        }
    }
    return code;
}

/* ---------------------------------------------------------------- stages */

/* What each stage is, in the symbols of the equation. Stages without a text appear only in traces. */
static const char *const stage_text[MHA_STAGE_COUNT] = {
    [MHA_STAGE_Q] = "x_q W_Q + b_Q: what each position asks",
    [MHA_STAGE_K] = "x_k W_K + b_K: what each position offers",
    [MHA_STAGE_V] = "x_v W_V + b_V: what each position gives",
    [MHA_STAGE_Q_ROT] = "q after rotation by position",
    [MHA_STAGE_K_ROT] = "k after rotation by position",
    [MHA_STAGE_SCORES] = "scale * Q K^T, one matrix for each head",
    [MHA_STAGE_CAPPED] = "c tanh(scores / c)",
    [MHA_STAGE_MASKED] = "scores with hidden keys at -inf",
    [MHA_STAGE_WEIGHTS] = "softmax over the keys: each row sums to 1",
    [MHA_STAGE_HEADS] = "weights V, the heads side by side",
    [MHA_STAGE_OUTPUT] = "heads W_O + b_O",
};

static bool hides_keys(const mha_semantics *s)
{
    return s->causal || s->window || s->kv_lengths || s->mask.kind != MHA_MASK_NONE;
}

static bool stage_happens(const request *r, mha_stage stage)
{
    const mha_semantics *s = &r->call.semantics;
    switch (stage) {
    case MHA_STAGE_Q_ROT:
    case MHA_STAGE_K_ROT: return s->rope.kind != MHA_ROPE_NONE || mha_layer_config(r->layer)->q_norm != MHA_NORM_NONE;
    case MHA_STAGE_CAPPED: return s->softcap > 0;
    case MHA_STAGE_MASKED: return hides_keys(s);
    default: return stage_text[stage] != NULL;
    }
}

/* Whether a stage has a time of its own. The exact path times none; scores to heads are timed together, as heads. */
static bool stage_timed(const request *r, mha_stage stage)
{
    return r->plan.path != MHA_PATH_EXACT &&
           (stage <= MHA_STAGE_K_ROT || stage == MHA_STAGE_HEADS || stage == MHA_STAGE_OUTPUT);
}

static void print_stages(const request *r, const timing *time)
{
    static const char *const titles[] = {"stage", "shape", ">ms", "what it is"};
    table *t = table_create(TABLE_TEXT, 4, titles);
    for (mha_stage s = 0; s < MHA_STAGE_COUNT; s++) {
        if (!stage_happens(r, s))
            continue;
        table_cell(t, mha_stage_name(s));
        size_t shape[4];
        const int rank = mha_plan_stage(&r->plan, s, shape);
        table_shape(t, rank, shape);
        if (stage_timed(r, s))
            table_format(t, "%.3f", time->stage_ms[s]);
        else
            table_cell(t, r->plan.path != MHA_PATH_EXACT ? "|" : "");
        table_cell(t, stage_text[s]);
    }
    table_print(t);
    if (r->plan.path != MHA_PATH_EXACT)
        printf("  |  is timed together with heads%s\n",
               r->plan.path == MHA_PATH_FAST ? "; this path streams over the keys and never holds these whole" : "");
    double flops = request_flops(r);
    printf("\n  %s%.3g ms%s, %.3g GFLOP/s", bold(), time->ms, plain(), flops / time->ms * 1e-6);
    if (time->runs > 1)
        printf(" (the best of %zu runs)", time->runs);
    putchar('\n');
}

/* ---------------------------------------------------------------- text */

static void print_equation(const request *r)
{
    const mha_plan *p = &r->plan;
    const mha_semantics *s = &r->call.semantics;
    printf("%sMultiHead(x) = concat(head_1 ... head_%zu) W_O%s%s\n", bold(), p->h,
           mha_layer_config(r->layer)->bias_o ? " + b_O" : "", plain());
    printf("      head_i = softmax(%sQ_i K_i^T * %.6g%s%s) V_i\n\n", s->softcap > 0 ? "cap(" : "", p->scale,
           s->softcap > 0 ? ")" : "", hides_keys(s) ? ", hidden keys left out" : "");
}

static void print_weights(const request *r, const arguments *args)
{
    const mha_model_facts *f = &r->facts;
    if (r->random_weights)
        printf("  weights  random, Xavier uniform, seed %zu\n", count_of(args, OPT_SEED));
    else {
        print_harmless("  weights  %s%s%s (%s names)", args->option[OPT_WEIGHTS].text,
                       *r->loaded.layer.prefix ? ", layer " : "", r->loaded.layer.prefix, r->loaded.layer.scheme);
        putchar('\n');
    }
    if (!r->facts_from)
        return;
    print_harmless("  model    %s%s%s, as its %s says%s%s", *f->model_type ? f->model_type : "unknown",
                   r->random_weights ? ", layer " : "", r->random_weights ? r->loaded.layer.prefix : "",
                   r->facts_from, f->has_semantics && *f->caveat ? "; " : "", f->has_semantics ? f->caveat : "");
    putchar('\n');
}

/* Prints the semantics that differ from plain attention. */
static void print_meaning(const mha_semantics *s)
{
    static const char *const pairing[] = {"", "interleaved", "half-split"};
    const char *parts[8];
    char window[64], softcap[40], rotated[80];
    size_t n = 0;
    snprintf(window, sizeof window, "window %lld,%lld", (long long)s->window_left, (long long)s->window_right);
    snprintf(softcap, sizeof softcap, "softcap %g", s->softcap);
    snprintf(rotated, sizeof rotated, "rotated by position (%s, base %g)", pairing[s->rope.kind],
             s->rope.base > 0 ? s->rope.base : 10000);
    if (s->causal)
        parts[n++] = "causal";
    if (s->window)
        parts[n++] = window;
    if (s->kv_lengths)
        parts[n++] = "lengths";
    if (s->cu_seqlens_q)
        parts[n++] = "packed sequences";
    if (s->mask.kind != MHA_MASK_NONE)
        parts[n++] = "mask";
    if (s->alibi_slopes)
        parts[n++] = "ALiBi";
    if (s->softcap > 0)
        parts[n++] = softcap;
    if (s->rope.kind != MHA_ROPE_NONE)
        parts[n++] = rotated;
    for (size_t i = 0; i < n; i++)
        printf("%s%s%s", i ? ", " : "  meaning  ", parts[i], i + 1 == n ? "\n" : "");
}

static void print_configuration(const request *r, const arguments *args)
{
    const mha_config *c = mha_layer_config(r->layer);
    const mha_plan *p = &r->plan;
    printf("%sConfiguration%s\n", bold(), plain());
    printf("  width    d_model %zu%s%zu heads x d_k %zu", c->d_model, c->n_heads * c->d_k == c->d_model ? " = " : ", ",
           c->n_heads, c->d_k);
    if (c->d_v != c->d_k)
        printf(", d_v %zu", c->d_v);
    if (c->kv_heads != c->n_heads)
        printf("; %zu key/value heads, each read by %zu query heads", c->kv_heads, c->n_heads / c->kv_heads);
    putchar('\n');
    print_weights(r, args);
    printf("  input    %zu batch row%s, %zu queries, %zu keys%s, %s\n", p->B, p->B == 1 ? "" : "s", p->T_q, p->S,
           r->call.key.data ? " (cross-attention)" : " (self-attention)",
           r->random_inputs ? "random" : args->option[OPT_INPUT].text);
    if (r->cache)
        printf("  cache    %s, %zu rows of keys and values, %zu bytes\n",
               mha_dtype_name(mha_cache_keys(r->cache).dtype), p->S, mha_cache_bytes(r->cache));
    print_meaning(&r->call.semantics);
    printf("  run on   path %s%s%s%s, %s%s%d thread%s\n\n", mha_path_name(p->path),
           *p->path_reason ? " (" : "", p->path_reason, *p->path_reason ? ")" : "",
           p->path == MHA_PATH_FAST ? mha_isa() : "", p->path == MHA_PATH_FAST ? " kernels, " : "", p->threads,
           p->threads == 1 ? "" : "s");
}

static void print_output(const request *r, const summary *s, bool as_asked)
{
    const mha_view *output = &r->call.output;
    char shape[SHAPE_TEXT], mean[SHORT_TEXT], rms[SHORT_TEXT], max[SHORT_TEXT];
    printf("\n%sOutput %s%s\n  mean %s, root mean square %s, largest |x| %s, %s\n", bold(),
           shape_text(shape, output->rank, output->shape), plain(), real_text(mean, s->mean), real_text(rms, s->rms),
           real_text(max, s->max_abs),
           s->non_finite == 0 ? "all finite"
           : as_asked         ? "NaN where a query sees no key, as asked"
                              : "NOT all finite");
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_config(const request *r, const arguments *args)
{
    const mha_config *c = mha_layer_config(r->layer);
    const mha_plan *p = &r->plan;
    const struct {
        const char *name;
        size_t value;
    } counts[] = {{"d_model", c->d_model}, {"heads", c->n_heads}, {"kv_heads", c->kv_heads}, {"d_k", c->d_k},
                  {"d_v", c->d_v},         {"d_q", c->d_q},       {"kdim", c->d_kin},        {"vdim", c->d_vin},
                  {"d_out", c->d_out},     {"batch", p->B},       {"seq", p->T_q},           {"kv_seq", p->T_k}};
    const struct {
        const char *name;
        bool value;
    } flags[] = {{"bias_q", c->bias_q}, {"bias_k", c->bias_k}, {"bias_v", c->bias_v},
                 {"bias_o", c->bias_o}, {"causal", r->call.semantics.causal}};
    json_t *config = json_object();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(config, counts[i].name, json_count(counts[i].value));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        json_object_set_new(config, flags[i].name, json_boolean(flags[i].value));
    json_object_set_new(config, "scale", json_number(p->scale));
    json_object_set_new(config, "seed", json_count(count_of(args, OPT_SEED)));
    json_object_set_new(config, "dtype", json_text(mha_dtype_name(c->dtype)));
    json_object_set_new(config, "cache_dtype",
                        json_text(r->cache ? mha_dtype_name(mha_cache_keys(r->cache).dtype) : NULL));
    json_object_set_new(config, "model",
                        !r->facts_from ? json_null()
                                       : json_text(*r->facts.model_type ? r->facts.model_type : "unknown"));
    json_object_set_new(
        config, "caveat",
        json_text(r->facts_from && r->facts.has_semantics && *r->facts.caveat ? r->facts.caveat : NULL));
    return config;
}

static void write_json(const request *r, const arguments *args, const summary *s, const timing *time)
{
    json_t *stages = json_array(), *parameters = json_object();
    for (mha_stage stage = 0; stage < MHA_STAGE_COUNT; stage++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&r->plan, stage, shape);
        if (stage_happens(r, stage))
            json_array_append_new(
                stages,
                json_pack("{so so so}", "name", json_text(mha_stage_name(stage)), "shape", json_shape(rank, shape),
                          "ms", stage_timed(r, stage) ? json_milliseconds(time->stage_ms[stage]) : json_null()));
    }
    parameters_json_totals(parameters, r->table);
    const mha_view *output = &r->call.output;
    json_print(json_pack(
        "{so so so si so so so so so}", "config", json_config(r, args), "path", json_text(mha_path_name(r->plan.path)),
        "path_reason", json_text(*r->plan.path_reason ? r->plan.path_reason : NULL), "threads", r->plan.threads,
        "parameters", parameters, "stages", stages, "total_ms", json_milliseconds(time->ms), "gflops",
        json_number(request_flops(r) / time->ms * 1e-6), "output",
        json_pack("{so so so so sb}", "shape", json_shape(output->rank, output->shape), "mean", json_number(s->mean),
                  "rms", json_number(s->rms), "max_abs", json_number(s->max_abs), "finite", s->non_finite == 0)));
}

/* ---------------------------------------------------------------- files */

static int write_output(const request *r, mha_writer *writer)
{
    mha_error error = {0};
    mha_view view = r->call.output;
    if (r->unbatched)
        view = mha_view_of(view.data, view.dtype, 2, view.shape + 1);
    mha_status status = mha_writer_add(writer, "output", &view, &error);
    if (status == MHA_OK)
        status = mha_writer_commit(writer, &error);
    return status == MHA_OK ? EXIT_DONE : refuse_error("--output", &error);
}

/* Writes every kept stage and the output, or `only` one of them, under the names of the stages. */
static int write_trace(const request *r, const char *path, const char *only)
{
    mha_error error = {0};
    mha_writer *writer;
    mha_status status = mha_writer_create(path, &writer, &error);
    if (status != MHA_OK)
        return refuse_error("--trace", &error);
    for (size_t i = 0; i < r->call.keep_count && status == MHA_OK; i++) {
        const mha_keep *kept = &r->call.keep[i];
        const mha_view *view = kept->stage == MHA_STAGE_OUTPUT ? &r->call.output : &kept->view;
        if (view->data && (!only || strcmp(only, mha_stage_name(kept->stage)) == 0))
            status = mha_writer_add(writer, mha_stage_name(kept->stage), view, &error);
    }
    if (status == MHA_OK)
        status = mha_writer_commit(writer, &error);
    mha_writer_destroy(writer);
    return status == MHA_OK ? EXIT_DONE : refuse_error("--trace", &error);
}

/* ---------------------------------------------------------------- the command */

/* Says in which stage the first number that is not finite appeared. Returns EXIT_NO. */
static int blame_non_finite(const request *r, const summary *output)
{
    const struct {
        const char *name;
        const mha_view *view;
    } inputs[] = {{"--input", &r->call.query}, {"--key-input", &r->call.key}, {"--value-input", &r->call.value}};
    char where[SHAPE_TEXT];
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        summary s = inputs[i].view->data ? summarise(inputs[i].view) : (summary){0};
        if (s.non_finite == 0)
            continue;
        refuse(inputs[i].name,
               "expected finite numbers, found %zu NaN or infinite, the first at %s; so are %zu of the output",
               s.non_finite, shape_text(where, 3, s.first_non_finite), output->non_finite);
        return EXIT_NO;
    }
    for (size_t i = 0; i < mha_params_count(r->table); i++) {
        mha_tensor *tensor = mha_params_at(r->table, i);
        mha_statistics s;
        if (mha_tensor_statistics(tensor, &s) != MHA_OK || s.non_finite == 0)
            continue;
        refuse(mha_tensor_info_of(tensor).name,
               "expected finite weights, found %zu NaN or infinite; so are %zu of the output", s.non_finite,
               output->non_finite);
        return EXIT_NO;
    }
    refuse("output", "expected finite numbers, found %zu NaN or infinite, the first at %s", output->non_finite,
           shape_text(where, 3, output->first_non_finite));
    return EXIT_NO;
}

static int pack(const request *r)
{
    mha_error error = {.status = MHA_NO_MEMORY};
    int code =
        expect_memory(mha_params_totals(r->table, NULL).parameter_bytes, "packed weights (--no-pack does without)");
    return code == EXIT_DONE && mha_layer_pack(r->layer, &error) != MHA_OK ? refuse_error("", &error) : code;
}

static int keep_stages(request *r, const arguments *args)
{
    int code = EXIT_DONE;
    for (mha_stage s = 0; s < MHA_STAGE_COUNT && code == EXIT_DONE; s++)
        if (s == MHA_STAGE_OUTPUT || given(args, OPT_TRACE) || given(args, OPT_SAVE_CASE))
            code = request_keep(r, s);
    return code;
}

static const int written[] = {OPT_OUTPUT, OPT_TRACE, OPT_SAVE_CASE};
enum { N_WRITTEN = sizeof written / sizeof *written };
static const char *const written_names[N_WRITTEN] = {"--output", "--trace", "--save-case"};

static const char *destination(const arguments *args, int i)
{
    return given(args, written[i]) ? args->option[written[i]].text : "";
}

/* Whether a path is "-" or the system's own name of standard output. */
static bool is_standard_output(const char *path)
{
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0;
}

static bool is_one_name(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || (is_standard_output(a) && is_standard_output(b));
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
        const char *path = destination(args, i), *dot = strrchr(path, '.');
        const bool one = written[i] == OPT_OUTPUT || (written[i] == OPT_TRACE && given(args, OPT_STAGE));
        if (!one && dot && strcmp(dot, ".npy") == 0)
            return refuse(written_names[i], "expected a name that ends in .safetensors%s, found %s",
                          written[i] == OPT_TRACE ? ", or --stage beside it" : "", path);
    }
    if (given(args, OPT_STAGE) && !mha_stage_find(text_for(args, OPT_STAGE), &stage))
        return refuse_option(OPT_STAGE, "expected a stage (\"mha help stage\" lists them), found \"%s\"",
                             text_for(args, OPT_STAGE));
    return refuse_alone(args, OPT_STAGE, OPT_TRACE);
}

/* Refuses one name for two files: the second would replace the first, or both would be mixed on standard output. */
static int refuse_one_name_for_two(const arguments *args)
{
    for (int i = 0; i < N_WRITTEN; i++)
        for (int j = 0; j < i; j++)
            if (*destination(args, i) && is_one_name(destination(args, i), destination(args, j)))
                return refuse(written_names[i], "expected another name than that of %s, found \"%s\" for both",
                              written_names[j], destination(args, i));
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
            return refuse_error(written_names[i], &error);
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
    request other = {.layer = r->layer, .call = r->call, .plan = r->plan};
    *only = false;
    if (r->call.semantics.empty_rows != MHA_EMPTY_NAN)
        return EXIT_DONE;
    other.call.semantics.empty_rows = MHA_EMPTY_ZERO;
    other.call.output = (mha_view){0};
    other.call.keep = NULL;
    other.call.keep_count = 0;
    int code = request_keep(&other, MHA_STAGE_OUTPUT);
    if (code == EXIT_DONE)
        code = request_run(&other, &ms);
    if (code == EXIT_DONE)
        *only = summarise(&other.call.output).non_finite == 0;
    other.layer = NULL; /* borrowed */
    request_free(&other);
    return code;
}

/* Runs the request, prints the results and writes the files. */
static int perform(request *r, const arguments *args, mha_writer *writer)
{
    bool json = given(args, OPT_JSON);
    bool text = !json && !given(args, OPT_QUIET) && !writes_to_standard_output(args);
    if (text) {
        print_equation(r);
        print_configuration(r, args);
        printf("%sParameters%s\n", bold(), plain());
        parameters_print(r->table, r->layer, false, TABLE_TEXT);
        fflush(stdout);
    }
    timing time;
    int code = run_best(r, &time);
    if (code != EXIT_DONE)
        return code;
    summary s = summarise(&r->call.output);
    bool as_asked = true;
    if (s.non_finite)
        code = only_empty_rows(r, &as_asked);
    mha_error error = {0};
    if (code == EXIT_DONE && writer)
        code = write_output(r, writer);
    if (code == EXIT_DONE && given(args, OPT_TRACE))
        code = write_trace(r, text_for(args, OPT_TRACE), text_for(args, OPT_STAGE));
    if (code == EXIT_DONE && given(args, OPT_SAVE_CASE) &&
        mha_case_save(args->option[OPT_SAVE_CASE].text, r->layer, &r->call, NULL, &error) != MHA_OK)
        code = refuse_error("--save-case", &error);
    if (code == EXIT_DONE && json)
        write_json(r, args, &s, &time);
    if (code == EXIT_DONE && text) {
        printf("\n%sStages%s\n", bold(), plain());
        print_stages(r, &time);
        print_output(r, &s, as_asked);
        code = attention_map_print(r, args);
    }
    if (code == EXIT_DONE && !as_asked)
        code = blame_non_finite(r, &s);
    return code;
}

int run_forward(const arguments *args)
{
    if (presets_asked(args))
        return list_presets(args);
    if (given(args, OPT_MERGED_QK))
        return run_merged_forward(args);
    mha_config config = request_config(args);
    mha_writer *writer = NULL;
    request r = {0};
    int code = refuse_one_name_for_two(args);
    if (code == EXIT_DONE)
        code = refuse_npy_for_many(args);
    if (code == EXIT_DONE && given(args, OPT_CACHE_DTYPE) && given(args, OPT_SAVE_CASE))
        code = refuse("--cache-dtype",
                      "expected no --save-case beside it: a case file has no word for the type of a cache");
    if (code == EXIT_DONE)
        code = try_destinations(args, &writer);
    if (code == EXIT_DONE)
        code = request_layer(&r, args, &config);
    if (code == EXIT_DONE)
        code = request_call(&r, args);
    if (code == EXIT_DONE)
        code = attention_map_check(&r, args);
    if (code == EXIT_DONE && r.plan.path == MHA_PATH_FAST && !given(args, OPT_NO_PACK))
        code = pack(&r);
    if (code == EXIT_DONE)
        code = keep_stages(&r, args);
    if (code == EXIT_DONE)
        code = perform(&r, args, writer);
    mha_writer_destroy(writer);
    request_free(&r);
    return code;
}
