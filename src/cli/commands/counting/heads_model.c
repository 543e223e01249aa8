/* mha heads for whole models: allocates each head count and compares the totals and every tensor's shape. */
#include "cli/commands/counting/counting.h"

/* ---------------------------------------------------------------- running the attention layers */

/* Runs one layer with random weights and inputs of variance 1; the largest |output| goes into *max_abs. */
static int run_layer(const arguments *args, const mha_model_layer *described, uint64_t seed, double *max_abs)
{
    const float root_3 = 1.7320508f;
    const size_t B = count_of(args, OPT_BATCH), T = count_of(args, OPT_SEQ);
    mha_layer *layer = NULL;
    mha__arena memory = {0};
    mha_error error = {.status = MHA_NO_MEMORY};
    mha_call call = {.semantics.visible.causal = described->causal};
    call.query = obtain_view(&memory, MHA_F32, 3, (size_t[]){B, T, described->config.d_q});
    call.output = obtain_view(&memory, MHA_F32, 3, (size_t[]){B, T, described->config.d_out});
    mha_status status = mha_layer_create(&described->config, NULL, NULL, &layer, &error);
    if (status == MHA_OK) {
        mha_layer_init(layer, seed);
        mha_random_fill(&call.query, seed, 32, -root_3, root_3);
        status = mha_run(layer, &call, &error);
    }
    const double largest = summarise(&call.output).max_abs;
    if (status == MHA_OK && !(largest <= *max_abs)) /* also true for NaN */
        *max_abs = largest;
    mha_layer_destroy(layer);
    mha__arena_free(&memory);
    return done_or_refuse(status, "", &error);
}

/* ---------------------------------------------------------------- one head count */

int model_heads_fit(const arguments *args, size_t heads, size_t *fits)
{
    counted_model m = {.params = NULL};
    mha_error error;
    const mha_model_spec spec = model_spec(args, heads);
    const mha_status status = counted_create(&spec, &m, &error);
    *fits = status == MHA_OK ? mha_model_facts_of(m.model)->config.n_heads : 0;
    counted_close(&m);
    return exit_code_of(status) == EXIT_MACHINE ? refuse_error("", &error) : EXIT_DONE;
}

static void compare_shapes(mha_params *params, mha_params *first, heads_row *row)
{
    for (size_t i = 0; i < mha_params_count(params); i++) {
        mha_tensor_info info = mha_tensor_info_of(mha_params_at(params, i));
        mha_tensor *other = mha_params_find(first, info.name);
        mha_tensor_info there = other ? mha_tensor_info_of(other) : (mha_tensor_info){0};
        if (other && there.rank == info.rank &&
            memcmp(there.shape, info.shape, (size_t)info.rank * sizeof *info.shape) == 0)
            continue;
        bool telling = strncmp(info.role, "W_", 2) == 0 && !row->of_matrix;
        row->of_matrix = row->of_matrix || telling;
        if (row->differing++ == 0 || telling)
            snprintf(row->example, sizeof row->example, "%.100s is %.60s, then %.60s", info.name,
                     shape_text(there.rank, there.shape), shape_text(info.rank, info.shape));
    }
}

int model_heads_try(const arguments *args, size_t heads, size_t first, heads_row *row)
{
    counted_model o = {.params = NULL}, before = {.params = NULL};
    mha_model_layer layer;
    int code = counted_open(args, heads, &o);
    if (code == EXIT_DONE && first)
        code = counted_open(args, first, &before);
    if (code == EXIT_DONE) {
        const mha_config *c = &mha_model_facts_of(o.model)->config;
        row->config = (mha_config){.n_heads = c->n_heads, .kv_heads = c->kv_heads, .d_k = c->d_k};
        if (mha_model_layer_at(o.model, 0, &layer))
            row->config.d_v = layer.config.d_v;
        row->totals = mha_params_totals(o.params, NULL);
        row->attention = mha_params_totals(o.params, "attention");
        if (first)
            compare_shapes(o.params, before.params, row);
    }
    if (given(args, OPT_RUN))
        for (size_t i = 0; code == EXIT_DONE && mha_model_layer_at(o.model, i, &layer); i++)
            code = run_layer(args, &layer, (uint64_t)count_of(args, OPT_SEED) + i, &row->output_max_abs);
    counted_close(&before);
    counted_close(&o);
    return code;
}

/* ---------------------------------------------------------------- what it shows */

const char *model_heads_reason(const heads_row *rows, size_t n)
{
    const mha_config *a = &rows[0].config, *b = &rows[n - 1].config;
    const char *example = rows[n - 1].differing ? rows[n - 1].example : rows[n > 1].example;
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
            a->d_k, example);
    return text_of(
        "Totals differ because the %zu key/value heads are held fixed while d_k = d_model / heads shrinks: %s.",
        a->kv_heads, example);
}
