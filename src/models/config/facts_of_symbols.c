/* The facts of attention layers out of the symbols of a configuration: their shape, the semantics of their calls. */
#include <inttypes.h>
#include <math.h>

#include "lab/lab.h"
#include "mha/positions.h"
#include "mha/setting.h"
#include "models/config/config.h"
#include "models/layer/tensor_names.h"

/* The number of features that are to be rotated, which a configuration can get wrong: it may be odd. */
static int64_t rotated(const mha__values *v)
{
    const int64_t dim = mha__values_get(v, "rope_dim");
    return dim > 0 ? dim : mha__values_get(v, "d_k");
}

size_t mha__values_rope_dim(const mha__values *v)
{
    return (size_t)rotated(v) / 2 * 2;
}

static mha_gate gate_of(const mha__values *v)
{
    const int64_t gate = mha__values_get(v, "gate");
    return gate >= MHA_GATE_FEATURE && gate <= MHA_GATE_HEAD ? (mha_gate)gate : MHA_GATE_NONE;
}

/* The rules of relative terms, as descriptions number them. */
enum { DISTANCE = 1, LOG_BUCKETS, GRID };

/* Rows of the table of relative terms with a weight, by the cells of a grid or as the symbol relative_rows says; 0:
 * there is none, or one of more rows than a table can have. */
static size_t relative_rows(const mha__values *v, mha_weight table)
{
    const int64_t rule = mha__values_get(v, "relative_rule"), most = MHA_BIAS_MOST_ROWS;
    int64_t rows = mha__values_get(v, "relative_rows");
    bool there = rule > 0 && mha__values_get(v, table == MHA_RELATIVE_K ? "relative_k" : "relative_q");
    if (rule == GRID) {
        rows = mha__values_get(v, table == MHA_RELATIVE_K ? "relative_height" : "relative_width");
        there = table != MHA_RELATIVE_Q;
        rows = rows > 0 && rows <= most ? 2 * rows - 1 : 0;
    } else if (table == MHA_RELATIVE_COLUMNS) {
        there = false;
    }
    return there && rows > 0 && rows <= most ? (size_t)rows : 0;
}

mha_config mha__values_attention(const mha__values *v)
{
    int64_t norm = mha__values_get(v, "qk_norm");
    const bool latent = mha__values_get(v, "rank_kv") > 0; /* whose biases are those of the latents */
    mha_norm qk_norm = norm >= MHA_NORM_HEAD && norm <= MHA_NORM_EACH_HEAD ? (mha_norm)norm : MHA_NORM_NONE;
    return (mha_config){
        .d_model = (size_t)mha__values_get(v, "d_model"),
        .n_heads = (size_t)mha__values_get(v, "h"),
        .kv_heads = (size_t)mha__values_get(v, "h_kv"),
        .d_k = (size_t)mha__values_get(v, "d_k"),
        .d_v = (size_t)mha__values_get(v, "d_v"), /* 0, where unknown, means d_k */
        .q_rank = latent ? (size_t)mha__values_get(v, "rank_q") : 0,
        .kv_rank = (size_t)mha__values_get(v, "rank_kv"),
        .d_rope = latent ? (size_t)mha__values_get(v, "d_rope") : 0,
        .bias_latent = latent && mha__values_get(v, "bias_latent"),
        .bias_q = !latent && mha__values_get(v, "bias_q"),
        .bias_k = mha__values_get(v, "bias_k"),
        .bias_v = mha__values_get(v, "bias_v"),
        .bias_o = mha__values_get(v, "bias_o"),
        .q_norm = mha__values_get(v, "logit_scale") ? MHA_NORM_EACH_HEAD : qk_norm,
        .k_norm = qk_norm,
        .norm_bias = qk_norm && mha__values_get(v, "norm_bias"),
        .relative_k_rows = relative_rows(v, MHA_RELATIVE_K),
        .relative_column_rows = relative_rows(v, MHA_RELATIVE_COLUMNS),
        .relative_q_rows = relative_rows(v, MHA_RELATIVE_Q),
        .relative_by_head = mha__values_get(v, "relative_rule") != GRID &&
                            relative_rows(v, MHA_RELATIVE_K) + relative_rows(v, MHA_RELATIVE_Q) > 0,
        .gate = gate_of(v),
        .bias_gate = gate_of(v) && mha__values_get(v, "bias_gate"),
        .sinks = mha__values_get(v, "sinks"),
    };
}

