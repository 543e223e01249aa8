/* mha heads: allocates, initialises and runs a layer or model for each head count, compares the totals, and says in a
 * sentence why they agree or differ. */
#include "cli/commands/counting/counting.h"

static int run_request(request *r, const arguments *args, size_t heads, heads_row *row)
{
    mha_config config = request_config(args);
    config.n_heads = heads;
    TRY(request_call(r, args, &config));
    TRY(request_keep(r, MHA_STAGE_OUTPUT));
    TRY(request_run(r, &row->milliseconds));
    row->config = *mha_layer_config(r->layer);
    row->totals = mha_params_totals(r->table, NULL);
    row->output_max_abs = summarise(&r->call.output).max_abs;
    return EXIT_DONE;
}

static int run_one(const arguments *args, size_t heads, heads_row *row)
{
    request r = {0};
    const int code = run_request(&r, args, heads, row);
    request_free(&r);
    return code;
}

/* ---------------------------------------------------------------- which head counts */

/* Whether a single layer can have this head count without further options. */
static bool layer_fits(const arguments *args, size_t heads)
{
    const size_t kv = count_of(args, OPT_KV_HEADS);
    return (count_of(args, OPT_D_K) || count_of(args, OPT_D_MODEL) % heads == 0) && (!kv || heads % kv == 0);
}

static int by_number(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Chooses the head counts: the given ones in their order, else the usual ones that fit, and the model's own (0:
 * none). A model without a fitting count is tried with its own, which tells what is wrong. */
static int choose(const arguments *args, size_t own, size_t **heads, size_t *n)
{
    static const size_t usual[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    enum { USUAL = sizeof usual / sizeof *usual, USUAL_OF_LAYERS = 7 };
    const option_value *list = &args->option[OPT_HEAD_LIST];
    const bool model = model_asked(args);
    const size_t candidates = list->given ? 0 : model ? USUAL : USUAL_OF_LAYERS;
    bool has_own = own == 0;
    *heads = keep(obtain(list->n_numbers + USUAL + 1, sizeof **heads));
    for (size_t i = 0; i < list->n_numbers; i++)
        (*heads)[(*n)++] = (size_t)list->numbers[i];
    for (size_t i = 0; i < candidates; i++) {
        size_t fits = layer_fits(args, usual[i]);
        if (model)
            TRY(model_heads_fit(args, usual[i], &fits));
        if (fits)
            (*heads)[(*n)++] = usual[i];
    }
    for (size_t i = 0; i < *n; i++)
        has_own |= (*heads)[i] == own;
    if (!has_own || (model && *n == 0))
        (*heads)[(*n)++] = own;
    if (!list->given)
        qsort(*heads, *n, sizeof **heads, by_number);
    return *n > 0 ? EXIT_DONE : refuse("--heads", "expected head counts that fit the other widths, found none to try");
}

/* ---------------------------------------------------------------- what it shows */

static size_t total(const heads_row *row) { return row->totals.parameters; }
static size_t columns_of_Q(const heads_row *row) { return row->config.n_heads * row->config.d_k; }
static size_t columns_of_K(const heads_row *row) { return row->config.kv_heads * row->config.d_k; }
static size_t columns_of_V(const heads_row *row) { return row->config.kv_heads * row->config.d_v; }
static size_t rows_of_O(const heads_row *row) { return row->config.n_heads * row->config.d_v; }

static bool all_equal(const heads_row *rows, size_t n, size_t (*value)(const heads_row *))
{
    for (size_t i = 1; i < n; i++)
        if (value(&rows[i]) != value(&rows[0]))
            return false;
    return true;
}

/* Says which widths changed, read from the rows, and which option changed them. */
static const char *reason(const arguments *args, const heads_row *rows, size_t n)
{
    const heads_row *first = &rows[0], *last = &rows[n - 1];
    const bool same = all_equal(rows, n, total);
    if (same && all_equal(rows, n, columns_of_Q) && all_equal(rows, n, columns_of_V) &&
        all_equal(rows, n, columns_of_K))
        return text_of(
            "heads x d_k = %zu and heads x d_v = %zu in every row. A head is a slice of the columns of W_Q, W_K and "
            "W_V and of the rows of W_O: more heads cut the same matrices into narrower slices and add nothing.",
            columns_of_Q(first), rows_of_O(first));
    if (same)
        return "The widths differ from row to row, and the totals come out the same here.";
    char text[400] = "";
    size_t at = 0;
    const struct {
        const char *what;
        size_t (*value)(const heads_row *);
    } widths[] = {{"columns of W_Q (heads x d_k)", columns_of_Q},
                  {"columns of W_K (kv_heads x d_k)", columns_of_K},
                  {"columns of W_V (kv_heads x d_v)", columns_of_V},
                  {"rows of W_O (heads x d_v)", rows_of_O}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (!all_equal(rows, n, widths[i].value))
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s go from %zu to %zu", at ? ", " : "",
                                   widths[i].what, widths[i].value(first), widths[i].value(last));
    const bool d_k = given(args, OPT_D_K), d_v = given(args, option_of_field("d_v"));
    const char *held = d_k && d_v                  ? "d_k and d_v are"
                       : d_k                       ? "d_k is"
                       : d_v                       ? "d_v is"
                       : given(args, OPT_KV_HEADS) ? "the number of key/value heads is"
                                                   : "a width is";
    return text_of("Totals differ because %s held fixed while the heads change: %s.", held, text);
}

/* A row: of a single layer, or of a model. */
static json_t *row_record(const heads_row *row, bool model, bool ran)
{
    const mha_config *c = &row->config;
    json_t *record = record_of("heads", J(c->n_heads), "kv_heads", J(c->kv_heads), "d_k", J(c->d_k), "d_v", J(c->d_v),
                               "total_parameters", J(row->totals.parameters), "storages", J(row->totals.storages),
                               "output_max_abs", ran ? J(row->output_max_abs) : json_null(), NULL);
    if (ran)
        record_with(record, "~largest", json_words("%.5f", row->output_max_abs), NULL);
    if (model)
        return record_with(record, "attention_parameters", J(row->attention.parameters), "differing_shapes",
                           J(row->differing), "own", json_boolean(row->own), "~own",
                           J(row->own ? "the model's own" : ""), NULL);
    return record_with(record, "ms", json_milliseconds(row->milliseconds), "~head",
                       json_shape(2, (size_t[]){c->d_q, c->d_k}), "~W_Q",
                       json_shape(2, (size_t[]){c->d_q, columns_of_Q(row)}), "~W_O",
                       json_shape(2, (size_t[]){rows_of_O(row), c->d_out}), NULL);
}

/* Shows the rows and a sentence that says why they agree or differ. Returns the exit code. */
static int show(const arguments *args, const heads_row *rows, size_t n)
{
    static const char *const of_layers[] = {
        ">heads: heads: %d", ">d_k: d_k: %d", ">d_v: d_v: %d", "one head of W_Q: ~head", "whole W_Q: ~W_Q",
        "whole W_O: ~W_O", ">storages: storages: %d", ">parameters: total_parameters", ">largest |output|: ~largest"};
    static const char *const of_models[] = {
        ">heads: heads: %d", ">kv_heads: kv_heads: %d", ">d_k: d_k: %d", ">attention: attention_parameters",
        ">parameters: total_parameters", ">storages: storages: %d", ">shapes that differ: differing_shapes: %d",
        ">largest |output|: ~largest", ": ~own"};
    const bool model = model_asked(args), ran = !model || given(args, OPT_RUN), same = all_equal(rows, n, total);
    const char *why = model ? model_heads_reason(rows, n) : reason(args, rows, n);
    const char *random = random_words(args, ran, ran);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, row_record(&rows[i], model, ran));
    json_t *root = keep_json(
        record_of("invariant", json_boolean(same), "random", J(random), "rows", list, "reason", J(why), NULL));
    if (report_is_text(args, root)) {
        if (random)
            say("run with %s\n", random);
        if (model)
            REPORT_TABLE(list, of_models);
        else
            REPORT_TABLE(list, of_layers);
        say("\n");
        if (same)
            say("%sThe same total in every row: %s parameters.%s\n", bold(), count_text(rows[0].totals.parameters),
                plain());
        write_prose("%s", why);
    }
    return same ? EXIT_DONE : EXIT_NO;
}

