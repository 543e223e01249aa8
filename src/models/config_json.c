/* Evaluates a config.json against the description of its architecture. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "models/config_json.h"
#include "models/config/config_values.h"
#include "models/layer/naming.h"
#include "models/json_text.h"

/* ---------------------------------------------------------------- the class */

/* Finds a class by its whole name, by the part of it after "For" ("MaskedLM"), or by a part that it adds ("pooler"). */
static const mha__arch_class *find_class(const mha__architecture *architecture, const char *name)
{
    const char *family = architecture->class_families, *rest = name;
    for (size_t own = family ? strcspn(family, " ") : 0; family && *family;) {
        const size_t length = strcspn(family, " ");
        if (strncmp(name, family, length) == 0)
            rest = name + length;
        for (const mha__arch_class *c = architecture->classes; c->name && rest != name; c++)
            if (strlen(c->name) >= own && strcmp(c->name + own, rest) == 0)
                return c;
        family += length + (family[length] == ' ');
    }
    for (const mha__arch_class *c = architecture->classes; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    for (const mha__arch_class *c = architecture->classes; c->name; c++) {
        const char *kind = strstr(c->name, "For");
        if (strcasecmp(c->name, name) == 0 || (kind && strcasecmp(kind + 3, name) == 0))
            return c;
    }
    for (const mha__arch_class *c = architecture->classes; c->name; c++)
        if (mha__text_among(c->parts, name))
            return c;
    return NULL;
}

static mha_status choose_class(const json_t *config, const char *wanted, mha__setup *setup, mha_error *error)
{
    const mha__architecture *architecture = setup->architecture;
    const char *said_by = wanted ? "class" : "architectures";
    if (!wanted) {
        const json_t *listed = json_array_get(json_object_get(config, "architectures"), 0);
        wanted = json_is_string(listed) ? json_string_value(listed) : NULL;
    }
    setup->model_class = wanted ? find_class(architecture, wanted) : architecture->classes;
    if (setup->model_class)
        return MHA_OK;
    char known[260] = "";
    size_t used = 0;
    for (const mha__arch_class *c = architecture->classes; c->name && used < sizeof known; c++) /* NOLINT */
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", c->name);
    return mha__fail(error, MHA_INVALID, said_by, "expected one of %s, found '%.*s'", known, MHA_CUT_ARGS(60, wanted));
}

/* Makes each of some parts a symbol: 1 if this class has the part, else 0. */
static bool set_parts(mha__setup *setup, const char *parts)
{
    for (const char *at = parts; *at;) {
        char part[MHA_SYMBOL];
        size_t n = strcspn(at, " ");
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        const bool has_part = mha__text_among(setup->model_class->parts, part);
        if (n >= sizeof part || (n > 0 && !mha__values_set(&setup->values, part, has_part)))
            return false;
        at += n + (at[n] == ' ');
    }
    return true;
}

static bool set_all_parts(mha__setup *setup)
{
    for (const mha__arch_class *c = setup->architecture->classes; c->name; c++)
        if (!set_parts(setup, c->parts))
            return false;
    return set_parts(setup, setup->architecture->parts);
}

/* ---------------------------------------------------------------- the whole */

/* Reads the description of the file at `path`, or of the model type that the config names. */
static mha_status find_architecture(const json_t *config, const char *path, mha__setup *setup, mha_error *error)
{
    const json_t *type = json_object_get(config, "model_type");
    const json_t *class_name = json_array_get(json_object_get(config, "architectures"), 0);
    const char *name = json_is_string(type) ? json_string_value(type) : "";
    if (path || mha__architecture_known(name))
        return mha__architecture_read(name, path, &setup->architecture, error);
    char found[160], near[80] = "";
    const char *nearest = mha__architecture_nearest(name);
    if (*name)
        snprintf(found, sizeof found, "'%.*s'", MHA_CUT_ARGS(40, name));
    else if (json_is_string(class_name))
        snprintf(found, sizeof found, "none (architectures says '%.*s')",
                 MHA_CUT_ARGS(40, json_string_value(class_name)));
    else
        snprintf(found, sizeof found, "none");
    if (nearest)
        snprintf(near, sizeof near, ", the nearest is %.48s", nearest);
    return mha__fail(error, MHA_UNSUPPORTED, "model_type",
                     "expected a model type that is described (mha help architectures lists them), found %s%s; "
                     "--architecture FILE describes another, and mha params --weights FILE counts any checkpoint",
                     found, near);
}

/* Refuses sizes that do not go together; a width that the heads do not divide with the message of a layer. */
static mha_status check_values(const json_t *config, const mha__setup *setup, mha_error *error)
{
    const mha__values *v = &setup->values;
    const mha__arch_key *d_k = setup->architecture->keys;
    char name[64], room[MHA_ARCH_ROW];
    for (; strcmp(d_k->symbol, "d_k") != 0; d_k++) /* NOLINT: every architecture has a key d_k */
        ;
    bool tied_to_heads = !d_k->keys || !mha__config_first(config, d_k->keys, name);
    if (tied_to_heads && strcmp(d_k->fallback, "d_model/h") == 0) {
        mha_config attempt = {.d_model = (size_t)mha__values_get(v, "d_model"),
                              .n_heads = (size_t)mha__values_get(v, "h")};
        mha_status status = mha_config_resolve(&attempt, error);
        if (status != MHA_OK)
            return status;
    }
    if (mha__values_get(v, "d_k") < 1)
        return mha__fail(error, MHA_INVALID, mha__setup_key(setup, "d_k", room), "expected at least 1, found %" PRId64,
                         mha__values_get(v, "d_k"));
    const char *row = mha__setup_key(setup, "h_kv", room), *kv_heads = row == room ? row : "kv_heads";
    if (mha__values_get(v, "h") % mha__values_get(v, "h_kv") != 0)
        return mha__fail(error, MHA_INVALID, kv_heads, "expected a divisor of %" PRId64 " heads, found %" PRId64,
                         mha__values_get(v, "h"), mha__values_get(v, "h_kv"));
    return MHA_OK;
}

/* The reason of the first refusal whose formula holds, or NULL. */
static mha_status find_refusal(const mha__setup *setup, const mha__arch_refusal *list, const char **why,
                               mha_error *error)
{
    *why = NULL;
    for (const mha__arch_refusal *r = list; r->when && !*why; r++) {
        int64_t holds = 0;
        const mha_status status = mha__expression_evaluate(r->when, &setup->values, &holds, error);
        TRY(mha__architecture_blame(setup->architecture, r->when, status, error));
        *why = holds ? r->why : NULL;
    }
    return MHA_OK;
}

/* Refuses 0 for a symbol that formulas divide by, as soon as it is read. */
static mha_status check_divisor(const mha__setup *setup, const mha__arch_key *key, mha_error *error)
{
    static const char *const divisors[] = {"d_model", "h", "h_kv", "patch"};
    const int64_t number = mha__values_get(&setup->values, key->symbol);
    char room[MHA_ARCH_ROW];
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++)
        if (strcmp(key->symbol, divisors[i]) == 0 && number < 1)
            return mha__fail(error, MHA_INVALID, mha__setup_key(setup, key->symbol, room),
                             "expected at least 1, found %" PRId64, number);
    return MHA_OK;
}

