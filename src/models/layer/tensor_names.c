/* The names of the weights of a layer, and the layers of a file, by the schemes of public checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab.h"
#include "models/layer/tensor_names.h"

const mha_weight mha__matrices_in[3] = {MHA_W_Q, MHA_W_K, MHA_W_V}, mha__biases_in[3] = {MHA_B_Q, MHA_B_K, MHA_B_V};

static const mha__scheme schemes[] = {
#include "schemes.inc"
};

const mha__scheme *mha__scheme_at(size_t index)
{
    return index < sizeof schemes / sizeof *schemes ? &schemes[index] : NULL;
}

/* ---------------------------------------------------------------- the name of a weight */

bool mha__scheme_needs(const mha__scheme *scheme, mha_weight weight)
{
    const bool of_latents = weight >= MHA_W_QA && weight <= MHA_W_KVB && weight != MHA_B_QA && weight != MHA_B_KVA;
    const bool norm = scheme->normed && weight == MHA_Q_NORM;
    return scheme->names[weight] &&
           (of_latents || norm || weight == MHA_W_Q || weight == MHA_W_K || weight == MHA_W_V || weight == MHA_W_O);
}

bool mha__scheme_fuses(const mha__scheme *scheme, mha_weight weight)
{
    const bool bias = weight == MHA_B_Q || weight == MHA_B_K || weight == MHA_B_V;
    const char *query = scheme->names[bias ? MHA_B_Q : MHA_W_Q], *key = scheme->names[bias ? MHA_B_K : MHA_W_K];
    return (bias || weight == MHA_W_Q || weight == MHA_W_K || weight == MHA_W_V) && query && key &&
           strcmp(query, key) == 0;
}

/* Whether `name` is `end`, or ends in a dot and that; *length is that of what comes before. */
static bool prefix_of(const char *name, const char *end, size_t *length)
{
    *length = end ? mha__text_stem(name, end) : SIZE_MAX;
    return *length < sizeof((mha_found_layer *)0)->prefix && (*length == 0 || name[*length - 1] == '.');
}

/* The same of a weight's name, of one of its halves, or of its other name. */
static bool prefix_before(const char *name, const mha__scheme *scheme, mha_weight weight, size_t *length)
{
    if (weight == MHA_W_KVB &&
        (prefix_of(name, scheme->key_half, length) || prefix_of(name, scheme->value_half, length)))
        return true;
    if (weight == MHA_SINKS && prefix_of(name, scheme->sinks_bare, length))
        return true;
    return prefix_of(name, scheme->names[weight], length);
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

/* The tensor of the layer with this name after the prefix, or NULL. */
static const mha_file_tensor *beside(const mha_file *file, const mha__file_layer *layer, const char *name)
{
    char text[512];
    const int length =
        name ? snprintf(text, sizeof text, "%.*s%s", (int)layer->prefix_length, layer->tensor->name, name) : 0;
    return length > 0 && (size_t)length < sizeof text ? mha_file_find(file, text) : NULL;
}

const mha_file_tensor *mha__file_layer_head_norm(const mha_file *file, const mha__file_layer *layer, mha_weight weight,
                                                 size_t head)
{
    char name[64];
    return head_norm_name(layer->scheme, weight, head, name, sizeof name) ? beside(file, layer, name) : NULL;
}

/* ---------------------------------------------------------------- the layers of a file */

const char *mha__file_layer_name(const mha__file_layer *layer, mha_weight weight, char *text, size_t size)
{
    const char *name = layer->scheme->names[weight];
    const int length = snprintf(text, size, "%.*s%s", (int)layer->prefix_length, layer->tensor->name, name ? name : "");
    return name && length >= 0 && (size_t)length < size ? text : NULL;
}

const mha_file_tensor *mha__file_layer_tensor(const mha_file *file, const mha__file_layer *layer, mha_weight weight)
{
    const mha__scheme *scheme = layer->scheme;
    const mha_file_tensor *tensor = beside(file, layer, scheme->names[weight]);
    if (!tensor && weight == MHA_SINKS)
        return beside(file, layer, scheme->sinks_bare);
    const bool halves = !tensor && weight == MHA_W_KVB && beside(file, layer, scheme->value_half);
    return halves ? beside(file, layer, scheme->key_half) : tensor;
}

const mha_file_tensor *mha__file_layer_value_half(const mha_file *file, const mha__file_layer *layer)
{
    const mha_file_tensor *keys = beside(file, layer, layer->scheme->key_half);
    return keys && keys == mha__file_layer_tensor(file, layer, MHA_W_KVB)
               ? beside(file, layer, layer->scheme->value_half)
               : NULL;
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
        missing +=
            mha__scheme_needs(layer->scheme, (mha_weight)w) && !mha__file_layer_tensor(file, layer, (mha_weight)w);
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
