/* Loading one attention layer of a weights file: which one it is, and its tensors. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "params/params.h"
#include "models/layer/loader.h"

/* ---------------------------------------------------------------- which layer */

/* Text for messages: the layers of the file under `wanted`, as many as fit, "a, b, c, ... (12 in all)". */
static void list_layers(const mha_file *file, const char *wanted, char *text, size_t size)
{
    enum { SHOWN = 6 };
    mha__file_layer layer;
    size_t count = 0, used = 0;
    text[0] = '\0';
    for (size_t index = 0; mha__file_layer_next(file, &index, &layer);) {
        const bool under = strncmp(layer.tensor->name, wanted, strlen(wanted)) == 0;
        if (under && count++ < SHOWN && used < size) {
            int length = (int)(layer.prefix_length > 0 ? layer.prefix_length - 1 : 0);
            int n = snprintf(text + used, size - used, "%s'%.*s'%s", count > 1 ? ", " : "",
                             length > 48 ? mha__text_precision(layer.tensor->name, 48) : length, layer.tensor->name,
                             length ? "" : " (names without a prefix)");
            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (count > SHOWN && used < size)
        snprintf(text + used, size - used, ", ... (%zu in all)", count);
}

/* `wanted` is the prefix of a layer when the names of the layer's tensors start with `wanted` and a dot. */
static bool is_under(const mha__file_layer *layer, const char *wanted, size_t length)
{
    const char *name = layer->tensor->name;
    return length == 0 || (strncmp(name, wanted, length) == 0 && name[length] == '.');
}

/* Layers of another kind stand between those of softmax attention (Qwen3-Next), under names of their own. */
static mha_status refuse_linear(const mha__loader *l, const char *wanted, size_t length)
{
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(l->file, i)); i++)
        if (strncmp(tensor->name, wanted, length) == 0 && strcmp(tensor->name + length, ".A_log") == 0)
            return mha__refuse(l, tensor, MHA_UNSUPPORTED,
                               "expected softmax attention, found linear attention, which is counted, not computed");
    return MHA_OK;
}

static mha_status choose_layer(mha__loader *l)
{
    char wanted[256], names[300];
    size_t length = l->options.layer ? strlen(l->options.layer) : 0;
    while (length > 0 && l->options.layer[length - 1] == '.')
        length--;
    if (length >= sizeof wanted)
        return mha__fail(l->error, MHA_NOT_FOUND, "layer", "expected a prefix below %zu bytes, found %zu",
                         sizeof wanted, length);
    snprintf(wanted, sizeof wanted, "%.*s", (int)length, l->options.layer ? l->options.layer : "");

    mha__file_layer layer;
    size_t all = 0, matching = 0;
    bool exact = false;
    for (size_t index = 0; mha__file_layer_next(l->file, &index, &layer); all++) {
        if (!is_under(&layer, wanted, length) || exact)
            continue;
        exact = length > 0 && layer.prefix_length == length + 1;
        matching = exact ? 1 : matching + 1;
        if (exact || matching == 1)
            l->layer = layer;
    }
    if (all == 0)
        return mha__fail(l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                         "expected the tensors of an attention layer (W_Q, in_proj_weight, attention.self.query.weight,"
                         " attn.c_attn.weight, self_attn.q_proj.weight, ...), found none among %zu tensors",
                         mha_file_count(l->file));
    if (matching == 0) {
        TRY(refuse_linear(l, wanted, length));
        list_layers(l->file, "", names, sizeof names);
        return mha__fail(l->error, MHA_NOT_FOUND, "layer", "expected one of %s, found no prefix '%s'", names, wanted);
    }
    if (matching > 1) {
        list_layers(l->file, wanted, names, sizeof names);
        return mha__fail(l->error, MHA_INVALID, "layer", "expected the prefix of one attention layer, found %zu: %s",
                         matching, names);
    }
    snprintf(l->prefix, sizeof l->prefix, "%.*s", (int)l->layer.prefix_length, l->layer.tensor->name);
    return MHA_OK;
}

/* ---------------------------------------------------------------- its tensors */