/* The number of features that are to be rotated, which a configuration can get wrong: it may be odd. */
static int64_t rotated(const mha__values *v)
{
    const int64_t dim = mha__values_get(v, "rope_dim");
    return dim > 0 ? dim : mha__values_get(v, "d_k");
}

static size_t rope_dim(const mha__values *v)
{
    return (size_t)rotated(v) / 2 * 2;
}

/* `first_class`: whatever class is asked for; attention does not depend on it. */
static mha_status read_setup(const json_t *config, const mha_model_spec *spec, bool first_class, mha__setup *setup,
                             mha_error *error)
{
    TRY(find_architecture(config, spec->architecture, setup, error));
    setup->model_class = setup->architecture->classes;
    if (!first_class)
        TRY(choose_class(config, spec->class_name, setup, error));
    if (!mha__values_set(&setup->values, "i", 0) || !mha__values_set(&setup->values, "j", 0) || !set_all_parts(setup))
        return mha__fail(error, MHA_INVALID, setup->architecture->source,
                         "classes: expected at most %d symbols of %d letters", MHA_VALUES, MHA_SYMBOL - 1);
    if (spec->n_heads > (size_t)MHA_CONFIG_LARGEST || spec->kv_heads > (size_t)MHA_CONFIG_LARGEST)
        return mha__fail(error, MHA_INVALID, "heads", "expected at most 2^40, found %zu and %zu", spec->n_heads,
                         spec->kv_heads);
    for (const mha__arch_key *key = setup->architecture->keys; key->symbol; key++) {
        TRY(mha__setup_read_key(config, key, setup, error));
        if (strcmp(key->symbol, "h") == 0 && spec->n_heads > 0)
            mha__values_set(&setup->values, "h", (int64_t)spec->n_heads);
        if (strcmp(key->symbol, "h_kv") == 0 && spec->kv_heads > 0)
            mha__values_set(&setup->values, "h_kv", (int64_t)spec->kv_heads);
        TRY(check_divisor(setup, key, error));
    }
    TRY(mha__setup_read_reals(config, setup, error));
    const char *refused;
    TRY(check_values(config, setup, error));
    if (mha__values_get(&setup->values, "rope"))
        mha__rope_config_read(config, rope_dim(&setup->values), setup->rope_base, &setup->rope);
    TRY(find_refusal(setup, setup->architecture->refusals, &refused, error));
    if (refused)
        return mha__fail(error, MHA_UNSUPPORTED, "config", "%s", refused);
    return find_refusal(setup, setup->architecture->not_run, &setup->not_run, error);
}

