/* The naming schemes of public checkpoints, and the layers of a file that follow one of them. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "models/naming.h"

/* Names are relative to the module that holds the projections, so a prefix is that module's path
 * ("bert.encoder.layer.0.attention"). To teach a scheme: add a row. */
static const mha__scheme schemes[] = {
    {.name = "own",
     .orientation = MHA_ORIENTATION_IN_OUT,
     .free_widths = true,
     .names = {{"W_Q", MHA_W_Q, false},
               {"b_Q", MHA_B_Q, false},
               {"W_K", MHA_W_K, false},
               {"b_K", MHA_B_K, false},
               {"W_V", MHA_W_V, false},
               {"b_V", MHA_B_V, false},
               {"W_O", MHA_W_O, false},
               {"b_O", MHA_B_O, false},
               {"bias_k", MHA_BIAS_K, false},
               {"bias_v", MHA_BIAS_V, false},
               {"sinks", MHA_SINKS, false},
               {"q_norm", MHA_Q_NORM, false},
               {"k_norm", MHA_K_NORM, false}}},
    {.name = "case file",
     .orientation = MHA_ORIENTATION_IN_OUT,
     .free_widths = true,
     .names = {{"W_q", MHA_W_Q, false},
               {"b_q", MHA_B_Q, false},
               {"W_k", MHA_W_K, false},
               {"b_k", MHA_B_K, false},
               {"W_v", MHA_W_V, false},
               {"b_v", MHA_B_V, false},
               {"W_o", MHA_W_O, false},
               {"b_o", MHA_B_O, false},
               {"bias_k", MHA_BIAS_K, false},
               {"bias_v", MHA_BIAS_V, false},
               {"head_sink", MHA_SINKS, false},
               {"q_norm_weight", MHA_Q_NORM, false},
               {"k_norm_weight", MHA_K_NORM, false}}},
    {.name = "nn.MultiheadAttention",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .names = {{"in_proj_weight", MHA_W_Q, true},
               {"in_proj_bias", MHA_B_Q, true},
               {"out_proj.weight", MHA_W_O, false},
               {"out_proj.bias", MHA_B_O, false},
               {"bias_k", MHA_BIAS_K, false},
               {"bias_v", MHA_BIAS_V, false}}},
    {.name = "nn.MultiheadAttention (kdim, vdim)",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .free_widths = true,
     .names = {{"q_proj_weight", MHA_W_Q, false},
               {"k_proj_weight", MHA_W_K, false},
               {"v_proj_weight", MHA_W_V, false},
               {"in_proj_bias", MHA_B_Q, true},
               {"out_proj.weight", MHA_W_O, false},
               {"out_proj.bias", MHA_B_O, false},
               {"bias_k", MHA_BIAS_K, false},
               {"bias_v", MHA_BIAS_V, false}}},
    {.name = "BERT",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .free_widths = true,
     .names = {{"self.query.weight", MHA_W_Q, false},
               {"self.query.bias", MHA_B_Q, false},
               {"self.key.weight", MHA_W_K, false},
               {"self.key.bias", MHA_B_K, false},
               {"self.value.weight", MHA_W_V, false},
               {"self.value.bias", MHA_B_V, false},
               {"output.dense.weight", MHA_W_O, false},
               {"output.dense.bias", MHA_B_O, false}},
     .others = {"output.LayerNorm.weight", "output.LayerNorm.bias", "output.LayerNorm.gamma", "output.LayerNorm.beta"}},
    {.name = "ALBERT",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .names = {{"query.weight", MHA_W_Q, false},
               {"query.bias", MHA_B_Q, false},
               {"key.weight", MHA_W_K, false},
               {"key.bias", MHA_B_K, false},
               {"value.weight", MHA_W_V, false},
               {"value.bias", MHA_B_V, false},
               {"dense.weight", MHA_W_O, false},
               {"dense.bias", MHA_B_O, false}},
     .others = {"LayerNorm.weight", "LayerNorm.bias"}},
    {.name = "ViT",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .names = {{"attention.query.weight", MHA_W_Q, false},
               {"attention.query.bias", MHA_B_Q, false},
               {"attention.key.weight", MHA_W_K, false},
               {"attention.key.bias", MHA_B_K, false},
               {"attention.value.weight", MHA_W_V, false},
               {"attention.value.bias", MHA_B_V, false},
               {"output.dense.weight", MHA_W_O, false},
               {"output.dense.bias", MHA_B_O, false}}},
    {.name = "timm",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .names = {{"qkv.weight", MHA_W_Q, true},
               {"qkv.bias", MHA_B_Q, true},
               {"proj.weight", MHA_W_O, false},
               {"proj.bias", MHA_B_O, false}}},
    {.name = "DistilBERT",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .names = {{"q_lin.weight", MHA_W_Q, false},
               {"q_lin.bias", MHA_B_Q, false},
               {"k_lin.weight", MHA_W_K, false},
               {"k_lin.bias", MHA_B_K, false},
               {"v_lin.weight", MHA_W_V, false},
               {"v_lin.bias", MHA_B_V, false},
               {"out_lin.weight", MHA_W_O, false},
               {"out_lin.bias", MHA_B_O, false}}},
    {.name = "GPT-2", /* Conv1D (in, out) in the public files, Linear (out, in) in minGPT's and nanoGPT's */
     .orientation = MHA_ORIENTATION_AUTO,
     .names = {{"c_attn.weight", MHA_W_Q, true},
               {"c_attn.bias", MHA_B_Q, true},
               {"c_proj.weight", MHA_W_O, false},
               {"c_proj.bias", MHA_B_O, false}},
     .others = {"bias", "masked_bias"}}, /* the causal mask and its fill: buffers */
    {.name = "LLaMA", /* also Mistral, Qwen2 and Gemma; with q/k norm Qwen3 and OLMo 2; with sinks gpt-oss */
     .orientation = MHA_ORIENTATION_OUT_IN,
     .names = {{"q_proj.weight", MHA_W_Q, false},
               {"q_proj.bias", MHA_B_Q, false},
               {"k_proj.weight", MHA_W_K, false},
               {"k_proj.bias", MHA_B_K, false},
               {"v_proj.weight", MHA_W_V, false},
               {"v_proj.bias", MHA_B_V, false},
               {"o_proj.weight", MHA_W_O, false},
               {"o_proj.bias", MHA_B_O, false},
               {"q_norm.weight", MHA_Q_NORM, false},
               {"k_norm.weight", MHA_K_NORM, false},
               {"sinks", MHA_SINKS, false}},
     .others = {"rotary_emb.inv_freq"}},
    {.name = "BART", /* also OPT, CLIP and Whisper */
     .orientation = MHA_ORIENTATION_OUT_IN,
     .free_widths = true,
     .names = {{"q_proj.weight", MHA_W_Q, false},
               {"q_proj.bias", MHA_B_Q, false},
               {"k_proj.weight", MHA_W_K, false},
               {"k_proj.bias", MHA_B_K, false},
               {"v_proj.weight", MHA_W_V, false},
               {"v_proj.bias", MHA_B_V, false},
               {"out_proj.weight", MHA_W_O, false},
               {"out_proj.bias", MHA_B_O, false}}},
    {.name = "LLaMA (Meta)",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .names = {{"wq.weight", MHA_W_Q, false},
               {"wq.bias", MHA_B_Q, false},
               {"wk.weight", MHA_W_K, false},
               {"wk.bias", MHA_B_K, false},
               {"wv.weight", MHA_W_V, false},
               {"wv.bias", MHA_B_V, false},
               {"wo.weight", MHA_W_O, false},
               {"wo.bias", MHA_B_O, false}},
     .others = {"inner_attention.rope.freqs"}},
    {.name = "GGUF",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .scope = "attn_", /* the prefix is the whole block's */
     .names = {{"attn_q.weight", MHA_W_Q, false},
               {"attn_q.bias", MHA_B_Q, false},
               {"attn_k.weight", MHA_W_K, false},
               {"attn_k.bias", MHA_B_K, false},
               {"attn_v.weight", MHA_W_V, false},
               {"attn_v.bias", MHA_B_V, false},
               {"attn_output.weight", MHA_W_O, false},
               {"attn_output.bias", MHA_B_O, false},
               {"attn_q_norm.weight", MHA_Q_NORM, false},
               {"attn_k_norm.weight", MHA_K_NORM, false},
               {"attn_sinks.weight", MHA_SINKS, false}},
     .others = {"attn_norm.weight", "attn_norm.bias", "attn_post_norm.weight", "attn_rot_embd"}},
    {.name = "GGUF (fused)",
     .orientation = MHA_ORIENTATION_OUT_IN,
     .scope = "attn_", /* the prefix is the whole block's */
     .names = {{"attn_qkv.weight", MHA_W_Q, true},
               {"attn_qkv.bias", MHA_B_Q, true},
               {"attn_output.weight", MHA_W_O, false},
               {"attn_output.bias", MHA_B_O, false}},
     .others = {"attn_norm.weight", "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias"}},
};

