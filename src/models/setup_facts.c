/* What the symbols of a configuration say of its attention layers: their shape, and the facts of their calls. */
#include <inttypes.h>
#include <math.h>

#include "models/config_json.h"
#include "models/layer/naming.h"

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
    facts->alibi = kind > 0 && facts->n_heads <= MHA_ALIBI_MAX_HEADS;
    if (!facts->alibi)
        return;
    mha_alibi_slopes(facts->n_heads, facts->alibi_slopes);
    for (size_t i = 0; i < facts->n_heads && kind == 2; i++)
        facts->alibi_slopes[i] /= sqrt((double)facts->d_k);
}

static mha_norm_rule norm_rule(const mha__values *v)
{
    const int64_t kind = mha__values_get(v, "norm_kind");
    return (mha_norm_rule){.kind = kind == 1   ? MHA_NORM_LAYER
                                   : kind == 2 ? MHA_NORM_L2
                                               : MHA_NORM_RMS,
                           .plus_one = mha__values_get(v, "norm_plus_one"),
                           .after_rope = mha__values_get(v, "norm_after_rope"),
                           .unweighted = mha__values_get(v, "norm_unweighted")};
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
    const mha_config config = mha__values_attention(v);
    const int64_t distance = mha__values_get(v, "relative_distance"), rule = mha__values_get(v, "relative_rule");
    if (rule == GRID && config.relative_k_rows && config.relative_column_rows)
        facts->relative = (mha_relative){.rule = MHA_RELATIVE_GRID,
                                         .height = (size_t)mha__values_get(v, "relative_height"),
                                         .width = (size_t)mha__values_get(v, "relative_width"),
                                         .k_scale = mha__values_get(v, "relative_unscaled") ? 1 : 0};
    if (rule == GRID)
        return;
    facts->relative_rows = config.relative_k_rows ? config.relative_k_rows : config.relative_q_rows;
    facts->made |= (uint64_t)(config.relative_k_rows > 0) << MHA_RELATIVE_K |
                   (uint64_t)(config.relative_q_rows > 0) << MHA_RELATIVE_Q;
    facts->relative_shared = mha__values_get(v, "relative_shared");
    if (!config.relative_by_head)
        return;
    facts->relative.rule = rule == LOG_BUCKETS ? MHA_RELATIVE_LOG_BUCKETS : MHA_RELATIVE_DISTANCE;
    facts->relative.max_distance = rule == LOG_BUCKETS && distance > 0 ? (size_t)distance : 0;
}

