/* ViT: an encoder over image patches and a class token. */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

static const mha__arch_key keys[] = {
    {"d_model", "hidden_size", "768"},
    {"L", "num_hidden_layers", "12"},
    {"h", "num_attention_heads", "12"},
    {"d_ff", "intermediate_size", "3072"},
    {"image", "image_size", "224"},
    {"patch", "patch_size", "16"},
    {"channels", "num_channels", "3"},
    {"bias_q", "qkv_bias", "1"},
    {"labels", "id2label num_labels", "2", .matters = "classifier"},
    {"bias_k", NULL, "bias_q"}, {"bias_v", NULL, "bias_q"}, {"bias_o", NULL, "1"},
    {"patches", NULL, "(image/patch)^2"},
    {"h_kv", NULL, "h"},
    {"d_k", NULL, "d_model/h"},
    {0}};

static const mha__arch_class classes[] = {
    {"ViTForImageClassification", "classifier"},
    {"ViTModel", "pooler"},
    {0}};

#define LAYER "vit.encoder.layer.{i}."

static const mha__arch_tensor tensors[] = {
    {NULL, "vit.embeddings.cls_token", "1, 1, d_model", MHA_GROUP_EMBEDDING, "class token"},
    {NULL, "vit.embeddings.position_embeddings", "1, patches+1, d_model", MHA_GROUP_EMBEDDING, "positions"},
    {NULL, "vit.embeddings.patch_embeddings.projection.weight", "d_model, channels, patch, patch", MHA_GROUP_EMBEDDING,
     "patches"},
    {NULL, "vit.embeddings.patch_embeddings.projection.bias", "d_model", MHA_GROUP_EMBEDDING, "patches"},
    {"L", LAYER "layernorm_before.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", LAYER "layernorm_before.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", LAYER "attention.attention.query.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_Q"},
    {"L", LAYER "attention.attention.query.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_Q", .when = "bias_q"},
    {"L", LAYER "attention.attention.key.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_K"},
    {"L", LAYER "attention.attention.key.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_K", .when = "bias_k"},
    {"L", LAYER "attention.attention.value.weight", "h*d_k, d_model", MHA_GROUP_ATTENTION, "W_V"},
    {"L", LAYER "attention.attention.value.bias", "h*d_k", MHA_GROUP_ATTENTION, "b_V", .when = "bias_v"},
    {"L", LAYER "attention.output.dense.weight", "d_model, h*d_k", MHA_GROUP_ATTENTION, "W_O"},
    {"L", LAYER "attention.output.dense.bias", "d_model", MHA_GROUP_ATTENTION, "b_O"},
    {"L", LAYER "layernorm_after.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", LAYER "layernorm_after.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {"L", LAYER "intermediate.dense.weight", "d_ff, d_model", MHA_GROUP_FFN, "W_1"},
    {"L", LAYER "intermediate.dense.bias", "d_ff", MHA_GROUP_FFN, "b_1"},
    {"L", LAYER "output.dense.weight", "d_model, d_ff", MHA_GROUP_FFN, "W_2"},
    {"L", LAYER "output.dense.bias", "d_model", MHA_GROUP_FFN, "b_2"},
    {NULL, "vit.layernorm.weight", "d_model", MHA_GROUP_NORM, "norm"},
    {NULL, "vit.layernorm.bias", "d_model", MHA_GROUP_NORM, "norm"},
    {NULL, "vit.pooler.dense.weight", "d_model, d_model", MHA_GROUP_HEAD, "pooler", .when = "pooler"},
    {NULL, "vit.pooler.dense.bias", "d_model", MHA_GROUP_HEAD, "pooler", .when = "pooler"},
    {NULL, "classifier.weight", "labels, d_model", MHA_GROUP_HEAD, "classifier", .when = "classifier"},
    {NULL, "classifier.bias", "labels", MHA_GROUP_HEAD, "classifier", .when = "classifier"},
    {0}};

static const mha__arch_attention attention[] = {{"L", "vit.encoder.layer.{i}.attention"}, {0}};

const mha__architecture mha__arch_vit = {
    .model_types = "vit", .title = "ViT", .base_prefix = "vit.", .keys = keys, .classes = classes, .tensors = tensors,
    .attention = attention};
