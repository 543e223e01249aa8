/* mha params for whole models and checkpoint files: allocates, counts and compares them. */
#include "cli/commands/counting/counting.h"
#include "lab/settings.h"

/* ---------------------------------------------------------------- one report */

typedef struct report {
    mha_params *table, *model_table;
    mha_model *model; /* NULL for a file without a known configuration */
    const char *model_from;
    char config_error[200]; /* why a configuration beside the file is left out; "": it is not */
    mha_file *file; /* NULL without a file */
    mha_file_totals file_totals;
    finding_list findings;
    size_t wrong; /* number of missing, extra and misshapen tensors */
    model_costs costs; /* costs for --seq */
    json_t *caches;    /* for --seq or --log; NULL: none of these */
    mha_params *metadata_table;
    mha_model *metadata; /* of a GGUF file without another model; NULL: none */
    mha__regions regions; /* memory of the tables, which are only counted */
} report;

/* Opens the model of the config.json beside the file, if its architecture is known and the configuration is valid. One
 * that is no JSON is refused; another without a model is left out, which the report says. */
static int open_beside(report *r, const arguments *args, const char *config)
{
    mha_error error = {0};
    mha_model_facts facts;
    mha_model_spec spec = {.config = config,
                           .architecture = text_for(args, OPT_ARCHITECTURE),
                           .class_name = text_for(args, OPT_CLASS)};
    bool fits = spec.architecture || mha_model_read_config(config, &facts, &error) == MHA_OK;
    const bool described = spec.architecture || (fits && facts.has_semantics);
    if (described) {
        fits = mha_model_create(&spec, r->model_table, &r->model, &error) == MHA_OK;
        r->model_from = "the config.json beside it";
    }
    if (!fits && ((described && (spec.class_name || spec.architecture)) || error.status == MHA_FORMAT ||
                  exit_code_of(error.status) == EXIT_MACHINE))
        return refuse_error(config, &error);
    if (!fits)
        mha__text_print(r->config_error, sizeof r->config_error, "%s: %s", error.name, error.message);
    return EXIT_DONE;
}

/* Compares with no model, and says why. */
static void leave_model(report *r, const char *why)
{
    mha__text_print(r->config_error, sizeof r->config_error, "%s", why);
    mha_model_destroy(r->model);
    r->model = NULL;
}

/* Replaces the findings of the file alone by those of the comparison with the model. A configuration beside the file
 * that names none of its tensors is one of a single layer, or of another file: nothing is compared with it. */
static void compare_with_model(report *r, bool asked)
{
    finding_list *list = &r->findings;
    const size_t before = list->count;
    size_t extra = 0;
    r->wrong = mha_model_check_file(r->model, r->file, finding_keep, list);
    for (size_t i = before; i < list->count; i++)
        extra += list->items[i].kind == MHA_FINDING_EXTRA;
    if (asked || extra < mha_file_count(r->file)) {
        list->count -= before;
        if (before)
            memmove(list->items, list->items + before, list->count * sizeof *list->items);
        return;
    }
    list->count = before, r->wrong = 0;
    leave_model(r, text_of("%.80s has none of the names in the file", mha_model_title(r->model)));
}

/* Reads the file and the model for its comparison. `config`: the config.json next to the file, or NULL. */
static int read_file(report *r, const arguments *args, const char *config)
{
    mha_error error = {0};
    const mha_allocator allocator = mha__regions_allocator(&r->regions);
    TRY(done_or_refuse(mha_file_list_params(r->file, r->table, finding_keep, &r->findings, &r->file_totals, &error),
                       text_for(args, OPT_WEIGHTS), &error));
    TRY(done_or_refuse(mha_params_create(&allocator, &r->model_table, &error), "", &error));
    if (model_asked(args)) {
        TRY(model_open(args, 0, r->model_table, &r->model));
        r->model_from = given(args, OPT_PRESET) ? text_for(args, OPT_PRESET) : text_for(args, OPT_CONFIG);
    } else if (config)
        TRY(open_beside(r, args, config));
    const char *unknown = r->model ? unknown_name(r->file, r->model_table) : NULL;
    if (!unknown) {
        if (r->model)
            compare_with_model(r, model_asked(args));
        return EXIT_DONE;
    }
    const char *why = text_of("%.80s: expected a tensor that GGUF and %.40s both name, found an unknown one: nothing "
                              "is compared", unknown, mha_model_title(r->model));
    if (model_asked(args))
        return refuse(text_for(args, OPT_WEIGHTS), "%s", why);
    leave_model(r, why);
    return EXIT_DONE;
}

