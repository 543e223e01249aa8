/* --merged-qk: compares W_i = W_i^Q (W_i^K)^T with the pair W_i^Q, W_i^K in size, rank and scores. */
#include "cli/commands/commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/output/parameters.h"
#include "cli/output/report.h"
#include "cli/setup/call.h"
#include "cli/setup/layer.h"
#include "models/claims/merged_qk.h"

/* Elements of the pair and of the merged matrices, including biases and the terms that replace them. */
typedef struct cost {
    mha_config config;
    size_t pair, merged;           /* elements of all heads */
    size_t head_pair, head_merged; /* elements of one head */
} cost;

static size_t elements_of(const mha_layer *layer, mha_weight weight)
{
    mha_tensor *tensor = mha_layer_weight(layer, weight);
    return tensor ? mha_tensor_info_of(tensor).elements : 0;
}

/* Allocates both and counts their elements. */
static int count_cost(const mha_config *config, cost *c)
{
    mha_params *pair = NULL, *one = NULL;
    mha_layer *layer = NULL;
    mha__merged *merged = NULL;
    mha_error error = {.status = MHA_NO_MEMORY};
    mha_status status = mha_params_create(NULL, &pair);
    if (status == MHA_OK)
        status = mha_params_create(NULL, &one);
    if (status == MHA_OK)
        status = mha_layer_create(config, pair, NULL, &layer, &error);
    if (status == MHA_OK)
        status = mha__merged_create(config, one, NULL, &merged, &error);
    if (status == MHA_OK) {
        static const mha_weight weights[] = {MHA_W_Q, MHA_B_Q, MHA_W_K, MHA_B_K};
        *c = (cost){.config = *mha_layer_config(layer), .merged = mha_params_totals(one, NULL).parameters};
        for (size_t i = 0; i < 4; i++) {
            mha_view head = mha_layer_head(layer, weights[i], 0);
            c->pair += elements_of(layer, weights[i]);
            c->head_pair += head.data ? mha_view_elements(&head) : 0;
        }
        c->head_merged = c->merged / c->config.n_heads;
    }
    mha__merged_destroy(merged);
    mha_layer_destroy(layer);
    mha_params_destroy(one);
    mha_params_destroy(pair);
    return status == MHA_OK ? EXIT_DONE : refuse_error("", &error);
}

enum { MOST_COSTS = 10 };

/* Counts the elements for other head counts that fit the same options. */
static int other_heads(const arguments *args, cost costs[MOST_COSTS], size_t *n)
{
    static const size_t usual[MOST_COSTS] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    int code = EXIT_DONE;
    for (size_t i = 0; i < MOST_COSTS && code == EXIT_DONE; i++) {
        mha_config config = request_config(args);
        config.n_heads = usual[i];
        mha_config fits = config;
        if (mha_config_resolve(&fits, NULL) == MHA_OK)
            code = count_cost(&config, &costs[(*n)++]);
    }
    return code;
}

/* The least of the tried head counts from which on the pair is smaller; 0 when there is none. */
static size_t pair_wins_from(const cost *costs, size_t n)
{
    size_t from = 0;
    for (size_t i = n; i-- > 0 && costs[i].pair < costs[i].merged;)
        from = costs[i].config.n_heads;
    return from;
}

/* ---------------------------------------------------------------- params */

static json_t *cost_record(const cost *c)
{
    return record_of("heads", J(c->config.n_heads), "d_k", J(c->config.d_k), "pair_elements", J(c->pair),
                     "merged_elements", J(c->merged), "~pair", J(c->head_pair), "~merged", J(c->head_merged),
                     "~smaller",
                     J(c->pair < c->merged   ? "the pair"
                       : c->pair > c->merged ? "merged"
                                             : "equal"),
                     NULL);
}

static json_t *merged_record(const cost *c, const cost *costs, size_t n, size_t rank)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, cost_record(&costs[i]));
    const size_t from = pair_wins_from(costs, n);
    return record_of("pair_elements", J(c->pair), "merged_elements", J(c->merged), "pair_elements_per_head",
                     J(c->head_pair), "merged_elements_per_head", J(c->head_merged), "rank", J(rank), "d_k",
                     J(c->config.d_k), "pair_smaller_from_heads", from ? J(from) : json_null(), "rows", list, NULL);
}

