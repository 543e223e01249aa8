/* A model's attention layers as shapes of mha bench, and what all of them take together. */
#include "cli/commands/bench/bench.h"

#include <math.h>

enum { TOKENS = 512 }; /* without --seq */

static const char ALL_LAYERS[] = "all layers";

static const char *asked_by(const arguments *args)
{
    return given(args, OPT_PRESET) ? "--preset" : "--config";
}

static bool same_shape(const bench_shape *a, const bench_shape *b)
{
    return a->T_q == b->T_q && a->d_model == b->d_model && a->h == b->h && a->h_kv == b->h_kv && a->d_k == b->d_k &&
           a->causal == b->causal && a->bias == b->bias;
}

/* Adds the layer to the layers of its shape. */
static int add(const arguments *args, bench_model *model, const char *name, const bench_shape *shape, size_t uses)
{
    size_t i = 0;
    while (i < model->count && !same_shape(&model->each[i].shape, shape))
        i++;
    if (i == BENCH_MODEL_SHAPES)
        return refuse(asked_by(args), "expected a model with at most %d different attention layers, found more",
                      (int)BENCH_MODEL_SHAPES);
    model->each[i].uses += uses;
    if (i < model->count)
        return EXIT_DONE;
    model->count++;
    model->each[i].shape = *shape;
    snprintf(model->each[i].name, sizeof model->each[i].name, "%.60s%s", name, bench_decodes(shape) ? ", decode" : "");
    model->each[i].shape.name = model->each[i].name;
    return EXIT_DONE;
}

static int add_layer(const arguments *args, bench_model *model, const mha_model_layer *layer)
{
    const mha_config *c = &layer->config;
    if (c->d_v != c->d_k || c->d_q != c->d_model || c->d_kin != c->d_model || c->d_vin != c->d_model ||
        c->d_out != c->d_model)
        return refuse(asked_by(args), "expected attention layers whose inputs, outputs and heads have one width each; "
                                      "found others in %s", layer->prefix);
    if (c->gate || c->kv_rank)
        return refuse(asked_by(args), "expected attention layers without a gate and without latents, which are not "
                                      "measured; found one with %s in %s",
                      c->gate ? "a gate" : "latents", layer->prefix);
    const size_t tokens = given(args, OPT_COST_SEQ) ? count_of(args, OPT_COST_SEQ) : TOKENS;
    bench_shape shape = {.B = count_of(args, OPT_BATCH), .T_q = tokens, .T_k = tokens, .d_model = c->d_model,
                         .h = c->n_heads, .h_kv = c->kv_heads, .d_k = c->d_k, .causal = layer->causal,
                         .bias = c->bias_q};
    int code = add(args, model, layer->prefix, &shape, layer->uses);
    if (code != EXIT_DONE || !layer->causal || tokens == 1) /* one token has no cache */
        return code;
    shape.T_q = 1;
    shape.causal = false; /* one new token sees all of its cache */
    return add(args, model, layer->prefix, &shape, layer->uses);
}

int bench_model_read(const arguments *args, bench_model *shapes)
{
    counted_model m = {.params = NULL};
    mha_model_layer layer;
    int code = counted_open(args, 0, &m);
    const char *not_run = code == EXIT_DONE ? model_not_run(m.model) : "";
    if (*not_run)
        code = refuse(asked_by(args), "%s; it is counted, not computed", not_run);
    for (size_t i = 0; code == EXIT_DONE && mha_model_layer_at(m.model, i, &layer); i++)
        code = add_layer(args, shapes, &layer);
    if (code == EXIT_DONE && shapes->count == 0)
        code = refuse(asked_by(args), "expected a model with attention layers, found none");
    counted_close(&m);
    return code;
}

/* The row of a shape's whole layer by the same path and threads as `like`; NULL when it was not measured. */
static const bench_row *row_of(const bench *b, size_t n_rows, const char *shape, const bench_row *like)
{
    for (size_t i = 0; i < n_rows; i++) {
        const bench_row *r = &b->rows[i];
        if (r->shape == shape && strcmp(r->part, like->part) == 0 && strcmp(r->path, like->path) == 0 &&
            r->threads == like->threads)
            return r;
    }
    return NULL;
}

/* Adds up the rows like `like`, over all shapes that decode, or all others. */
static void add_sum(bench *b, const bench_model *model, const bench_row *like, size_t n_rows, bool decodes)
{
    bench_row sum = *like;
    const double tokens = like->tokens_per_s * like->ms_min;
    double operations = 0;
    sum.shape = decodes ? "model, decode" : "model";
    sum.part = ALL_LAYERS;
    sum.ms_min = sum.ms_median = 0;
    for (size_t i = 0; i < model->count; i++) {
        const bench_shape *s = &model->each[i].shape;
        const bench_row *r = bench_decodes(s) == decodes ? row_of(b, n_rows, s->name, like) : NULL;
        if (!r)
            continue;
        const double uses = (double)model->each[i].uses;
        sum.ms_min += uses * r->ms_min;
        sum.ms_median += uses * r->ms_median;
        operations += uses * bench_flops(s, BENCH_LAYER);
    }
    sum.gflops = operations / sum.ms_min * 1e-6;
    sum.tokens_per_s = tokens / sum.ms_min;
    sum.flop_per_byte = sum.gbs = sum.same_gbs = sum.error_of_bound = sum.workspace_mib = sum.grew_mib = sum.rss_mib =
        NAN;
    b->rows = obtain_more(b->rows, b->n_rows, &b->room, sizeof *b->rows);
    b->rows[b->n_rows++] = sum;
}

void bench_model_add_rows(bench *b, const bench_model *model)
{
    const size_t n_rows = b->n_rows;
    bool done[2] = {false, false};
    for (size_t m = 0; m < model->count; m++) {
        const bench_shape *s = &model->each[m].shape;
        const bool decodes = bench_decodes(s);
        for (size_t i = 0; i < n_rows && !done[decodes]; i++)
            if (b->rows[i].shape == s->name && strcmp(b->rows[i].part, bench_part_name(BENCH_LAYER)) == 0) {
                const bench_row like = b->rows[i];
                add_sum(b, model, &like, n_rows, decodes);
            }
        done[decodes] = true;
    }
}