/* Whether some attention layers have a window, a rotation or a bias of their own. */
static bool layers_differ(const mha__architecture *architecture)
{
    bool differ = false;
    for (const mha__arch_attention *row = architecture->attention; row->prefix; row++)
        for (const mha__arch_own *own = row->own; own->symbol; own++)
            differ |= mha__text_among("window chunk rope rope_dim local norm_unweighted query_scale_every bias_rule "
                                      "bias_one_way shift relative_height",
                                      own->symbol);
    return differ;
}

/* kind 1: slopes for scores that have been scaled; 2: they are scaled as the scores are. */
static void set_alibi(mha_model_facts *facts, int64_t kind)
{
    const size_t heads = facts->config.n_heads;
    facts->alibi = kind > 0 && heads <= MHA_ALIBI_MAX_HEADS;
    if (!facts->alibi)
        return;
    mha_alibi_slopes(heads, facts->alibi_slopes);
    for (size_t i = 0; i < heads && kind == 2; i++)
        facts->alibi_slopes[i] /= sqrt((double)facts->config.d_k);
}

/* Symbols that are settings of the same name; a choice without a word is left as it is. */
static void set_plain(const mha__values *v, mha_semantics *s)
{
    static const char *const names[] = {"causal",    "chunk",         "log_n_scale",     "norm_after_rope",
                                        "norm_kind", "norm_plus_one", "norm_unweighted", "rope",
                                        "rope_last"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const mha_setting *setting = mha_setting_find(names[i]);
        const int64_t value = mha__values_get(v, names[i]);
        (void)mha_setting_put_number(setting, setting->kind == MHA_SETTING_SWITCH ? value != 0 : (double)value, s,
                                     NULL);
    }
}

mha_bias mha__values_bias(const mha__values *v, size_t *rows)
{
    const int64_t most = MHA_BIAS_MOST_ROWS, height = mha__values_get(v, "bias_height"),
                  width = mha__values_get(v, "bias_width");
    const bool class_token = mha__values_get(v, "bias_class");
    const size_t cells = height > 0 && height <= most && width > 0 && width <= most
                             ? (size_t)((2 * height - 1) * (2 * width - 1))
                             : (size_t)most + 1; /* which no table has */
    switch (mha__values_get(v, "bias_rule")) {
    case 1:
        *rows = (size_t)mha__values_get(v, "bias_buckets");
        return (mha_bias){.rule = MHA_BIAS_RULE_BUCKETS, .one_way = mha__values_get(v, "bias_one_way"),
                          .max_distance = (size_t)mha__values_get(v, "bias_distance")};
    case 2:
        *rows = cells + (class_token ? 3 : 0);
        return (mha_bias){.rule = MHA_BIAS_RULE_GRID, .class_token = class_token, .height = (size_t)height,
                          .width = (size_t)width};
    default: *rows = 0; return (mha_bias){0};
    }
}

/* Relative terms, and the tables that are made for them. */
static void set_relative(const mha__values *v, mha_model_facts *facts)
{
    const mha_config *c = &facts->config;
    mha_relative *relative = &facts->semantics.added.relative;
    const int64_t distance = mha__values_get(v, "relative_distance"), rule = mha__values_get(v, "relative_rule");
    if (rule == GRID && c->relative_k_rows && c->relative_column_rows)
        *relative = (mha_relative){.rule = MHA_RELATIVE_GRID,
                                   .height = (size_t)mha__values_get(v, "relative_height"),
                                   .width = (size_t)mha__values_get(v, "relative_width"),
                                   .k_scale = mha__values_get(v, "relative_unscaled") ? 1 : 0};
    if (rule == GRID)
        return;
    facts->made |= (uint64_t)(c->relative_k_rows > 0) << MHA_RELATIVE_K |
                   (uint64_t)(c->relative_q_rows > 0) << MHA_RELATIVE_Q;
    facts->relative_shared = mha__values_get(v, "relative_shared");
    if (!c->relative_by_head)
        return;
    relative->rule = rule == LOG_BUCKETS ? MHA_RELATIVE_LOG_BUCKETS : MHA_RELATIVE_DISTANCE;
    relative->max_distance = rule == LOG_BUCKETS && distance > 0 ? (size_t)distance : 0;
}

