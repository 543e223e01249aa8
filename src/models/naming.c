/* The naming schemes of public checkpoints, and the layers of a file that follow one of them. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "models/naming.h"

/* Names are relative to the module with the projections: a prefix is the path of that module, such as
 * "bert.encoder.layer.0.attention". A new scheme needs one more entry. */
/* clang-format off */
static const mha__scheme schemes[] = {
    {.name = "own", .orientation = MHA_ORIENTATION_IN_OUT, .free_widths = true, .words = {"Q", "K", "V"},
     .matrices = "W_*", .biases = "b_*", .output_matrix = "W_O", .output_bias = "b_O", .extra_rows = "bias_*",
     .sinks = "sinks", .norms = "*_norm"},
    {.name = "case file", .orientation = MHA_ORIENTATION_IN_OUT, .free_widths = true,
     .matrices = "W_*", .biases = "b_*", .output_matrix = "W_o", .output_bias = "b_o", .extra_rows = "bias_*",
     .sinks = "head_sink", .norms = "*_norm_weight"},
    {.name = "nn.MultiheadAttention", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "in_proj_weight", .biases = "in_proj_bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias", .extra_rows = "bias_*"},
    {.name = "nn.MultiheadAttention (kdim, vdim)", .orientation = MHA_ORIENTATION_OUT_IN, .free_widths = true,
     .matrices = "*_proj_weight", .biases = "in_proj_bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias", .extra_rows = "bias_*"},
    {.name = "BERT", .orientation = MHA_ORIENTATION_OUT_IN, .free_widths = true, .words = {"query", "key", "value"},
     .matrices = "self.*.weight", .biases = "self.*.bias", .output_matrix = "output.dense.weight",
     .output_bias = "output.dense.bias",
     .others = {"output.LayerNorm.weight", "output.LayerNorm.bias", "output.LayerNorm.gamma", "output.LayerNorm.beta"}},
    {.name = "ALBERT", .orientation = MHA_ORIENTATION_OUT_IN, .words = {"query", "key", "value"},
     .matrices = "*.weight", .biases = "*.bias", .output_matrix = "dense.weight", .output_bias = "dense.bias",
     .others = {"LayerNorm.weight", "LayerNorm.bias"}},
    {.name = "ViT", .orientation = MHA_ORIENTATION_OUT_IN, .words = {"query", "key", "value"},
     .matrices = "attention.*.weight", .biases = "attention.*.bias", .output_matrix = "output.dense.weight",
     .output_bias = "output.dense.bias"},
    {.name = "timm", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "qkv.weight", .biases = "qkv.bias", .output_matrix = "proj.weight", .output_bias = "proj.bias"},
    {.name = "DistilBERT", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "*_lin.weight", .biases = "*_lin.bias", .output_matrix = "out_lin.weight",
     .output_bias = "out_lin.bias"},
    /* The matrices are Conv1D (in, out) in the public files, Linear (out, in) in those of minGPT and nanoGPT.
     * `others` are buffers: the causal mask and its fill. */
    {.name = "GPT-2", .orientation = MHA_ORIENTATION_AUTO,
     .matrices = "c_attn.weight", .biases = "c_attn.bias", .output_matrix = "c_proj.weight",
     .output_bias = "c_proj.bias",
     .others = {"bias", "masked_bias"}},
    /* Also Mistral, Qwen2 and Gemma; with q/k norm Qwen3 and OLMo 2; with sinks gpt-oss. */
    {.name = "LLaMA", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "*_proj.weight", .biases = "*_proj.bias", .output_matrix = "o_proj.weight",
     .output_bias = "o_proj.bias", .sinks = "sinks", .norms = "*_norm.weight",
     .others = {"rotary_emb.inv_freq", "k_scale", "v_scale", "k_proj.k_scale", "v_proj.v_scale"}}, /* of F8 caches */
    /* Also OPT, CLIP and Whisper. */
    {.name = "BART", .orientation = MHA_ORIENTATION_OUT_IN, .free_widths = true,
     .matrices = "*_proj.weight", .biases = "*_proj.bias", .output_matrix = "out_proj.weight",
     .output_bias = "out_proj.bias"},
    {.name = "LLaMA (Meta)", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "w*.weight", .biases = "w*.bias", .output_matrix = "wo.weight", .output_bias = "wo.bias",
     .others = {"inner_attention.rope.freqs"}},
    /* The prefix is that of the whole block. */
    {.name = "GGUF", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "attn_*.weight", .biases = "attn_*.bias", .output_matrix = "attn_output.weight",
     .output_bias = "attn_output.bias", .sinks = "attn_sinks.weight", .norms = "attn_*_norm.weight", .scope = "attn_",
     .others = {"attn_norm.weight", "attn_norm.bias", "attn_post_norm.weight", "attn_rot_embd"}},
    {.name = "GGUF (fused)", .orientation = MHA_ORIENTATION_OUT_IN,
     .matrices = "attn_qkv.weight", .biases = "attn_qkv.bias", .output_matrix = "attn_output.weight",
     .output_bias = "attn_output.bias", .scope = "attn_",
     .others = {"attn_norm.weight", "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias"}},
};
/* clang-format on */