static int open_report(report *r, const arguments *args)
{
    static const option_code pointless[] = {OPT_HEADS, OPT_KV_HEADS, OPT_DTYPE, OPTION_COUNT};
    const mha_allocator allocator = mha__regions_allocator(&r->regions);
    if (mha_params_create(&allocator, &r->table, NULL) != MHA_OK)
        return refuse_error("", &(mha_error){.status = MHA_NO_MEMORY});
    if (given(args, OPT_WEIGHTS)) {
        const char *config = NULL;
        TRY(refuse_each(args, pointless, "nothing with --weights, which shows a file as it is"));
        TRY(refuse_shapes(args, "--weights"));
        TRY(weights_open(args, &r->file, &config));
        return read_file(r, args, config);
    }
    r->model_table = r->table;
    return model_open(args, given(args, OPT_HEADS) ? count_of(args, OPT_HEADS) : 0, r->table, &r->model);
}

/* ---------------------------------------------------------------- text */

/* The facts of the first attention layer whose rotation is scaled, else those of the last one. */
static const mha_model_facts *scaled_facts(const mha_model *model)
{
    size_t i = 0;
    while (i + 1 < mha_model_layer_count(model) &&
           mha_model_layer_facts(model, i)->rope_scaling.kind == MHA_ROPE_UNSCALED)
        i++;
    return mha_model_layer_facts(model, i);
}

static void print_heading(const report *r)
{
    if (r->file) {
        say("%s", bold());
        say_harmless("%s", mha_file_path(r->file));
        say("%s: %s, %zu tensors, %s of data\n\n", plain(), mha_file_format(r->file), r->file_totals.tensors,
            bytes_text(r->file_totals.bytes));
    }
    if (!r->model || r->file)
        return;
    const mha_model_facts *facts = mha_model_facts_of(r->model);
    const mha_config *c = &facts->config;
    model_print_name(r->model);
    say(": d_model %zu, %zu heads", c->d_model, c->n_heads);
    if (c->kv_heads != c->n_heads)
        say(", %zu key/value heads", c->kv_heads);
    say(" of %zu, %zu attention layers\n", c->d_k, mha_model_layer_count(r->model));
    const mha_model_facts *scaled = scaled_facts(r->model);
    if (scaling_text(scaled))
        say("rotary positions scaled: %s; attention factor %g\n", scaling_text(scaled),
            scaled->semantics.qkv.rope.attention_factor);
    doubts_say(r->model);
    say("\n");
}

/* A file without known attention layers and without a model may contain anything, such as activations. */
static const char *word_for_elements(const report *r)
{
    return r->model || r->file_totals.attention ? "parameters" : "elements";
}