/* Runs or counts each head count, and shows the rows. `own`: that of the model, or 0. */
static int compare(const arguments *args, size_t own, const size_t *heads, size_t n)
{
    const bool model = model_asked(args);
    heads_row *rows = keep(obtain(n, sizeof *rows));
    int code = EXIT_DONE;
    progress_begin(args, "head counts");
    for (size_t i = 0; i < n && code == EXIT_DONE; i++) {
        progress_show(i, n);
        code = model ? model_heads_try(args, heads[i], i ? heads[0] : 0, &rows[i]) : run_one(args, heads[i], &rows[i]);
        rows[i].own = model && heads[i] == own;
    }
    progress_end();
    return code == EXIT_DONE ? show(args, rows, n) : code;
}

int run_heads(const arguments *args)
{
    static const option_code of_models[] = {OPT_ARCHITECTURE, OPT_CLASS, OPT_RUN, OPTION_COUNT};
    size_t *heads = NULL, n = 0, own = 0;
    if (presets_asked(args))
        return list_presets(args);
    const option_code setting = given_of(args, 1 << SECTION_MEANING);
    if (model_asked(args) && setting != option_count())
        return refuse_option(setting, "expected no --preset or --config with it, which says what layers compute");
    if (model_asked(args))
        TRY(model_heads_fit(args, 0, &own));
    else
        TRY(refuse_each(args, of_models, "--preset or --config with it, found none"));
    TRY(choose(args, own, &heads, &n));
    return compare(args, own, heads, n);
}
