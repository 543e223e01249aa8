/* The names of the weights of a layer, and the layers of a file, by the schemes of public checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "models/layer/tensor_names.h"

const mha_weight mha__matrices_in[3] = {MHA_W_Q, MHA_W_K, MHA_W_V}, mha__biases_in[3] = {MHA_B_Q, MHA_B_K, MHA_B_V};

/* ---------------------------------------------------------------- the name of a weight */

/* The names that latent attention has in addition to W_Q and W_O. */
static const char *latent_name(const mha__scheme *scheme, mha_weight weight)
{
    static const char *const names[2][MHA_W_KVB + 1] = {
        {[MHA_W_QA] = "q_a_proj.weight", [MHA_B_QA] = "q_a_proj.bias", [MHA_QA_NORM] = "q_a_layernorm.weight",
         [MHA_W_KVA] = "kv_a_proj_with_mqa.weight", [MHA_B_KVA] = "kv_a_proj_with_mqa.bias",
         [MHA_KVA_NORM] = "kv_a_layernorm.weight", [MHA_W_KVB] = "kv_b_proj.weight"},
        {[MHA_W_QA] = "attn_q_a.weight", [MHA_B_QA] = "attn_q_a.bias", [MHA_QA_NORM] = "attn_q_a_norm.weight",
         [MHA_W_KVA] = "attn_kv_a_mqa.weight", [MHA_B_KVA] = "attn_kv_a_mqa.bias",
         [MHA_KVA_NORM] = "attn_kv_a_norm.weight", [MHA_W_KVB] = "attn_kv_b.weight"}};
    const bool there = weight >= (scheme->two_stages ? MHA_W_QA : MHA_W_KVA) && weight <= MHA_W_KVB;
    return weight == MHA_W_Q ? scheme->matrices : there ? names[scheme->halves][weight] : NULL;
}

/* In place of W_KVB, in a scheme with halves: of each head what makes its keys, and what makes its values. */
static const char key_half[] = "attn_k_b.weight", value_half[] = "attn_v_b.weight";

/* The pattern of a weight's name, or NULL; *word is the text that replaces its '*'. */
static const char *pattern_of(const mha__scheme *scheme, mha_weight weight, const char **word)
{
    static const char *const letters[] = {"q", "k", "v"};
    const char *const *words = scheme->words[0] ? scheme->words : letters;
    *word = "";
    if (scheme->latents && weight != MHA_W_O && weight != MHA_B_O)
        return latent_name(scheme, weight);
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
    case MHA_Q_NORM_BIAS: *word = "q"; return scheme->norm_biases;
    case MHA_K_NORM_BIAS: *word = "k"; return scheme->norm_biases;
    case MHA_BIAS_TABLE: return scheme->bias_table;
    case MHA_RELATIVE_K:
    case MHA_RELATIVE_COLUMNS:
    case MHA_RELATIVE_Q: return scheme->relative_tables[weight - MHA_RELATIVE_K];
    default: break;
    }
    return !mha__is_gate_weight(weight) ? NULL : mha__weight_is_matrix(weight) ? scheme->gate : scheme->gate_bias;
}

bool mha__scheme_needs(const mha__scheme *scheme, mha_weight weight)
{
    if (weight == MHA_W_Q || weight == MHA_W_O)
        return true;
    if (!scheme->latents)
        return weight == MHA_W_K || weight == MHA_W_V;
    return latent_name(scheme, weight) && weight != MHA_B_QA && weight != MHA_B_KVA;
}

bool mha__scheme_fuses(const mha__scheme *scheme, mha_weight weight)
{
    const char *word, *pattern = pattern_of(scheme, weight, &word);
    return pattern && *word && !strchr(pattern, '*');
}