mha_model_facts mha__setup_facts(const mha__setup *setup, const mha__values *v)
{
    const mha__architecture *architecture = setup->architecture;
    const int64_t rope = mha__values_get(v, "rope");
    const bool local = mha__values_get(v, "local");
    mha_model_facts facts = {
        .d_model = (size_t)mha__values_get(v, "d_model"),
        .n_heads = (size_t)mha__values_get(v, "h"),
        .kv_heads = (size_t)mha__values_get(v, "h_kv"),
        .d_k = (size_t)mha__values_get(v, "d_k"),
        .has_semantics = true,
        .causal = mha__values_get(v, "causal"),
        .rope = rope == 1   ? MHA_ROPE_INTERLEAVED
                : rope == 2 ? MHA_ROPE_HALF_SPLIT
                            : MHA_ROPE_NONE,
        .rope_base = setup->rope.base[0] > 0 ? setup->rope.base[0] : setup->rope_base,
        .norm_eps = setup->norm_eps,
        .softcap = setup->softcap,
        .clip_qkv = setup->clip_qkv,
        .norm = norm_rule(v),
        .has_scale = setup->scale_square > 0 || setup->scale > 0,
        .scale = setup->scale > 0          ? setup->scale
                 : setup->scale_square > 0 ? 1 / sqrt(setup->scale_square)
                                           : 0,
        .window = (size_t)mha__values_get(v, "window"),
        .window_both = mha__values_get(v, "window_both"),
        .chunk = (size_t)mha__values_get(v, "chunk"),
        .fused_blocks = (size_t)mha__values_get(v, "fused_blocks"),
        .fused_qvk = mha__values_get(v, "fused_qvk"),
        .gate = gate_of(v),
        .fused_gate = gate_of(v) && mha__values_get(v, "fused_gate"),
        .weights = mha__stated_weights(mha__values_attention(v)),
    };
    facts.reordered = facts.rope == MHA_ROPE_HALF_SPLIT && mha__values_get(v, "permuted");
    facts.rope = facts.reordered ? MHA_ROPE_INTERLEAVED : facts.rope;
    facts.norm_folded = facts.norm.plus_one && mha__values_get(v, "norm_folded");
    facts.norm.plus_one = facts.norm.plus_one && !facts.norm_folded;
    const int64_t width = mha__values_get(v, "scale_width");
    if (!facts.has_scale && width > 0) {
        facts.has_scale = true;
        facts.scale = 1 / sqrt((double)width);
    }
    const int64_t every = mha__values_get(v, "query_scale_every");
    if (setup->query_scale > 0 && every > 0)
        facts.query_scale = (mha_query_scale){
            .growth = setup->query_scale, .every = every, .first = mha__values_get(v, "query_scale_first")};
    facts.query_scale.log_n = mha__values_get(v, "log_n_scale");
    const int64_t over = mha__values_get(v, "scale_over");
    const bool unscaled = mha__values_get(v, "unscaled");
    if (unscaled || over > 1) {
        facts.scale = unscaled ? 1 : facts.has_scale ? facts.scale : 1 / sqrt((double)facts.d_k);
        facts.scale /= over > 1 ? (double)over : 1;
        facts.has_scale = true;
    }
    const int64_t parts = mha__values_get(v, "scale_parts"); /* sums of as many products, each with the same scale */
    if (parts > 1) {
        facts.scale = (facts.has_scale ? facts.scale : 1 / sqrt((double)facts.d_k)) / sqrt((double)parts);
        facts.has_scale = true;
    }
    const mha_rope_scaling *scaling = &setup->rope.scaling[local];
    if (mha__values_get(v, "rank_kv") > 0 && scaling->kind != MHA_ROPE_UNSCALED && scaling->mscale_all_dim > 0 &&
        scaling->factor > 1) { /* latent attention: its scale grows with the context, (d_k)^-1/2 m^2 */
        const double m = 0.1 * scaling->mscale_all_dim * log(scaling->factor) + 1;
        facts.has_scale = true;
        facts.scale = m * m / sqrt((double)facts.d_k);
    }
    set_alibi(&facts, mha__values_get(v, "alibi"));
    facts.bias = mha__values_bias(v, &facts.bias_rows);
    const int64_t span = mha__values_get(v, "bias_span");
    facts.bias_span = span > 0 ? (size_t)span : 0;
    facts.made = (uint64_t)(mha__values_get(v, "logit_scale") != 0) << MHA_Q_NORM |
                 (uint64_t)(facts.bias_span > 0) << MHA_BIAS_TABLE;
    set_relative(v, &facts);
    facts.shift = (size_t)mha__values_get(v, "shift");
    facts.image_height = facts.shift ? (size_t)mha__values_get(v, "image_height") : 0;
    facts.image_width = facts.shift ? (size_t)mha__values_get(v, "image_width") : 0;
    const double local_base = setup->rope.base[1] > 0 ? setup->rope.base[1] : setup->rope_local_base;
    if (local && local_base > 0)
        facts.rope_base = local_base;
    if (facts.rope != MHA_ROPE_NONE) {
        facts.rope_dim = mha__values_rope_dim(v);
        facts.rope_last = mha__values_get(v, "rope_last");
        facts.rope_scaling = setup->rope.scaling[local];
        facts.rope_axes = setup->rope.axes;
        if (facts.rope_axes.axes && mha__values_get(v, "axes_interleaved"))
            facts.rope_axes.kind = MHA_ROPE_AXES_INTERLEAVED;
        (void)mha_model_stretch(&facts, 0, NULL); /* cannot fail: tried when the configuration was read */
    }
    mha__text_print(facts.caveat, sizeof facts.caveat, "%s",
                    v == &setup->values && layers_differ(architecture)
                        ? "layers may differ in window, rotation and bias, which is not said of a single layer here"
                        : architecture->caveat);
    mha__text_print(facts.not_run, sizeof facts.not_run, "%s", setup->not_run ? setup->not_run : "");
    if (*setup->rope.fault) {
        mha__text_print(facts.caveat, sizeof facts.caveat, "rope_scaling is not applied: %s", setup->rope.fault);
        mha__text_print(facts.not_run, sizeof facts.not_run, "rope_scaling: %s", setup->rope.fault);
    }
    if (facts.rope != MHA_ROPE_NONE && rotated(v) % 2 != 0)
        mha__text_print(facts.not_run, sizeof facts.not_run, "pairs of features are rotated, and %" PRId64 " of %zu is "
                        "no number of pairs", rotated(v), facts.d_k);
    if (facts.bias_rows > MHA_BIAS_MOST_ROWS)
        mha__text_print(facts.not_run, sizeof facts.not_run, "a table of biases of more than %d rows",
                        MHA_BIAS_MOST_ROWS);
    if (mha__values_get(v, "relative_rule") && facts.relative.rule == MHA_RELATIVE_NONE)
        mha__text_print(facts.not_run, sizeof facts.not_run, "tables of relative terms of none or more than %d rows",
                        MHA_BIAS_MOST_ROWS);
    if (span < 0)
        mha__text_print(facts.not_run, sizeof facts.not_run, "offsets in a window of one cell are divided by 0");
    if (mha__values_get(v, "alibi") > 0 && !facts.alibi)
        mha__text_print(facts.not_run, sizeof facts.not_run, "ALiBi of more than %d heads", MHA_ALIBI_MAX_HEADS);
    mha__text_print(facts.model_type, sizeof facts.model_type, "%s", architecture->name);
    return facts;
}

