/* Computes the costs of a forward pass of a whole model: operations by part, key/value cache, workspace. */
#include "cli/commands/counting/model_costs.h"

/* Plans one attention layer of the model on inputs that are allocated but never written. */
static int plan_layer(const arguments *args, const mha_model *model, mha_plan *plan)
{
    mha_params *params = NULL;
    mha_layer *layer = NULL;
    mha_tensor *input = NULL, *output = NULL;
    mha_model_layer described;
    mha_error error = {.status = MHA_NO_MEMORY};
    *plan = (mha_plan){0};
    if (!mha_model_layer_at(model, 0, &described))
        return EXIT_DONE;
    mha_tensor_spec spec = {
        .name = "input",
        .kind = MHA_TENSOR_BUFFER,
        .rank = 3,
        .shape = {count_of(args, OPT_BATCH), count_of(args, OPT_COST_SEQ), described.config.d_q}};
    mha_config config = described.config;
    config.dtype = MHA_F32; /* the type in which kernels read weights */
    mha_status status = mha_params_create(NULL, &params);
    if (status == MHA_OK)
        status = mha_layer_create(&config, params, NULL, &layer, &error);
    if (status == MHA_OK)
        status = mha_params_add(params, &spec, &input, &error);
    spec.name = "output";
    spec.shape[2] = config.d_out;
    if (status == MHA_OK)
        status = mha_params_add(params, &spec, &output, &error);
    if (status == MHA_OK) {
        mha_call call = {.query = mha_tensor_view(input), .semantics = {.causal = described.causal}};
        call.output = mha_tensor_view(output);
        status = mha_plan_call(layer, &call, plan, &error);
    }
    mha_layer_destroy(layer);
    mha_params_destroy(params);
    return status == MHA_OK ? EXIT_DONE : refuse_error("", &error);
}

int model_costs_get(const arguments *args, const mha_model *model, model_costs *costs)
{
    mha_error error = {0};
    if (mha_model_costs_of(model, count_of(args, OPT_BATCH), count_of(args, OPT_COST_SEQ), &costs->model, &error) !=
        MHA_OK)
        return refuse_field("", &error);
    return plan_layer(args, model, &costs->layer);
}

void model_costs_print(const arguments *args, const model_costs *costs)
{
    size_t batch = count_of(args, OPT_BATCH), seq = count_of(args, OPT_COST_SEQ);
    const mha_model_costs c = costs->model;
    const mha_plan plan = costs->layer;
    printf("\n  one forward pass, batch %zu, length %zu, in GFLOP (a multiply-add is two; look-ups, norms, softmax not "
           "counted)\n",
           batch, seq);
    double rest = (double)(c.projections + c.feed_forward + c.heads + c.patches);
    printf("    projections %.3f  scores and sums %.3f over all pairs, %.3f over visible ones  feed-forward %.3f  "
           "heads %.3f\n",
           (double)c.projections / 1e9, (double)c.scores_full / 1e9, (double)c.scores_causal / 1e9,
           (double)c.feed_forward / 1e9, (double)(c.heads + c.patches) / 1e9);
    printf("    in all %.3f over all pairs, %.3f over visible ones; query heads count, not key/value heads\n",
           (rest + (double)c.scores_full) / 1e9, (rest + (double)c.scores_causal) / 1e9);
    char f32[SHORT_TEXT], f16[SHORT_TEXT];
    if (c.cache_elements)
        printf("  key/value cache: %s in F32, %s in F16\n", bytes_text(f32, c.cache_elements * 4),
               bytes_text(f16, c.cache_elements * 2));
    if (c.latent_elements)
        printf("  the same as latents, absorbed: %s in F32, %s in F16, %.1f times less: one row [norm(c), k_r]\n"
               "  of each token is kept, not the keys and values of every head\n",
               bytes_text(f32, c.latent_elements * 4), bytes_text(f16, c.latent_elements * 2),
               (double)c.cache_elements / (double)c.latent_elements);
    if (plan.workspace_bytes)
        printf("  workspace of one attention layer: %s (path %s, %d threads)\n", bytes_text(f32, plan.workspace_bytes),
               mha_path_name(plan.path), plan.threads);
}

void model_costs_json(const arguments *args, const model_costs *costs, json_t *root)
{
    const mha_model_costs c = costs->model;
    json_object_set_new(
        root, "flops",
        json_pack("{so so so so so so so ss}", "batch", json_count(count_of(args, OPT_BATCH)), "seq",
                  json_count(count_of(args, OPT_COST_SEQ)), "projections", json_count(c.projections),
                  "scores_all_pairs", json_count(c.scores_full), "scores_visible_pairs", json_count(c.scores_causal),
                  "feed_forward", json_count(c.feed_forward), "heads", json_count(c.heads + c.patches), "rule",
                  "two per multiply-add; query heads; embeddings, norms, softmax and activations are not counted"));
    json_object_set_new(root, "kv_cache",
                        json_pack("{so so so}", "elements", json_count(c.cache_elements), "bytes_f32",
                                  json_count(c.cache_elements * 4), "bytes_f16", json_count(c.cache_elements * 2)));
    if (c.latent_elements)
        json_object_set_new(root, "kv_cache_latent",
                            json_pack("{so so so}", "elements", json_count(c.latent_elements), "bytes_f32",
                                      json_count(c.latent_elements * 4), "bytes_f16",
                                      json_count(c.latent_elements * 2)));
    json_object_set_new(root, "layer_workspace_bytes", json_count(costs->layer.workspace_bytes));
}
