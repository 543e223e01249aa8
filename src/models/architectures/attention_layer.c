/* One attention layer alone, as PyTorch's nn.MultiheadAttention saves it. */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

static const mha__arch_key keys[] = {
    {"d_model", "d_model hidden_size embed_dim", "512"},
    {"h", "num_attention_heads num_heads", "8"},
    {"bias_q", "bias", "1"},
    {"causal", "causal is_decoder", "0"},
    {"bias_k", NULL, "bias_q"}, {"bias_v", NULL, "bias_q"}, {"bias_o", NULL, "bias_q"},
    {"h_kv", NULL, "h"},
    {"d_k", NULL, "d_model/h"},
    {0}};

static const mha__arch_class classes[] = {{"MultiheadAttention", ""}, {0}};

static const mha__arch_tensor tensors[] = {
    {NULL, "in_proj_weight", "3*d_model, d_model", MHA_GROUP_ATTENTION, "W_QKV"},
    {NULL, "in_proj_bias", "3*d_model", MHA_GROUP_ATTENTION, "b_QKV", .when = "bias_q"},
    {NULL, "out_proj.weight", "d_model, d_model", MHA_GROUP_ATTENTION, "W_O"},
    {NULL, "out_proj.bias", "d_model", MHA_GROUP_ATTENTION, "b_O", .when = "bias_o"},
    {0}};

static const mha__arch_attention attention[] = {{NULL, ""}, {0}};

const mha__architecture mha__arch_attention_layer = {
    .model_types = "multihead_attention", .title = "nn.MultiheadAttention", .base_prefix = "", .keys = keys,
    .classes = classes, .tensors = tensors, .attention = attention};