const mha__scheme *mha__scheme_at(size_t index)
{
    return index < sizeof schemes / sizeof *schemes ? &schemes[index] : NULL;
}

const char *mha_model_scheme(size_t index)
{
    const mha__scheme *scheme = mha__scheme_at(index);
    return scheme ? scheme->name : NULL;
}

const mha_file_tensor *mha__layer_tensor(const mha_file *file, const mha__layer_place *place, const char *name)
{
    char full[512];
    int length = snprintf(full, sizeof full, "%.*s%s", (int)place->prefix_length, place->tensor->name, name);
    return length >= 0 && (size_t)length < sizeof full ? mha_file_find(file, full) : NULL;
}

/* Bytes of `name` before `suffix`: where the name ends in it, at its start or behind a dot. */
static bool prefix_before(const char *name, const char *suffix, size_t *length)
{
    size_t n = strlen(name), s = strlen(suffix);
    if (n < s || strcmp(name + n - s, suffix) != 0 || (n > s && name[n - s - 1] != '.'))
        return false;
    *length = n - s;
    return *length < sizeof((mha_found_layer *)0)->prefix;
}

/* A layer is met once, at the first of its query, key and value matrices that the file has. */
static bool is_first(const mha_file *file, const mha__layer_place *place, mha_weight weight)
{
    for (size_t i = 0; mha__scheme_has(place->scheme, i); i++) {
        const mha__name *name = &place->scheme->names[i];
        if (mha__weight_is_matrix(name->weight) && name->weight < weight && mha__layer_tensor(file, place, name->name))
            return false;
    }
    return true;
}

