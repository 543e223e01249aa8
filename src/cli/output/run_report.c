/* The report of mha forward: equation, configuration, parameters, stages and output, as text or as JSON. */
#include <math.h>

#include "bench/work.h"
#include "cli/output/report.h"
#include "cli/setup/meaning.h"

/* ---------------------------------------------------------------- stages */

/* Stage number i in the order data flows; MHA_STAGE_COUNT past the last. */
static mha_stage in_order(int i)
{
    int stage = 0;
    while (stage < MHA_STAGE_COUNT && mha_stage_at((mha_stage)stage)->step != i)
        stage++;
    return (mha_stage)stage;
}

/* Whether a stage has a time of its own. The exact path times none; scores to heads are timed together, as heads. */
static bool stage_timed(const request *r, mha_stage stage)
{
    return r->plan.path != MHA_PATH_EXACT &&
           (stage <= MHA_STAGE_K_ROT || stage >= MHA_STAGE_Q_LATENT || stage == MHA_STAGE_HEADS ||
            stage == MHA_STAGE_OUTPUT);
}

static json_t *stage_record(const request *r, mha_stage s, const run_times *time)
{
    size_t shape[4];
    const int rank = mha_plan_stage(&r->plan, s, shape);
    const bool exact = r->plan.path == MHA_PATH_EXACT, timed = stage_timed(r, s),
               squashed = s == MHA_STAGE_WEIGHTS && r->call.semantics.softmax.normaliser == MHA_SIGMOID;
    return record_of("name", J(mha_stage_at(s)->name), "shape", json_shape(rank, shape), "ms",
                     timed ? json_milliseconds(time->stage_ms[s]) : json_null(), "~ms",
                     timed ? json_words("%.3f", time->stage_ms[s]) : J(exact ? NULL : "|"), "~meaning",
                     J(squashed ? "1 / (1 + exp(-masked - X)), X of --sigmoid" : mha_stage_at(s)->meaning), NULL);
}

static void print_stages(const request *r, const json_t *stages, const run_times *time)
{
    static const char *const columns[] = {"stage: name", "shape: shape", ">ms: ~ms", "what it is: ~meaning"};
    REPORT_TABLE(stages, columns);
    if (r->plan.path != MHA_PATH_EXACT)
        say("  |  is timed together with heads%s\n",
               r->plan.path == MHA_PATH_FAST ? "; this path streams over the keys and never holds these whole" : "");
    double flops = request_flops(r);
    say("\n  %s%.3g ms%s, %.3g GFLOP/s", bold(), time->ms, plain(), flops / time->ms * 1e-6);
    if (time->runs > 1)
        say(" (the best of %zu runs)", time->runs);
    say("\n");
}

/* ---------------------------------------------------------------- text */

static void print_equation(const request *r)
{
    const mha_plan *p = &r->plan;
    const mha_semantics *s = &r->call.semantics;
    say("%sMultiHead(x) = concat(head_1 ... head_%zu) W_O%s%s\n", bold(), p->h,
           mha_layer_config(r->layer)->bias_o ? " + b_O" : "", plain());
    say("      head_i = %s(%sQ_i K_i^T * %.6g%s", s->softmax.normaliser == MHA_SIGMOID ? "sigmoid" : "softmax",
           s->softmax.softcap > 0 ? "cap(" : "", p->scale, s->softmax.softcap > 0 ? ")" : "");
    if (s->softmax.sigmoid_bias != 0)
        say(" %c %.6g", s->softmax.sigmoid_bias < 0 ? '-' : '+', fabs(s->softmax.sigmoid_bias));
    say("%s%s%s)%s V_i\n\n", s->added.bias.rule != MHA_BIAS_RULE_NONE ? " + bias_i" : "",
           s->added.relative.rule != MHA_RELATIVE_NONE ? " + relative_i" : "",
           mha__plan_hides_keys(p) ? ", hidden keys left out" : "",
           s->softmax.dropout_keep.data ? " * dropout_keep / (1 - dropout_p)" : "");
}

static void print_weights(const request *r, const arguments *args)
{
    const mha_model_facts *f = &r->facts;
    if (r->random_weights)
        say("  weights  random, Xavier uniform, seed %zu\n", count_of(args, OPT_SEED));
    else
        say_harmless("  weights  %s%s%s (%s names)\n", args->option[OPT_WEIGHTS].text,
                     *r->loaded.layer.prefix ? ", layer " : "", r->loaded.layer.prefix, r->loaded.layer.scheme);
    if (!r->facts_from)
        return;
    say_harmless("  model    %s%s%s, as its %s says%s%s\n", *f->model_type ? f->model_type : "unknown",
                   r->random_weights ? ", layer " : "", r->random_weights ? r->loaded.layer.prefix : "",
                   r->facts_from, f->has_semantics && *f->caveat ? "; " : "", f->has_semantics ? f->caveat : "");
}

/* The settings of the call, the layer and the model. */
static meaning_of meaning_of_run(const request *r)
{
    const mha_config *c = mha_layer_config(r->layer);
    return (meaning_of){.semantics = &r->call.semantics,
                        .normed = c->q_norm != MHA_NORM_NONE || c->k_norm != MHA_NORM_NONE,
                        .latent = c->kv_rank > 0,
                        .scaling = scaling_text(&r->facts)};
}