mha_status mha__setup_read(const json_t *config, const mha_model_spec *spec, mha__setup *setup, mha_error *error)
{
    *setup = (mha__setup){0};
    const mha_status status = read_setup(config, spec, false, setup, error);
    if (status != MHA_OK)
        mha__setup_free(setup);
    return status;
}

void mha__setup_free(mha__setup *setup)
{
    mha__architecture_free(setup->architecture);
    setup->architecture = NULL;
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
    const int64_t every = mha__values_get(v, "query_scale_every");
    if (setup->query_scale > 0 && every > 0)
        facts.query_scale = (mha_query_scale){setup->query_scale, every, mha__values_get(v, "query_scale_first")};
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
        facts.rope_dim = rope_dim(v);
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

/* ---------------------------------------------------------------- for a layer's loader */

mha_status mha__config_read_facts(const json_t *config, mha_model_facts *facts, mha_error *error)
{
    static const char *const keys[] = {"hidden_size n_embd d_model dim",
                                       "num_attention_heads n_head num_heads n_heads encoder_attention_heads",
                                       "num_key_value_heads n_kv_heads num_kv_heads", "head_dim d_kv"};
    int64_t number[4] = {0};
    const json_t *type = json_object_get(config, "model_type");
    mha__text_print(facts->model_type, sizeof facts->model_type, "%s",
                    json_is_string(type) ? json_string_value(type) : "");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        const json_t *value = mha__config_first(config, keys[i], key);
        if (value)
            TRY(mha__config_whole(value, key, &number[i], error));
    }
    facts->d_model = (size_t)number[0];
    facts->n_heads = (size_t)number[1];
    facts->kv_heads = (size_t)number[2];
    facts->d_k = (size_t)number[3];
    return MHA_OK;
}

mha_status mha_model_read_config(const char *path, mha_model_facts *facts, mha_error *error)
{
    json_t *config = NULL;
    mha__setup setup;
    *facts = (mha_model_facts){0};
    mha_status status = mha__json_read(path, &config, error);
    if (status != MHA_OK)
        return status;
    const json_t *type = json_object_get(config, "model_type");
    if (json_is_string(type) && mha__architecture_known(json_string_value(type))) {
        setup = (mha__setup){0};
        status = read_setup(config, &(mha_model_spec){0}, true, &setup, error);
        if (status == MHA_OK)
            *facts = mha__setup_facts(&setup, &setup.values);
        mha__setup_free(&setup);
    } else {
        status = mha__config_read_facts(config, facts, error);
    }
    json_decref(config);
    return status;
}
