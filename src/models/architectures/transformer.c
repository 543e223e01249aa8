/* The original Transformer (Vaswani et al. 2017), with the tensors of Tensor2Tensor. */
#include "models/architecture.h"

/* Rows of the tables leave out their last columns where these are empty. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */

static const mha__arch_key keys[] = {
    {"V", "vocab_size", "37000"},
    {"d_model", "d_model hidden_size", "512"},
    {"L", "num_hidden_layers", "6"},
    {"M", "num_decoder_layers", "L"},
    {"h", "num_attention_heads num_heads", "8"},
    {"d_k", "d_k", "d_model/h"},
    {"d_v", "d_v", "d_k"},
    {"d_ff", "d_ff filter_size", "2048"},
    {"h_kv", NULL, "h"},
    {0}};

static const mha__arch_class classes[] = {{"Transformer", ""}, {0}};

#define ATTENTION(blocks, layer)                                                                                       \
    {blocks, layer ".q.kernel", "d_model, h*d_k", MHA_GROUP_ATTENTION, "W_Q"},                                         \
    {blocks, layer ".k.kernel", "d_model, h*d_k", MHA_GROUP_ATTENTION, "W_K"},                                         \
    {blocks, layer ".v.kernel", "d_model, h*d_v", MHA_GROUP_ATTENTION, "W_V"},                                         \
    {blocks, layer ".output_transform.kernel", "h*d_v, d_model", MHA_GROUP_ATTENTION, "W_O"}

#define FEED_FORWARD(blocks, block)                                                                                    \
    {blocks, block ".conv1.kernel", "d_model, d_ff", MHA_GROUP_FFN, "W_1"},                                            \
    {blocks, block ".conv1.bias", "d_ff", MHA_GROUP_FFN, "b_1"},                                                       \
    {blocks, block ".conv2.kernel", "d_ff, d_model", MHA_GROUP_FFN, "W_2"},                                            \
    {blocks, block ".conv2.bias", "d_model", MHA_GROUP_FFN, "b_2"}

#define NORM(blocks, sublayer)                                                                                         \
    {blocks, sublayer ".ln.scale", "d_model", MHA_GROUP_NORM, "norm"},                                                 \
    {blocks, sublayer ".ln.bias", "d_model", MHA_GROUP_NORM, "norm"}

static const mha__arch_tensor tensors[] = {
    {NULL, "shared_embedding", "V, d_model", MHA_GROUP_EMBEDDING, "tokens"}, /* source, target and softmax */
    ATTENTION("L", "enc.{i}.self"),
    NORM("L", "enc.{i}.1"),
    FEED_FORWARD("L", "enc.{i}"),
    NORM("L", "enc.{i}.2"),
    ATTENTION("M", "dec.{i}.self"),
    NORM("M", "dec.{i}.1"),
    ATTENTION("M", "dec.{i}.cross"),
    NORM("M", "dec.{i}.2"),
    FEED_FORWARD("M", "dec.{i}"),
    NORM("M", "dec.{i}.3"),
    {0}};

static const mha__arch_attention attention[] = {
    {"L", "enc.{i}.self"}, {"M", "dec.{i}.self", .causal = "1"}, {"M", "dec.{i}.cross"}, {0}};

const mha__architecture mha__arch_transformer = {
    .model_types = "transformer", .title = "Transformer", .base_prefix = "", .keys = keys, .classes = classes,
    .tensors = tensors, .attention = attention};
