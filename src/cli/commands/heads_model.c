/* mha heads for whole models: each head count allocated, every tensor's shape and the totals compared. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/setup/model.h"
#include "cli/output/summary.h"

typedef struct model_row {
    mha_model_facts facts;
    mha_totals totals, attention;
    size_t d_v;
    size_t differing;  /* tensors whose shape differs from the first row's, or that only one of them has */
    char example[240]; /* one of them, with both shapes: a matrix, if there is one */
    bool told;
    double output_max_abs;
} model_row;

/* ---------------------------------------------------------------- running the attention layers */

/* Random weights and inputs of variance 1, one forward; the largest |output| in *max_abs. */
static int run_layer(const arguments *args, const mha_model_layer *described, uint64_t seed, double *max_abs)
{
    const float root_3 = 1.7320508f;
    mha_params *params = NULL;
    mha_layer *layer = NULL;
    mha_tensor *input = NULL, *output = NULL;
    mha_error error = {.status = MHA_NO_MEMORY};
    int code = EXIT_DONE;
    mha_call call = {.semantics = {.causal = described->causal}};
    mha_tensor_spec spec = {.name = "input",
                            .kind = MHA_TENSOR_BUFFER,
                            .rank = 3,
                            .shape = {count_of(args, OPT_BATCH), count_of(args, OPT_SEQ), described->config.d_q}};
    mha_status status = mha_params_create(NULL, &params);
    if (status == MHA_OK)
        status = mha_layer_create(&described->config, params, NULL, &layer, &error);
    if (status == MHA_OK)
        status = mha_params_add(params, &spec, &input, &error);
    spec.name = "output";
    spec.shape[2] = described->config.d_out;
    if (status == MHA_OK)
        status = mha_params_add(params, &spec, &output, &error);
    if (status == MHA_OK) {
        call.query = mha_tensor_view(input);
        call.output = mha_tensor_view(output);
        mha_layer_init(layer, seed);
        mha_random_fill(&call.query, seed, 32, -root_3, root_3);
        status = mha_run(layer, &call, &error);
    }
    if (status == MHA_OK) {
        double largest = summarise(&call.output).max_abs;
        if (!(largest <= *max_abs)) /* NaN counts */
            *max_abs = largest;
    } else
        code = refuse_error("", &error);
    mha_layer_destroy(layer);
    mha_params_destroy(params);
    return code;
}

/* ---------------------------------------------------------------- one head count */

static void compare_shapes(mha_params *params, mha_params *first, model_row *row)
{
    char expected[SHAPE_TEXT], found[SHAPE_TEXT];
    for (size_t i = 0; i < mha_params_count(params); i++) {
        mha_tensor_info info = mha_tensor_info_of(mha_params_at(params, i));
        mha_tensor *other = mha_params_find(first, info.name);
        mha_tensor_info there = other ? mha_tensor_info_of(other) : (mha_tensor_info){0};
        if (other && there.rank == info.rank &&
            memcmp(there.shape, info.shape, (size_t)info.rank * sizeof *info.shape) == 0)
            continue;
        bool telling = strncmp(info.role, "W_", 2) == 0 && !row->told;
        row->told = row->told || telling;
        if (row->differing++ == 0 || telling)
            snprintf(row->example, sizeof row->example, "%.100s is %.60s, then %.60s", info.name,
                     shape_text(expected, there.rank, there.shape), shape_text(found, info.rank, info.shape));
    }
}

/* The first row's model stays, to compare with. */
typedef struct kept {
    mha_params *params;
    mha_model *model;
} kept;

static int try_heads(const arguments *args, size_t heads, kept *first, model_row *row)
{
    mha_params *params = NULL;
    mha_model *model = NULL;
    mha_model_layer layer;
    if (mha_params_create(NULL, &params) != MHA_OK)
        return refuse_error("", &(mha_error){.status = MHA_NO_MEMORY});
    int code = model_open(args, heads, params, &model);
    if (code == EXIT_DONE) {
        row->facts = mha_model_facts_of(model);
        row->totals = mha_params_totals(params, NULL);
        row->attention = mha_params_totals(params, "attention");
        row->d_v = mha_model_layer_at(model, 0, &layer) ? layer.config.d_v : 0;
        if (first->params)
            compare_shapes(params, first->params, row);
    }
    for (size_t i = 0; code == EXIT_DONE && given(args, OPT_RUN) && mha_model_layer_at(model, i, &layer); i++)
        code = run_layer(args, &layer, (uint64_t)count_of(args, OPT_SEED) + i, &row->output_max_abs);
    if (code == EXIT_DONE && !first->params) {
        *first = (kept){params, model};
        return code;
    }
    mha_model_destroy(model);
    mha_params_destroy(params);
    return code;
}

/* ---------------------------------------------------------------- what it shows */

static bool invariant(const model_row *rows, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (rows[i].totals.parameters != rows[0].totals.parameters)
            return false;
    return true;
}

