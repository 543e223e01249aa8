/* Computes the costs of a forward pass of a whole model: operations by part, key/value cache, workspace. */
#include "cli/commands/counting/counting.h"

mha_model_pass model_pass(const arguments *args, size_t seq)
{
    return (mha_model_pass){.batch = count_of(args, OPT_BATCH),
                            .seq = given(args, OPT_COST_SEQ) ? count_of(args, OPT_COST_SEQ) : seq,
                            .encoder_seq = given(args, OPT_ENCODER_SEQ) ? count_of(args, OPT_ENCODER_SEQ) : 0};
}

/* Plans the first attention layer of the model on inputs that are allocated but never written. */
static int plan_layer(const mha_model *model, model_costs *costs)
{
    mha_layer *layer;
    mha_tensor *input = NULL, *output = NULL;
    mha_model_layer described;
    mha_error error;
    if (!mha_model_layer_at(model, 0, &described))
        return EXIT_DONE;
    const mha_model_lengths *of = &costs->kinds[0].lengths;
    mha_tensor_spec spec = {.name = "input",
                            .kind = MHA_TENSOR_BUFFER,
                            .rank = 3,
                            .shape = {costs->pass.batch * of->windows, of->queries, described.config.d_q}};
    mha_config config = described.config;
    config.dtype = MHA_F32; /* the type in which kernels read weights */
    TRY(done_or_refuse(mha_layer_create(&config, NULL, NULL, &layer, &error), "", &error));
    mha_params *params = mha_layer_params(layer);
    mha_status status = mha_params_add(params, &spec, &input, &error);
    spec.name = "output";
    spec.shape[2] = config.d_out;
    if (status == MHA_OK)
        status = mha_params_add(params, &spec, &output, &error);
    if (status == MHA_OK) {
        mha_call call = {.query = mha_tensor_view(input), .semantics = {.visible.causal = described.causal}};
        call.output = mha_tensor_view(output);
        status = mha_plan_call(layer, &call, &costs->layer, &error);
    }
    mha_layer_destroy(layer);
    return done_or_refuse(status, "", &error);
}

bool lengths_same(const mha_model_lengths *a, const mha_model_lengths *b)
{
    return a->queries == b->queries && a->keys == b->keys && a->windows == b->windows && a->cross == b->cross &&
           a->cached == b->cached && a->visible == b->visible;
}

/* Counts the layers of each kind. */
static mha_status find_kinds(const mha_model *model, model_costs *costs, mha_error *error)
{
    const size_t layers = mha_model_layer_count(model);
    size_t room = 0;
    mha_model_lengths of;
    for (size_t i = 0, k; i < layers; i++) {
        TRY(mha_model_layer_lengths(model, &costs->pass, i, &of, error));
        for (k = 0; k < costs->n_kinds && !lengths_same(&costs->kinds[k].lengths, &of);)
            k++;
        if (k == costs->n_kinds) {
            costs->kinds = obtain_more(costs->kinds, costs->n_kinds, &room, sizeof *costs->kinds);
            costs->kinds[costs->n_kinds++] = (struct layers_alike){.lengths = of};
        }
        costs->kinds[k].layers++;
    }
    return MHA_OK;
}

/* Whether a pass over another number of tokens costs the same: all lengths are the configuration's. */
static mha_status find_fixed(const mha_model *model, model_costs *costs, mha_error *error)
{
    mha_model_pass other = costs->pass;
    mha_model_costs same;
    other.seq = other.seq > 1 ? other.seq - 1 : 2;
    const mha_status status = mha_model_costs_of(model, &other, &same, error);
    const mha_model_costs *c = &costs->model;
    costs->fixed = c->projections == same.projections && c->feed_forward == same.feed_forward &&
                   c->heads == same.heads && c->patches == same.patches && c->linear == same.linear;
    return status;
}

int model_costs_get(const arguments *args, const mha_model *model, model_costs *costs)
{
    mha_error error = {0};
    costs->pass = model_pass(args, 0);
    TRY(done_or_refuse_field(mha_model_costs_of(model, &costs->pass, &costs->model, &error), "", &error));
    TRY(done_or_refuse_field(find_kinds(model, costs, &error), "", &error));
    TRY(done_or_refuse_field(find_fixed(model, costs, &error), "", &error));
    (void)mha_model_active_parameters(model, &costs->experts, &costs->chosen);
    return plan_layer(model, costs);
}