/* Whether `name` is the pattern with its word, or ends in a dot and that; *length is that of what comes before. */
static bool prefix_of(const char *name, const char *pattern, const char *word, size_t *length)
{
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

/* The same of a weight's name, of one of its halves, or of its other name. */
static bool prefix_before(const char *name, const mha__scheme *scheme, mha_weight weight, size_t *length)
{
    const char *word, *pattern = pattern_of(scheme, weight, &word);
    if (!pattern)
        return false;
    if (weight == MHA_W_KVB && scheme->halves &&
        (prefix_of(name, key_half, "", length) || prefix_of(name, value_half, "", length)))
        return true;
    if (weight == MHA_SINKS && scheme->sinks_bare && prefix_of(name, scheme->sinks_bare, "", length))
        return true;
    return prefix_of(name, pattern, word, length);
}

bool mha__scheme_names(const mha__scheme *scheme, mha_weight weight, const char *name)
{
    size_t length;
    return prefix_before(name, scheme, weight, &length) && length == 0;
}

/* ---------------------------------------------------------------- norms of heads in tensors of their own */

/* Writes "q_layernorm.norms.7.weight"; false where the scheme has no such names. */
static bool head_norm_name(const mha__scheme *scheme, mha_weight weight, size_t head, char *text, size_t size)
{
    const char *begin = scheme->head_norms;
    const bool named = begin && (weight == MHA_Q_NORM || weight == MHA_K_NORM);
    return named && snprintf(text, size, "%c%s%zu.weight", weight == MHA_Q_NORM ? 'q' : 'k', begin, head) < (int)size;
}

bool mha__scheme_names_head_norm(const mha__scheme *scheme, mha_weight weight, const char *name)
{
    char text[64];
    const char *number = name + 1 + (scheme->head_norms ? strlen(scheme->head_norms) : 0);
    if (strlen(name) <= (size_t)(number - name))
        return false;
    const size_t head = strtoul(number, NULL, 10); /* anything but a plain number gives another name */
    return head_norm_name(scheme, weight, head, text, sizeof text) && strcmp(text, name) == 0;
}

const mha_file_tensor *mha__file_layer_head_norm(const mha_file *file, const mha__file_layer *layer, mha_weight weight,
                                                 size_t head)
{
    char text[64], name[400];
    if (!head_norm_name(layer->scheme, weight, head, text, sizeof text))
        return NULL;
    const int length = snprintf(name, sizeof name, "%.*s%s", (int)layer->prefix_length, layer->tensor->name, text);
    return length > 0 && (size_t)length < sizeof name ? mha_file_find(file, name) : NULL;
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

/* The tensor of the layer with this name after the prefix, or NULL. */
static const mha_file_tensor *beside(const mha_file *file, const mha__file_layer *layer, const char *name)
{
    char text[512];
    const int length = snprintf(text, sizeof text, "%.*s%s", (int)layer->prefix_length, layer->tensor->name, name);
    return length > 0 && (size_t)length < sizeof text ? mha_file_find(file, text) : NULL;
}

const mha_file_tensor *mha__file_layer_tensor(const mha_file *file, const mha__file_layer *layer, mha_weight weight)
{
    char text[512];
    const char *name = mha__file_layer_name(layer, weight, text, sizeof text);
    const mha_file_tensor *tensor = name ? mha_file_find(file, name) : NULL;
    if (!tensor && weight == MHA_SINKS && layer->scheme->sinks_bare)
        return beside(file, layer, layer->scheme->sinks_bare);
    const bool halves = !tensor && weight == MHA_W_KVB && layer->scheme->halves && beside(file, layer, value_half);
    return halves ? beside(file, layer, key_half) : tensor;
}

const mha_file_tensor *mha__file_layer_value_half(const mha_file *file, const mha__file_layer *layer)
{
    const mha_file_tensor *keys = layer->scheme->halves ? beside(file, layer, key_half) : NULL;
    return keys && keys == mha__file_layer_tensor(file, layer, MHA_W_KVB) ? beside(file, layer, value_half) : NULL;
}

const mha_file_tensor *mha__file_named(const mha_file *file, const char *name)
{
    const mha_file_tensor *tensor = mha_file_find(file, name);
    const char *dot = strchr(name, '.');
    return tensor || !dot ? tensor : mha_file_find(file, dot + 1);
}

static size_t missing_matrices(const mha_file *file, const mha__file_layer *layer)
{
    size_t missing = 0;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++)
        missing += mha__scheme_needs(layer->scheme, (mha_weight)w) &&
                   !mha__file_layer_tensor(file, layer, (mha_weight)w);
    return missing;
}

/* One name can match several schemes: "attention.self.query.weight" ends in ALBERT's "query.weight". The scheme with
 * the fewest missing weights wins, and among equals the longer name. */
static bool best_scheme(const mha_file *file, const mha_file_tensor *tensor, mha__file_layer *best)
{
    size_t best_missing = SIZE_MAX;
    *best = (mha__file_layer){0};
    const mha__scheme *scheme;
    for (size_t s = 0; (scheme = mha__scheme_at(s)); s++)
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
    const mha__scheme *scheme;
    for (size_t s = 0; (scheme = mha__scheme_at(s)); s++)
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