static char *reason(const model_row *rows, size_t n)
{
    const mha_model_facts *a = &rows[0].facts, *b = &rows[n - 1].facts;
    size_t differing = 0;
    for (size_t i = 1; i < n; i++)
        differing += rows[i].differing;
    if (differing == 0)
        return text_of(
            "Every tensor has the same shape in every row: heads x d_k = %zu, so heads cut the same matrices into "
            "narrower slices.",
            a->n_heads * a->d_k);
    if (a->d_k == b->d_k)
        return text_of(
            "Totals differ because d_k = %zu is held fixed by the architecture, so the projections grow with the "
            "heads: %s.",
            a->d_k, rows[n - 1].differing ? rows[n - 1].example : rows[1].example);
    return text_of(
        "Totals differ because the %zu key/value heads are held fixed while d_k = d_model / heads shrinks: %s.",
        a->kv_heads, rows[n - 1].differing ? rows[n - 1].example : rows[1].example);
}

static void print_rows(const arguments *args, const model_row *rows, size_t n)
{
    static const char *const titles[] = {
        ">heads",           ">kv_heads", ">d_k", ">attention", ">parameters", ">storages", ">shapes that differ",
        ">largest |output|"};
    bool ran = given(args, OPT_RUN);
    table *t = table_create(TABLE_TEXT, sizeof titles / sizeof *titles - !ran, titles);
    for (size_t i = 0; i < n; i++) {
        table_format(t, "%zu", rows[i].facts.n_heads);
        table_format(t, "%zu", rows[i].facts.kv_heads);
        table_format(t, "%zu", rows[i].facts.d_k);
        table_count(t, rows[i].attention.parameters);
        table_count(t, rows[i].totals.parameters);
        table_format(t, "%zu", rows[i].totals.storages);
        table_format(t, "%zu", rows[i].differing);
        if (ran)
            table_format(t, "%.5f", rows[i].output_max_abs);
    }
    table_print(t);
}

static void write_json(const arguments *args, const model_row *rows, size_t n, const char *why)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            list,
            json_pack("{so so so so so so so so so}", "heads", json_count(rows[i].facts.n_heads), "kv_heads",
                      json_count(rows[i].facts.kv_heads), "d_k", json_count(rows[i].facts.d_k), "d_v",
                      json_count(rows[i].d_v), "total_parameters", json_count(rows[i].totals.parameters),
                      "attention_parameters", json_count(rows[i].attention.parameters), "storages",
                      json_count(rows[i].totals.storages), "differing_shapes", json_count(rows[i].differing),
                      "output_max_abs", given(args, OPT_RUN) ? json_number(rows[i].output_max_abs) : json_null()));
    json_print(json_pack("{sb so so}", "invariant", (int)invariant(rows, n), "rows", list, "reason", json_text(why)));
}

/* Those asked for, else the usual ones that the model's widths allow. */
static size_t choose(const arguments *args, size_t **heads)
{
    static const size_t usual[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    const option_value *list = &args->option[OPT_HEAD_LIST];
    enum { USUAL = sizeof usual / sizeof *usual };
    size_t n = 0;
    *heads = obtain(list->given ? list->n_numbers : USUAL, sizeof **heads);
    for (size_t i = 0; i < list->n_numbers; i++)
        (*heads)[n++] = (size_t)list->numbers[i];
    for (size_t i = 0; !list->given && i < USUAL; i++) {
        mha_params *params = NULL;
        mha_model *model = NULL;
        mha_model_spec spec = {.preset = args->option[OPT_PRESET].text,
                               .config = args->option[OPT_CONFIG].text,
                               .class_name = args->option[OPT_CLASS].text,
                               .n_heads = usual[i],
                               .kv_heads = count_of(args, OPT_KV_HEADS)};
        if (mha_params_create(NULL, &params) == MHA_OK && mha_model_create(&spec, params, &model, NULL) == MHA_OK)
            (*heads)[n++] = usual[i];
        mha_model_destroy(model);
        mha_params_destroy(params);
    }
    return n;
}

int run_model_heads(const arguments *args)
{
    size_t *heads, n = choose(args, &heads);
    model_row *rows = obtain(n ? n : 1, sizeof *rows);
    kept first = {0};
    int code = EXIT_DONE;
    if (n == 0) /* the model says what is wrong with one head */
        code = try_heads(args, 1, &first, rows);
    for (size_t i = 0; i < n && code == EXIT_DONE; i++)
        code = try_heads(args, heads[i], &first, &rows[i]);
    if (code == EXIT_DONE) {
        char *why = reason(rows, n), count[SHORT_TEXT];
        code = invariant(rows, n) ? EXIT_DONE : EXIT_NO;
        if (given(args, OPT_JSON))
            write_json(args, rows, n, why);
        else if (!given(args, OPT_QUIET)) {
            print_rows(args, rows, n);
            if (code == EXIT_DONE)
                printf("\n%sThe same total in every row: %s parameters.%s\n%s\n", bold(),
                       count_text(count, rows[0].totals.parameters), plain(), why);
            else
                printf("\n%s\n", why);
        }
        free(why);
    }
    mha_model_destroy(first.model);
    mha_params_destroy(first.params);
    free(rows);
    free(heads);
    return code;
}