/* Prints the sums of the rows shown: of one part of a model (--only), or of all rows. */
static void print_totals(const report *r, const char *only)
{
    static const struct {
        const char *type;
        size_t bits;
    } types[] = {{"F64", 64}, {"F32", 32}, {"F16 or BF16", 16}, {"8 bits", 8}, {"4 bits", 4}};
    mha_totals all = mha_params_totals(r->table, NULL), attention = mha_params_totals(r->table, "attention");
    mha_totals shown = only ? mha_params_totals(r->table, only) : all;
    say("\n  %stotal  %s %s%s%s%s in %s, %zu storages", bold(), count_text(shown.parameters), word_for_elements(r),
        only ? " of " : "", only ? only : "", plain(), bytes_text(shown.parameter_bytes), shown.storages);
    if (shown.aliases)
        say(", %zu of the %zu names an alias", shown.aliases, shown.tensors);
    if (only)
        say("\n  that is %.2f %% of all %s %s",
            all.parameters ? 100.0 * (double)shown.parameters / (double)all.parameters : 0, count_text(all.parameters),
            word_for_elements(r));
    else if (attention.parameters)
        say("\n  attention  %s (%.2f %%)", count_text(attention.parameters),
            100.0 * (double)attention.parameters / (double)all.parameters);
    say("\n");
    size_t experts = 0, chosen = 0;
    const size_t active = r->model && !r->file ? mha_model_active_parameters(r->model, &experts, &chosen) : 0;
    if (experts && !only)
        say("  active per token  %s (%zu of %zu experts)\n", count_text(active), chosen, experts);
    if (shown.trainable != shown.parameters)
        say("  frozen: %s of the parameters are not trained\n", count_text(shown.parameters - shown.trainable));
    if (shown.buffers)
        say("  buffers, not learned: %s elements in %s\n", count_text(shown.buffers), bytes_text(shown.buffer_bytes));
    if (shown.inert)
        say("  inert: %s elements cannot change the output (key biases add one number to all scores of a query; "
            "softmax does not see it)\n",
            count_text(shown.inert));
    if (!only && r->file && r->file_totals.unique != r->file_totals.parameters)
        say("  in the file %s, tied tensors once %s, without buffers %s\n", count_text(r->file_totals.elements),
            count_text(r->file_totals.unique), count_text(r->file_totals.parameters));
    if (!only && r->file && r->file_totals.bytes_here != r->file_totals.bytes)
        say("  quantised: %s elements take %s in the file, scales and zero points included, and %s here, as F32\n",
            count_text(r->file_totals.elements), bytes_text(r->file_totals.bytes),
            bytes_text(r->file_totals.bytes_here));
    say("\n  the %s in", word_for_elements(r));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        say("%s %s: %s", i ? "," : "", types[i].type, bytes_text(shown.parameters * types[i].bits / 8));
    say("\n");
}

enum { NAMED_LIKE = 8 };

/* A file without a configuration: whose tensor names it has. */
static void print_architectures(const report *r)
{
    const char *names[NAMED_LIKE];
    const size_t all = r->file && !r->model ? mha_file_architectures(r->file, names, NAMED_LIKE) : 0;
    for (size_t i = 0; i < all && i < NAMED_LIKE; i++)
        say("%s%s", i == 0 ? "\n  its tensors have the names of " : i + 1 < all ? ", " : " or ", names[i]);
    if (all)
        say("%s; --config FILE, a config.json of that model_type, compares every shape\n",
               all > NAMED_LIKE ? ", ..." : "");
}

/* The view that the options ask for; with the bytes of quantised tensors, if there are any. */
static census_view view_of(const report *r, const arguments *args)
{
    census_view view = census_view_of(args);
    view.file = r->file && r->file_totals.bytes_here != r->file_totals.bytes ? r->file : NULL;
    return view;
}

static void print_report(const report *r, const arguments *args)
{
    census_view view = view_of(r, args);
    view.whole |= tables_style() == TABLE_CSV;
    print_heading(r);
    census_print(r->table, &view);
    print_totals(r, view.only);
    if (r->model && r->file) {
        mha_totals expected = mha_params_totals(r->model_table, NULL);
        say("\n");
        say_harmless("  against %s (%s, %s): %s parameters expected, %zu tensors missing, extra or misshapen\n",
                     r->model_from, mha_model_title(r->model), mha_model_class(r->model),
                     count_text(expected.parameters), r->wrong);
    } else {
        if (*r->config_error)
            say_harmless("  not compared with the config.json beside it: %s\n", r->config_error);
        print_architectures(r);
        if (r->findings.count)
            say("\n");
    }
    findings_print(&r->findings);
    if (given(args, OPT_COST_SEQ) && r->model)
        model_costs_print(&r->costs);
    if (r->caches)
        caches_print(r->caches);
}

/* ---------------------------------------------------------------- JSON */