/* Packed codes in place of a weight, which their scales and zero points do not fit. */
static mha_status refuse_codes_alone(const mha__loader *l, mha_weight weight)
{
    char name[520];
    if (!mha__file_layer_name(&l->layer, weight, name, 512))
        return MHA_OK; /* unreachable: every scheme names its matrices */
    char *end = strrchr(name, '.');
    if (!end || strcmp(end, ".weight") != 0)
        return MHA_OK;
    memcpy(end, ".qweight", sizeof ".qweight");
    const mha_file_tensor *codes = mha_file_find(l->file, name);
    return codes ? mha__refuse(
                       l, codes, MHA_UNSUPPORTED,
                       "expected scales and zero points that fit it (.scales, .qzeros, perhaps .g_idx), found none")
                 : MHA_OK;
}

/* The last word of a name with dots. */
static const char *last_word(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Whether a name says that a tensor holds biases by position. */
static bool is_table(const char *name)
{
    static const char *const words[] = {"relative_attention_bias.", "relative_position_bias_table", "attn_rel_b.",
                                        "continuous_position_bias_mlp."};
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        found |= strstr(name, words[i]) != NULL;
    return found;
}

/* Finds the table of biases by position. Names do not tell which layers share one, nor which have none. */
static mha_status find_table(mha__loader *l, const mha_file_tensor **table)
{
    const mha_file_tensor *tensor;
    for (size_t i = 0; !l->described && (tensor = mha_file_at(l->file, i)); i++)
        if (is_table(tensor->name))
            return mha__refuse(l, tensor, MHA_INVALID,
                               "expected a config.json of a model type that is known, which says whether this layer "
                               "adds these biases to its scores; found none");
    if (!l->bias_table && *table && l->described)
        return mha__refuse(l, *table, MHA_INVALID,
                           "expected no biases by position, which the configuration does not speak of");
    if (!l->bias_table)
        return MHA_OK;
    if (!*l->bias_table)
        return mha__fail(l->error, MHA_INVALID, "layer",
                         "expected the prefix of a layer of the configuration, which names its table of biases; "
                         "found '%.*s'", (int)(l->layer.prefix_length ? l->layer.prefix_length - 1 : 0), l->prefix);
    if (mha__loader_makes(l, MHA_BIAS_TABLE))
        return MHA_OK;
    *table = mha__file_named(l->file, l->bias_table);
    return *table ? MHA_OK
                  : mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file), l->bias_table, 0,
                                     "expected a tensor of this name (bias_table, by the configuration), found none");
}

static mha_status collect(mha__loader *l)
{
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight weight = (mha_weight)w;
        const bool inside = mha__is_gate_weight(weight) && l->fused_gate;
        const mha_file_tensor *tensor = inside ? l->found[mha__weight_is_matrix(weight) ? MHA_W_Q : MHA_B_Q]
                                               : mha__file_layer_tensor(l->file, &l->layer, weight);
        char name[512];
        if (weight == MHA_BIAS_TABLE)
            TRY(find_table(l, &tensor));
        if (!tensor)
            l->by_head[w] = (tensor = mha__file_layer_head_norm(l->file, &l->layer, weight, 0)) != NULL;
        if (!tensor && mha__scheme_needs(l->layer.scheme, weight))
            TRY(refuse_codes_alone(l, weight));
        if (!tensor && mha__scheme_needs(l->layer.scheme, weight))
            return mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                                    mha__file_layer_name(&l->layer, weight, name, sizeof name), 0,
                                    "expected a tensor of this name (%s%s, by the names of %s), found none",
                                    mha_weight_at(weight)->name,
                                    mha__loader_fuses(l, weight) ? " and the two like it" : "", l->layer.scheme->name);
        if (!tensor)
            continue;
        if (!mha__dtype_is_float(tensor->reads_as))
            return mha__refuse(l, tensor, MHA_UNSUPPORTED,
                               "expected F32, F64, F16, BF16, a type of GGUF that is decoded here, or scales for it"
                               " (%s_scale, %s_scale_inv), found %s",
                               last_word(tensor->name), last_word(tensor->name), mha_dtype_name(tensor->dtype));
        l->found[w] = tensor;
        if (weight == MHA_W_KVB && (l->value_half = mha__file_layer_value_half(l->file, &l->layer)))
            l->tensors++;
        const bool again = mha__loader_fuses(l, weight) && weight != mha__matrices_in[0] && weight != mha__biases_in[0];
        l->tensors += !inside && !again;
    }
    return MHA_OK;
}