static size_t missing_matrices(const mha_file *file, const mha__layer_place *place)
{
    size_t missing = 0;
    for (size_t i = 0; mha__scheme_has(place->scheme, i); i++)
        if (mha__weight_is_matrix(place->scheme->names[i].weight))
            missing += !mha__layer_tensor(file, place, place->scheme->names[i].name);
    return missing;
}

/* One tensor can look like part of several schemes ("attention.self.query.weight" ends in ALBERT's
 * "query.weight"): the scheme that misses least wins, then the longer name. */
static bool best_scheme(const mha_file *file, const mha_file_tensor *tensor, mha__layer_place *best)
{
    size_t best_missing = SIZE_MAX;
    *best = (mha__layer_place){0};
    for (const mha__scheme *scheme = schemes; scheme < schemes + sizeof schemes / sizeof *schemes; scheme++)
        for (size_t i = 0; mha__scheme_has(scheme, i); i++) {
            const mha__name *name = &scheme->names[i];
            mha__layer_place place = {scheme, tensor, 0};
            if (!mha__weight_is_matrix(name->weight) || name->weight == MHA_W_O ||
                !prefix_before(tensor->name, name->name, &place.prefix_length))
                continue;
            size_t missing = missing_matrices(file, &place);
            if (missing > best_missing || (missing == best_missing && place.prefix_length >= best->prefix_length))
                continue;
            best_missing = missing;
            *best = place;
        }
    return best_missing != SIZE_MAX;
}

bool mha__layer_next(const mha_file *file, size_t *index, mha__layer_place *place)
{
    for (const mha_file_tensor *tensor; (tensor = mha_file_at(file, *index)); ++*index) {
        if (!best_scheme(file, tensor, place))
            continue;
        for (size_t i = 0; mha__scheme_has(place->scheme, i); i++) {
            const mha__name *name = &place->scheme->names[i];
            if (strcmp(tensor->name + place->prefix_length, name->name) == 0 && is_first(file, place, name->weight)) {
                ++*index;
                return true;
            }
        }
    }
    return false;
}

const mha__name *mha__layer_member(const mha_file *file, const mha_file_tensor *tensor)
{
    const mha__name *member = NULL;
    size_t shortest = SIZE_MAX; /* the prefix: a longer name says more */
    for (const mha__scheme *scheme = schemes; scheme < schemes + sizeof schemes / sizeof *schemes; scheme++)
        for (size_t i = 0; mha__scheme_has(scheme, i); i++) {
            mha__layer_place place = {scheme, tensor, 0};
            if (prefix_before(tensor->name, scheme->names[i].name, &place.prefix_length) &&
                place.prefix_length < shortest && missing_matrices(file, &place) == 0) {
                shortest = place.prefix_length;
                member = &scheme->names[i];
            }
        }
    return member;
}

size_t mha_model_find_layers(const mha_file *file, mha_found_layer *layers, size_t capacity)
{
    size_t count = 0;
    mha__layer_place place;
    for (size_t index = 0; mha__layer_next(file, &index, &place); count++)
        if (count < capacity) {
            size_t length = place.prefix_length > 0 ? place.prefix_length - 1 : 0;
            mha__text_print(layers[count].prefix, sizeof layers[count].prefix, "%.*s", (int)length, place.tensor->name);
            layers[count].scheme = place.scheme->name;
        }
    return count;
}