static json_t *scaling_record(const mha_model_facts *facts)
{
    const mha_rope_scaling *s = &facts->rope_scaling;
    if (s->kind == MHA_ROPE_UNSCALED)
        return json_null();
    return record_of("type", J(mha__rope_scaling_name(s->kind)), "factor", J(s->factor), "original_length",
                     J(s->original_length), "attention_factor", J(facts->semantics.qkv.rope.attention_factor), NULL);
}

static json_t *model_record(const report *r)
{
    const mha_assumption *assumed;
    const mha_model_facts *facts = mha_model_facts_of(r->model);
    const mha_config *c = &facts->config;
    json_t *list = json_object(), *unread = json_array();
    const size_t n = mha_model_assumptions(r->model, &assumed);
    for (size_t i = 0; i < n; i++)
        json_object_set_new(list, assumed[i].key, json_integer(assumed[i].value));
    const char *key;
    for (size_t i = 0; (key = mha_model_unread_key(r->model, i)); i++)
        json_array_append_new(unread, json_string(key));
    size_t experts, chosen;
    const size_t active = mha_model_active_parameters(r->model, &experts, &chosen);
    return record_of("architecture", J(mha_model_title(r->model)), "model_type", J(facts->model_type), "class",
                     J(mha_model_class(r->model)), "d_model", J(c->d_model), "heads", J(c->n_heads), "kv_heads",
                     J(c->kv_heads), "d_k", J(c->d_k), "attention_layers", J(mha_model_layer_count(r->model)),
                     "assumed", list, "unread", unread, "active_parameters", J(active), "experts", J(experts),
                     "experts_used", J(chosen), "rope_scaling", scaling_record(scaled_facts(r->model)), "not_run",
                     J(*model_not_run(r->model) ? model_not_run(r->model) : NULL), NULL);
}