static void print_configuration(const request *r, const arguments *args)
{
    const mha_config *c = mha_layer_config(r->layer);
    const mha_plan *p = &r->plan;
    const meaning_of of = meaning_of_run(r);
    char text[MEANING_TEXT];
    say("%sConfiguration%s\n", bold(), plain());
    say("  width    d_model %zu%s%zu heads x d_k %zu", c->d_model, c->n_heads * c->d_k == c->d_model ? " = " : ", ",
           c->n_heads, c->d_k);
    if (c->d_v != c->d_k)
        say(", d_v %zu", c->d_v);
    if (c->kv_heads != c->n_heads)
        say("; %zu key/value heads, each read by %zu query heads", c->kv_heads, c->n_heads / c->kv_heads);
    say("\n");
    print_weights(r, args);
    say("  input    %zu batch row%s, %zu queries, %zu keys%s, %s\n", p->B, p->B == 1 ? "" : "s", p->T_q, p->S,
           r->call.key.data ? " (cross-attention)" : " (self-attention)",
           r->random_inputs ? "random" : args->option[OPT_INPUT].text);
    if (r->cache)
        say("  cache    %s, %zu rows of keys and values, %zu bytes\n",
               mha_dtype_name(mha_cache_keys(r->cache).dtype), p->S, mha_cache_bytes(r->cache));
    meaning_text(&of, text);
    if (*text) /* what differs from plain attention */
        say("  meaning  %s\n", text);
    if (r->call.precision.inputs != MHA_F32)
        say("  rounds   to %s: inputs, projections, weights of values, output\n",
               mha_dtype_name(r->call.precision.inputs));
    say("  run on   path %s%s%s%s, %s%s%d thread%s\n\n", mha_path_name(p->path),
           *p->path_reason ? " (" : "", p->path_reason, *p->path_reason ? ")" : "",
           p->path == MHA_PATH_FAST ? mha_isa() : "", p->path == MHA_PATH_FAST ? " kernels, " : "", p->threads,
           p->threads == 1 ? "" : "s");
}

void run_report_begin(const request *r, const arguments *args)
{
    print_equation(r);
    print_configuration(r, args);
    say("%sParameters%s\n", bold(), plain());
    parameters_print(r->table, r->layer, false);
    fflush(stdout);
}

void run_report_end(const request *r, const json_t *root, const run_times *time, const summary *output, bool as_asked)
{
    say("\n%sStages%s\n", bold(), plain());
    print_stages(r, json_object_get(root, "stages"), time);
    const mha_view *view = &r->call.output;
    say("\n%sOutput %s%s\n  mean %s, root mean square %s, largest |x| %s, %s\n", bold(),
        shape_text(view->rank, view->shape), plain(), real_text(output->mean), real_text(output->rms),
        real_text(output->max_abs),
        output->non_finite == 0 ? "all finite"
        : as_asked              ? "NaN where a query sees no key, as asked"
                                : "NOT all finite");
}

/* ---------------------------------------------------------------- one report */

/* A field of a configuration. */
static json_t *field_json(const mha_config *c, const mha_config_field *f)
{
    const void *at = (const char *)c + f->at;
    char word[32];
    switch (f->kind) {
    case MHA_CONFIG_SIZE: return J(*(const size_t *)at);
    case MHA_CONFIG_SWITCH: return json_boolean(*(const bool *)at);
    case MHA_CONFIG_CHOICE: return J(option_choice(f->choices, *(const unsigned *)at, word) ? word : NULL);
    case MHA_CONFIG_TYPE: return J(mha_dtype_name(*(const mha_dtype *)at));
    case MHA_CONFIG_TYPES: break; /* types of matrices are in the table of parameters */
    }
    return NULL;
}

static json_t *config_record(const request *r, const arguments *args)
{
    const mha_config *c = mha_layer_config(r->layer);
    const mha_plan *p = &r->plan;
    const mha_model_facts *f = &r->facts;
    const meaning_of of = meaning_of_run(r);
    const mha_config_field *field;
    json_t *record = json_object();
    for (size_t i = 0; (field = mha_config_field_at(i)) != NULL; i++)
        if (field->kind != MHA_CONFIG_TYPES)
            json_object_set_new(record, field->word, field_json(c, field));
    const char *model = *f->model_type ? f->model_type : "unknown";
    return record_with(
        record, "batch", J(p->B), "seq", J(p->T_q), "kv_seq", J(p->T_k), "causal",
        json_boolean(r->call.semantics.visible.causal), "settings", meaning_json(&of), "scale", J(p->scale), "seed",
        J(count_of(args, OPT_SEED)), "cache_dtype",
        J(r->cache ? mha_dtype_name(mha_cache_keys(r->cache).dtype) : NULL), "precision",
        J(mha_dtype_name(r->call.precision.inputs)), "model", J(r->facts_from ? model : NULL), "caveat",
        J(r->facts_from && f->has_semantics && *f->caveat ? f->caveat : NULL), NULL);
}

json_t *run_report_of(const request *r, const arguments *args, const summary *output, const run_times *time)
{
    json_t *parameters = json_object(), *stages = json_array();
    mha_stage s;
    parameters_json_totals(parameters, r->table);
    for (int i = 0; (s = in_order(i)) != MHA_STAGE_COUNT; i++)
        if (mha__stage_happens(&r->plan, s))
            json_array_append_new(stages, stage_record(r, s, time));
    return record_of(
        "config", config_record(r, args), "random", J(r->random), "path", J(mha_path_name(r->plan.path)), "path_reason",
        J(*r->plan.path_reason ? r->plan.path_reason : NULL), "threads", J(r->plan.threads), "parameters", parameters,
        "stages", stages, "total_ms", json_milliseconds(time->ms), "gflops", J(request_flops(r) / time->ms * 1e-6),
        "output",
        record_of("shape", json_shape(r->call.output.rank, r->call.output.shape), "mean", J(output->mean), "rms",
                  J(output->rms), "max_abs", J(output->max_abs), "finite", json_boolean(output->non_finite == 0), NULL),
        NULL);
}