/* The factor on scores: as stated, or by symbols that say what else they are divided by. */
static void set_scale(const mha__setup *setup, const mha__values *v, const mha_rope_scaling *scaling, mha_semantics *s)
{
    const double usual = 1 / sqrt((double)mha__values_get(v, "d_k"));
    const int64_t width = mha__values_get(v, "scale_width"), over = mha__values_get(v, "scale_over"),
                  parts = mha__values_get(v, "scale_parts"); /* sums of as many products, each with the same scale */
    const bool unscaled = mha__values_get(v, "unscaled"), stated = s->softmax.has_scale;
    double scale = stated                    ? s->softmax.scale
                   : setup->scale_square > 0 ? 1 / sqrt(setup->scale_square)
                   : width > 0               ? 1 / sqrt((double)width)
                                             : usual;
    s->softmax.has_scale = stated || setup->scale_square > 0 || width > 0 || unscaled || over > 1 || parts > 1;
    scale = unscaled ? 1 : scale;
    scale /= over > 1 ? (double)over : 1;
    scale /= parts > 1 ? sqrt((double)parts) : 1;
    if (mha__values_get(v, "rank_kv") > 0 && scaling->kind != MHA_ROPE_UNSCALED && scaling->mscale_all_dim > 0 &&
        scaling->factor > 1) { /* latent attention: its scale grows with the context, (d_k)^-1/2 m^2 */
        const double m = 0.1 * scaling->mscale_all_dim * log(scaling->factor) + 1;
        s->softmax.has_scale = true;
        scale = m * m / sqrt((double)mha__values_get(v, "d_k"));
    }
    s->softmax.scale = s->softmax.has_scale ? scale : 0;
}

enum { FAULT_SIZE = sizeof((mha__rope_config *)0)->fault };

/* `fault` is why frequencies are not scaled as the configuration asks; "": they are. */
static void set_rotation(const mha__setup *setup, const mha__values *v, mha_model_facts *facts, char fault[FAULT_SIZE])
{
    mha_rope *rope = &facts->semantics.qkv.rope;
    const bool local = mha__values_get(v, "local");
    const double local_base = setup->rope.base[1] > 0 ? setup->rope.base[1] : setup->rope_local_base;
    if (rope->kind == MHA_ROPE_NONE) {
        *rope = (mha_rope){.kind = MHA_ROPE_NONE};
        return;
    }
    facts->reordered = rope->kind == MHA_ROPE_HALF_SPLIT && mha__values_get(v, "permuted");
    rope->kind = facts->reordered ? MHA_ROPE_INTERLEAVED : rope->kind;
    const int64_t own_base = mha__values_get(v, "rope_theta");
    rope->base = own_base > 0                 ? (double)own_base
                 : local && local_base > 0    ? local_base
                 : setup->rope.base[0] > 0    ? setup->rope.base[0]
                                              : rope->base;
    rope->dim = mha__values_rope_dim(v);
    facts->rope_scaling = setup->rope.scaling[local];
    facts->rope_axes = setup->rope.axes;
    if (facts->rope_axes.axes && mha__values_get(v, "axes_interleaved"))
        facts->rope_axes.kind = MHA_ROPE_AXES_INTERLEAVED;
    mha_error error;
    if (mha_model_extend_context(facts, 0, &error) == MHA_OK)
        return;
    /* Read for the heads of the whole model, it may not fit those of this layer. */
    facts->rope_scaling = (mha_rope_scaling){0};
    mha__text_print(fault, FAULT_SIZE, "%s: %s", error.name, error.message);
}

/* Caveats, and why attention is not computed; a later reason goes before an earlier one. */
static void set_remarks(const mha__setup *setup, const mha__values *v, const char *rope_fault,
                        mha_model_facts *facts)
{
    const mha__architecture *architecture = setup->architecture;
    char *not_run = facts->not_run;
    const size_t size = sizeof facts->not_run;
    mha__text_print(facts->caveat, sizeof facts->caveat, "%s",
                    v == &setup->values && layers_differ(architecture)
                        ? "layers may differ in window, rotation and bias, which is not said of a single layer here"
                        : architecture->caveat);
    mha__text_print(not_run, size, "%s", setup->not_run ? setup->not_run : "");
    if (*rope_fault) {
        mha__text_print(facts->caveat, sizeof facts->caveat, "rope_scaling is not applied: %s", rope_fault);
        mha__text_print(not_run, size, "rope_scaling: %s", rope_fault);
    }
    const int64_t dim = rotated(v), d_k = mha__values_get(v, "d_k");
    if (facts->semantics.qkv.rope.kind != MHA_ROPE_NONE && (dim % 2 != 0 || dim > d_k))
        mha__text_print(not_run, size, "rope_dim: expected an even number of features up to d_k = %" PRId64
                        ", found %" PRId64, d_k, dim);
    if (facts->config.bias_rows > MHA_BIAS_MOST_ROWS)
        mha__text_print(not_run, size, "a table of biases of more than %d rows", MHA_BIAS_MOST_ROWS);
    if (mha__values_get(v, "relative_rule") && facts->semantics.added.relative.rule == MHA_RELATIVE_NONE)
        mha__text_print(not_run, size, "tables of relative terms of none or more than %d rows", MHA_BIAS_MOST_ROWS);
    if (mha__values_get(v, "bias_span") < 0)
        mha__text_print(not_run, size, "offsets in a window of one cell are divided by 0");
    if (mha__values_get(v, "alibi") > 0 && !facts->alibi)
        mha__text_print(not_run, size, "ALiBi of more than %d heads", MHA_ALIBI_MAX_HEADS);
    mha__text_print(facts->model_type, sizeof facts->model_type, "%s", architecture->name);
}