/* The tensors that --only leaves; those of a file with their bytes. */
static json_t *tensors_json(mha_params *params, const census_view *view)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < mha_params_count(params); i++) {
        const mha_tensor_info info = mha_tensor_info_of(mha_params_at(params, i));
        size_t in_file = 0, here = 0;
        if (view->only && !census_shows(view, &info))
            continue;
        json_t *row = parameters_json_row(mha_params_at(params, i), NULL);
        if (view->file) {
            bytes_of_row(view->file, &info, &in_file, &here);
            record_with(row, "bytes_in_file", J(in_file), "bytes_here", J(here), NULL);
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static void add_file(json_t *root, const report *r)
{
    const char *names[NAMED_LIKE];
    const mha_file_totals *t = &r->file_totals;
    const size_t all = mha_file_architectures(r->file, names, NAMED_LIKE);
    json_t *architectures = json_array(), *findings = json_array();
    for (size_t i = 0; i < all && i < NAMED_LIKE; i++)
        json_array_append_new(architectures, json_string(names[i]));
    for (size_t i = 0; i < r->findings.count; i++)
        json_array_append_new(findings, finding_record(&r->findings.items[i]));
    json_t *file = record_of("path", J(mha_file_path(r->file)), "format", J(mha_file_format(r->file)), "tensors",
                             J(t->tensors), "elements", J(t->elements), "bytes", J(t->bytes), "bytes_here",
                             J(t->bytes_here), "parameters", J(t->parameters), "unique_parameters", J(t->unique),
                             "buffers", J(t->buffers), NULL);
    record_with(root, "file", file, "unique_parameters", J(t->unique), "findings", findings, "architectures",
                architectures, "config_error", J(*r->config_error ? r->config_error : NULL), NULL);
}

static void write_json(const report *r, const arguments *args)
{
    const census_view view = view_of(r, args);
    const size_t n = mha_params_totals(r->table, NULL).parameters;
    json_t *root = json_object();
    parameters_json_totals(root, r->table);
    if (r->model)
        record_with(root, "model", model_record(r), NULL);
    if (r->file)
        add_file(root, r);
    if (r->file && r->model)
        record_with(root, "differences", J(r->wrong), NULL);
    record_with(root, "weight_bytes",
                record_of("F64", J(n * 8), "F32", J(n * 4), "F16", J(n * 2), "BF16", J(n * 2), "I8", J(n), NULL), NULL);
    if (given(args, OPT_COST_SEQ) && r->model)
        model_costs_json(&r->costs, root);
    if (r->caches)
        record_with(root, "caches", json_incref(r->caches), NULL);
    if (view.by || view.depth)
        record_with(root, "groups", census_json(r->table, &view), NULL);
    json_print(record_with(root, "tensors", tensors_json(r->table, &view), NULL));
}

/* Prints each head's slices of the first attention layer, with weights in the library's own orientation. */
static int print_heads(const report *r)
{
    mha_model_layer described;
    mha_layer *layer;
    mha_error error;
    (void)mha_model_layer_at(r->model, 0, &described); /* never fails: a model without layers is refused */
    TRY(done_or_refuse(mha_layer_create(&described.config, NULL, NULL, &layer, &error), "", &error));
    say("\n%sOne attention layer, head by head%s (%s; y = x W)\n", bold(), plain(), described.prefix);
    parameters_print(mha_layer_params(layer), layer, true);
    mha_layer_destroy(layer);
    return EXIT_DONE;
}

/* The costs and caches that --seq and --log ask for. The metadata of a GGUF file have all that caches depend on. */
static int read_costs(report *r, const arguments *args, const char *expected)
{
    mha_error error = {0};
    const bool costs = given(args, OPT_COST_SEQ);
    if (!costs && !given(args, OPT_ENGINE_LOG))
        return EXIT_DONE;
    if (!r->model && strcmp(mha_file_format(r->file), "gguf") != 0)
        return refuse(costs ? "--seq" : "--log", "%s", expected);
    if (!r->model) {
        TRY(done_or_refuse(mha_params_create(NULL, &r->metadata_table, &error), "", &error));
        TRY(done_or_refuse(mha_model_of_metadata(r->file, r->metadata_table, &r->metadata, &error),
                           mha_file_path(r->file), &error));
    }
    if (r->model && costs)
        TRY(model_costs_get(args, r->model, &r->costs));
    return caches_get(args, r->model ? r->model : r->metadata, &r->caches);
}

static int show(report *r, const arguments *args)
{
    static const char expected[] = "expected a model of --preset or --config, found a file of unknown configuration";
    static const option_code pointless[] = {OPT_WEIGHTS,  OPT_GROUP,    OPT_DEPTH, OPT_ONLY,    OPT_SORT,
                                            OPT_ALL_ROWS, OPT_PER_HEAD, OPT_AREAS, OPT_ENGINE_LOG, OPTION_COUNT};
    if (given(args, OPT_RANKS))
        TRY(refuse_each(args, pointless, "nothing with --ranks, whose table has other rows"));
    TRY(refuse_alone(args, OPT_MACHINE, OPT_RANKS));
    if (!given(args, OPT_RANKS))
        TRY(refuse_alone(args, OPT_ENCODER_SEQ, OPT_COST_SEQ));
    if (!given(args, OPT_ENGINE_LOG))
        TRY(refuse_alone(args, OPT_LEDGER_DTYPE, OPT_COST_SEQ));
    TRY(open_report(r, args));
    if (given(args, OPT_RANKS))
        return ranks_show(args, r->model, r->table);
    if (given(args, OPT_PER_HEAD) && !r->model)
        return refuse("--per-head", "%s", expected);
    if (given(args, OPT_PER_HEAD) && mha_model_layer_count(r->model) == 0)
        return refuse("--per-head", "expected a model with attention layers, found none");
    TRY(read_costs(r, args, expected));
    TRY(census_draw(r->table, r->file ? mha_file_path(r->file) : mha_model_title(r->model), args));
    if (given(args, OPT_JSON))
        write_json(r, args);
    else if (!given(args, OPT_QUIET)) {
        print_report(r, args);
        if (given(args, OPT_PER_HEAD))
            TRY(print_heads(r));
    }
    return r->file && r->model && r->wrong ? EXIT_NO : EXIT_DONE;
}

int run_model_params(const arguments *args)
{
    return show(keep(obtain(1, sizeof(report))), args);
}