static void print_kinds(const model_costs *costs)
{
    for (size_t k = 0; k < costs->n_kinds; k++) {
        const mha_model_lengths *of = &costs->kinds[k].lengths;
        say("    %s attention layer%s%s of %s x %s tokens", count_text(costs->kinds[k].layers),
            costs->kinds[k].layers == 1 ? "" : "s", of->cross ? ", cross," : "", count_text(of->queries),
            count_text(of->keys));
        if (of->windows > 1)
            say(" in %s windows", count_text(of->windows));
        if (of->visible < of->pairs)
            say(", %.3g %% of the pairs visible", 100.0 * (double)of->visible / (double)of->pairs);
        if (of->cached)
            say(", %s rows cached", count_text(of->cached));
        say("\n");
    }
}

static void print_part(const char *name, uint64_t operations)
{
    if (operations)
        say("  %s %.3f", name, (double)operations / 1e9);
}

void model_costs_print(const model_costs *costs)
{
    const mha_model_costs c = costs->model;
    const mha_plan plan = costs->layer;
    const double rest = (double)c.projections + (double)c.feed_forward + (double)c.heads + (double)c.patches +
                        (double)c.relative + (double)c.linear;
    char length[64];
    snprintf(length, sizeof length, costs->fixed ? "lengths of the configuration (--seq changes none)" : "length %zu",
             costs->pass.seq);
    say("\n  one forward pass, batch %zu, %s, in GFLOP (a multiply-add is two; look-ups, norms, softmax not "
           "counted)\n",
           costs->pass.batch, length);
    say("    projections %.3f  scores and sums %.3f over all pairs, %.3f over visible ones  feed-forward %.3f",
           (double)c.projections / 1e9, (double)c.scores_full / 1e9, (double)c.scores_causal / 1e9,
           (double)c.feed_forward / 1e9);
    if (costs->experts)
        say(" (%zu of %zu experts)", costs->chosen, costs->experts);
    print_part("linear attention", c.linear);
    print_part("relative terms", c.relative);
    say("  %sthe model's head %.3f\n", c.patches ? "patches and " : "", ((double)c.heads + (double)c.patches) / 1e9);
    say("    in all %.3f over all pairs, %.3f over visible ones; query heads count, not key/value heads\n",
           (rest + (double)c.scores_full) / 1e9, (rest + (double)c.scores_causal) / 1e9);
    print_kinds(costs);
    if (*c.not_counted)
        say("    not counted: %s\n", c.not_counted);
    if (plan.workspace_bytes)
        say("  workspace of one attention layer: %s (path %s, %d threads)\n", bytes_text(plan.workspace_bytes),
            mha_path_name(plan.path), plan.threads);
}

void model_costs_json(const model_costs *costs, json_t *root)
{
    const mha_model_costs c = costs->model;
    json_t *kinds = json_array();
    for (size_t k = 0; k < costs->n_kinds; k++) {
        const mha_model_lengths *of = &costs->kinds[k].lengths;
        json_array_append_new(kinds, record_of("layers", J(costs->kinds[k].layers), "queries", J(of->queries), "keys",
                                               J(of->keys), "windows", J(of->windows), "cross",
                                               json_boolean(of->cross), "pairs", J(of->pairs), "visible_pairs",
                                               J(of->visible), "cached_rows", J(of->cached), NULL));
    }
    json_t *flops =
        record_of("batch", J(costs->pass.batch), "seq", J(costs->pass.seq), "seq_changes_nothing",
                  json_boolean(costs->fixed), "projections", J(c.projections), "scores_all_pairs", J(c.scores_full),
                  "scores_visible_pairs", J(c.scores_causal), "feed_forward", J(c.feed_forward), "linear_attention",
                  J(c.linear), "relative_terms", J(c.relative), "heads", J(c.heads + c.patches), "rule",
                  J("two per multiply-add; query heads; embeddings, norms, softmax and activations are not counted"),
                  "not_counted", J(*c.not_counted ? c.not_counted : NULL), "attention", kinds, NULL);
    record_with(root, "flops", flops, "layer_workspace_bytes", J(costs->layer.workspace_bytes), NULL);
}