const mha_weight mha__matrices_in[3] = {MHA_W_Q, MHA_W_K, MHA_W_V}, mha__biases_in[3] = {MHA_B_Q, MHA_B_K, MHA_B_V};

const mha__scheme *mha__scheme_at(size_t index)
{
    return index < sizeof schemes / sizeof *schemes ? &schemes[index] : NULL;
}

/* ---------------------------------------------------------------- the name of a weight */

/* The pattern of a weight's name, or NULL; *word is the text that replaces its '*'. */
static const char *pattern_of(const mha__scheme *scheme, mha_weight weight, const char **word)
{
    static const char *const letters[] = {"q", "k", "v"};
    const char *const *words = scheme->words[0] ? scheme->words : letters;
    *word = "";
    switch (weight) {
    case MHA_W_Q: *word = words[0]; return scheme->matrices;
    case MHA_W_K: *word = words[1]; return scheme->matrices;
    case MHA_W_V: *word = words[2]; return scheme->matrices;
    case MHA_B_Q: *word = words[0]; return scheme->biases;
    case MHA_B_K: *word = words[1]; return scheme->biases;
    case MHA_B_V: *word = words[2]; return scheme->biases;
    case MHA_W_O: return scheme->output_matrix;
    case MHA_B_O: return scheme->output_bias;
    case MHA_BIAS_K: *word = "k"; return scheme->extra_rows;
    case MHA_BIAS_V: *word = "v"; return scheme->extra_rows;
    case MHA_SINKS: return scheme->sinks;
    case MHA_Q_NORM: *word = "q"; return scheme->norms;
    case MHA_K_NORM: *word = "k"; return scheme->norms;
    default: return NULL;
    }
}

bool mha__scheme_fuses(const mha__scheme *scheme, mha_weight weight)
{
    const char *word, *pattern = pattern_of(scheme, weight, &word);
    return pattern && *word && !strchr(pattern, '*');
}

/* Whether `name` is the weight's name, or ends in a dot and that name; *length is the length of what comes before. */
static bool prefix_before(const char *name, const mha__scheme *scheme, mha_weight weight, size_t *length)
{
    const char *word, *pattern = pattern_of(scheme, weight, &word);
    if (!pattern)
        return false;
    const size_t head = strcspn(pattern, "*"), middle = pattern[head] ? strlen(word) : 0;
    const char *tail = pattern[head] ? pattern + head + 1 : pattern + head;
    const size_t n = strlen(name), s = head + middle + strlen(tail);
    if (n < s)
        return false;
    const char *at = name + n - s;
    if (strncmp(at, pattern, head) != 0 || strncmp(at + head, word, middle) != 0 ||
        strcmp(at + head + middle, tail) != 0 || (n > s && at[-1] != '.'))
        return false;
    *length = n - s;
    return *length < sizeof((mha_found_layer *)0)->prefix;
}

bool mha__scheme_names(const mha__scheme *scheme, mha_weight weight, const char *name)
{
    size_t length;
    return prefix_before(name, scheme, weight, &length) && length == 0;
}

/* ---------------------------------------------------------------- the layers of a file */