/* The weights of a layer of this configuration, 1 << MHA_W_Q and so on; 0: there is no such layer. */
static uint64_t stated_weights(const mha_config *stated)
{
    mha_config config = *stated;
    size_t shape[2];
    uint64_t weights = 0;
    if (mha_config_resolve(&config, NULL) != MHA_OK)
        return 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        if (mha_config_weight_shape(&config, (mha_weight)w, shape, NULL) > 0)
            weights |= UINT64_C(1) << w;
    return weights;
}

void mha__setup_facts(const mha__setup *setup, const mha__values *v, mha_model_facts *facts)
{
    mha_semantics *s = &facts->semantics;
    const int64_t window = mha__values_get(v, "window"), span = mha__values_get(v, "bias_span"),
                  every = mha__values_get(v, "query_scale_every");
    *facts = (mha_model_facts){.has_semantics = true,
                               .config = mha__values_attention(v),
                               .semantics = setup->numbers,
                               .fused_blocks = (size_t)mha__values_get(v, "fused_blocks"),
                               .fused_qvk = mha__values_get(v, "fused_qvk"),
                               .fused_gate = gate_of(v) && mha__values_get(v, "fused_gate"),
                               .shift = (size_t)mha__values_get(v, "shift"),
                               .bias_span = span > 0 ? (size_t)span : 0};
    facts->weights = stated_weights(&facts->config);
    set_plain(v, s);
    facts->norm_folded = s->qkv.norm.plus_one && mha__values_get(v, "norm_folded");
    s->qkv.norm.plus_one = s->qkv.norm.plus_one && !facts->norm_folded;
    if (window > 0) {
        s->visible.has_window_left = true;
        s->visible.has_window_right = mha__values_get(v, "window_both");
        s->visible.window_left = window - 1;
        s->visible.window_right = s->visible.has_window_right ? window - 1 : 0;
    }
    mha_query_scale *scale = &s->qkv.query_scale;
    scale->growth = every > 0 ? scale->growth : 0;
    if (scale->growth > 0)
        scale->every = every, scale->first = mha__values_get(v, "query_scale_first");
    s->added.bias = mha__values_bias(v, &facts->config.bias_rows);
    facts->made = (uint64_t)(mha__values_get(v, "logit_scale") != 0) << MHA_Q_NORM |
                  (uint64_t)(facts->bias_span > 0) << MHA_BIAS_TABLE;
    if (facts->shift) {
        facts->image_height = (size_t)mha__values_get(v, "image_height");
        facts->image_width = (size_t)mha__values_get(v, "image_width");
    }
    set_scale(setup, v, &setup->rope.scaling[mha__values_get(v, "local") != 0], s);
    set_alibi(facts, mha__values_get(v, "alibi"));
    set_relative(v, facts);
    char rope_fault[FAULT_SIZE];
    mha__text_print(rope_fault, FAULT_SIZE, "%s", setup->rope.fault);
    set_rotation(setup, v, facts, rope_fault);
    set_remarks(setup, v, rope_fault, facts);
}

mha_semantics mha_model_semantics(const mha_model_facts *facts)
{
    mha_semantics s = facts->semantics;
    if (facts->rope_scaling.kind != MHA_ROPE_UNSCALED)
        s.qkv.rope.frequencies = mha_view_of(mha__unconst(facts->rope_frequencies), MHA_F64, 1,
                                         (size_t[]){s.qkv.rope.dim / 2});
    s.added.alibi_slopes = facts->alibi ? facts->alibi_slopes : NULL;
    return s;
}
