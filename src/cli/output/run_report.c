/* What mha forward says of a run: equation, configuration, parameters, stages and output, as text or as JSON. */
#include <math.h>
#include <string.h>

#include "attention/pattern/pattern.h"
#include "cli/output/parameters.h"
#include "cli/output/run_report.h"
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

static bool stage_happens(const request *r, mha_stage stage)
{
    const mha_semantics *s = &r->call.semantics;
    size_t shape[4];
    if (mha_plan_stage(&r->plan, stage, shape) == 0)
        return false;
    switch (stage) {
    case MHA_STAGE_Q_ROT:
    case MHA_STAGE_K_ROT:
        return s->qkv.rope.kind != MHA_ROPE_NONE || s->qkv.norm.unweighted || mha__scales_queries(s) ||
               mha_layer_config(r->layer)->q_norm != MHA_NORM_NONE;
    case MHA_STAGE_CAPPED: return s->softmax.softcap > 0;
    case MHA_STAGE_MASKED: return mha__hides_keys(s);
    default: return true;
    }
}

/* Whether a stage has a time of its own. The exact path times none; scores to heads are timed together, as heads. */
static bool stage_timed(const request *r, mha_stage stage)
{
    return r->plan.path != MHA_PATH_EXACT &&
           (stage <= MHA_STAGE_K_ROT || stage >= MHA_STAGE_Q_LATENT || stage == MHA_STAGE_HEADS ||
            stage == MHA_STAGE_OUTPUT);
}

static void print_stages(const request *r, const run_times *time)
{
    static const char *const titles[] = {"stage", "shape", ">ms", "what it is"};
    table *t = table_create(TABLE_TEXT, 4, titles);
    mha_stage s;
    for (int i = 0; (s = in_order(i)) != MHA_STAGE_COUNT; i++) {
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
        const bool squashed = s == MHA_STAGE_WEIGHTS && r->call.semantics.softmax.normaliser == MHA_SIGMOID;
        table_cell(t, squashed ? "1 / (1 + exp(-masked - X)), X of --sigmoid" : mha_stage_at(s)->meaning);
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
    printf("      head_i = %s(%sQ_i K_i^T * %.6g%s", s->softmax.normaliser == MHA_SIGMOID ? "sigmoid" : "softmax",
           s->softmax.softcap > 0 ? "cap(" : "", p->scale, s->softmax.softcap > 0 ? ")" : "");
    if (s->softmax.sigmoid_bias != 0)
        printf(" %c %.6g", s->softmax.sigmoid_bias < 0 ? '-' : '+', fabs(s->softmax.sigmoid_bias));
    printf("%s%s%s) V_i\n\n", s->added.bias.rule != MHA_BIAS_RULE_NONE ? " + bias_i" : "",
           s->added.relative.rule != MHA_RELATIVE_NONE ? " + relative_i" : "",
           mha__hides_keys(s) ? ", hidden keys left out" : "");
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

/* The settings of the call, and what layer and model add; `scaling` has room for words. */
static meaning_of meaning_of_run(const request *r, char scaling[SHORT_TEXT])
{
    const mha_config *c = mha_layer_config(r->layer);
    return (meaning_of){.semantics = &r->call.semantics,
                        .normed = c->q_norm != MHA_NORM_NONE || c->k_norm != MHA_NORM_NONE,
                        .latent = c->kv_rank > 0,
                        .scaling = scaling_text(&r->facts, scaling)};
}

/* Prints the settings that differ from plain attention. */
static void print_meaning(const request *r)
{
    char text[MEANING_TEXT], scaling[SHORT_TEXT];
    const meaning_of of = meaning_of_run(r, scaling);
    meaning_text(&of, text);
    if (*text)
        printf("  meaning  %s\n", text);
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
    print_meaning(r);
    if (r->call.precision.inputs != MHA_F32)
        printf("  rounds   to %s: inputs, projections, weights of values, output\n",
               mha_dtype_name(r->call.precision.inputs));
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

void run_report_begin(const request *r, const arguments *args)
{
    print_equation(r);
    print_configuration(r, args);
    printf("%sParameters%s\n", bold(), plain());
    parameters_print(r->table, r->layer, false, TABLE_TEXT);
    fflush(stdout);
}

void run_report_end(const request *r, const run_times *time, const summary *output, bool as_asked)
{
    printf("\n%sStages%s\n", bold(), plain());
    print_stages(r, time);
    print_output(r, output, as_asked);
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
                 {"bias_o", c->bias_o}, {"causal", r->call.semantics.visible.causal}};
    char scaling[SHORT_TEXT];
    const meaning_of of = meaning_of_run(r, scaling);
    json_t *config = json_object();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(config, counts[i].name, json_count(counts[i].value));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        json_object_set_new(config, flags[i].name, json_boolean(flags[i].value));
    json_object_set_new(config, "settings", meaning_json(&of));
    json_object_set_new(config, "scale", json_number(p->scale));
    json_object_set_new(config, "seed", json_count(count_of(args, OPT_SEED)));
    json_object_set_new(config, "dtype", json_text(mha_dtype_name(c->dtype)));
    json_object_set_new(config, "cache_dtype",
                        json_text(r->cache ? mha_dtype_name(mha_cache_keys(r->cache).dtype) : NULL));
    json_object_set_new(config, "precision", json_text(mha_dtype_name(r->call.precision.inputs)));
    json_object_set_new(config, "model",
                        !r->facts_from ? json_null()
                                       : json_text(*r->facts.model_type ? r->facts.model_type : "unknown"));
    json_object_set_new(
        config, "caveat",
        json_text(r->facts_from && r->facts.has_semantics && *r->facts.caveat ? r->facts.caveat : NULL));
    return config;
}

void run_report_json(const request *r, const arguments *args, const summary *output, const run_times *time)
{
    json_t *stages = json_array(), *parameters = json_object();
    mha_stage stage;
    for (int i = 0; (stage = in_order(i)) != MHA_STAGE_COUNT; i++) {
        size_t shape[4];
        const int rank = mha_plan_stage(&r->plan, stage, shape);
        if (stage_happens(r, stage))
            json_array_append_new(
                stages,
                json_pack("{so so so}", "name", json_text(mha_stage_name(stage)), "shape", json_shape(rank, shape),
                          "ms", stage_timed(r, stage) ? json_milliseconds(time->stage_ms[stage]) : json_null()));
    }
    parameters_json_totals(parameters, r->table);
    json_print(json_pack(
        "{so so so so si so so so so so}", "config", json_config(r, args), "random", json_text(r->random), "path",
        json_text(mha_path_name(r->plan.path)), "path_reason",
        json_text(*r->plan.path_reason ? r->plan.path_reason : NULL), "threads", r->plan.threads, "parameters",
        parameters, "stages", stages, "total_ms", json_milliseconds(time->ms), "gflops",
        json_number(request_flops(r) / time->ms * 1e-6), "output",
        json_pack("{so so so so sb}", "shape", json_shape(r->call.output.rank, r->call.output.shape), "mean",
                  json_number(output->mean), "rms", json_number(output->rms), "max_abs", json_number(output->max_abs),
                  "finite", output->non_finite == 0)));
}