const char *mha__file_layer_name(const mha__file_layer *layer, mha_weight weight, char *text, size_t size)
{
    const char *word, *pattern = pattern_of(layer->scheme, weight, &word);
    if (!pattern)
        return NULL;
    const size_t head = strcspn(pattern, "*");
    const bool star = pattern[head] != '\0';
    const int length = snprintf(text, size, "%.*s%.*s%s%s", (int)layer->prefix_length, layer->tensor->name, (int)head,
                                pattern, star ? word : "", star ? pattern + head + 1 : "");
    return length >= 0 && (size_t)length < size ? text : NULL;
}

const mha_file_tensor *mha__file_layer_tensor(const mha_file *file, const mha__file_layer *layer, mha_weight weight)
{
    char text[512];
    const char *name = mha__file_layer_name(layer, weight, text, sizeof text);
    return name ? mha_file_find(file, name) : NULL;
}

static size_t missing_matrices(const mha_file *file, const mha__file_layer *layer)
{
    size_t missing = !mha__file_layer_tensor(file, layer, MHA_W_O);
    for (size_t i = 0; i < 3; i++)
        missing += !mha__file_layer_tensor(file, layer, mha__matrices_in[i]);
    return missing;
}

/* One name can match several schemes: "attention.self.query.weight" ends in ALBERT's "query.weight". The scheme with
 * the fewest missing weights wins, and among equals the longer name. */
static bool best_scheme(const mha_file *file, const mha_file_tensor *tensor, mha__file_layer *best)
{
    size_t best_missing = SIZE_MAX;
    *best = (mha__file_layer){0};
    for (const mha__scheme *scheme = schemes; scheme < schemes + sizeof schemes / sizeof *schemes; scheme++)
        for (size_t i = 0; i < 3; i++) {
            mha__file_layer layer = {scheme, tensor, mha__matrices_in[i], 0};
            if (!prefix_before(tensor->name, scheme, layer.weight, &layer.prefix_length))
                continue;
            size_t missing = missing_matrices(file, &layer);
            if (missing > best_missing || (missing == best_missing && layer.prefix_length >= best->prefix_length))
                continue;
            best_missing = missing;
            *best = layer;
        }
    return best_missing != SIZE_MAX;
}

/* A layer is reported once, at the first of its query, key and value matrices in the file. */
static bool is_met_here(const mha_file *file, const mha__file_layer *layer)
{
    for (size_t i = 0; i < 3 && mha__matrices_in[i] != layer->weight; i++)
        if (mha__file_layer_tensor(file, layer, mha__matrices_in[i]))
            return false;
    return true;
}

bool mha__file_layer_next(const mha_file *file, size_t *index, mha__file_layer *layer)
{
    for (const mha_file_tensor *tensor; (tensor = mha_file_at(file, *index));) {
        ++*index;
        if (best_scheme(file, tensor, layer) && is_met_here(file, layer))
            return true;
    }
    return false;
}

bool mha__file_layer_of(const mha_file *file, const mha_file_tensor *tensor, mha__file_layer *layer)
{
    size_t shortest = SIZE_MAX; /* length of the prefix; the shorter it is, the longer is the matching name */
    for (const mha__scheme *scheme = schemes; scheme < schemes + sizeof schemes / sizeof *schemes; scheme++)
        for (int weight = 0; weight < MHA_WEIGHT_COUNT; weight++) {
            mha__file_layer candidate = {scheme, tensor, (mha_weight)weight, 0};
            if (prefix_before(tensor->name, scheme, candidate.weight, &candidate.prefix_length) &&
                candidate.prefix_length < shortest && missing_matrices(file, &candidate) == 0) {
                shortest = candidate.prefix_length;
                *layer = candidate;
            }
        }
    return shortest != SIZE_MAX;
}

size_t mha_model_find_layers(const mha_file *file, mha_found_layer *layers, size_t capacity)
{
    size_t count = 0;
    mha__file_layer layer;
    for (size_t index = 0; mha__file_layer_next(file, &index, &layer); count++)
        if (count < capacity) {
            size_t length = layer.prefix_length > 0 ? layer.prefix_length - 1 : 0;
            mha__text_print(layers[count].prefix, sizeof layers[count].prefix, "%.*s", (int)length, layer.tensor->name);
            layers[count].scheme = layer.scheme->name;
        }
    return count;
}