/* Refuses what only a configuration explains where there is none: which rows of a relative table are added to a score,
 * and with which factor; what a gate does, as others than a sigmoid on the heads may have its name. The gate that it
 * explains must be there. */
static mha_status check_explained(mha__loader *l)
{
    const bool foreign = l->layer.scheme->orientation == MHA_ORIENTATION_OUT_IN;
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const bool gate = mha__is_gate_weight(w), explained = gate ? l->gate != MHA_GATE_NONE : l->described;
        char name[512];
        if (l->found[w] && foreign && (gate || mha__is_relative_table(w)) && !explained)
            return mha__refuse(l, l->found[w], MHA_INVALID,
                               "expected a config.json of a model type that is known, which says %s; found none",
                               gate ? "what this gate does" : "how this table is added to the scores");
        if (!l->found[w] && gate && mha__weight_is_matrix(w) && explained)
            return mha__fail_inside(l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                                    mha__file_layer_name(&l->layer, w, name, sizeof name) ? name
                                                                                          : mha_weight_at(w)->name,
                                    0, "expected the gate of the heads, found none");
    }
    return MHA_OK;
}

/* Whether a layer may lack the weight; all others are needed, some only if the configuration names them. */
static bool is_optional(mha_weight weight)
{
    const mha_weight_info *info = mha_weight_at(weight);
    const bool needed = info->kind == MHA_WEIGHT_MATRIX || (info->kind == MHA_WEIGHT_NORM && info->of_latents);
    return !needed && weight != MHA_BIAS_TABLE;
}

/* Fails if the file has weights that the configuration excludes, or lacks weights that it requires. */
static mha_status check_stated(mha__loader *l)
{
    _Static_assert(MHA_WEIGHT_COUNT < 64, "every weight has a bit");
    for (mha_weight weight = 0; l->stated && weight < MHA_WEIGHT_COUNT; weight++) {
        if (!is_optional(weight))
            continue;
        const bool stated = (l->stated & ~l->made) >> weight & 1;
        char name[512];
        if (l->found[weight] && !stated)
            return mha__refuse(l, l->found[weight], MHA_INVALID,
                               "expected no such tensor (%s), which the configuration does not give this layer; found "
                               "one that would change the output",
                               mha_weight_at(weight)->name);
        if (!l->found[weight] && stated)
            return mha__fail_inside(
                l->error, MHA_NOT_FOUND, mha_file_path(l->file),
                mha__file_layer_name(&l->layer, weight, name, sizeof name) ? name : mha_weight_at(weight)->name, 0,
                "expected a tensor of this name (%s, by the configuration), found none", mha_weight_at(weight)->name);
    }
    return MHA_OK;
}