mha_semantics mha_model_semantics(const mha_model_facts *facts)
{
    mha_semantics s = {0};
    if (!facts->has_semantics)
        return s;
    s.visible.causal = facts->causal;
    s.softmax.has_scale = facts->has_scale;
    s.softmax.scale = facts->has_scale ? facts->scale : 0;
    s.softmax.softcap = facts->softcap;
    s.qkv.clip_qkv = facts->clip_qkv;
    s.qkv.norm_eps = facts->norm_eps;
    s.qkv.norm = facts->norm;
    s.qkv.query_scale = facts->query_scale;
    if (facts->rope != MHA_ROPE_NONE)
        s.qkv.rope = (mha_rope){.kind = facts->rope, .dim = facts->rope_dim, .base = facts->rope_base,
                            .last = facts->rope_last, .attention_factor = facts->rope_attention_factor};
    if (facts->rope != MHA_ROPE_NONE && facts->rope_scaling.kind != MHA_ROPE_UNSCALED)
        s.qkv.rope.frequencies = mha_view_of(mha__unconst(facts->rope_frequencies), MHA_F64, 1,
                                         (size_t[]){facts->rope_dim / 2});
    s.visible.chunk = (int64_t)facts->chunk;
    s.added.bias = facts->bias;
    s.added.relative = facts->relative;
    s.added.alibi_slopes = facts->alibi ? facts->alibi_slopes : NULL;
    if (facts->window > 0) {
        s.visible.window = true;
        s.visible.window_left = (int64_t)facts->window - 1;
        s.visible.window_right = facts->window_both ? s.visible.window_left : -1;
    }
    return s;
}