static void print_params(const request *r, const cost *c, const json_t *merged)
{
    static const char *const columns[] = {
        ">heads: heads: %d", ">d_k: d_k: %d", ">pair, one head: ~pair", ">merged, one head: ~merged",
        ">pair, all heads: pair_elements", ">merged, all heads: merged_elements", "smaller: ~smaller"};
    parameters_print(r->table, r->layer, false, TABLE_TEXT);
    say(
        "\n%sOne matrix in place of W_Q and W_K%s\n  W_i = W_i^Q (W_i^K)^T is (%zu, %zu) for each of %zu heads%s\n\n",
        bold(), plain(), c->config.d_q, c->config.d_kin, c->config.n_heads,
        c->config.bias_q || c->config.bias_k ? "; biases become vectors u_Q, u_K and a number c_QK" : "");
    REPORT_TABLE(TABLE_TEXT, json_object_get(merged, "rows"), columns);
    const json_t *from = json_object_get(merged, "pair_smaller_from_heads");
    if (!json_is_null(from))
        say("\n  from %" JSON_INTEGER_FORMAT " heads on the pair is smaller\n", json_integer_value(from));
    say("  rank of W_0: %" JSON_INTEGER_FORMAT " of at most d_k = %zu (singular values, LAPACK%s%s)\n",
           json_integer_value(json_object_get(merged, "rank")), c->config.d_k, r->random ? "; " : "",
           r->random ? r->random : "");
}

/* The rank of the first head's merged matrix with the layer's weights. */
static int first_rank(const mha_layer *layer, size_t *rank)
{
    mha_params *params = NULL;
    mha__merged *merged = NULL;
    mha_error error = {.status = MHA_NO_MEMORY};
    mha_config config = *mha_layer_config(layer);
    config.dtype = MHA_F64;
    mha_status status = mha_params_create(NULL, &params);
    if (status == MHA_OK)
        status = mha__merged_create(&config, params, NULL, &merged, &error);
    if (status == MHA_OK)
        status = mha__merged_fill(merged, layer, &error);
    if (status == MHA_OK)
        status = mha__merged_rank(merged, 0, rank, &error);
    mha__merged_destroy(merged);
    mha_params_destroy(params);
    return status == MHA_OK ? EXIT_DONE : refuse_error("", &error);
}

static int merged_params(request *r, const arguments *args)
{
    static const option_code pointless[] = {OPT_PRESET,   OPT_CONFIG, OPT_WEIGHTS,
                                            OPT_PER_HEAD, OPT_FORMAT, OPT_CSV, OPTION_COUNT};
    cost c, costs[MOST_COSTS];
    size_t rank = 0, n = 0;
    const mha_config config = request_config(args);
    TRY(refuse_each(args, pointless, "nothing beside --merged-qk, which reports one layer, as text or --json"));
    TRY(count_cost(&config, &c));
    TRY(request_layer(r, args, &config));
    TRY(first_rank(r->layer, &rank));
    TRY(other_heads(args, costs, &n));
    json_t *root = json_object(), *merged = merged_record(&c, costs, n, rank);
    parameters_json_totals(root, r->table);
    record_with(root, "random", J(r->random), "merged_qk", merged, "tensors", parameters_json_rows(r->table, NULL),
                NULL);
    if (report_is_text(args, root))
        print_params(r, &c, merged);
    json_decref(root);
    return EXIT_DONE;
}

int run_merged_params(const arguments *args)
{
    request r = {0};
    const int code = merged_params(&r, args);
    request_free(&r);
    return code;
}

/* ---------------------------------------------------------------- forward */

/* Both sides are sums of products in float64: a difference far above their rounding is a mistake. */
static const double tolerance = 1e-12;

typedef struct outcome {
    double difference, largest; /* of the scores */
    size_t rank;
    cost cost;
} outcome;

static void compare_scores(const mha_view *pair, const double *merged, outcome *o)
{
    const double *scores = pair->data;
    for (size_t i = 0; i < mha_view_elements(pair); i++) {
        double difference = fabs(scores[i] - merged[i]);
        if (!(difference <= o->difference)) /* also true for NaN */
            o->difference = difference;
        if (fabs(scores[i]) > o->largest)
            o->largest = fabs(scores[i]);
    }
}

static mha_status merge_scores(const request *r, mha_params *params, mha__merged **merged, const mha_view *scores,
                               size_t *rank, mha_error *error)
{
    mha_config config = *mha_layer_config(r->layer);
    config.dtype = MHA_F64;
    TRY(mha__merged_create(&config, params, NULL, merged, error));
    TRY(mha__merged_fill(*merged, r->layer, error));
    const mha_view *key = r->call.key.data ? &r->call.key : &r->call.query;
    TRY(mha__merged_scores(*merged, &r->call.query, key, r->plan.scale, scores, error));
    return mha__merged_rank(*merged, 0, rank, error);
}