static bool listed(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Refuses unknown names under the layer's prefix, because such a tensor might change the result. A layer without a
 * prefix may share its file with any tensors. */
static mha_status refuse_unknown(mha__loader *l)
{
    const mha__scheme *scheme = l->layer.scheme;
    size_t length = l->layer.prefix_length;
    const char *scope = scheme->scope ? scheme->scope : "";
    if (length == 0)
        return MHA_OK;
    const mha_file_tensor *tensor;
    for (size_t i = 0; (tensor = mha_file_at(l->file, i)); i++) {
        const char *rest = tensor->name + length;
        if (strncmp(tensor->name, l->prefix, length) != 0 || strncmp(rest, scope, strlen(scope)) != 0)
            continue;
        bool known = false;
        for (int weight = 0; weight < MHA_WEIGHT_COUNT && !known; weight++)
            known = mha__scheme_names(scheme, (mha_weight)weight, rest) ||
                    mha__scheme_names_head_norm(scheme, (mha_weight)weight, rest);
        for (int s = 0; s < MHA_SOURCES && !known; s++)
            known = tensor == l->source[s];
        if (known || tensor == l->found[MHA_BIAS_TABLE])
            continue;
        if (!listed(scheme->others, rest)) {
            char shape[80];
            return mha__refuse(
                l, tensor, MHA_INVALID,
                "expected only the names of a %s layer under '%s', found one that is not known, of shape %s",
                scheme->name, l->prefix, mha__shape_text(shape, sizeof shape, tensor->shape, tensor->rank));
        }
        l->ignored++;
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- the whole */

/* Fills in what the caller did not give, from the facts of the config or of the file, which come to `own`. */
static mha_status take_facts(mha__loader *l, mha_model_facts *own)
{
    const mha_model_facts *facts = l->options.facts;
    const mha_status status = facts ? MHA_NOT_FOUND : mha_model_read_metadata(l->file, NULL, own, l->error);
    if (status == MHA_OK)
        facts = own;
    if (!facts)
        return status == MHA_NOT_FOUND ? MHA_OK : status;
    l->blocks = facts->fused_blocks;
    l->qvk = facts->fused_qvk;
    l->described = facts->has_semantics;
    l->bias_table = facts->semantics.added.bias.rule != MHA_BIAS_RULE_NONE ? facts->bias_table : NULL;
    l->made = facts->made;
    l->facts = facts;
    l->gate = facts->config.gate;
    l->stated = facts->weights;
    l->fused_gate = facts->fused_gate;
    bool heads_given = l->options.n_heads || l->options.d_k;
    if (!heads_given) {
        l->options.n_heads = facts->config.n_heads;
        l->options.d_k = facts->config.d_k;
        if (!l->options.kv_heads)
            l->options.kv_heads = facts->config.kv_heads;
    }
    return MHA_OK;
}

static mha_status prepare(mha__loader *l)
{
    if (l->options.facts && *l->options.facts->not_run)
        return mha__fail(l->error, MHA_UNSUPPORTED, l->options.facts->model_type, "%s; it is counted, not computed",
                         l->options.facts->not_run);
    TRY(choose_layer(l));
    TRY(collect(l));
    TRY(check_explained(l));
    TRY(check_stated(l));
    TRY(mha__loader_find_sources(l));
    TRY(refuse_unknown(l));
    return mha__loader_find_config(l);
}

mha_status mha_model_load_share(const mha_file *file, const mha_load_options *options, mha_split *split, size_t rank,
                                mha_params *table, mha_layer **layer, mha_load_report *report, mha_error *error)
{
    mha__loader l = {.file = file, .error = error};
    if (options)
        l.options = *options;
    mha_model_facts own;
    TRY(take_facts(&l, &own));
    mha_layer *made = NULL;
    l.options.keep_quantised &= split->ranks == 1;
    if (split->ranks != 1 && l.options.has_dtype && !mha__dtype_is_float(l.options.dtype))
        return mha__fail(error, MHA_UNSUPPORTED, "dtype", "expected a float type for a share of a layer, found %s",
                         mha_dtype_name(l.options.dtype));
    TRY(prepare(&l));
    if (split->ranks != 1 && l.made)
        return mha__fail(error, MHA_UNSUPPORTED, "ranks",
                         "expected 1 for a layer of weights that are made of others, found %zu", split->ranks);
    split->config = l.config;
    TRY(mha_split_check(split, error));
    if (rank >= split->ranks)
        return mha__fail(error, MHA_INVALID, "rank", "expected a number below %zu, found %zu", split->ranks, rank);
    const mha_share share = mha_split_share(split, rank);
    TRY(mha_layer_create(&share.config, table, l.options.row_prefix, &made, error));
    mha_status status = mha__loader_read(&l, made, split, rank);
    if (status == MHA_OK)
        status = mha__loader_make(&l, made);
    if (status != MHA_OK) {
        mha_layer_destroy(made);
        return status;
    }
    if (report) {
        *report = (mha_load_report){.orientation = l.orientation, .tensors = l.tensors, .ignored = l.ignored};
        size_t length = l.layer.prefix_length > 0 ? l.layer.prefix_length - 1 : 0;
        mha__text_print(report->layer.prefix, sizeof report->layer.prefix, "%.*s", (int)length, l.prefix);
        report->layer.scheme = l.layer.scheme->name;
    }
    *layer = made;
    return MHA_OK;
}

mha_status mha_model_load_layer(const mha_file *file, const mha_load_options *options, mha_params *table,
                                mha_layer **layer, mha_load_report *report, mha_error *error)
{
    mha_split whole = {.ranks = 1}; /* the share of the only rank */
    return mha_model_load_share(file, options, &whole, 0, table, layer, report, error);
}