/* Computes both scores with merged matrices in float64, so that only sums are rounded. */
static int score_both(request *r, outcome *o)
{
    mha_params *params = NULL;
    mha__merged *merged = NULL;
    mha_error error = {.status = MHA_NO_MEMORY};
    const mha_view *pair = request_stage(r, MHA_STAGE_SCORES);
    double milliseconds;
    TRY(request_run(r, &milliseconds));
    double *scores = obtain(mha_view_elements(pair), sizeof *scores);
    const mha_view view = mha_view_of(scores, MHA_F64, pair->rank, pair->shape);
    mha_status status = mha_params_create(NULL, &params);
    if (status == MHA_OK)
        status = merge_scores(r, params, &merged, &view, &o->rank, &error);
    if (status == MHA_OK)
        compare_scores(pair, scores, o);
    mha__merged_destroy(merged);
    mha_params_destroy(params);
    free(scores);
    return status == MHA_OK ? EXIT_DONE : refuse_error("", &error);
}

/* Makes the request ready for the exact path, with its scores kept. */
static int prepare(request *r, const arguments *args, outcome *o)
{
    static const option_code pointless[] = {OPT_OUTPUT,      OPT_TRACE,         OPT_SAVE_CASE, OPT_PATH,
                                            OPT_CACHE_DTYPE, OPT_RUN_PRECISION, OPTION_COUNT};
    const mha_config config = request_config(args);
    mha_error error = {0};
    TRY(refuse_each(args, pointless,
                    "nothing beside --merged-qk, which compares scores on the exact path and writes nothing"));
    TRY(request_layer(r, args, &config));
    TRY(count_cost(mha_layer_config(r->layer), &o->cost));
    TRY(request_call(r, args));
    if (r->call.semantics.qkv.rope.kind != MHA_ROPE_NONE)
        return refuse("--merged-qk", "expected nothing between W_Q and W_K, found a rotation, which differs from "
                                     "position to position");
    r->call.path = MHA_PATH_EXACT;
    return mha_plan_call(r->layer, &r->call, &r->plan, &error) == MHA_OK ? request_keep(r, MHA_STAGE_SCORES)
                                                                         : refuse_error("", &error);
}

static void print_scores(const request *r, const outcome *o, bool equal)
{
    const mha_config *c = &o->cost.config;
    char shape[SHAPE_TEXT], pair[SHORT_TEXT], merged[SHORT_TEXT];
    say_harmless("Scores %s, float64%s%s", shape_text(shape, 4, r->keep[MHA_STAGE_SCORES].view.shape),
                   r->random ? ", of " : "", r->random ? r->random : "");
    say("\n"
           "  as x_q W_Q (x_k W_K)^T, and as x_q W_i x_k^T with one (%zu, %zu) matrix per head%s\n"
           "  largest difference %.3g, largest score %.6g: %s%s%s\n"
           "  rank of W_0: %zu of at most d_k = %zu\n  elements: %s in the pair, %s merged\n",
           c->d_q, c->d_kin, c->bias_q || c->bias_k ? "; the biases' terms are carried as vectors" : "", o->difference,
           o->largest, bold(), equal ? "equal" : "they differ", plain(), o->rank, c->d_k,
           count_text(pair, o->cost.pair), count_text(merged, o->cost.merged));
}

int run_merged_forward(const arguments *args)
{
    request r = {0};
    outcome o = {0};
    int code = prepare(&r, args, &o);
    if (code == EXIT_DONE)
        code = score_both(&r, &o);
    if (code == EXIT_DONE) {
        const bool equal = o.difference <= tolerance * (o.largest > 1 ? o.largest : 1);
        json_t *root =
            record_of("equal", json_boolean(equal), "random", J(r.random), "scores",
                      json_shape(4, request_stage(&r, MHA_STAGE_SCORES)->shape), "max_abs_difference", J(o.difference),
                      "largest_score", J(o.largest), "rank", J(o.rank), "d_k", J(o.cost.config.d_k), "pair_elements",
                      J(o.cost.pair), "merged_elements", J(o.cost.merged), NULL);
        if (report_is_text(args, root))
            print_scores(&r, &o, equal);
        json_decref(root);
        code = equal ? EXIT_DONE : EXIT_NO;
    }
    request_free(&r);
    return code;
}
